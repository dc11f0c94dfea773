"""`PostgresqlQueueSpout`: rows of a table that other programs insert."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import psycopg
from psycopg import sql

from squall import Stream, TopologyContext
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.postgresql import connection as connections


class PostgresqlQueueSpout(AsyncSource):
    """Reads a table whose rows are messages, and deletes each row once its tuple tree is done:

        CREATE TABLE orders (
            id bigserial PRIMARY KEY, body text, leased_until timestamptz
        );

        PostgresqlQueueSpout("postgresql://db/shop", "orders", ["body"], channel="orders")

    Rows are read in the order of their ids. A row in flight is leased for `lease_secs`, again and
    again while it is in flight: so several tasks share a table, and the rows of a task that is lost
    are read by others when its leases have run out. A graceful stop returns them at once.

    With `channel`, a NOTIFY of that name makes it look at once; it looks every `poll_secs` anyway.
    The message id is the row's id.
    """

    def __init__(
        self,
        dsn: str,
        table: str,
        columns: Sequence[str],
        *,
        id_column: str = "id",
        lease_column: str = "leased_until",
        lease_secs: float = 30.0,
        channel: str | None = None,
        poll_secs: float = 0.5,
        in_flight_max: int = 1_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """The tuples have the values of `columns`. `id_column` is the primary key. The others are
        those of `Source`."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        self.outputs = {"default": Stream(list(columns))}
        self._dsn, self._table, self._columns = dsn, table, list(columns)
        self.server_shown = connections.shown_server(dsn)
        self._id_column, self._lease_column = id_column, lease_column
        self._lease_secs, self._channel, self._poll_secs = lease_secs, channel, poll_secs

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._listener: psycopg.AsyncConnection[Any] | None = None
        self._leased: set[Hashable] = set()
        names = {
            "table": sql.Identifier(*self._table.split(".")),
            "id": sql.Identifier(self._id_column),
            "lease": sql.Identifier(self._lease_column),
            "columns": sql.SQL(", ").join(map(sql.Identifier, self._columns)),
            "until": sql.SQL("now() + make_interval(secs => {})").format(self._lease_secs),
        }
        self._take = sql.SQL(
            "WITH free AS (SELECT {id} FROM {table} WHERE {lease} IS NULL OR {lease} < now() "
            "ORDER BY {id} LIMIT %s FOR UPDATE SKIP LOCKED), "
            "taken AS (UPDATE {table} SET {lease} = {until} "
            "WHERE {id} IN (SELECT {id} FROM free) RETURNING {id}, {columns}) "
            "SELECT * FROM taken ORDER BY {id}"
        ).format(**names)
        self._renew = sql.SQL("UPDATE {table} SET {lease} = {until} WHERE {id} = ANY(%s)").format(
            **names
        )
        self._return = sql.SQL("UPDATE {table} SET {lease} = NULL WHERE {id} = ANY(%s)").format(
            **names
        )
        self._delete = sql.SQL("DELETE FROM {table} WHERE {id} = ANY(%s)").format(**names)
        self._count = sql.SQL("SELECT count(*) FROM {table}").format(**names)
        await super().open(conf, context)

    async def connect(self) -> None:
        self._connection = await connections.connect(self._dsn, autocommit=True)
        if self._channel is not None:
            self._listener = await connections.connect(self._dsn, autocommit=True)
            await self._listener.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._channel)))

    async def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        listener, self._listener = self._listener, None
        await connections.end(listener)
        await connections.end(connection)

    async def close(self) -> None:
        await super().close()
        if self._leased:
            connection = await connections.connect(self._dsn, autocommit=True)
            async with connection:
                await connection.execute(self._return, [list(self._leased)])

    async def fetch(self, limit: int) -> Sequence[Record]:
        rows = await self._rows(self._take, [limit])
        if not rows:
            if self._listener is None:
                await asyncio.sleep(self._poll_secs)
            else:
                async for _ in self._listener.notifies(timeout=self._poll_secs, stop_after=1):
                    pass
        self._leased.update(row[0] for row in rows)
        return [(row[0], list(row[1:])) for row in rows]

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        await self._execute(self._delete, list(message_ids))
        self._leased.difference_update(message_ids)

    async def keep(self) -> None:
        await self._execute(self._renew, list(self._leased))

    @property
    def keep_secs(self) -> float:
        return self._lease_secs / 3

    async def measure_lag(self) -> int | None:
        return int((await self._rows(self._count, []))[0][0])

    async def _rows(self, query: sql.Composed, parameters: list[Any]) -> list[tuple[Any, ...]]:
        assert self._connection is not None
        async with asyncio.timeout(30):
            cursor = await self._connection.execute(query, parameters)
            return await cursor.fetchall()

    async def _execute(self, query: sql.Composed, ids: list[Hashable]) -> None:
        assert self._connection is not None
        async with asyncio.timeout(30):
            await self._connection.execute(query, [ids])
