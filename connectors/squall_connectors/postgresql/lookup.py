"""`PostgresqlLookup`: tuples with what a query finds for them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from squall import Bolt, TopologyContext, Tuple
from squall.metrics import CountMetric
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.cache import Cache
from squall_connectors.postgresql import connection as connections


class PostgresqlLookup(Bolt):
    """Runs a query for each tuple, and emits the tuple's `keep` fields followed by each row that it
    finds:

        PostgresqlLookup(
            DSN, "SELECT name, city FROM customers WHERE id = %s", ["customer"],
            outputs=["order", "name", "city"], keep=["order"],
        )

    Answers are kept for `cache_secs`. While the server is away, tuples fail and are replayed.
    Metrics: `cache-hits`, `cache-misses`.
    """

    def __init__(
        self,
        dsn: str,
        query: str,
        fields: Sequence[str],
        *,
        outputs: Sequence[str],
        keep: Sequence[str] = (),
        outer: bool = False,
        cache_secs: float = 60.0,
        cache_size: int = 10_000,
        timeout_secs: float = 10.0,
    ) -> None:
        """`fields` of the tuple are the query's parameters. With `outer`, a tuple for which there
        is no row is emitted with None for the row's fields; without, it is dropped. Raises
        InvalidTopologyError if `outputs` does not begin with `keep`."""
        if list(outputs)[: len(keep)] != list(keep) or len(outputs) == len(keep):
            raise InvalidTopologyError(
                f"PostgresqlLookup: outputs {list(outputs)} must be the fields kept, "
                f"{list(keep)}, and then those of the rows"
            )
        self.outputs = list(outputs)
        self._width = len(self.outputs)
        self._dsn, self._query = dsn, query
        self._fields, self._keep = list(fields), list(keep)
        self._outer = outer
        self._cache_secs, self._cache_size = cache_secs, cache_size
        self._timeout_secs = timeout_secs

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._cache: Cache[list[Sequence[Any]]] = Cache(self._cache_secs, self._cache_size)
        self._hits = context.register_metric("cache-hits", CountMetric())
        self._misses = context.register_metric("cache-misses", CountMetric())

    async def execute(self, tup: Tuple) -> None:
        parameters = tuple(tup[field] for field in self._fields)
        rows = self._cache.get(parameters)
        if rows is None:
            async with self._one_at_a_time:
                rows = self._cache.get(parameters)  # another tuple may have asked meanwhile
                if rows is None:
                    self._misses.incr()
                    rows = await self._ask(parameters)
                    self._cache.put(parameters, rows)
        else:
            self._hits.incr()
        kept = [tup[field] for field in self._keep]
        if not rows and self._outer:
            rows = [[None] * (self._width - len(kept))]
        for row in rows:
            self.emit([*kept, *row])

    async def _ask(self, parameters: tuple[Any, ...]) -> list[Sequence[Any]]:
        try:
            async with asyncio.timeout(self._timeout_secs):
                if self._connection is None:
                    self._connection = await connections.connect(self._dsn, autocommit=True)
                cursor = await self._connection.execute(self._query, parameters)
                return await cursor.fetchall()
        except BaseException as error:
            if connections.is_outage(error) or not isinstance(error, psycopg.Error):
                connection, self._connection = self._connection, None
                await connections.end(connection)
            raise

    async def cleanup(self) -> None:
        await connections.end(self._connection)
