"""The kinds of task: what runs one spout or bolt, on the loop, as a coroutine or on a thread.

`base` has the tasks that run on the loop, `async_` and `thread` the others, `in_hand` what a task
works on at this moment. May import `core` and `backpressure`.
"""
