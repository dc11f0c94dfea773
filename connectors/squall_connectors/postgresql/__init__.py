"""PostgreSQL: `PostgresqlSink` and `TransactionalPostgresqlSink`, `PostgresqlLookup`,
`PostgresqlQueueSpout`, which reads a table of events, and `PostgresqlChangesSpout`, which reads
what happens to tables. Needs `squall[postgresql]` (psycopg 3).

    builder.bolt("store", PostgresqlSink(DSN, "prices", ["sku", "price"], key=["sku"])).shuffle(...)
"""

from squall_connectors.postgresql.changes import PostgresqlChangesSpout
from squall_connectors.postgresql.lookup import PostgresqlLookup
from squall_connectors.postgresql.queue import PostgresqlQueueSpout
from squall_connectors.postgresql.sink import PostgresqlSink
from squall_connectors.postgresql.transactional import TransactionalPostgresqlSink

__all__ = [
    "PostgresqlChangesSpout",
    "PostgresqlLookup",
    "PostgresqlQueueSpout",
    "PostgresqlSink",
    "TransactionalPostgresqlSink",
]
