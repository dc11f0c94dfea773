"""State by key, of one task of a bolt."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
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
    """A `KeyValueState` that lives as long as its task."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, default: Any = None) -> Any:
        return self._values.get(key, default)

    def put(self, key: Hashable, value: Any) -> None:
        self._values[key] = value

    def delete(self, key: Hashable) -> None:
        self._values.pop(key, None)

    def iterate(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(self._values.items()))

    def __len__(self) -> int:
        return len(self._values)
