"""Entries of state in a table on disk."""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable, Iterator
from typing import Any

import msgspec

from squall_common.component.groupings import stable_hash
from squall_common.state.disk.keys import is_digest, key_bytes
from squall_engine.core.pure.grouped import fits

_GROUP = struct.Struct("<i")
_KEYS = frozenset({str, int, bytes})
_INT_MAX = 2**63
_ROW_LENGTHS = (2, 3)
_VALUES = frozenset({type(None), bool, int, float, str, bytes})
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class TableRows:
    """Reads and writes entries with plain keys (text, bytes, whole numbers of 64 bits) and plain
    values, as `squall_common.state.disk.state` does with all: under the name of its key, the number
    of its group (32 bits, little-endian) and its row as `ValueCodec.encode_rows` encodes it."""

    def __init__(self, groups: int) -> None:
        self._groups = groups

    def name(self, key: Any) -> bytes | None:
        """`squall_common.state.disk.keys.key_bytes` of a plain key that is not too long; None: it
        is another."""
        kind = type(key)
        if kind not in _KEYS or (kind is int and not -_INT_MAX <= key < _INT_MAX):
            return None
        if not fits((key, None)):  # a lone surrogate
            return None
        name = key_bytes(key)
        return None if is_digest(name) else name

    def value(self, key: Any, data: bytes, default: Any) -> Any:
        """The value of a plain key in this entry. `default` if it is not plain, or the entry's
        owner is not its key, or the key there is equal and not the same, as 1.0 is for 1."""
        if type(key) not in _KEYS or _GROUP.unpack_from(data)[0] < 0:
            return default
        try:
            (row,) = _decode(data[_GROUP.size :])
            is_same = _encode(row[0]) == _encode(key)
        except (ValueError, OverflowError, TypeError):
            return default
        fits = len(row) in _ROW_LENGTHS and is_same and type(row[1]) in _VALUES
        return row[1] if fits else default

    def batch(self) -> TableBatch:
        """What is to be written."""
        return TableBatch(self)


class TableBatch:
    """Entries that are written by name, which is far cheaper for a B+ tree."""

    def __init__(self, rows: TableRows) -> None:
        self._rows = rows
        self._entries: list[tuple[bytes, bytes]] = []
        self._is_sorted = False

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, name: bytes, data: bytes) -> None:
        """Take an entry. The names of all are different."""
        if self._is_sorted:
            raise ValueError("it was handed out")
        self._entries.append((name, data))

    def add_dict(
        self, entries: dict[Any, Any], skipped: Container[Any] | None
    ) -> list[tuple[Any, Any]]:
        """Take what is plain and not skipped. Each entry belongs to its key. Returns the others
        (key, value)."""
        rest = []
        for row in entries.items():
            key, value = row
            if skipped and key in skipped:
                continue
            name = self._rows.name(key)
            if name is None or type(value) not in _VALUES or not fits(row):
                rest.append(row)
                continue
            group = _GROUP.pack(stable_hash(key) % self._rows._groups)
            self.add(name, group + _encode((row,)))
        return rest

    def portions(self, bytes_max: int) -> Iterator[Iterable[tuple[bytes, bytes]]]:
        """All of it by name, once: each portion ends with the entry that makes it larger than this.
        It is to be iterated over before the next one is taken."""
        if self._is_sorted:
            raise ValueError("it was handed out")
        self._is_sorted = True
        portion: list[tuple[bytes, bytes]] = []
        size = 0
        for entry in sorted(self._entries):
            portion.append(entry)
            size += len(entry[1])
            if size > bytes_max:
                yield portion
                portion, size = [], 0
        if portion:
            yield portion
