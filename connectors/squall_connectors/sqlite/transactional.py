"""`TransactionalSqliteSink`: tuples as rows of a SQLite database, exactly once."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from squall import RowBatch, TopologyContext, TransactionalSink, Tuple
from squall_common.errors import InvalidTopologyError
from squall_connectors.sqlite.sink import quoted

_BUSY_SECS = 30.0  # other tasks write meanwhile
_APPLIED = "squall_applied"


class TransactionalSqliteSink(TransactionalSink):
    """Writes the rows of each checkpoint in one transaction:

        TransactionalSqliteSink("/data/shop.db", "totals", ["word", "count"],
                                create="CREATE TABLE IF NOT EXISTS totals (word TEXT, count INT)")

    The same transaction notes in the table `squall_applied` up to which checkpoint the rows of each
    task are there, so they are written once, also if the process ends in between. With `key`,
    columns with a unique index, a row replaces that of its key.
    """

    def __init__(
        self,
        path: str | Path,
        table: str,
        fields: Sequence[str],
        *,
        columns: Sequence[str] | None = None,
        key: Sequence[str] = (),
        create: str | None = None,
    ) -> None:
        """`fields` of the tuples are written to `columns` (None: of the same names). `create` is
        executed when the database is opened. Raises InvalidTopologyError if the numbers of fields
        and columns differ, or `key` names another column."""
        self._path, self._create = Path(path), create
        self._fields = list(fields)
        names = list(fields if columns is None else columns)
        if len(names) != len(self._fields) or not names:
            raise InvalidTopologyError(
                f"TransactionalSqliteSink: {len(self._fields)} fields for {len(names)} columns"
            )
        if unknown := sorted(set(key) - set(names)):
            raise InvalidTopologyError(
                f"TransactionalSqliteSink: key columns {', '.join(unknown)} are not written"
            )
        self._insert = (
            f"INSERT INTO {quoted(table)} ({', '.join(map(quoted, names))}) "
            f"VALUES ({', '.join('?' * len(names))})"
        )
        if key:
            changes = ", ".join(
                f"{quoted(name)} = excluded.{quoted(name)}" for name in names if name not in key
            )
            keys = ", ".join(map(quoted, key))
            self._insert += f" ON CONFLICT ({keys}) DO " + (
                f"UPDATE SET {changes}" if changes else "NOTHING"
            )

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        with closing(self._connect()) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_APPLIED} "
                "(writer TEXT PRIMARY KEY, epoch INTEGER NOT NULL)"
            )
            if self._create is not None:
                connection.execute(self._create)

    def row(self, tup: Tuple) -> Any:
        return [tup[field] for field in self._fields]

    def commit(self, batches: Sequence[RowBatch]) -> None:
        with closing(self._connect()) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            for batch in batches:
                found = connection.execute(
                    f"SELECT epoch FROM {_APPLIED} WHERE writer = ?", (batch.writer,)
                ).fetchone()
                if found is not None and found[0] >= batch.epoch:
                    continue
                connection.executemany(self._insert, batch.rows)
                connection.execute(
                    f"INSERT INTO {_APPLIED} VALUES (?, ?) "
                    "ON CONFLICT (writer) DO UPDATE SET epoch = excluded.epoch",
                    (batch.writer, batch.epoch),
                )

    def _connect(self) -> sqlite3.Connection:
        """One for each transaction: calls come on different threads."""
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECS)
        connection.execute("PRAGMA synchronous = FULL")
        return connection
