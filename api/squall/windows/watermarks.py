"""How far event time has come: Storm's watermark generator, and inputs that fall silent.

The watermark is the smallest of the latest timestamps of all inputs, less the lag. It advances only
when `advance` is called, every `topology.bolts.watermark.event.interval.ms`, and never goes back.
A tuple whose timestamp lies before it is late. An input is one stream of one component.

An input from which nothing came for the idle timeout does not hold the watermark back. When all are
idle, it stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Any


class Watermarks:
    """The watermark of one task. All times are milliseconds."""

    def __init__(
        self,
        inputs: Collection[Hashable],
        *,
        lag_ms: int = 0,
        idle_ms: int | None = None,
        now_ms: int = 0,
    ) -> None:
        self._lag_ms = lag_ms
        self._idle_ms = idle_ms
        self._latest_ms: dict[Hashable, int] = {}
        self._heard_ms: dict[Any, int] = dict.fromkeys(inputs, now_ms)
        self.current_ms = 0

    def track(self, source: Hashable, latest_ms: int, now_ms: int) -> None:
        """Note the latest timestamp of tuples that came from an input at `now_ms`."""
        before = self._latest_ms.get(source)
        if before is None or latest_ms > before:
            self._latest_ms[source] = latest_ms
        self._heard_ms[source] = now_ms

    def is_late(self, timestamp_ms: int) -> bool:
        """Whether a tuple with this timestamp comes too late for a window."""
        return timestamp_ms < self.current_ms

    def advance(self, now_ms: int) -> int | None:
        """The new watermark, or None if it does not advance."""
        inputs = self._heard_ms
        if self._idle_ms is not None:
            first_ms = now_ms - self._idle_ms
            inputs = {one: heard for one, heard in inputs.items() if heard > first_ms}
        if not inputs or not inputs.keys() <= self._latest_ms.keys():
            return None
        watermark_ms = min(self._latest_ms[one] for one in inputs) - self._lag_ms
        if watermark_ms <= self.current_ms:
            return None
        self.current_ms = watermark_ms
        return watermark_ms

    def advance_to(self, watermark_ms: int | None) -> int | None:
        """Advance it to where others say that it is. Returns it if it was not as far before."""
        if watermark_ms is None or watermark_ms <= self.current_ms:
            return None
        self.current_ms = watermark_ms
        return watermark_ms

    def end(self, after_ms: int) -> int | None:
        """Advance it to `after_ms` behind the latest timestamp of any input, because no input has
        more. Returns the new watermark, or None if there is none."""
        latest_ms = max(self._latest_ms.values(), default=None)
        if latest_ms is None or latest_ms + after_ms <= self.current_ms:
            return None
        self.current_ms = latest_ms + after_ms
        return self.current_ms

    def shift(self, by_ms: int) -> None:
        """Go on with another clock, which is ahead by so much."""
        self._heard_ms = {one: heard + by_ms for one, heard in self._heard_ms.items()}

    # -- for sources that are (component, stream) --

    def state(self) -> tuple[int, list[list[Any]]]:
        """How far it has come, for `join`: the watermark, and for each input its component and
        stream, the latest timestamp and when it was heard of."""
        return self.current_ms, [
            [component, stream, self._latest_ms.get((component, stream)), heard_ms]
            for (component, stream), heard_ms in self._heard_ms.items()
        ]

    def join(self, states: Sequence[tuple[Sequence[Any], int]]) -> None:
        """Begin as far as the furthest of other tasks, whose `state()` and how much their clocks
        are behind this one's are given. Inputs that this one has not are left out."""
        heard: dict[Any, int] = {}
        for (current_ms, inputs), shift_ms in states:
            self.current_ms = max(self.current_ms, current_ms)
            for component, stream, latest_ms, heard_ms in inputs:
                source = (component, stream)
                if source not in self._heard_ms:
                    continue
                if latest_ms is not None:
                    self._latest_ms[source] = max(latest_ms, self._latest_ms.get(source, latest_ms))
                if heard_ms is not None:
                    heard_ms += shift_ms
                    heard[source] = max(heard_ms, heard.get(source, heard_ms))
        self._heard_ms |= heard
