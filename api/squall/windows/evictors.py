"""Which tuples leave a window: Storm's eviction policies, a whole queue at a time.

A *split* of the queue, at a *reference time*, has three parts:

    expired   leave the queue; no later window holds them
    window    are in the window that fires now
    kept      stay in the queue: those of `window`, and others for a later one

`full` is False for a split that only tidies up (see `manager`): it ends at the first event that
does not expire, and has no window.

    count length       the last `length` of all events that have come
    time length        a reference time minus the length, excluded, to the reference time, included
    the same by watermark: the reference time is the end of the window that fires

Times are milliseconds. An event is a pair (timestamp, item), so that a queue costs little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

Event = tuple[int, Any]
_ALL = 2**31 - 1  # more than any window's length


@dataclass(frozen=True, slots=True)
class Moment:
    """What a trigger says about the window that it fires."""

    reference_ms: int
    count: int | None = None  # events up to it, for an evictor that wants to know
    slide_count: int | None = None
    slide_ms: int | None = None  # of a trigger by the clock


@dataclass(slots=True)
class Split:
    """The parts of a queue."""

    expired: list[Event]
    kept: list[Event]
    window: list[Event]


class Evictor(Protocol):
    """Decides which events are in a window."""

    moment: Moment | None

    def at(self, moment: Moment) -> None:
        """Set the window that fires next."""

    def added(self, count: int) -> None:
        """Count events that were added to the queue."""

    def discarded(self, count: int) -> None:
        """Count events that were taken out of the queue by other means."""

    def split(self, queue: list[Event], now_ms: int, *, full: bool) -> Split:
        """Split the queue. `now_ms` counts until the first window fires."""
        ...


class CountEvictor:
    """The last `length` events."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._count = 0
        self.moment: Moment | None = None

    def at(self, moment: Moment) -> None:
        self.moment = moment

    def added(self, count: int) -> None:
        self._count += count

    def discarded(self, count: int) -> None:
        self._count -= count

    def split(self, queue: list[Event], now_ms: int, *, full: bool) -> Split:
        surplus = min(max(0, self._count - self._length), len(queue))
        self._count -= surplus
        kept = queue[surplus:] if surplus else queue
        return Split(queue[:surplus], kept, list(kept) if full else [])


class TimeEvictor:
    """The events of the last `length_ms` milliseconds.

    The clock that fires windows is never exact. The length is corrected by how much longer than its
    interval the last one has taken, so that no event falls between two windows; and the first
    window holds all events that have come.
    """

    def __init__(self, length_ms: int) -> None:
        self._length_ms = length_ms
        self._late_ms = 0  # how much later than planned this window fires
        self.moment: Moment | None = None

    def at(self, moment: Moment) -> None:
        before, self.moment = self.moment, moment
        if moment.slide_ms is not None:
            if before is None:
                self._late_ms = _ALL
            else:
                elapsed_ms = moment.reference_ms - before.reference_ms
                self._late_ms = elapsed_ms - moment.slide_ms

    def added(self, count: int) -> None:
        pass

    def discarded(self, count: int) -> None:
        pass

    def split(self, queue: list[Event], now_ms: int, *, full: bool) -> Split:
        reference_ms = now_ms if self.moment is None else self.moment.reference_ms
        last_ms = reference_ms - self._length_ms - self._late_ms  # the last that is too old
        if not full:
            return _tidy(queue, last_ms)
        return _divide(queue, last_ms, reference_ms)


class WatermarkTimeEvictor:
    """The events of the `length_ms` milliseconds that end with the window.

    The scan of the queue ends at the first event that is more than `lag_ms` behind the end of the
    window: if no event is later than the lag, none behind it belongs into this window.
    """

    def __init__(self, length_ms: int, lag_ms: int = _ALL) -> None:
        self._length_ms = length_ms
        self._lag_ms = lag_ms
        self.moment: Moment | None = None

    def at(self, moment: Moment) -> None:
        self.moment = moment

    def added(self, count: int) -> None:
        pass

    def discarded(self, count: int) -> None:
        pass

    def split(self, queue: list[Event], now_ms: int, *, full: bool) -> Split:
        if self.moment is None:  # the first watermark has not come
            return Split([], queue, [])
        reference_ms = self.moment.reference_ms
        last_ms = reference_ms - self._length_ms
        if not full:
            return _tidy(queue, last_ms)
        stop_ms = reference_ms + self._lag_ms
        end = next((i for i, event in enumerate(queue) if event[0] > stop_ms), len(queue))
        if end == len(queue):
            return _divide(queue, last_ms, reference_ms)
        found = _divide(queue[:end], last_ms, reference_ms)
        found.kept += queue[end:]
        return found


class WatermarkCountEvictor:
    """The last `length` events up to the end of the window."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._count = 0  # events in the queue that are to be considered
        self._processed = 0  # of them, in the window
        self.moment: Moment | None = None

    def at(self, moment: Moment) -> None:
        self.moment = moment
        if moment.count is not None:
            self._count = moment.count
        else:
            assert moment.slide_count is not None
            self._count = self._processed + moment.slide_count
        self._processed = 0

    def added(self, count: int) -> None:
        pass

    def discarded(self, count: int) -> None:
        self._processed = max(0, self._processed - count)

    def split(self, queue: list[Event], now_ms: int, *, full: bool) -> Split:
        if self.moment is None:
            return Split([], queue, [])
        reference_ms = self.moment.reference_ms
        expired: list[Event] = []
        kept: list[Event] = []
        window: list[Event] = []
        for at, event in enumerate(queue):
            if self._processed >= self._count:  # the window has all that it takes
                kept += queue[at:]
                break
            considered = event[0] <= reference_ms
            if considered and self._count > self._length:
                self._count -= 1
                expired.append(event)
                continue
            if not full:  # no window fires, so nothing is in one
                kept += queue[at:]
                break
            kept.append(event)
            if considered:
                self._processed += 1
                window.append(event)
        return Split(expired, kept, window)


def _tidy(queue: list[Event], last_ms: int) -> Split:
    """Take away the events at the head of the queue that are too old."""
    end = next((i for i, event in enumerate(queue) if event[0] > last_ms), len(queue))
    return Split(queue[:end], queue[end:] if end else queue, [])


def _divide(queue: list[Event], last_ms: int, reference_ms: int) -> Split:
    kept = [event for event in queue if event[0] > last_ms]
    expired = [event for event in queue if event[0] <= last_ms] if len(kept) < len(queue) else []
    window = [event for event in kept if event[0] <= reference_ms]
    return Split(expired, kept, window)
