"""`PostgresqlSink`: tuples as rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from squall import TopologyContext, Tuple
from squall_connectors.base.columns import columns_of
from squall_connectors.base.sink import Sink
from squall_connectors.postgresql import connection as connections
from squall_connectors.postgresql.table import TargetTable


class PostgresqlSink(Sink):
    """Writes each batch in one transaction, and acks it when the server has committed.

        PostgresqlSink("postgresql://db/shop", "prices", ["sku", "price"], key=["sku"])

    With `key`, columns with a unique index, a row whose key is there already replaces the row: a
    tuple that is replayed changes nothing, and the last of a key wins. Without it, rows are copied
    in (COPY), the fastest way; a replayed tuple becomes a second row.

    A row that the server refuses (a constraint, a value of the wrong type) goes to dead letters as
    described in `Sink`; the others of its batch are written.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        fields: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        key: Sequence[str] = (),
        keep_first: bool = False,
        batch_records: int = 1_000,
        batch_secs: float = 0.05,
        write_timeout_secs: float = 30.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """`fields` of the tuples are written to `columns` (None: of the same names) of `table`,
        which may be `schema.table`. With `keep_first` the first row of a `key` stays, instead of
        the last. The others are those of `Sink`. Raises InvalidTopologyError if the numbers of
        fields and columns differ, or `key` names another column."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        self._dsn = dsn
        self.server_shown = connections.shown_server(dsn)
        names = columns_of("PostgresqlSink", fields, columns, key)
        self._fields = list(fields)
        self._target = TargetTable(table, names, key, keep_first=keep_first)

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: psycopg.AsyncConnection[Any] | None = None
        await super().prepare(conf, context)

    def is_outage(self, error: BaseException) -> bool:
        return connections.is_outage(error) or super().is_outage(error)

    async def connect(self) -> None:
        self._connection = await connections.connect(self._dsn)

    async def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        await connections.end(connection)

    async def write(self, tuples: Sequence[Tuple]) -> None:
        connection = self._connection
        assert connection is not None
        rows = [[tup[field] for field in self._fields] for tup in tuples]
        async with connection.transaction(), connection.cursor() as cursor:
            await self._target.write(cursor, rows)
