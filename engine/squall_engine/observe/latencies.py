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
from math import log2
from typing import Any

from squall_common.history.histogram import BUCKET_MAX, bucket_of, less, pack_list
from squall_engine.core.stats import ALL_TIME, WINDOWS_SECS, Key, Runs, TaskCounts
from squall_engine.tasks.base import Task

_BUCKETS = 20  # copies within a window, as in `stats.Windows`

# `bucket_of` in one expression, for the latencies of nearly all tuples.
_STEPS, _LEAST, _MOST = 8, 1e-6, 1e5
_FIRST = 1 + _STEPS * log2(1e6)

Place = tuple[str, Key]  # ("execute" or "process", a stream or a bolt's input)
Packed = dict[Place, bytes]


class _TimedRuns(Runs):
    """With the tuples in each bucket of `history.histogram`: a list, which is the fastest."""

    __slots__ = ("execute_buckets", "process_buckets")

    def __init__(self) -> None:
        super().__init__()
        self.execute_buckets = [0] * (BUCKET_MAX + 1)
        self.process_buckets = [0] * (BUCKET_MAX + 1)


class TimedCounts(TaskCounts):
    """Counts that keep histograms, too. Its two methods run once a slice, or once a tuple of a
    component that waits or has a thread, so they repeat what they could call: `bucket_of`, and
    those of the base class."""

    _runs: dict[Key, _TimedRuns]  # type: ignore[assignment]  # the base class only adds them up
    __slots__ = ()

    def _of(self, key: Key) -> _TimedRuns:
        return self._runs.setdefault(key, _TimedRuns())

    def executed_many(self, key: Key, n: int, secs: float, processed: int = 0) -> None:
        runs = self._runs.get(key) or self._of(key)
        runs.executed += n
        runs.execute_secs += secs
        each = secs / n
        bucket = int(_STEPS * log2(each) + _FIRST) if _LEAST < each < _MOST else bucket_of(each)
        runs.execute_buckets[bucket] += n
        if processed:
            runs.process_events += processed
            runs.process_secs += secs
            if processed != n:
                bucket = bucket_of(secs / processed)
            runs.process_buckets[bucket] += processed

    def processed(self, key: Key, secs: float, n: int = 1) -> None:
        runs = self._runs.get(key) or self._of(key)
        runs.process_events += n
        runs.process_secs += secs
        each = secs / n
        bucket = int(_STEPS * log2(each) + _FIRST) if _LEAST < each < _MOST else bucket_of(each)
        runs.process_buckets[bucket] += n

    def buckets(self) -> Iterable[tuple[Place, list[int]]]:
        """All histograms, by bucket; of a spout, "process" is the complete latency. They go on
        growing."""
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
