"""A table and the columns that a sink writes, as statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg import sql


class TargetTable:
    """Writes rows of these columns: with `key`, a row replaces that of its key (or, with
    `keep_first`, the first stays); without, rows are copied in (COPY)."""

    def __init__(
        self, table: str, columns: Sequence[str], key: Sequence[str], *, keep_first: bool = False
    ) -> None:
        """`table` may be `schema.table`."""
        self._has_key = bool(key)
        name = sql.Identifier(*table.split("."))
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        others = [column for column in columns if column not in key]
        on_conflict: sql.Composable = sql.SQL("DO NOTHING")
        if others and not keep_first:
            changes = [
                sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(column)) for column in others
            ]
            on_conflict = sql.SQL("DO UPDATE SET {}").format(sql.SQL(", ").join(changes))
        self._copy = sql.SQL("COPY {} ({}) FROM STDIN").format(name, names)
        self._upsert = sql.SQL("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT ({}) {}").format(
            name,
            names,
            sql.SQL(", ").join([sql.Placeholder()] * len(columns)),
            sql.SQL(", ").join(map(sql.Identifier, key)),
            on_conflict,
        )

    async def write(self, cursor: psycopg.AsyncCursor[Any], rows: Sequence[Sequence[Any]]) -> None:
        """Write rows in the cursor's transaction."""
        if self._has_key:
            await cursor.executemany(self._upsert, rows)
            return
        async with cursor.copy(self._copy) as copy:
            for row in rows:
                await copy.write_row(row)
