"""`ReplayableSpout`: rows that a test gives, to be read again from any position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from squall_common.component.delivery.rewinding import RewindableSpout


class ReplayableSpout(RewindableSpout):
    """Emits the rows of a test, for topologies with checkpoints.

        class Words(ReplayableSpout):
            outputs = ["word"]

        builder.spout("words", Words([["cow"], ["moon"]], splits=2), parallelism=2)

    Row `i` is in split `i % splits`; the tasks share the splits. A split's rows come in order.
    """

    def __init__(self, rows: Sequence[Sequence[Any]], *, splits: int = 1) -> None:
        """Raises ValueError if `splits` is not a whole number above 0."""
        if splits < 1:
            raise ValueError(f"splits is {splits!r}; expected a whole number above 0")
        self._rows, self._splits = [list(row) for row in rows], splits

    def seek(self, positions: Mapping[Any, Any]) -> None:
        self._next = {
            split: positions.get(split, split) for split in range(self._splits) if self.owns(split)
        }

    def next_tuple(self) -> None:
        for split, at in self._next.items():
            if at < len(self._rows):
                self._next[split] = at + self._splits
                self.emit(self._rows[at], position=(split, at + self._splits))

    def exhausted(self) -> bool:
        return all(at >= len(self._rows) for at in self._next.values())
