"""State of bolts that is stored: `keys` knows under which key a bolt is called, `stored_task`
flushes the state of a task and acks after that, `stores` chooses where it goes, `task_states` has
the stateful tasks of a worker. May import `core`, `tasks`, `loading`, `options` and `plan`.
"""
