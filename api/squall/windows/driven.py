"""Windows that an embedding program drives: on Spark, time is that of the input, and a task lives
for one micro-batch.

    driven = DrivenWindows.of(bolt)       before the engine binds the bolt: it starts no timers
    driven.advance_watermark()            as the timer of `topology.bolts.watermark...` does
    driven.advance_clock()                as the timer of the interval does
    driven.end_input()                    no tuple will come: fire what is open
    driven.snapshot(...), restore(...)    between two micro-batches

Everything else is the shell's of `bolt`: the windows are the same as on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from squall.windows.reading import millis_of

if TYPE_CHECKING:
    from squall.windows.bolt import WindowedBolt
    from squall.windows.snapshot import Codec
    from squall_common.component.tuples import Tuple

# How often the watermark is advanced between two ends of windows: what has left them is let go.
_PARTS = 8


class DrivenWindows:
    """The windows of one bolt. Call it where the bolt is called: on its thread, if it has one."""

    def __init__(self, bolt: WindowedBolt) -> None:
        self._bolt = bolt

    @classmethod
    def of(cls, bolt: WindowedBolt) -> DrivenWindows:
        """Take over a bolt that is not bound yet."""
        object.__setattr__(bolt, "_squall_driven", True)
        return cls(bolt)

    @property
    def in_event_time(self) -> bool:
        return self._bolt._squall_shell.timestamp is not None

    @property
    def idle_ms(self) -> int | None:
        """After which time without tuples an input does not hold the watermark back."""
        return self._bolt._squall_shell.plan.idle_ms

    @property
    def interval_ms(self) -> int:
        """How often to advance the watermark. Windows in time are the same however often that is,
        so seldom is enough, unless inputs fall idle or windows end by a count."""
        plan = self._bolt._squall_shell.plan
        if plan.idle_ms is not None or plan.slide_count is not None:
            return plan.watermark_ms
        return max(plan.watermark_ms, (plan.slide_ms or plan.gap_ms or 0) // _PARTS)

    def time_of(self, tup: Tuple) -> int:
        """The timestamp of a tuple in milliseconds. Raises what the bolt's `timestamp` raises, and
        ValueError if that returns something else."""
        return self._bolt._squall_shell.time_of(tup)

    def advance_watermark(self) -> None:
        """Advance the watermark as far as the tuples allow that have come."""
        self._bolt._squall_shell.advance_watermark()

    def advance_clock(self) -> None:
        """Fire the windows by the clock whose time has come, each interval once."""
        self._bolt._squall_shell.catch_up_with_clock()

    def end_input(self) -> None:
        """Fire the windows in event time that hold something, as if a tuple came long after. (Those
        of a number of tuples that are not full never fire.)"""
        self._bolt._squall_shell.end_input()

    # -- between micro-batches --

    def snapshot(self, codec: Codec, tuple_class: type) -> bytes:
        """All that the windows hold. Raises SquallError for a value that cannot be stored."""
        return self._bolt._squall_shell.stored(codec, tuple_class)

    def restore(
        self, data: bytes, codec: Codec, make_tuple: Callable[[int, str, list[Any]], Any]
    ) -> None:
        """Go on from a snapshot. `make_tuple` gets a task, a stream and values. Raises SquallError
        if it is of another version of squall or of other windows."""
        self._bolt._squall_shell.restore(data, codec, make_tuple)


def timestamp_in(field: str) -> Callable[[Tuple], int]:
    """A function that finds the timestamp of a tuple, in milliseconds, in a field. It raises
    ValueError for any other value."""
    return lambda tup: millis_of(tup[field])
