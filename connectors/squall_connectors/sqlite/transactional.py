"""`TransactionalSqliteSink`: tuples as rows of a SQLite database, exactly once."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from squall import RowBatch, TopologyContext, TransactionalSink, Tuple
from squall_connectors.base import refused
from squall_connectors.base.columns import columns_of
from squall_connectors.base.refused import REFUSED_COLUMNS, REFUSED_MAX, Refused
from squall_connectors.sqlite.sink import quoted

_BUSY_SECS = 30.0  # other tasks write meanwhile
_APPLIED = "squall_applied"
_INT_MAX = 2**63 - 1
_Found = list[tuple[RowBatch, Refused]]
_PLAIN = frozenset({type(None), bool, float, bytes})


class TransactionalSqliteSink(TransactionalSink):
    """Writes the rows of each checkpoint in one transaction:

        TransactionalSqliteSink("/data/shop.db", "totals", ["word", "count"],
                                create="CREATE TABLE IF NOT EXISTS totals (word TEXT, count INT)")

    The same transaction notes in the table `squall_applied` up to which checkpoint the rows of each
    task are there, so they are written once, also if the process ends in between. With `key`,
    columns with a unique index, a row replaces that of its key.

    A value that SQLite has no type for, such as a list, fails its tuple. A row that a constraint
    refuses holds up its task, and the error names it. With `refused_table` it is written there, in
    the same transaction, with its fields as JSON and the reason, and the others are written.
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
        refused_table: str | None = None,
    ) -> None:
        """`fields` of the tuples are written to `columns` (None: of the same names). `create` is
        executed when the database is opened. Rows that `table` refuses go to `refused_table`, which
        is created if it is missing; None: they hold up their task. Raises InvalidTopologyError if
        the numbers of fields and columns differ, `key` names another column, or `refused_table` is
        `table`."""
        names = columns_of("TransactionalSqliteSink", fields, columns, key)
        self._path, self._create = Path(path), create
        self._table = table
        self._aside = refused.checked_table("TransactionalSqliteSink", table, refused_table)
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
            if self._aside is not None:
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {quoted(self._aside)} (writer TEXT, "
                    "epoch INTEGER, position INTEGER, target TEXT, fields TEXT, reason TEXT, "
                    "PRIMARY KEY (writer, epoch, position))"
                )

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
        try:
            self._transact(batches, searching=False)
            return
        except sqlite3.Error as error:
            if not is_refusal(error):
                raise
        if found := self._transact(batches, searching=True):
            assert self._aside is not None
            self.report_error(
                refused.put_aside_error(found, self._table, self._aside, self._fields)
            )

    def _transact(self, batches: Sequence[RowBatch], *, searching: bool) -> _Found:
        """Write the batches in one transaction; `searching` for rows that are refused, which are
        returned."""
        found: _Found = []
        with closing(self._connect()) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            for batch in batches:
                applied = connection.execute(
                    f"SELECT epoch FROM {_APPLIED} WHERE writer = ?", (batch.writer,)
                ).fetchone()
                if applied is not None and applied[0] >= batch.epoch:
                    continue
                if searching:
                    found += self._write_or_put_aside(connection, batch, REFUSED_MAX - len(found))
                else:
                    connection.executemany(self._insert, batch.rows)
                connection.execute(
                    f"INSERT INTO {_APPLIED} VALUES (?, ?) "
                    "ON CONFLICT (writer) DO UPDATE SET epoch = excluded.epoch",
                    (batch.writer, batch.epoch),
                )
        return found

    def _write_or_put_aside(
        self, connection: sqlite3.Connection, batch: RowBatch, refused_max: int
    ) -> _Found:
        """Write a batch without the rows that are refused, and these to their table. Returns them.
        Raises RowRefusedError if there is no such table, or if there are too many of them."""
        found: list[Refused]
        search = refused.search(len(batch.rows), refused_max if self._aside is not None else 1)
        try:
            part = next(search)
            while True:
                rows = batch.rows[part.start : part.end]
                part = search.send(_write_part(connection, self._insert, rows))
        except StopIteration as end:
            found = end.value
        values = refused.values_to_put_aside(
            batch, found, refused_max, self._table, self._aside, self._fields
        )
        if self._aside is not None and values:
            connection.executemany(
                f"INSERT INTO {quoted(self._aside)} ({', '.join(REFUSED_COLUMNS)}) "
                f"VALUES ({', '.join('?' * len(REFUSED_COLUMNS))})",
                values,
            )
        return [(batch, one) for one in found]

    def _connect(self) -> sqlite3.Connection:
        """One for each transaction: calls come on different threads."""
        connection = sqlite3.connect(self._path, timeout=_BUSY_SECS)
        connection.execute("PRAGMA synchronous = FULL")
        return connection


def is_refusal(error: sqlite3.Error) -> bool:
    """Whether SQLite refuses a row for what it is, rather than being locked, full or broken."""
    return isinstance(error, sqlite3.IntegrityError | sqlite3.DataError)


def _write_part(
    connection: sqlite3.Connection, insert: str, rows: Sequence[Any]
) -> sqlite3.Error | None:
    """Write these rows, or none of them. Returns why they are refused."""
    connection.execute("SAVEPOINT part")
    try:
        connection.executemany(insert, rows)
    except sqlite3.Error as error:
        if not is_refusal(error):
            raise
        connection.execute("ROLLBACK TO part")
        return error
    finally:
        if connection.in_transaction:
            connection.execute("RELEASE part")
    return None


def _is_plain(value: Any) -> bool:
    """Whether SQLite can surely store it; a short way for nearly all values."""
    if isinstance(value, str):
        return value.isascii()
    kind = type(value)
    if kind is int:
        return bool(-_INT_MAX <= value <= _INT_MAX)
    return kind in _PLAIN
