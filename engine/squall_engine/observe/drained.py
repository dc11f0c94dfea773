"""Whether a worker whose spouts are off, or have come to the end of their sources, has anything
left to do: Nimbus wants to know it before it ends the wait of a kill or a rebalance, and to say
that a topology has finished.

A worker that has nothing in flight may still get a tuple from another worker. So it reports how
much it has done, its *work*: if that is the same in two reports of every worker, and all of them
had nothing in flight in both, then no tuple was under way in between.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from squall_common.names import SYSTEM_COMPONENT
from squall_engine.core.stats import Totals
from squall_engine.observe.readings import add_totals
from squall_engine.tasks.bolt import BoltTask
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask

_EXECUTED = frozenset({"executed"})
_SETTLED = frozenset({"acked", "failed"})
_WORK = _EXECUTED | _SETTLED | {"emitted"}


class DrainGauge:
    """Reads the work of a worker's tasks. `tick_secs` is the longest period of its tick tuples: a
    bolt may keep acked tuples for its next tick, so nothing counts as drained before that."""

    def __init__(self, built: Sequence[Built], tick_secs: float) -> None:
        self._built = built
        self._tick_secs = tick_secs
        self._work: int | None = None
        self._since = 0.0  # when `_work` was read for the first time

    def read(self, now: float, *, drained: bool, at_end: bool = False) -> int | None:
        """The work so far, on the loop; None if something may be in flight. `drained`: whether
        inboxes, buffers and links are empty and all messages are settled. With `at_end`, spouts
        need not be off: each says that its source has ended."""
        work, unacked = 0, 0
        for one in self._built:
            totals: Totals = {}
            add_totals(one.task, totals)
            work += _sum(totals, _WORK)
            if isinstance(one.task, BoltTask) and not getattr(one.task, "auto_ack", True):
                settled = _sum(totals, _SETTLED)
                unacked += max(0, _sum(totals, _EXECUTED) - settled)
        if work != self._work:
            self._work, self._since = work, now
        may_emit = _may_emit_at_end if at_end else _may_emit
        busy = any(may_emit(one.task) for one in self._built if isinstance(one.task, SpoutTask))
        if not drained or unacked or busy or now - self._since < self._tick_secs:
            return None
        return work


class RestClock:
    """How long a worker has been at rest: with nothing in flight, and without any work.

    If the work is the same in two readings that found nothing in flight, it did nothing between
    them. So each reading tells of a stretch of time, and when those of all workers have a moment in
    common, nothing was in flight anywhere at that moment, and nothing follows."""

    def __init__(self) -> None:
        self._work: int | None = None
        self._since = 0.0

    def read(self, now: float, work: int | None) -> float | None:
        """In seconds; None while something may be in flight (`work` is None)."""
        if work is None:
            return None
        if work != self._work:
            self._work, self._since = work, now
        return now - self._since


def _may_emit(spout: SpoutTask) -> bool:
    return spout.active or spout.busy


def _may_emit_at_end(spout: SpoutTask) -> bool:
    # It is still asked, and emits nothing.
    return not spout.has_ended or spout.has_news


def _sum(totals: Totals, measures: Set[str]) -> int:
    """The sum over all streams but those of ticks and the like, which never end."""
    return int(
        sum(
            value
            for (measure, key), value in totals.items()
            if measure in measures
            and not (isinstance(key, tuple) and key and key[0] == SYSTEM_COMPONENT)
        )
    )
