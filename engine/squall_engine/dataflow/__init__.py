"""The path of tuples through a worker: `outgoing` says where each edge leads, `flow` moves batches
from task to task, `remote` moves them to and from other workers. May import `tasks`,
`backpressure`, `core`, `plan` and `transport`.
"""
