"""`TransactionalPostgresqlSink`: tuples as rows, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from squall import RowBatch, TransactionalSink, Tuple
from squall_connectors.base.columns import columns_of
from squall_connectors.postgresql import connection as connections
from squall_connectors.postgresql.table import TargetTable

_EXISTS = "SELECT to_regclass('squall_applied')"
# Two tasks that create a table at the same time fail without the lock.
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('squall_applied'))"
_CREATE = (
    "CREATE TABLE IF NOT EXISTS squall_applied (writer text PRIMARY KEY, epoch bigint NOT NULL)"
)
# Waits for another transaction of the same writer, such as one of a process that was given up, and
# answers with a row if the batch is not written yet.
_NOTE = (
    "INSERT INTO squall_applied AS applied VALUES (%s, %s) ON CONFLICT (writer) "
    "DO UPDATE SET epoch = EXCLUDED.epoch WHERE applied.epoch < EXCLUDED.epoch RETURNING epoch"
)


class TransactionalPostgresqlSink(TransactionalSink):
    """Writes the rows of each checkpoint in one transaction:

        TransactionalPostgresqlSink("postgresql://db/shop", "totals", ["word", "count"])

    The same transaction notes in the table `squall_applied` of the same database up to which
    checkpoint the rows of each task are there, so they are written once, whatever ends in between:
    the process, the server or the connection. The sink creates that table if it is missing. With
    `key`, columns with a unique index, a row replaces that of its key; without it rows are copied
    in (COPY).

    While the server is away, rows wait and are part of each checkpoint. A row that the server
    refuses (a constraint, a value of the wrong type) holds up its task's later rows as well, and is
    reported with each try: check in a bolt before what the table demands.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        fields: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        key: Sequence[str] = (),
        create: str | None = None,
        write_timeout_secs: float = 60.0,
    ) -> None:
        """`fields` of the tuples are written to `columns` (None: of the same names) of `table`,
        which may be `schema.table`. `create` is executed before the first write of a task. A
        transaction that takes longer than `write_timeout_secs` is ended and tried again. Raises
        InvalidTopologyError if the numbers of fields and columns differ, or `key` names another
        column."""
        names = columns_of("TransactionalPostgresqlSink", fields, columns, key)
        self._dsn = dsn
        self._fields = list(fields)
        self._table = TargetTable(table, names, key)
        self._create = create
        self._timeout_secs = write_timeout_secs
        self._is_created = False

    def row(self, tup: Tuple) -> Any:
        return [tup[field] for field in self._fields]

    def commit(self, batches: Sequence[RowBatch]) -> None:
        asyncio.run(self._commit(batches))

    async def _commit(self, batches: Sequence[RowBatch]) -> None:
        connection = None
        try:
            async with asyncio.timeout(self._timeout_secs):
                connection = await connections.connect(self._dsn)
                if not self._is_created:
                    await self._create_tables(connection)
                    self._is_created = True
                async with connection.transaction(), connection.cursor() as cursor:
                    for batch in batches:
                        await cursor.execute(_NOTE, (batch.writer, batch.epoch))
                        if await cursor.fetchone() is not None:
                            await self._table.write(cursor, batch.rows)
        except TimeoutError:
            raise TimeoutError(
                f"PostgreSQL has not committed in {self._timeout_secs:g} s (write_timeout_secs)"
            ) from None
        finally:
            await connections.end(connection)

    async def _create_tables(self, connection: Any) -> None:
        async with connection.transaction(), connection.cursor() as cursor:
            await cursor.execute(_LOCK)
            await cursor.execute(_EXISTS)
            (found,) = await cursor.fetchone()
            if found is None:  # else no right to create tables is needed
                await cursor.execute(_CREATE)
            if self._create is not None:
                await cursor.execute(self._create)
