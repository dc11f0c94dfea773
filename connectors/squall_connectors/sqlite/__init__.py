"""SQLite, for teams whose data fit on one machine: `SqliteSink` and `SqliteLookup`, and
`TransactionalSqliteSink` for topologies with checkpoints. Needs nothing
beyond Python.

The tasks must all run where the file is: one worker, or workers on one node. Several tasks may
write; SQLite lets one at a time.
"""

from squall_connectors.sqlite.lookup import SqliteLookup
from squall_connectors.sqlite.sink import SqliteSink
from squall_connectors.sqlite.transactional import TransactionalSqliteSink

__all__ = ["SqliteLookup", "SqliteSink", "TransactionalSqliteSink"]
