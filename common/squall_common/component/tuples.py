"""The interface of the tuples that bolts receive. The class that implements it is in the engine."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Tuple(Protocol):
    """A tuple that a bolt receives: named values, and where they come from.

    `tup["word"]` and `tup[0]` return a value. Do not change values.

        class Shout(Bolt):
            outputs = ["word"]

            def execute(self, tup):
                if not tup.is_tick:
                    self.emit([tup["word"].upper()])
    """

    @property
    def values(self) -> Sequence[Any]:
        """The values, in the order of `fields`."""
        ...

    @property
    def fields(self) -> Sequence[str]:
        """The names of the values, as the source declared them for the stream."""
        ...

    @property
    def source_component(self) -> str:
        """The id of the component that emitted it ("__system" for ticks)."""
        ...

    @property
    def source_task(self) -> int:
        """The task that emitted it (-1 for ticks)."""
        ...

    @property
    def source_stream(self) -> str:
        """The stream it was emitted on."""
        ...

    @property
    def is_tick(self) -> bool:
        """Whether it is a tick tuple (`topology.tick.tuple.freq.secs`)."""
        ...

    def __getitem__(self, key: str | int) -> Any:
        """The value of a field, or at an index. Raises KeyError (which lists the tuple's fields) or
        IndexError."""
        ...

    def get(self, field: str, default: Any = None) -> Any:
        """The value of a field, or `default` if the stream has no such field."""
        ...
