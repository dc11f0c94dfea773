"""A queue on disk: what `put` has returned for survives a crash of the process and of the machine.

A SQLite database on a thread of its own. Puts that come while one is written are written together,
in one transaction and one sync.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

_T = TypeVar("_T")

_TOGETHER_MAX = 500
_SCHEMA = """
CREATE TABLE IF NOT EXISTS queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, headers BLOB NOT NULL, body BLOB NOT NULL
)
"""

Item = tuple[int, bytes, bytes]  # id, headers, body


class QueueFullError(Exception):
    """The queue has as many items as it may."""


class DurableQueue:
    """A queue in the database at `path`, of at most `items_max` items."""

    def __init__(self, path: Path, items_max: int) -> None:
        self._path = path
        self._items_max = items_max
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="queue")
        self._waiting: list[tuple[str | None, bytes, bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self.count = 0

    async def open(self) -> None:
        """Open the database. Raises sqlite3.Error when it cannot be used."""

        def connect() -> int:
            self._connection = connection = sqlite3.connect(self._path, isolation_level=None)
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(_SCHEMA)
            (count,) = connection.execute("SELECT count(*) FROM queue").fetchone()
            return int(count)

        self.count = await self._call(connect)

    async def put(self, key: str | None, headers: bytes, body: bytes) -> None:
        """Add an item, and return when it is on the disk. An item whose key is still in the queue
        is not added again. Raises QueueFullError, and sqlite3.Error when the disk is full."""
        if self.count + len(self._waiting) >= self._items_max:
            raise QueueFullError(f"{self.count} items wait already")
        written = asyncio.get_running_loop().create_future()
        self._waiting.append((key, headers, body, written))
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())
        await asyncio.shield(written)

    async def _write(self) -> None:
        try:
            while self._waiting:
                items = self._waiting[:_TOGETHER_MAX]
                del self._waiting[: len(items)]
                try:
                    self.count += await self._call(functools.partial(self._insert, items))
                except sqlite3.Error as error:
                    for *_, written in items:
                        if not written.done():
                            written.set_exception(error)
                else:
                    for *_, written in items:
                        if not written.done():
                            written.set_result(None)
        finally:
            self._writing = None

    def _insert(self, items: Sequence[tuple[str | None, bytes, bytes, object]]) -> int:
        before = self._connection.total_changes
        rows = [(key, headers, body) for key, headers, body, _ in items]
        self._in_transaction(
            "INSERT OR IGNORE INTO queue (key, headers, body) VALUES (?, ?, ?)", rows
        )
        return self._connection.total_changes - before

    async def after(self, last: int, limit: int) -> list[Item]:
        """The items behind the one with this id, in the order in which they were added."""

        def select() -> list[Item]:
            query = "SELECT id, headers, body FROM queue WHERE id > ? ORDER BY id LIMIT ?"
            return self._connection.execute(query, (last, limit)).fetchall()

        return await self._call(select)

    async def remove(self, ids: Sequence[int]) -> None:
        """Remove items, and return when they are removed on the disk."""

        def delete() -> int:
            before = self._connection.total_changes
            self._in_transaction("DELETE FROM queue WHERE id = ?", [(of,) for of in ids])
            return self._connection.total_changes - before

        self.count -= await self._call(delete)

    async def close(self) -> None:
        if self._writing is not None:
            await self._writing
        await self._call(lambda: self._connection.close())
        self._thread.shutdown()

    def _in_transaction(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    async def _call(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)
