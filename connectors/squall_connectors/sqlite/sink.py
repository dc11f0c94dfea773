"""`SqliteSink`: tuples as rows of a SQLite database."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from squall import TopologyContext, Tuple
from squall_connectors.base.columns import columns_of
from squall_connectors.base.sink import ThreadedSink


def quoted(name: str) -> str:
    """An identifier in SQL."""
    return '"' + name.replace('"', '""') + '"'


class SqliteSink(ThreadedSink):
    """Writes each batch in one transaction, and acks it when it is on the disk.

        SqliteSink("/var/lib/shop/prices.db", "prices", ["sku", "price"], key=["sku"],
                   create="CREATE TABLE IF NOT EXISTS prices (sku TEXT PRIMARY KEY, price REAL)")

    With `key`, columns with a unique index, a row replaces that of its key: a tuple that is
    replayed changes nothing. Without it a replayed tuple becomes a second row. The database is in
    WAL mode with full synchronization: readers are not held up, and a power failure loses nothing
    that was acked.
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
        batch_records: int = 1_000,
        batch_secs: float = 0.05,
        write_timeout_secs: float = 30.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """`fields` of the tuples are written to `columns` (None: of the same names). `create` is
        executed when the database is opened. The others are those of `Sink`. Raises
        InvalidTopologyError if the numbers of fields and columns differ, or `key` names another
        column."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        self._columns = columns_of("SqliteSink", fields, columns, key)
        self._path, self._table, self._create = Path(path), table, create
        self._fields = list(fields)
        self._key = list(key)

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: sqlite3.Connection | None = None
        columns = ", ".join(map(quoted, self._columns))
        places = ", ".join("?" * len(self._columns))
        self._insert = f"INSERT INTO {quoted(self._table)} ({columns}) VALUES ({places})"
        if self._key:
            key = ", ".join(map(quoted, self._key))
            changes = ", ".join(
                f"{quoted(column)} = excluded.{quoted(column)}"
                for column in self._columns
                if column not in self._key
            )
            self._insert += f" ON CONFLICT ({key}) DO " + (
                f"UPDATE SET {changes}" if changes else "NOTHING"
            )
        await super().prepare(conf, context)

    def is_outage(self, error: BaseException) -> bool:
        """A database that is locked, or a disk that is full."""
        if isinstance(error, sqlite3.OperationalError):
            # The extended codes keep the primary one in their lowest byte.
            code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
            return code in (
                sqlite3.SQLITE_BUSY,
                sqlite3.SQLITE_LOCKED,
                sqlite3.SQLITE_FULL,
                sqlite3.SQLITE_IOERR,
                sqlite3.SQLITE_CANTOPEN,
                sqlite3.SQLITE_READONLY,
            )
        return super().is_outage(error)

    def connect_blocking(self) -> None:
        # A thread that hangs is replaced, and the next one closes its connection.
        connection = sqlite3.connect(
            self._path,
            timeout=self._write_timeout_secs / 3,
            isolation_level=None,
            check_same_thread=False,
        )
        self._connection = connection
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        if self._create is not None:
            connection.execute(self._create)

    def disconnect_blocking(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def write_blocking(self, tuples: Sequence[Tuple]) -> None:
        connection = self._connection
        assert connection is not None
        rows = [[tup[field] for field in self._fields] for tup in tuples]
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.executemany(self._insert, rows)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
