"""Event time: the clock, timers, ticks and watermarks of a bolt on Spark.

On a cluster time passes by itself. Here a bolt in *event time* gets its tuples in the order of
their timestamps, and the time is that of the next tuple: before it is delivered, everything rings
that is due by then. So the bolt sees the same as on a cluster on which every tuple arrives at
exactly the moment that its timestamp names.

The clock passes a pause in steps, from one time that something is due to the next. A pause of more
than 10,000 steps is passed in one, as after a stall.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

from squall.windows.driven import DrivenWindows
from squall_engine.embed import EmbeddedEngine, Tuple

_STEPS_MAX = 10_000  # in which the clock passes a pause
_PORTION = 10_000  # tuples that are delivered at once


class InputClock:
    """The clock of an engine whose time is that of its input. Until that begins, `time` is the
    machine's; `monotonic` begins at 0 and moves by `move` alone."""

    def __init__(self, begin_secs: float | None = None) -> None:
        self._begin_secs = begin_secs
        self._secs = 0.0

    def monotonic(self) -> float:
        return self._secs

    def boottime(self) -> float:
        return self._secs

    def time(self) -> float:
        return time.time() if self._begin_secs is None else self._begin_secs + self._secs

    @property
    def has_begun(self) -> bool:
        return self._begin_secs is not None

    def begin(self, at_ms: int) -> None:
        """The input begins at this time."""
        self._begin_secs = at_ms / 1000 - self._secs

    def move(self, secs: float) -> None:
        """Move `monotonic` on; never back."""
        self._secs = max(self._secs, secs)

    def secs_at(self, at_ms: int) -> float:
        """`monotonic` at a time of the input."""
        assert self._begin_secs is not None
        return at_ms / 1000 - self._begin_secs


class TimeOfBolt:
    """Drives one bolt: delivers its tuples and lets time pass."""

    def __init__(
        self,
        engine: EmbeddedEngine,
        clock: InputClock,
        task: int,
        user: Any,
        settle: Callable[[], Awaitable[None]],
        *,
        windows: DrivenWindows | None,
        tick_secs: float | None,
    ) -> None:
        """`settle` lets the engine turn until nothing is in flight. `tick_secs` is None for a bolt
        without ticks."""
        self._engine, self._clock = engine, clock
        self._task, self._user = task, user
        self._settle = settle
        self._tick_secs = tick_secs
        self._tick_due = math.inf if tick_secs is None else tick_secs
        self._windows = windows if windows is not None and windows.in_event_time else None
        self._interval_secs = 0.0
        self._windows_due = math.inf
        self._idle_secs = 0.0
        if self._windows is not None:
            self._interval_secs = self._windows.interval_ms / 1000
            self._windows_due = self._interval_secs
            self._idle_secs = (self._windows.idle_ms or 0) / 1000
        self._waiting: list[Tuple] = []
        self._rows: Iterator[tuple[int, Tuple]] | None = None

    async def run(self, rows: Iterable[tuple[int, Tuple]], enough: Callable[[], bool]) -> bool:
        """Deliver tuples that are sorted by time, until `enough()` or to their end; returns whether
        it has come. Call it again with the same `rows`."""
        if self._rows is None:
            self._rows = iter(rows)
        clock, now_ms = self._clock, None
        due = self._next_due()
        for at_ms, tup in self._rows:
            worked = False
            if at_ms != now_ms:
                if not clock.has_begun:
                    clock.begin(at_ms)
                at = clock.secs_at(at_ms)
                # Timers of the windows are known beforehand, others only when a tuple was executed.
                if self._waiting and (at >= due or self._windows is None):
                    await self._deliver()
                    due, worked = self._next_due(), True
                if at >= due:
                    await self._pass(at)
                    due, worked = self._next_due(), True
                if not self._waiting:
                    clock.move(at)
                now_ms = at_ms
            self._waiting.append(tup)
            if len(self._waiting) >= _PORTION:
                await self._deliver()
                due, worked = self._next_due(), True
            if worked and enough():
                return False
        await self._deliver()
        return True

    async def advance_watermark(self) -> None:
        """Advance the watermark to what the tuples of a micro-batch allow."""
        if self._windows is not None:
            await self._call(self._windows.advance_watermark)

    async def end_input(self) -> None:
        """Fire the windows that hold something."""
        if self._windows is not None:
            await self._call(self._windows.end_input)

    async def ring_pending(self, *, tick: bool) -> None:
        """Let so much time pass that each timer that is pending now has rung, and (with `tick`) the
        next tick has come."""
        self._windows_due = math.inf
        if not tick:
            self._tick_due = math.inf
        last = self._engine.last_timer()
        if tick and self._tick_secs is not None:
            last = max(last, self._tick_due)
        if self._next_due() <= last:
            await self._pass(last)

    # ---- steps ----

    def _next_due(self) -> float:
        return min(self._windows_due, self._tick_due, self._engine.next_timer())

    async def _pass(self, until: float) -> None:
        """Let time pass."""
        # From then on nothing happens in a pause: inputs that fall idle have done so.
        calm = self._clock.monotonic() + self._idle_secs + self._interval_secs
        for _ in range(_STEPS_MAX):
            due = self._next_due()
            if due > until:
                break
            steps = self._idle_secs and due < calm
            await self._ring(due, due if steps else until)
        self._clock.move(until)
        if self._next_due() <= until:
            await self._ring(until, until)

    async def _ring(self, now: float, until: float) -> None:
        """Do what is due now. The watermark does not advance again until the second time."""
        self._clock.move(now)
        if self._tick_secs is not None and self._tick_due <= now:
            self._engine.tick(self._task, self._tick_secs)
            self._tick_due = _after(now, self._tick_due, self._tick_secs)
        if self._windows_due <= now:
            assert self._windows is not None
            self._windows_due = _after(until, self._windows_due, self._interval_secs)
            await self._engine.call_for(self._user, self._windows.advance_watermark)
        self._engine.ring_timers(now)
        await self._call(_nothing)  # a bolt on a thread of its own has then done what was due

    async def _deliver(self) -> None:
        """Deliver the tuples that wait, those of a stream together."""
        waiting, self._waiting = self._waiting, []
        start = 0
        for at, tup in enumerate(waiting):
            if tup.source.key != waiting[start].source.key:
                self._engine.deliver(self._task, waiting[start:at])
                start = at
        if waiting:
            self._engine.deliver(self._task, waiting[start:])
            await self._settle()

    async def _call(self, call: Callable[[], None]) -> None:
        await self._engine.call_for(self._user, call)
        await self._settle()


def _after(now: float, due: float, secs: float) -> float:
    """When something is due again that is due every `secs`; times that have passed are left out."""
    return due + max(1, math.floor((now - due) / secs + 1e-6) + 1) * secs


def _nothing() -> None:
    pass
