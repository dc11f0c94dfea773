"""Work that is due because time has passed: timeout buckets, ticks, windows of statistics."""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable
from typing import Any

from squall_engine.core import UNANCHORED, Batch, Tuple, tick_source
from squall_engine.switch_interval import SWITCH_INTERVAL, Wish
from squall_engine.tasks.bolt import BoltTask

_PURGE_MIN = 1_000  # timers; fewer are not searched for cancelled ones
_SWITCH_SECS_MIN = 0.0001


def share_interpreter(turn_secs: float) -> Wish:
    """Let other threads of this process have the interpreter while a loop takes turns of this
    length without a pause, until the returned wish ends.

    A thread asks for it only after a whole switch interval in which it was not released. The loop
    releases it once a turn, to look for input, and has it again before the thread that this wakes
    can run. So with turns that are shorter than the interval the thread never asks: on a machine
    with nothing else to do, what it has to write is not written before the loop rests. See
    docs/decisions/0158-threads-ask-within-a-turn.md."""
    return SWITCH_INTERVAL.shorten(max(_SWITCH_SECS_MIN, turn_secs / 4))


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
                bolt.inbox.put(Batch.of(self._source, [tup]))
                any_due = True
        return any_due

    def next_due(self, otherwise: float) -> float:
        """When the next tick is due, if before `otherwise`."""
        return min([otherwise, *(every.due for every, _, _ in self._ticks)])


class Timer:
    """A call of a component that is due at some time (`TopologyContext.call_later`)."""

    __slots__ = ("call", "due", "task")

    def __init__(self, due: float, task: int, call: Callable[[], Any]) -> None:
        self.due = due
        self.task = task
        self.call: Callable[[], Any] | None = call

    def cancel(self) -> None:
        """Do not call. From any thread."""
        self.call = None


class Timers:
    """The timers of a worker's components. They are added from any thread. Those that were
    cancelled are removed once they outnumber the others: a component may set one for each tuple."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._purge_at = _PURGE_MIN
        self._serial = 0  # those that are due at the same time ring in the order they were added
        self._lock = threading.Lock()

    def add(self, due: float, task: int, call: Callable[[], Any]) -> Timer:
        """Add a timer."""
        timer = Timer(due, task, call)
        with self._lock:
            self._serial += 1
            heapq.heappush(self._heap, (due, self._serial, timer))
            if len(self._heap) >= self._purge_at:
                self._heap = [entry for entry in self._heap if entry[2].call is not None]
                heapq.heapify(self._heap)
                self._purge_at = max(_PURGE_MIN, 2 * len(self._heap))
        return timer

    def __len__(self) -> int:
        return len(self._heap)

    def take_due(self, now: float) -> list[Timer]:
        """Remove and return the timers that are due."""
        found: list[Timer] = []
        if not self._heap:
            return found
        with self._lock:
            while self._heap and self._heap[0][0] <= now:
                timer = heapq.heappop(self._heap)[2]
                if timer.call is not None:
                    found.append(timer)
        return found

    def next_due(self, otherwise: float) -> float:
        """When the next timer is due, if before `otherwise`."""
        with self._lock:
            while self._heap and self._heap[0][2].call is None:
                heapq.heappop(self._heap)
            return min(otherwise, self._heap[0][0]) if self._heap else otherwise

    def last_due(self) -> float:
        """When the last of all timers is due; minus infinity if there is none."""
        with self._lock:
            dues = (due for due, _, timer in self._heap if timer.call is not None)
            return max(dues, default=-math.inf)
