"""State of bolts that is stored: `keys` knows under which key a bolt is called, `stored_task`
flushes the state of a task and acks after that, `backends` chooses where it is meanwhile, `stores`
where it goes, `task_states` has
the stateful tasks of a worker. May import `core`, `tasks`, `loading`, `options` and `plan`.
"""
