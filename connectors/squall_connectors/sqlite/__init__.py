"""SQLite, for teams whose data fit on one machine: `SqliteSink` and `SqliteLookup`. Needs nothing
beyond Python.

The tasks must all run where the file is: one worker, or workers on one node. Several tasks may
write; SQLite lets one at a time.
"""

from squall_connectors.sqlite.lookup import SqliteLookup
from squall_connectors.sqlite.sink import SqliteSink

__all__ = ["SqliteLookup", "SqliteSink"]
