"""The positions of one partition: which records are in flight, and up to where all are done.

Records are emitted in the order of their offsets and acked in any order. What may be committed is
the offset of the first record that is still in flight, or, when none is, the position behind the
last record that was read. Offsets may have gaps (compaction, aborted transactions).

One thread calls `emitted`, `skipped` and `acked`; another may read `committable` meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from squall_common.component.columns.shared_rows import SharedRows, shared_rows


class Offsets:
    """The records of one partition that are in flight, by offset, in the order of the offsets."""

    __slots__ = ("committed", "pending", "position")

    def __init__(self, position: int) -> None:
        """`position` is the offset from which the partition is read; -1: not known before the
        first record."""
        self.position = position
        self.committed = position  # what the server has confirmed, as far as is known
        self.pending: dict[int, Sequence[Any] | SharedRows] = {}

    def emitted(self, offsets: Sequence[int], rows: Iterable[Sequence[Any]]) -> None:
        """Records were emitted: their offsets, in order, and the values of each."""
        self.pending.update(zip(offsets, rows, strict=True))
        self.position = offsets[-1] + 1

    def emitted_columns(self, offsets: Sequence[int], columns: Sequence[Sequence[Any]]) -> None:
        """The same with a list of values for each field."""
        for some, rows in shared_rows(columns, offsets):
            self.pending.update(dict.fromkeys(some, rows))
        self.position = offsets[-1] + 1

    def row(self, offset: int) -> Sequence[Any] | None:
        """The values of a record that is in flight; None if it is not."""
        found = self.pending.get(offset)
        return found.row(offset) if isinstance(found, SharedRows) else found

    def skipped(self, offset: int) -> None:
        """A record was read, and nothing is left to do for it."""
        self.position = offset + 1

    def acked(self, offset: int) -> bool:
        """A record is done. False if it was not in flight, as when it is acked a second time."""
        return self.pending.pop(offset, None) is not None

    @property
    def committable(self) -> int:
        """Every record before this offset is done."""
        while True:
            try:
                return next(iter(self.pending), self.position)
            except RuntimeError:  # it changed in between
                continue

    @property
    def uncommitted_count(self) -> int:
        """How many offsets a crash would read again, at most."""
        return self.position - self.committable

    def validate(self) -> None:
        """Raise AssertionError if the parts contradict each other."""
        offsets = list(self.pending)
        assert offsets == sorted(offsets), "the records in flight are not in order"
        assert all(offset < self.position for offset in offsets), "one is behind the position"
        assert self.committed <= self.committable, "what is in flight was committed"
