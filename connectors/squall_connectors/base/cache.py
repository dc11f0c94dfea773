"""Answers of a slow system, kept for a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Cache(Generic[_T]):
    """At most `size` values, each for `secs` seconds; the oldest goes first."""

    def __init__(self, secs: float, size: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._secs, self._size, self._clock = secs, size, clock
        self._values: dict[Hashable, tuple[float, _T]] = {}  # the oldest first

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> _T | None:
        """The value, or None if there is none, or it is too old."""
        found = self._values.get(key)
        if found is None:
            return None
        if self._clock() - found[0] > self._secs:
            del self._values[key]
            return None
        return found[1]

    def put(self, key: Hashable, value: _T) -> None:
        if self._secs <= 0 or self._size < 1:
            return
        self._values.pop(key, None)
        while len(self._values) >= self._size:
            del self._values[next(iter(self._values))]
        self._values[key] = (self._clock(), value)
