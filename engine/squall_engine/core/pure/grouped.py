"""Rows of state by key group."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from types import NoneType
from typing import Any

import msgspec

from squall_common.component.groupings import stable_hash

_KEYS = frozenset({str, int, float, bytes})
_VALUES = frozenset({NoneType, bool, int, float, str, bytes})
_encode = msgspec.msgpack.Encoder().encode


class GroupPacker:
    """Encodes rows (key, value) of plain values by the key's group. Each group becomes the bytes
    that `ValueCodec.encode_rows` makes of its rows."""

    def __init__(self, groups: int) -> None:
        self._rows: list[list[tuple[Any, Any]]] = [[] for _ in range(groups)]

    def add(self, rows: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Take these rows. Returns those that it does not take, as they have other values or
        keys."""
        taken, groups = self._rows, len(self._rows)
        if _VALUES.issuperset(map(type, chain.from_iterable(rows))):
            rest = [row for row in rows if not fits(row)]
        else:
            rest = [row for row in rows if not (type(row[1]) in _VALUES and fits(row))]
        left = set(map(id, rest))
        for row in rows:
            if id(row) not in left:
                taken[stable_hash(row[0]) % groups].append(row)
        return rest

    def add_dict(self, values: dict[Any, Any], count: int) -> Iterator[list[tuple[Any, Any]]]:
        """Take all entries of a dict, so many at a time; it must not change meanwhile. Yields those
        that it does not take."""
        entries = iter(values.items())
        while chunk := list(islice(entries, count)):
            yield self.add(chunk)

    def frames(self) -> dict[int, bytes]:
        """The encoded rows of each group that has any. Once."""
        found = {group: _encode(rows) for group, rows in enumerate(self._rows) if rows}
        self._rows = []
        return found


def fits(row: tuple[Any, Any]) -> bool:
    """Whether msgpack has the numbers and the text of a row of these types."""
    if type(row[0]) not in _KEYS or row[0] != row[0]:
        return False
    try:
        _encode(row)
    except (OverflowError, UnicodeEncodeError):
        return False
    return True
