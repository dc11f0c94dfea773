"""How a slow consumer pauses its producers: `credit` bounds what is on its way to a task, `inbox`
and `memory_size` bound what waits there, `blocked_tasks` says which tasks are blocked. Pure
decisions. May import `core` and `transport`.
"""
