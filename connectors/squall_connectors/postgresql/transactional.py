"""`TransactionalPostgresqlSink`: tuples as rows, exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from psycopg import sql

from squall import RowBatch, TransactionalSink, Tuple
from squall_connectors.base import refused
from squall_connectors.base.columns import columns_of
from squall_connectors.base.refused import REFUSED_COLUMNS, REFUSED_MAX, Refused
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
_EXISTS_NAMED = "SELECT to_regclass(%s)"
_CREATE_ASIDE = sql.SQL(
    "CREATE TABLE IF NOT EXISTS {} (writer text, epoch bigint, position integer, target text, "
    "fields text, reason text, PRIMARY KEY (writer, epoch, position))"
)
_Found = list[tuple[RowBatch, Refused]]


class TransactionalPostgresqlSink(TransactionalSink):
    """Writes the rows of each checkpoint in one transaction:

        TransactionalPostgresqlSink("postgresql://db/shop", "totals", ["word", "count"])

    The same transaction notes in the table `squall_applied` of the same database up to which
    checkpoint the rows of each task are there, so they are written once, whatever ends in between:
    the process, the server or the connection. The sink creates that table if it is missing. With
    `key`, columns with a unique index, a row replaces that of its key; without it rows are copied
    in (COPY).

    While the server is away, rows wait and are part of each checkpoint. A row that the server
    refuses (a constraint, a value of the wrong type) holds up its task, and the error names it.
    With `refused_table` it is written there, in the same transaction, with its fields as JSON and
    the reason, and the others are written.
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
        refused_table: str | None = None,
    ) -> None:
        """`fields` of the tuples are written to `columns` (None: of the same names) of `table`,
        which may be `schema.table`. `create` is executed before the first write of a task. A
        transaction that takes longer than `write_timeout_secs` is ended and tried again. Rows that
        `table` refuses go to `refused_table`, which is created if it is missing; None: they hold up
        their task. Raises InvalidTopologyError if the numbers of fields and columns differ, `key`
        names another column, or `refused_table` is `table`."""
        names = columns_of("TransactionalPostgresqlSink", fields, columns, key)
        self._dsn = dsn
        self._fields = list(fields)
        self._table = table
        self._target = TargetTable(table, names, key)
        self._aside = refused.checked_table(type(self).__name__, table, refused_table)
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
                found = await self._write(connection, batches)
        except TimeoutError:
            raise TimeoutError(
                f"PostgreSQL has not committed in {self._timeout_secs:g} s (write_timeout_secs)"
            ) from None
        finally:
            await connections.end(connection)
        if found:
            assert self._aside is not None
            self.report_error(
                refused.put_aside_error(found, self._table, self._aside, self._fields)
            )

    async def _write(self, connection: Any, batches: Sequence[RowBatch]) -> _Found:
        """Write the batches. Returns the rows that are refused, which were put aside."""
        try:
            return await self._transact(connection, batches, searching=False)
        except Exception as error:
            if not connections.is_refusal(error):
                raise
        return await self._transact(connection, batches, searching=True)

    async def _transact(
        self, connection: Any, batches: Sequence[RowBatch], *, searching: bool
    ) -> _Found:
        """Write the batches in one transaction; `searching` for rows that are refused."""
        found: _Found = []
        async with connection.transaction(), connection.cursor() as cursor:
            for batch in batches:
                await cursor.execute(_NOTE, (batch.writer, batch.epoch))
                if await cursor.fetchone() is None:
                    continue
                if searching:
                    found += await self._write_or_put_aside(cursor, batch, REFUSED_MAX - len(found))
                else:
                    await self._target.write(cursor, batch.rows)
        return found

    async def _write_or_put_aside(self, cursor: Any, batch: RowBatch, refused_max: int) -> _Found:
        """Write a batch without the rows that are refused, and these to their table. Returns them.
        Raises RowRefusedError if there is no such table, or if there are too many of them."""
        found: list[Refused]
        search = refused.search(len(batch.rows), refused_max if self._aside is not None else 1)
        try:
            part = next(search)
            while True:
                rows = batch.rows[part.start : part.end]
                part = search.send(await self._write_part(cursor, rows))
        except StopIteration as end:
            found = end.value
        values = refused.values_to_put_aside(
            batch, found, refused_max, self._table, self._aside, self._fields
        )
        if self._aside is not None and values:
            await cursor.executemany(_insert_into(self._aside), values)
        return [(batch, one) for one in found]

    async def _write_part(self, cursor: Any, rows: Sequence[Any]) -> Exception | None:
        """Write these rows, or none of them. Returns why they are refused."""
        try:
            async with cursor.connection.transaction():  # a savepoint
                await self._target.write(cursor, rows)
        except Exception as error:
            if not connections.is_refusal(error):
                raise
            return error
        return None

    async def _create_tables(self, connection: Any) -> None:
        async with connection.transaction(), connection.cursor() as cursor:
            await cursor.execute(_LOCK)
            await cursor.execute(_EXISTS)
            (found,) = await cursor.fetchone()
            if found is None:  # else no right to create tables is needed
                await cursor.execute(_CREATE)
            if self._create is not None:
                await cursor.execute(self._create)
            if self._aside is not None:
                await cursor.execute(_EXISTS_NAMED, (_identifier(self._aside).as_string(),))
                (found,) = await cursor.fetchone()
                if found is None:
                    await cursor.execute(_CREATE_ASIDE.format(_identifier(self._aside)))


def _identifier(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split("."))


def _insert_into(table: str) -> sql.Composed:
    return sql.SQL("INSERT INTO {} ({}) VALUES ({})").format(
        _identifier(table),
        sql.SQL(", ").join(map(sql.Identifier, REFUSED_COLUMNS)),
        sql.SQL(", ").join([sql.Placeholder()] * len(REFUSED_COLUMNS)),
    )
