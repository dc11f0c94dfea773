"""The kinds of task: what runs one spout or bolt, on the loop, as a coroutine or on a thread.

`base` has the tasks that run on the loop, `async_` and `thread` the others. `in_hand` records what
a task is working on. May import `core` and `backpressure`.
"""
