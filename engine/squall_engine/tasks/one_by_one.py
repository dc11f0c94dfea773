"""Bolts with a plain `execute` that names its anchors itself (`auto_anchor` off)."""

from __future__ import annotations

from collections.abc import Sequence

from squall_engine.core import Batch, Tuple
from squall_engine.tasks.bolt import BatchBolt, take_all, trees_of


class OneByOneBolt(BatchBolt):
    """`execute(tup)` with `auto_anchor` off: like a batch, one tuple at a time."""

    current: Tuple | None = None

    def work(self, batches: Sequence[Batch], count: int) -> int:
        in_hand = self.in_hand
        try:
            for tup in take_all(batches, count):
                self.current = tup
                cells = (
                    []
                    if in_hand is None
                    else [in_hand.put(one, self.task) for one in trees_of(tup)]
                )
                try:
                    self.execute(tup)
                except Exception as error:
                    if not tup.settled:
                        self.calls.fail(tup)
                    self.calls.report_error(error)
                else:
                    if self.auto_ack and not tup.settled:
                        self.calls.ack(tup)
                if in_hand is not None:
                    in_hand.clear_batch(cells)
        finally:
            self.current = None
        return count
