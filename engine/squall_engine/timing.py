"""Work that is due because time has passed: timeout buckets, ticks, windows of statistics."""

from __future__ import annotations

from typing import Any

from squall_engine.core import UNANCHORED, Batch, Tuple, tick_source
from squall_engine.tasks.bolt import BoltTask


class Every:
    """A period on the monotonic clock. Periods that a stall has missed are skipped."""

    __slots__ = ("due", "secs")

    def __init__(self, secs: float, now: float) -> None:
        self.secs = secs
        self.due = now + secs

    def is_due(self, now: float) -> bool:
        """Whether it is due; if so, it is next due a period later."""
        if now < self.due:
            return False
        # From the time that it was due, so that it does not drift.
        self.due = max(self.due + self.secs, now + self.secs / 2)
        return True


class Rotation(Every):
    """The timeout buckets: one at a time, and never sooner than a whole period after the last. A
    pause of the worker (a stalled machine, a component that held the loop) must not fail tuples
    whose acks are waiting to be read."""

    def is_due(self, now: float) -> bool:
        if now < self.due:
            return False
        self.due = now + self.secs
        return True


class Ticks:
    """The tick tuples of the tasks that want them (`topology.tick.tuple.freq.secs`)."""

    def __init__(self) -> None:
        self._ticks: list[tuple[Every, BoltTask, Any]] = []
        self._source = tick_source()

    def add(self, bolt: BoltTask, freq_secs: Any, now: float) -> None:
        self._ticks.append((Every(float(freq_secs), now), bolt, freq_secs))

    @property
    def secs_max(self) -> float:
        """The longest of their periods; 0 without ticks."""
        return max((every.secs for every, _, _ in self._ticks), default=0.0)

    def deliver(self, now: float) -> bool:
        """Put the ticks that are due into the inboxes. True if there were any."""
        any_due = False
        for every, bolt, freq_secs in self._ticks:
            if every.is_due(now):
                tup = Tuple([freq_secs], 0, UNANCHORED, self._source)
                bolt.deliver(Batch.of(self._source, [tup]))
                any_due = True
        return any_due

    def next_due(self, otherwise: float) -> float:
        """When the next tick is due, if before `otherwise`."""
        return min([otherwise, *(every.due for every, _, _ in self._ticks)])
