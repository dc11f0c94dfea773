"""When windows fire: Storm's trigger policies.

    by count          after every `slide` events that were added
    by the clock      every `slide_ms` milliseconds
    by watermark and time    for each end of a window up to the watermark, if the window holds
                             something; ends are multiples of `slide_ms`
    by watermark and count   after every `slide` events up to the watermark

A trigger by watermark decides one window at a time, and again when that one has fired, because what
has fired changes the queue. `next_window` therefore gets the queue as it is then, and whether the
window that it decided last held anything.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Protocol

from squall.windows.evictors import Event, Moment


class WatermarkTrigger(Protocol):
    """Fires windows as the watermark advances."""

    def begin(self, watermark_ms: int, queue: list[Event]) -> None:
        """Take a new watermark."""

    def next_window(self, queue: list[Event], fired: bool | None) -> Moment | None:
        """The next window to try up to the watermark, or None. `fired` says whether the one before
        held anything; None for the first."""
        ...


class CountTrigger:
    """After every `slide` events."""

    def __init__(self, slide: int) -> None:
        self._slide = slide
        self._count = 0

    @property
    def missing(self) -> int:
        """How many more events it takes."""
        return max(1, self._slide - self._count)

    def added(self, count: int) -> bool:
        """Count events that were added, at most `missing`. True when a window fires."""
        self._count += count
        return self._count >= self._slide

    def reset(self) -> None:
        self._count = 0


class WatermarkTimeTrigger:
    """For each window end up to the watermark whose window holds something.

    Windows of a number of tuples hold something forever, so one timestamp far in the future would
    fire more of them than anyone can count, all the same. After `windows_max` at one watermark,
    only those fire that hold something new, and the last.
    """

    # The times that windows behind an empty one begin with, in order: found once for a watermark,
    # as the queue may be long. Not stored: between two watermarks there are none.
    _times: list[int] | None = None

    def __init__(self, slide_ms: int, windows_max: int | None = None) -> None:
        self._slide_ms = slide_ms
        self._windows_max = windows_max
        self._fired = 0  # at this watermark
        self._watermark_ms = 0
        self.next_end_ms = 0

    def begin(self, watermark_ms: int, queue: list[Event]) -> None:
        self._watermark_ms = watermark_ms
        self._fired = 0
        self._times = None

    def next_window(self, queue: list[Event], fired: bool | None) -> Moment | None:
        if fired:
            self._fired += 1
            following_ms = self.next_end_ms + self._slide_ms
            if self._windows_max is not None and self._fired >= self._windows_max:
                last_ms = self._watermark_ms // self._slide_ms * self._slide_ms
                following_ms = max(following_ms, self._end_after(queue) or last_ms)
            self.next_end_ms = following_ms
        elif fired is not None:
            end_ms = self._end_after(queue)
            if end_ms is None:
                self._times = None
                return None
            self.next_end_ms = end_ms
        if self.next_end_ms > self._watermark_ms:
            self._times = None
            return None
        return Moment(self.next_end_ms)

    @property
    def slide_ms(self) -> int:
        """The interval between two windows."""
        return self._slide_ms

    def skip_to(self, watermark_ms: int) -> None:
        """Leave out the windows up to the watermark."""
        after_ms = (watermark_ms // self._slide_ms + 1) * self._slide_ms
        self.next_end_ms = max(self.next_end_ms, after_ms)

    def _end_after(self, queue: list[Event]) -> int | None:
        """The end of the first window behind an empty one that holds something."""
        if self._times is None:
            self._times = sorted(
                at_ms for at_ms, _ in queue if self.next_end_ms < at_ms <= self._watermark_ms
            )
        at = bisect_right(self._times, self.next_end_ms)
        if at == len(self._times):
            return None
        return -(-self._times[at] // self._slide_ms) * self._slide_ms

    def __getstate__(self) -> dict[str, Any]:
        return {name: one for name, one in self.__dict__.items() if name != "_times"}


class WatermarkCountTrigger:
    """After every `slide` events up to the watermark, at the latest timestamp among them."""

    def __init__(self, slide: int) -> None:
        self._slide = slide
        self._last_ms = 0  # the end of the last window
        self._ends: list[int] = []

    def begin(self, watermark_ms: int, queue: list[Event]) -> None:
        found = []
        count, latest_ms = 0, 0
        if watermark_ms > self._last_ms:
            for at_ms, _ in queue:
                if self._last_ms < at_ms <= watermark_ms:
                    latest_ms = max(latest_ms, at_ms)
                    count += 1
                    if count % self._slide == 0:
                        found.append(latest_ms)
        self._ends = found[::-1]

    def next_window(self, queue: list[Event], fired: bool | None) -> Moment | None:
        if not self._ends:
            return None
        self._last_ms = self._ends.pop()
        return Moment(self._last_ms, slide_count=self._slide)
