"""`SqliteLookup`: tuples with what a query finds for them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from squall import Bolt, TopologyContext, Tuple
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.cache import Cache


class SqliteLookup(Bolt):
    """Runs a query for each tuple, on a thread of the task's own, and emits the tuple's `keep`
    fields followed by each row that it finds:

        SqliteLookup(
            "/var/lib/shop/shop.db", "SELECT name FROM items WHERE sku = ?", ["sku"],
            outputs=["order", "name"], keep=["order"],
        )

    The database is opened for reading only. Answers are kept for `cache_secs`.
    """

    blocking = True

    def __init__(
        self,
        path: str | Path,
        query: str,
        fields: Sequence[str],
        *,
        outputs: Sequence[str],
        keep: Sequence[str] = (),
        outer: bool = False,
        cache_secs: float = 10.0,
        cache_size: int = 10_000,
    ) -> None:
        """`fields` of the tuple are the query's parameters. With `outer`, a tuple for which there
        is no row is emitted with None for the row's fields; without, it is dropped. Raises
        InvalidTopologyError if `outputs` does not begin with `keep`."""
        if list(outputs)[: len(keep)] != list(keep) or len(outputs) == len(keep):
            raise InvalidTopologyError(
                f"SqliteLookup: outputs {list(outputs)} must be the fields kept, "
                f"{list(keep)}, and then those of the rows"
            )
        self.outputs = list(outputs)
        self._width = len(self.outputs)
        self._path, self._query = Path(path), query
        self._fields, self._keep, self._outer = list(fields), list(keep), outer
        self._cache_secs, self._cache_size = cache_secs, cache_size

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._cache: Cache[list[Any]] = Cache(self._cache_secs, self._cache_size)
        self._connection = sqlite3.connect(
            f"file:{self._path.absolute()}?mode=ro", uri=True, check_same_thread=False
        )

    def execute(self, tup: Tuple) -> None:
        parameters = tuple(tup[field] for field in self._fields)
        rows = self._cache.get(parameters)
        if rows is None:
            rows = self._connection.execute(self._query, parameters).fetchall()
            self._cache.put(parameters, rows)
        kept = [tup[field] for field in self._keep]
        if not rows and self._outer:
            rows = [[None] * (self._width - len(kept))]
        for row in rows:
            self.emit([*kept, *row])

    def cleanup(self) -> None:
        self._connection.close()
