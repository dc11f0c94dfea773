"""The messages of PostgreSQL's plugin `pgoutput` (protocol version 1): what happened to rows.

A message begins with its kind. `Decoder.changes` takes them in order, since the columns of a table
come once, before its first change (PostgreSQL's documentation: "Logical Replication Message
Formats").
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

Row = dict[str, Any]


def _json(data: bytes) -> Any:
    """The value, or the text itself: PostgreSQL's type json holds texts that are not read by others
    (half a surrogate pair, deep nesting), and one of them must not hold up all that follows."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return data.decode()


# By the oid of a column's type; anything else is the text that PostgreSQL has for it.
_LOADERS: dict[int, Callable[[bytes], Any]] = {
    16: lambda data: data == b"t",  # boolean
    17: lambda data: bytes.fromhex(data[2:].decode()),  # bytea
    20: int,  # bigint, smallint, integer, oid
    21: int,
    23: int,
    26: int,
    700: float,
    701: float,
    114: _json,  # json, jsonb
    3802: _json,
}


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a row. `row` is what it is now (None once it is deleted), without large
    values that have not changed. `old` is what it was, or its key, as far as the table's REPLICA
    IDENTITY says; None if it says nothing."""

    operation: str  # "insert", "update", "delete" or "truncate"
    table: str
    row: Row | None
    old: Row | None


@dataclass(frozen=True, slots=True)
class _Table:
    name: str
    columns: list[tuple[str, Callable[[bytes], Any]]]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        found = self._data[self._at : self._at + count]
        if len(found) < count:
            raise ValueError("a message of pgoutput ends too early")
        self._at += count
        return found

    def number(self, form: str) -> int:
        found: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return found

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        found = self._data[self._at : end].decode()
        self._at = end + 1
        return found


class Decoder:
    """Makes changes of messages."""

    def __init__(self) -> None:
        self._tables: dict[int, _Table] = {}

    def changes(self, message: bytes) -> list[Change]:
        """The changes of a message; most have one, some none. Raises ValueError for what is not a
        message."""
        reader = _Reader(message)
        kind = reader.take(1)
        if kind == b"R":
            self._relation(reader)
        elif kind == b"I":
            table = self._table(reader)
            reader.take(1)  # N
            return [Change("insert", table.name, self._row(reader, table), None)]
        elif kind == b"U":
            return [self._update(reader)]
        elif kind == b"D":
            table = self._table(reader)
            reader.take(1)  # K: the key, or O: the whole row
            return [Change("delete", table.name, None, self._row(reader, table))]
        elif kind == b"T":
            count, _ = reader.number("!i"), reader.number("!b")
            tables = [self._table(reader) for _ in range(count)]
            return [Change("truncate", table.name, None, None) for table in tables]
        return []  # begin, commit, origin, type, logical message

    def _relation(self, reader: _Reader) -> None:
        oid = reader.number("!I")
        schema, name = reader.text(), reader.text()
        reader.number("!b")  # the replica identity
        columns = []
        for _ in range(reader.number("!h")):
            reader.number("!b")  # whether it is part of the key
            column, kind = reader.text(), reader.number("!I")
            reader.number("!i")  # the type's modifier
            columns.append((column, _LOADERS.get(kind, bytes.decode)))
        self._tables[oid] = _Table(f"{schema or 'pg_catalog'}.{name}", columns)

    def _table(self, reader: _Reader) -> _Table:
        oid = reader.number("!I")
        if oid not in self._tables:
            raise ValueError(f"pgoutput has not described the table {oid}")
        return self._tables[oid]

    def _update(self, reader: _Reader) -> Change:
        table = self._table(reader)
        old = None
        if reader.take(1) in (b"K", b"O"):
            old = self._row(reader, table)
            reader.take(1)
        return Change("update", table.name, self._row(reader, table), old)

    def _row(self, reader: _Reader, table: _Table) -> Row:
        row: Row = {}
        for name, load in table.columns[: reader.number("!h")]:
            kind = reader.take(1)
            if kind == b"n":
                row[name] = None
            elif kind == b"t":
                row[name] = load(reader.take(reader.number("!i")))
            # u: a large value that has not changed
        return row
