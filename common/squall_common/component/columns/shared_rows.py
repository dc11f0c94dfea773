"""Rows that were emitted as columns, remembered by the keys of their messages. Neighbours share
one object, so that a row costs next to nothing until it is asked for."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeVar

_Key = TypeVar("_Key", bound=Hashable)

# So many rows are kept for as long as one of them is.
_SHARED_MAX = 64


class SharedRows:
    """Some consecutive rows."""

    __slots__ = ("_columns", "_keys", "_places")

    def __init__(self, columns: Sequence[Sequence[Any]], keys: Sequence[Hashable]) -> None:
        self._columns = columns
        self._keys = keys
        self._places: dict[Hashable, int] | None = None

    def row(self, key: Hashable) -> list[Any]:
        """The values of the row with this key."""
        if self._places is None:
            self._places = {one: place for place, one in enumerate(self._keys)}
        place = self._places[key]
        return [column[place] for column in self._columns]


def shared_rows(
    columns: Sequence[Sequence[Any]], keys: Sequence[_Key]
) -> Iterator[tuple[Sequence[_Key], SharedRows]]:
    """The rows of these columns: the keys of some, and what they share. Later changes of the
    columns change nothing in them."""
    for start in range(0, len(keys), _SHARED_MAX):
        some = keys[start : start + _SHARED_MAX]
        yield some, SharedRows([list(c[start : start + _SHARED_MAX]) for c in columns], some)
