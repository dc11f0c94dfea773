"""Origins of columns as counts: how many tuples a bolt makes of each row."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, repeat
from typing import final, overload


@final
class FanOut(Sequence[int]):
    """The `origins` of a bolt that makes several tuples, one, or none of each row, in the order of
    the rows: one count for each row of the batch.

        def execute_columns(self, columns):
            words, counts = [], []
            for line in columns["line"]:
                found = line.split()
                words += found
                counts.append(len(found))
            self.emit_columns([words], origins=FanOut(counts))

    `FanOut([2, 0, 1])` says the same as the list `[0, 0, 2]`, and reads like it. It costs a number
    for each row, and the list one for each tuple.

    It cannot be changed, and has a copy of the counts. `emit_columns` raises ValueError if there is
    not one count for each row of the batch, if one is negative or not a whole number, or if they do
    not add up to the number of tuples.
    """

    __slots__ = ("_counts", "_ends")

    def __init__(self, counts: Iterable[int]) -> None:
        self._counts = tuple(counts)
        self._ends: list[int] | None = None  # of each row, the place after its last tuple

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of tuples of each row."""
        return self._counts

    def __len__(self) -> int:
        return sum(self._counts)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(map(repeat, range(len(self._counts)), self._counts))

    @overload
    def __getitem__(self, key: int) -> int: ...
    @overload
    def __getitem__(self, key: slice) -> list[int]: ...
    def __getitem__(self, key: int | slice) -> int | list[int]:
        """The row that a tuple comes from, or the list of those of a slice."""
        if isinstance(key, slice):
            return list(self)[key]
        place = range(len(self))[key]  # from the end, and beyond it, as in a list
        if self._ends is None:
            self._ends = list(accumulate(self._counts))
        return bisect_right(self._ends, place)

    def __eq__(self, other: object) -> bool:
        return self._counts == other._counts if isinstance(other, FanOut) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._counts)

    def __repr__(self) -> str:
        return f"FanOut({list(self._counts)})"
