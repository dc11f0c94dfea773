"""The way of tuples through a worker: `outgoing` says which edges lead where, `flow` moves batches
from task to task, `remote` to and from other workers. May import `tasks`, `backpressure`, `core`,
`plan` and `transport`.
"""
