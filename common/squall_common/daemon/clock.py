"""Time as something passed in: decisions take `now`, shells hold a Clock."""

import time
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Where a daemon reads time. Ages and deadlines use `monotonic`, never `time`."""

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps; only differences mean anything."""
        ...

    def boottime(self) -> float:
        """As `monotonic`, and going on while the machine is suspended."""
        ...

    def time(self) -> float:
        """Seconds since the epoch: for people and for Storm's `time_secs` fields only."""
        ...


class SystemClock:
    """The machine's clocks, as they are: run loops read them several times a turn."""

    monotonic = staticmethod(time.monotonic)
    boottime = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    time = staticmethod(time.time)


class ManualClock:
    """A clock that stands still until a test moves it."""

    def __init__(self, monotonic: float = 1_000.0, time: float = 1_700_000_000.0) -> None:
        self._monotonic = monotonic
        self._time = time
        self._suspended_secs = 0.0

    def monotonic(self) -> float:
        return self._monotonic

    def boottime(self) -> float:
        return self._monotonic + self._suspended_secs

    def time(self) -> float:
        return self._time

    def advance(self, secs: float) -> None:
        """Let `secs` pass on both clocks."""
        self._monotonic += secs
        self._time += secs

    def suspend(self, secs: float) -> None:
        """Suspend the machine for `secs`."""
        self._suspended_secs += secs
        self._time += secs
