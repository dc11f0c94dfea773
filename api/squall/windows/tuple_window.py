"""`TupleWindow`: what a windowed bolt gets when a window fires."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from squall.windows.operators import Left
from squall_common.component.tuples import Tuple


class TupleWindow:
    """The tuples of a window.

        def execute_window(self, window):
            total = sum(tup["amount"] for tup in window)
            self.emit([window.key, total, window.end_ms])

    Iterating over it, and `len`, cover the tuples that it holds now.
    """

    __slots__ = ("_left", "_tuples", "end_ms", "key", "late", "start_ms")

    def __init__(
        self,
        tuples: Sequence[Tuple],
        left: Left | None = None,
        *,
        key: Hashable = None,
        start_ms: int | None = None,
        end_ms: int = 0,
        late: bool = False,
    ) -> None:
        self._tuples = tuples
        self._left = left
        self.key = key
        """The key that the window belongs to: the value of the key field, a tuple of values for
        several, None without a key."""
        self.start_ms = start_ms
        """When the window begins, in milliseconds since the epoch. Tuples of this very millisecond
        are in it for sessions only. None if the length is in tuples."""
        self.end_ms = end_ms
        """When the window ends, in milliseconds since the epoch. For sessions this is the last
        tuple's time plus the gap; for windows whose length is in tuples, the time at which it
        fired."""
        self.late = late
        """Whether it has fired before, and fires again because of a late tuple."""

    def get(self) -> list[Tuple]:
        """All tuples of the window, in the order in which they came."""
        return list(self._tuples)

    def new(self) -> list[Tuple]:
        """The tuples that were not in the window when it fired before."""
        known = () if self._left is None else self._left.known
        return [tup for tup in self._tuples if id(tup) not in known]

    def expired(self) -> list[Tuple]:
        """The tuples that have left since the window fired before; of windows in tuples by key, not
        those of a window after which nothing of its key was left."""
        return [] if self._left is None else list(self._left.of(self.key))

    def __iter__(self) -> Iterator[Tuple]:
        return iter(self._tuples)

    def __len__(self) -> int:
        return len(self._tuples)

    def __repr__(self) -> str:
        key = "" if self.key is None else f"{self.key!r}, "
        return f"TupleWindow({key}{len(self)} tuples, {self.start_ms} to {self.end_ms} ms)"
