"""Starting a worker process. `start` is the door: it gathers what a launch needs, has `launcher`
write the worker's folder, and `machine` start the process. `node`, `machine` and `worker_process`
are shared with other rooms; the rest are steps of a launch. May import `confine`, `blobs` and
`records`.
"""
