"""The kinds of task: what runs one spout or bolt, on the loop, as a coroutine or on a thread.

`bolt` and `spout` have the tasks that run on the loop, `async_` and `thread` the others; `base` is
what all of them have. `in_hand` records what a task is working on. May import `core`,
`hooks` and `backpressure`.
"""
