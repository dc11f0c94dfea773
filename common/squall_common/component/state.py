"""State by key, of one task of a bolt.

`KeyValueState` is what a `StatefulBolt` has in `self.state`; `ListState` and `CounterState` are
views of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol


class KeyValueState(Protocol):
    """The state of one task.

        class Count(StatefulBolt):
            outputs = ["word", "count"]

            def execute(self, tup):
                count = self.state.get(tup["word"], 0) + 1
                self.state.put(tup["word"], count)
                self.emit([tup["word"], count])

    Keys and values can have any type that can be emitted; keys must be hashable.
    """

    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value of a key, or `default` if the key is not set."""
        ...

    def put(self, key: Hashable, value: Any) -> None:
        """Set the value of a key. Raises ValueError for a key or a value that could not be emitted,
        if the state is stored."""
        ...

    def delete(self, key: Hashable) -> None:
        """Remove a key; does nothing if the key is not set."""
        ...

    def iterate(self) -> Iterator[tuple[Any, Any]]:
        """All keys with their values, as they are now: the state may be changed during the
        iteration."""
        ...

    def items(self) -> Iterator[tuple[Any, Any]]:
        """As `iterate`, under the name that a dict has."""
        return self.iterate()

    def prefix(self, prefix: str | bytes | tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        """The keys that begin with `prefix`, with their values. A tuple is a prefix of the keys
        that are tuples and begin with the same elements: `prefix(("ann",))` finds `("ann", 7)`.
        All keys are looked at."""
        begins = begins_with(prefix)
        return ((key, value) for key, value in self.iterate() if begins(key))


def begins_with(prefix: str | bytes | tuple[Any, ...]) -> Callable[[Any], bool]:
    """Whether a key begins with a prefix. Raises TypeError for one that no key begins with."""
    if isinstance(prefix, tuple):
        length = len(prefix)
        return lambda key: isinstance(key, tuple) and key[:length] == prefix
    if isinstance(prefix, str):
        return lambda key: isinstance(key, str) and key.startswith(prefix)
    if isinstance(prefix, bytes):
        return lambda key: isinstance(key, bytes) and key.startswith(prefix)
    raise TypeError(f"a prefix is a str, bytes or a tuple, not {prefix!r:.100}")


class MemoryState(KeyValueState):
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

    def keys(self) -> list[Any]:
        """All keys, also of entries that will have expired at the next call: a copy, which takes
        10 to 15 ms for a million."""
        return list(self._values)

    def first_keys(self, count: int) -> list[Any]:
        """So many of them, of those that were put first. The others are not looked at."""
        return list(islice(self._values, count))

    def glance(self, key: Hashable, default: Any = None) -> Any:
        """The value of a key, for whoever looks from outside: nothing expires by it."""
        ttl_secs = self._ttl_secs
        if ttl_secs is not None and self._put_at.get(key, 0.0) < self._clock() - ttl_secs:
            return default
        return self._values.get(key, default)

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


class ListState:
    """Lists by key, in a `KeyValueState`.

        class Visits(StatefulBolt):
            def prepare(self, conf, context):
                self.pages = ListState(self.state, "pages")

            def execute(self, tup):
                self.pages.append(tup["user"], tup["page"])

    The list of a key is one value, which is stored as a whole, so keep it short. In the state its
    key is `(name, key)`: several views with different names share one state.
    """

    def __init__(self, state: KeyValueState, name: str) -> None:
        self._state = state
        self._name = name

    def get(self, key: Hashable) -> list[Any]:
        """A copy of the list of a key; empty if nothing was appended."""
        return list(self._state.get((self._name, key), ()))

    def append(self, key: Hashable, value: Any) -> None:
        """Add a value at the end of a key's list."""
        self.extend(key, (value,))

    def extend(self, key: Hashable, values: Iterable[Any]) -> None:
        """Add values at the end of a key's list."""
        place = (self._name, key)
        self._state.put(place, [*self._state.get(place, ()), *values])

    def put(self, key: Hashable, values: Iterable[Any]) -> None:
        """Replace a key's list."""
        self._state.put((self._name, key), list(values))

    def delete(self, key: Hashable) -> None:
        """Remove a key's list; does nothing if there is none."""
        self._state.delete((self._name, key))

    def items(self) -> Iterator[tuple[Any, list[Any]]]:
        """All keys with copies of their lists."""
        return ((key, list(values)) for (_, key), values in self._state.prefix((self._name,)))


class CounterState:
    """Numbers by key that are counted up and down, in a `KeyValueState`.

        class Visits(StatefulBolt):
            def prepare(self, conf, context):
                self.count = CounterState(self.state, "count")

            def execute(self, tup):
                self.emit([tup["user"], self.count.inc(tup["user"])])

    In the state the key of a counter is `(name, key)`: several views with different names share one
    state.
    """

    def __init__(self, state: KeyValueState, name: str) -> None:
        self._state = state
        self._name = name

    def get(self, key: Hashable) -> int:
        """The number of a key; 0 if it was not counted."""
        found: int = self._state.get((self._name, key), 0)
        return found

    def inc(self, key: Hashable, by: int = 1) -> int:
        """Add to the number of a key. Returns the sum."""
        place = (self._name, key)
        found: int = self._state.get(place, 0) + by
        self._state.put(place, found)
        return found

    def dec(self, key: Hashable, by: int = 1) -> int:
        """Subtract from the number of a key. Returns the difference."""
        return self.inc(key, -by)

    def delete(self, key: Hashable) -> None:
        """Forget a key's number; does nothing if there is none."""
        self._state.delete((self._name, key))

    def items(self) -> Iterator[tuple[Any, int]]:
        """All keys with their numbers."""
        return ((key, number) for (_, key), number in self._state.prefix((self._name,)))
