"""Tuples that come after their windows have fired, within the allowed lateness.

What has left the queue is kept for that long. A late tuple fires each of the windows again that
would have held it, with all they hold. The first watermark after the lateness lets it go.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator
from typing import Any

from squall.windows.evictors import Event
from squall.windows.manager import Fire


class LateFirings:
    """Sliding windows in event time that have fired, for `lateness_ms` longer."""

    def __init__(self, length_ms: int, slide_ms: int, lateness_ms: int) -> None:
        self._length_ms = length_ms
        self._slide_ms = slide_ms
        self._lateness_ms = lateness_ms
        self._kept: list[Event] = []

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def items(self) -> list[Any]:
        """What is kept."""
        return [item for _, item in self._kept]

    def keep(self, events: Collection[Event]) -> None:
        """Keep what has left the queue."""
        self._kept += events

    def accepts(self, timestamp_ms: int, watermark_ms: int) -> bool:
        """Whether a tuple is not too late."""
        return timestamp_ms >= watermark_ms - self._lateness_ms

    def ends(self, timestamp_ms: int, fired_ms: int) -> Iterator[int]:
        """The ends of the windows that hold a timestamp, up to the last one that has fired."""
        end_ms = -(-timestamp_ms // self._slide_ms) * self._slide_ms
        while end_ms <= fired_ms and end_ms - self._length_ms < timestamp_ms:
            yield end_ms
            end_ms += self._slide_ms

    def fire(
        self,
        event: Event,
        queue: Collection[Event],
        fired_ms: int,
        key_of: Callable[[Any], Hashable],
    ) -> Iterator[Fire]:
        """Fire the windows of its key again that hold this late event, which is kept or in the
        queue; `queue` is what the queue has of that key."""
        key = key_of(event[1])
        known = [*(one for one in self._kept if key_of(one[1]) == key), *queue]
        for end_ms in self.ends(event[0], fired_ms):
            start_ms = end_ms - self._length_ms
            now = [one for one in known if start_ms < one[0] <= end_ms]
            before = [one for one in now if one is not event]
            yield Fire(now, before, (), end_ms)

    def release(self, watermark_ms: int) -> list[Any]:
        """Let go of what no tuple can bring back into a window."""
        first_ms = watermark_ms - self._lateness_ms
        last_ms = -(-first_ms // self._slide_ms) * self._slide_ms - self._length_ms
        gone = [item for at_ms, item in self._kept if at_ms <= last_ms]
        if gone:
            self._kept = [event for event in self._kept if event[0] > last_ms]
        return gone

    def discard(self, items: Collection[Any]) -> None:
        """Forget tuples that have failed."""
        failed = set(map(id, items))
        self._kept = [event for event in self._kept if id(event[1]) not in failed]
