"""State by key, of one task of a bolt."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Protocol


class KeyValueState(Protocol):
    """The state of one task."""

    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value of a key, or `default` if the key is not set."""
        ...

    def put(self, key: Hashable, value: Any) -> None:
        """Set the value of a key."""
        ...

    def delete(self, key: Hashable) -> None:
        """Remove a key; does nothing if the key is not set."""
        ...

    def iterate(self) -> Iterator[tuple[Any, Any]]:
        """All keys with their values, as they are now: the state may be changed during the
        iteration."""
        ...


class MemoryState:
    """A `KeyValueState` that lives as long as its task. Keys that were not put for `ttl_secs`
    seconds are absent, and are removed meanwhile."""

    def __init__(
        self, ttl_secs: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._values: dict[Hashable, Any] = {}
        self._ttl_secs = ttl_secs
        self._clock = clock
        self._put_at: dict[Hashable, float] = {}  # with a ttl: oldest first

    def get(self, key: Hashable, default: Any = None) -> Any:
        if self._ttl_secs is not None:
            self._expire()
        return self._values.get(key, default)

    def put(self, key: Hashable, value: Any) -> None:
        if self._ttl_secs is not None:
            self._expire()
            self._put_at.pop(key, None)  # it is the newest now
            self._put_at[key] = self._clock()
        self._values[key] = value

    def delete(self, key: Hashable) -> None:
        self._values.pop(key, None)
        self._put_at.pop(key, None)

    def iterate(self) -> Iterator[tuple[Any, Any]]:
        if self._ttl_secs is not None:
            self._expire()
        return iter(list(self._values.items()))

    def __len__(self) -> int:
        return len(self._values)

    def _expire(self) -> None:
        assert self._ttl_secs is not None
        last = self._clock() - self._ttl_secs
        while self._put_at:
            key = next(iter(self._put_at))
            if self._put_at[key] >= last:
                return
            del self._put_at[key]
            self._values.pop(key, None)
