"""`TransactionalSqliteSink`: tuples as rows of a SQLite database, exactly once."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from squall import RowBatch, TopologyContext, TransactionalSink, Tuple
from squall_connectors.base.columns import columns_of
from squall_connectors.sqlite.sink import quoted

_BUSY_SECS = 30.0  # other tasks write meanwhile
_APPLIED = "squall_applied"
_INT_MAX = 2**63 - 1
_PLAIN = frozenset({type(None), bool, float, bytes})


class TransactionalSqliteSink(TransactionalSink):
    """Writes the rows of each checkpoint in one transaction:

        TransactionalSqliteSink("/data/shop.db", "totals", ["word", "count"],
                                create="CREATE TABLE IF NOT EXISTS totals (word TEXT, count INT)")

    The same transaction notes in the table `squall_applied` up to which checkpoint the rows of each
    task are there, so they are written once, also if the process ends in between. With `key`,
    columns with a unique index, a row replaces that of its key.

    A value that SQLite has no type for, such as a list, fails its tuple. A row that a constraint
    refuses holds up its task's later rows as well, and is reported with each try: check in a bolt
    before what the table demands.
    """

    _probe: sqlite3.Connection | None = None  # from `prepare` on

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
        names = columns_of("TransactionalSqliteSink", fields, columns, key)
        self._path, self._create = Path(path), create
        self._fields = list(fields)
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
        # Only binds values, and `row` is called by one thread at a time.
        self._probe = sqlite3.connect(":memory:", check_same_thread=False)
        with closing(self._connect()) as connection, connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {_APPLIED} "
                "(writer TEXT PRIMARY KEY, epoch INTEGER NOT NULL)"
            )
            if self._create is not None:
                connection.execute(self._create)

    def row(self, tup: Tuple) -> Any:
        row = [tup[field] for field in self._fields]
        # What cannot be written must not get into a checkpoint: it would come back with each one.
        for field, value in zip(self._fields, row, strict=True):
            if not _is_plain(value):
                self._check(field, value)
        return row

    def cleanup(self) -> None:
        if self._probe is not None:
            self._probe.close()

    def _check(self, field: str, value: Any) -> None:
        """Raise ValueError if SQLite, with the adapters that are registered, cannot store it."""
        assert self._probe is not None
        try:
            self._probe.execute("SELECT ?", (value,))
        except (sqlite3.Error, OverflowError, UnicodeError) as error:
            kind = type(value).__qualname__
            raise ValueError(
                f"field {field!r} of type {kind} cannot be stored in SQLite: {error}"
            ) from error

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


def _is_plain(value: Any) -> bool:
    """Whether SQLite can surely store it; a short way for nearly all values."""
    if isinstance(value, str):
        return value.isascii()
    kind = type(value)
    if kind is int:
        return bool(-_INT_MAX <= value <= _INT_MAX)
    return kind in _PLAIN
