"""Decoded values of nodes that have not changed since they were last read.

Decoding the assignment of 10,000 executors takes 0.1 s, and daemons read all assignments for every
call and every ten seconds. So a value is kept with the bytes that it was decoded from: the same
bytes give the same value, whichever version of a node they come from.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Generic, TypeVar

_T = TypeVar("_T")


class DecodedValues(Generic[_T]):
    """The last value of each node, by path. Values must be immutable: readers share them."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bytes, _T]] = {}

    def get(self, path: str, data: bytes) -> _T | None:
        """Return the value if the node still has these bytes."""
        kept = self._kept.get(path)
        return kept[1] if kept is not None and kept[0] == data else None

    def keep(self, path: str, data: bytes, value: _T) -> None:
        """Remember it in place of the node's earlier value."""
        self._kept[path] = (data, value)

    def forget_others(self, paths: Collection[str]) -> None:
        """Forget all nodes but these, which are the ones that exist."""
        for path in self._kept.keys() - set(paths):
            del self._kept[path]
