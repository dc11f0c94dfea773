"""State of a bolt by key: `StatefulBolt`.

    class Count(StatefulBolt):
        outputs = ["word", "count"]

        def execute(self, tup):
            count = self.state.get(tup["word"], 0) + 1
            self.state.put(tup["word"], count)
            self.emit([tup["word"], count])

Each task has its own state, so group the input by the fields of the key. On a cluster the state is
in memory and is lost with its worker. On a stream on Spark it is kept across micro-batches and
restarts. Keys and values can have any type that can be emitted. Do not change a value after `put`;
`put` a new one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from squall_common.component.component import Bolt

if TYPE_CHECKING:
    from squall_common.component.collector import BoltCollector
    from squall_common.component.context import TopologyContext
    from squall_common.component.tuples import Tuple


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


class StatefulBolt(Bolt):
    """A bolt that keeps its state in `self.state`, which is available from `prepare` on."""

    state: KeyValueState

    def _bind(self, collector: BoltCollector[Tuple], context: TopologyContext) -> None:
        super()._bind(collector, context)
        kept = context.open_state()
        object.__setattr__(self, "state", MemoryState() if kept is None else kept)
