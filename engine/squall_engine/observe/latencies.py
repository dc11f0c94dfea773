"""Latencies as histograms: counted by tasks, and kept within Storm's windows.

Latencies are measured where the engine measures them anyway, once for a slice of up to 1,024 tuples
that takes about a millisecond (of threads, coroutines and shell components: once a tuple), so a
histogram counts each tuple with the mean of its slice.

A window needs what `stats.Windows` needs: copies from its beginning on. They are kept packed, and
those that are equal are one object, so that an executor's cost some kilobytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from squall_common.history.histogram import less, pack_list
from squall_engine.core import TimedRuns
from squall_engine.core.stats import ALL_TIME, WINDOWS_SECS, Key, TaskCounts
from squall_engine.tasks.base import Task

_BUCKETS = 20  # copies within a window, as in `stats.Windows`

Place = tuple[str, Key]  # ("execute" or "process", a stream or a bolt's input)
Packed = dict[Place, bytes]


class TimedCounts(TaskCounts):
    """Counts that keep histograms, too."""

    _runs: dict[Key, TimedRuns]  # type: ignore[assignment]  # the base class only adds to them
    __slots__ = ()

    def _make_runs(self) -> TimedRuns:
        return TimedRuns()

    def buckets(self) -> Iterable[tuple[Place, list[int]]]:
        """All histograms, by bucket; of a spout, "process" is the complete latency."""
        for key, runs in list(self._runs.items()):
            yield ("execute", key), runs.execute_buckets
            yield ("process", key), runs.process_buckets


def packed_sum(tasks: Iterable[Task]) -> Packed:
    """The histograms of some tasks together, now."""
    sums: dict[Place, list[int]] = {}
    for task in tasks:
        with task.lock:
            if isinstance(task.counts, TimedCounts):
                for place, buckets in task.counts.buckets():
                    sum_ = sums.get(place)
                    if sum_ is None:
                        sums[place] = buckets.copy()
                    else:
                        sums[place] = [a + b for a, b in zip(sum_, buckets, strict=True)]
    packed = {place: pack_list(buckets) for place, buckets in sums.items()}
    return {place: one for place, one in packed.items() if one}


class LatencyWindows:
    """The histograms of one executor in every window. Pure: `now` is passed in."""

    def __init__(self, now: float) -> None:
        self._rings: dict[int, deque[tuple[float, Packed]]] = {
            secs: deque([(now, {})]) for secs in WINDOWS_SECS
        }

    def tick(self, now: float, read: Callable[[], Packed]) -> None:
        """Take the copies that are due: see `stats.Windows.tick`."""
        for secs, ring in self._rings.items():
            last_at, last = ring[-1]
            if now - last_at >= secs / _BUCKETS:
                copy = {
                    place: before if (before := last.get(place)) == packed else packed
                    for place, packed in read().items()
                }
                ring.append((now, copy))
            while len(ring) > 1 and ring[1][0] <= now - secs:
                ring.popleft()

    def values(self, packed: Packed) -> dict[str, Packed]:
        """The histograms within each window, those without events left out."""
        found: dict[str, Packed] = {ALL_TIME: packed}
        for secs, ring in self._rings.items():
            start = ring[0][1]
            within = {place: less(one, start.get(place, b"")) for place, one in packed.items()}
            found[str(secs)] = {place: one for place, one in within.items() if one}
        return found


def by_place(
    windows: Mapping[str, Mapping[Place, bytes]], what: str
) -> dict[str, dict[Any, bytes]]:
    """The histograms of one latency: window -> stream or input -> packed histogram."""
    return {
        window: {key: packed for (name, key), packed in places.items() if name == what}
        for window, places in windows.items()
    }
