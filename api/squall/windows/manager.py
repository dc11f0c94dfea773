"""One window over a queue of tuples, as Storm's WindowManager has it.

    add           events join the queue; a trigger by count may fire
    clock         a trigger by the clock fires
    expire        old events leave, for a trigger by count, which may not fire for long
    watermark     a trigger by watermark fires, perhaps several times

Each yields commands, in the order in which they are to be carried out: `Expire` (these tuples are
in no later window) and `Fire` (a window). A command must be carried out before the next one is
asked for: `discard` may take tuples out of the queue in between.

A firing window splits the whole queue. Every 100 events without one, those at the head of the queue
that are in no later window are taken away, so that a long interval does not fill the memory.

Nothing here knows the time: it comes with each call, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from squall.windows.evictors import (
    Event,
    Evictor,
    Moment,
    WatermarkCountEvictor,
    WatermarkTimeEvictor,
)
from squall.windows.triggers import CountTrigger, WatermarkTimeTrigger, WatermarkTrigger

TIDY_EVENTS = 100


@dataclass(frozen=True, slots=True)
class Expire:
    """These are in no later window."""

    events: list[Event]
    missed: list[Any]  # those of them that were never in one, although it had fired


@dataclass(frozen=True, slots=True)
class Fire:
    """A window fires. `before` is the window before it, of the same queue, and `expired` what has
    left the queue since."""

    events: Sequence[Event]
    before: Sequence[Event]
    expired: Sequence[Any]
    reference_ms: int


Command = Expire | Fire


class WindowManager:
    """A queue, what fires windows, and what leaves them."""

    def __init__(
        self,
        evictor: Evictor,
        trigger: CountTrigger | WatermarkTrigger | None,
        *,
        slide_ms: int | None = None,
    ) -> None:
        """`trigger` is None for one by the clock, whose interval is `slide_ms`."""
        self._evictor = evictor
        self._by_count = trigger if isinstance(trigger, CountTrigger) else None
        self._by_watermark = None if isinstance(trigger, CountTrigger) else trigger
        self._slide_ms = slide_ms
        self._queue: list[Event] = []
        self._window: Sequence[Event] = ()
        self._expired: list[Any] = []  # since a window fired
        self._since_split = 0
        # The reference time of the last full split, where each tuple up to it should have been in
        # a window.
        self._last_ms: int | None = None

    @property
    def _counts(self) -> bool:
        """Whether its windows are of a number of tuples, in event time."""
        return isinstance(self._evictor, WatermarkCountEvictor)

    def __len__(self) -> int:
        """How many events wait in the queue."""
        return len(self._queue)

    @property
    def events(self) -> Sequence[Event]:
        """What waits in the queue, in the order in which it came."""
        return self._queue

    @property
    def items(self) -> list[Any]:
        """What waits in the queue."""
        return [item for _, item in self._queue]

    # -- events --

    def add(self, events: Sequence[Event], now_ms: int) -> Iterator[Command]:
        """Add events, in the order in which they came."""
        at, total = 0, len(events)
        while at < total:
            count = min(total - at, max(1, TIDY_EVENTS - self._since_split))
            if self._by_count is not None:
                count = min(count, self._by_count.missing)
            self._queue += events[at : at + count]
            self._evictor.added(count)
            at += count
            self._since_split += count - 1
            if self._by_count is not None and self._by_count.added(count):
                self._evictor.at(Moment(now_ms))
                yield from self._fire(now_ms)
            yield from self._tidy(now_ms)

    def clock(self, now_ms: int) -> Iterator[Command]:
        """Fire a window by the clock. An event of this very millisecond waits for the next window:
        others of it may still come."""
        self._evictor.at(Moment(now_ms - 1, slide_ms=self._slide_ms))
        yield from self._fire(now_ms)

    def expire(self, now_ms: int) -> Iterator[Command]:
        """Take away what has become too old by the clock, without firing a window."""
        self._evictor.at(Moment(now_ms))
        yield from self._split(now_ms, full=False)

    def watermark(self, watermark_ms: int, now_ms: int) -> Iterator[Command]:
        """Advance the watermark."""
        trigger = self._by_watermark
        if trigger is not None:
            trigger.begin(watermark_ms, self._queue)
            fired: bool | None = None
            while (moment := trigger.next_window(self._queue, fired)) is not None:
                if self._counts and moment.slide_count is None:
                    end_ms = moment.reference_ms
                    moment = Moment(end_ms, count=sum(e[0] <= end_ms for e in self._queue))
                self._evictor.at(moment)
                fired = False
                for command in self._fire(now_ms):
                    fired |= isinstance(command, Fire)
                    yield command
        yield from self._tidy(now_ms)

    def skip_to(self, watermark_ms: int) -> None:
        """Leave out the windows up to the watermark that have not fired: they hold nothing."""
        if isinstance(self._by_watermark, WatermarkTimeTrigger):
            self._by_watermark.skip_to(watermark_ms)

    def begin_behind(self, watermark_ms: int) -> None:
        """Begin as a queue of windows in time that has fired up to the watermark. Not by the
        clock."""
        trigger = self._by_watermark
        if isinstance(trigger, WatermarkTimeTrigger):
            trigger.skip_to(watermark_ms)
            self._last_ms = trigger.next_end_ms - trigger.slide_ms

    def add_late(self, event: Event) -> None:
        """Add an event to the windows that will still fire, without firing one."""
        self._queue.append(event)
        self._evictor.added(1)

    def retire(self) -> list[Any]:
        """Take the window that has fired out of the queue, because no later one holds any of it.
        Returns what it holds. The next window counts it as expired."""
        fired = set(map(id, self._window))
        gone: list[Any] = []
        kept: list[Event] = []
        end = len(self._queue)
        for at, event in enumerate(self._queue, 1):
            if id(event) not in fired:
                kept.append(event)
                continue
            gone.append(event[1])
            if len(gone) == len(fired):  # usually near the head of a queue that may be long
                end = at
                break
        self._queue = kept + self._queue[end:]
        self._evictor.discarded(len(gone))
        self._expired += gone
        return gone

    def discard(self, items: Collection[Any]) -> None:
        """Take tuples out of the queue, because they have failed."""
        gone = set(map(id, items))
        left = [event for event in self._queue if id(event[1]) not in gone]
        self._evictor.discarded(len(self._queue) - len(left))
        self._queue = left
        self._window = [event for event in self._window if id(event[1]) not in gone]

    # -- windows --

    def _fire(self, now_ms: int) -> Iterator[Command]:
        """Split the queue, and fire a window if it holds something."""
        yield from self._split(now_ms, full=True)
        before, self._window = self._window, self._found
        expired, self._expired = self._expired, []
        if self._by_count is not None:
            self._by_count.reset()
        if self._window:
            assert self._evictor.moment is not None
            yield Fire(self._window, before, expired, self._evictor.moment.reference_ms)

    def _tidy(self, now_ms: int) -> Iterator[Command]:
        self._since_split += 1
        if self._since_split >= TIDY_EVENTS:
            yield from self._split(now_ms, full=False)

    def _split(self, now_ms: int, *, full: bool) -> Iterator[Command]:
        split = self._evictor.split(self._queue, now_ms, full=full)
        self._queue = split.kept
        self._found: Sequence[Event] = split.window
        self._since_split = 0
        if split.expired:
            self._expired += [item for _, item in split.expired]
            yield Expire(split.expired, self._missed(split.expired))
        if full and isinstance(self._evictor, WatermarkTimeEvictor):
            assert self._evictor.moment is not None
            self._last_ms = self._evictor.moment.reference_ms

    def _missed(self, expired: Iterable[Event]) -> list[Any]:
        """Which of these belonged into a window that had fired without them. (An event that came
        after the watermark that fired it, at the same millisecond, or behind one that ended the
        scan.)"""
        if self._last_ms is None:
            return []
        seen = set(map(id, self._window))
        return [
            event[1] for event in expired if event[0] <= self._last_ms and id(event) not in seen
        ]
