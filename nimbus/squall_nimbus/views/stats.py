"""Sums and means of the statistics that executors report in their heartbeats.

Executors report by window (the last 600, 10800 and 86400 seconds, and since they began), and within
a window by stream, or by input for the tuples that a bolt received. Means are weighted by the
number of tuples behind them: a complete latency by acks, an execute latency by executions.

Percentiles are of all their tuples together: histograms are added up, never percentiles.

Counts of streams whose names begin with `__` belong to the system and are left out unless asked
for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from squall_common.cluster.values import BoltStats, ExecutorStats, SpoutStats
from squall_common.history.histogram import Histogram, unpack
from squall_common.history.histogram import merge as merge_histogram
from squall_common.names import is_system_id
from squall_common.topology.model import Executor

ALL_TIME = ":all-time"
WINDOWS = ("600", "10800", "86400", ALL_TIME)
_CAPACITY_WINDOW = "600"


@dataclass(slots=True)
class Mean:
    """A weighted mean, in milliseconds."""

    total: float = 0.0
    weight: int = 0

    def add(self, mean: float, weight: int) -> None:
        self.total += mean * weight
        self.weight += weight

    @property
    def value(self) -> float:
        return self.total / self.weight if self.weight else 0.0


class Distribution:
    """The latencies of the tuples of one or several executors. Heartbeats' histograms are only
    added up when somebody reads the sum."""

    __slots__ = ("_packed",)

    def __init__(self) -> None:
        self._packed: list[bytes] = []

    def add(self, packed: bytes) -> None:
        """Add a histogram as a heartbeat has it."""
        self._packed.append(packed)

    def extend(self, other: Distribution) -> None:
        """Add other executors' latencies."""
        self._packed += other._packed

    def histogram(self) -> Histogram:
        """All of them together; one that is damaged is left out."""
        found: Histogram = {}
        for packed in self._packed:
            with contextlib.suppress(ValueError):
                merge_histogram(found, unpack(packed))
        return found


@dataclass(slots=True)
class Totals:
    """Counts of one or several executors in one window. A spout does not have `executed`,
    `execute`, `process` and `capacity`; a bolt does not have `complete`."""

    executors: int = 0
    tasks: int = 0
    emitted: int = 0
    transferred: int = 0
    acked: int = 0
    failed: int = 0
    executed: int = 0
    complete: Mean = field(default_factory=Mean)
    execute: Mean = field(default_factory=Mean)
    process: Mean = field(default_factory=Mean)
    # The busiest executor's share of its time in `execute`, or of its calls; 1.0 is all.
    capacity: float = 0.0
    # Of the executors whose calls do not take their worker's thread for as long as they last: how
    # many were under way on average, and at most; None: there are none.
    calls: float = 0.0
    calls_max: int | None = None
    on_threads: bool = False  # each of their tasks has a thread
    complete_times: Distribution = field(default_factory=Distribution)
    execute_times: Distribution = field(default_factory=Distribution)
    process_times: Distribution = field(default_factory=Distribution)
    queue_tuples: int = 0
    queue_bytes: int = 0
    state_keys: int | None = None  # None: no executor has state
    state_bytes: int | None = None  # None: none is stored
    blocked: dict[str, float] = field(default_factory=dict)  # component -> task-seconds
    task_secs: float = 0.0  # in which the tasks could have been blocked
    credit: dict[str, int] = field(default_factory=dict)  # component -> the least, in bytes
    exhausted: int = 0  # tasks that say that their source has ended
    endless: bool = False  # some do not say whether it ends

    @property
    def blocked_share(self) -> dict[str, float]:
        """For each component downstream, the share of their time (0 to 1) that the tasks waited
        for it."""
        if self.task_secs <= 0:
            return {}
        return {one: min(1.0, secs / self.task_secs) for one, secs in self.blocked.items()}

    def add(
        self,
        executor: Executor,
        stats: ExecutorStats | None,
        uptime_secs: int,
        window: str,
        include_system: bool,
    ) -> None:
        """Add an executor; one that has not reported yet counts as one that did nothing."""
        self.executors += 1
        self.tasks += len(executor.tasks)
        if stats is None:
            return
        self._add_end(stats)
        for one in outputs(stats, window, include_system).values():
            self.emitted += one.emitted
            self.transferred += one.transferred
            self.acked += one.acked
            self.failed += one.failed
            self.complete.add(one.complete.value, one.complete.weight)
            self.complete_times.extend(one.complete_times)
        for one in inputs(stats, window, include_system).values():
            self.acked += one.acked
            self.failed += one.failed
            self.executed += one.executed
            self.execute.add(one.execute.value, one.execute.weight)
            self.process.add(one.process.value, one.process.weight)
            self.execute_times.extend(one.execute_times)
            self.process_times.extend(one.process_times)
        self.capacity = max(self.capacity, capacity(stats, uptime_secs))
        if stats.calls_max is not None:
            self.calls += min(stats.calls_max, calls(stats, uptime_secs))
            self.calls_max = (self.calls_max or 0) + stats.calls_max
            self.on_threads |= stats.on_threads
        self._add_waits(executor, stats, uptime_secs, window)

    def _add_end(self, stats: ExecutorStats) -> None:
        self.endless |= stats.exhausted_tasks is None
        self.exhausted += stats.exhausted_tasks or 0

    def _add_waits(
        self, executor: Executor, stats: ExecutorStats, uptime_secs: int, window: str
    ) -> None:
        """Add what waits in an executor, and what it waits for."""
        self.queue_tuples += stats.queue_tuples or 0
        self.queue_bytes += stats.queue_bytes or 0
        self.state_keys = _sum(self.state_keys, stats.state_keys)
        self.state_bytes = _sum(self.state_bytes, stats.state_bytes)
        for component, secs in stats.blocked_secs.get(window, {}).items():
            self.blocked[component] = self.blocked.get(component, 0.0) + secs
        secs = uptime_secs if window == ALL_TIME else min(uptime_secs, int(window))
        self.task_secs += secs * len(executor.tasks)
        for component, left in stats.credit_bytes.items():
            self.credit[component] = min(left, self.credit.get(component, left))


def _sum(one: int | None, other: int | None) -> int | None:
    return one if other is None else (one or 0) + other


@dataclass(slots=True)
class StreamTotals:
    """One output stream, or one input, in one window."""

    emitted: int = 0
    transferred: int = 0
    acked: int = 0
    failed: int = 0
    executed: int = 0
    complete: Mean = field(default_factory=Mean)
    execute: Mean = field(default_factory=Mean)
    process: Mean = field(default_factory=Mean)
    complete_times: Distribution = field(default_factory=Distribution)
    execute_times: Distribution = field(default_factory=Distribution)
    process_times: Distribution = field(default_factory=Distribution)

    def merge(self, other: StreamTotals) -> None:
        """Add another executor's counts of the same stream."""
        self.emitted += other.emitted
        self.transferred += other.transferred
        self.acked += other.acked
        self.failed += other.failed
        self.executed += other.executed
        for name in ("complete", "execute", "process"):
            theirs: Mean = getattr(other, name)
            getattr(self, name).add(theirs.value, theirs.weight)
            getattr(self, f"{name}_times").extend(getattr(other, f"{name}_times"))


def outputs(
    stats: ExecutorStats, window: str, include_system: bool = True
) -> dict[str, StreamTotals]:
    """Return an executor's emitted counts by stream; for a spout also how its tuples ended."""
    result: dict[str, StreamTotals] = {}

    def at(stream: str) -> StreamTotals:
        return result.setdefault(stream, StreamTotals())

    for stream, count in stats.emitted.get(window, {}).items():
        at(stream).emitted += count
    for stream, count in stats.transferred.get(window, {}).items():
        at(stream).transferred += count
    spout = stats.specific
    if isinstance(spout, SpoutStats):
        for stream, count in spout.acked.get(window, {}).items():
            at(stream).acked += count
        for stream, count in spout.failed.get(window, {}).items():
            at(stream).failed += count
        for stream, mean in spout.complete_ms_avg.get(window, {}).items():
            at(stream).complete.add(mean, spout.acked.get(window, {}).get(stream, 0))
        for stream, packed in spout.complete_histograms.get(window, {}).items():
            at(stream).complete_times.add(packed)
    return {s: one for s, one in result.items() if include_system or not is_system_id(s)}


def inputs(
    stats: ExecutorStats, window: str, include_system: bool = True
) -> dict[tuple[str, str], StreamTotals]:
    """Return a bolt executor's received counts, by (component, stream)."""
    bolt = stats.specific
    if not isinstance(bolt, BoltStats):
        return {}
    result: dict[tuple[str, str], StreamTotals] = {}

    def at(source: tuple[str, str]) -> StreamTotals:
        return result.setdefault(source, StreamTotals())

    executed = bolt.executed.get(window, {})
    acked = bolt.acked.get(window, {})
    for source, count in executed.items():
        at(source).executed += count
    for source, count in acked.items():
        at(source).acked += count
    for source, count in bolt.failed.get(window, {}).items():
        at(source).failed += count
    for source, mean in bolt.execute_ms_avg.get(window, {}).items():
        at(source).execute.add(mean, executed.get(source, 0))
    for source, mean in bolt.process_ms_avg.get(window, {}).items():
        at(source).process.add(mean, acked.get(source, 0))
    for source, packed in bolt.execute_histograms.get(window, {}).items():
        at(source).execute_times.add(packed)
    for source, packed in bolt.process_histograms.get(window, {}).items():
        at(source).process_times.add(packed)
    return {s: one for s, one in result.items() if include_system or not is_system_id(s[1])}


def calls(stats: ExecutorStats, uptime_secs: int) -> float:
    """Return how many calls of `execute` a bolt's executor had under way in the last ten minutes,
    on average: of one that makes a call after the other, the share of the time that it spent in
    them. It may be a little too much: the uptime is in whole seconds, and the window may be some
    seconds longer."""
    secs = min(uptime_secs, int(_CAPACITY_WINDOW))
    if secs <= 0:
        return 0.0
    busy_ms = sum(one.execute.total for one in inputs(stats, _CAPACITY_WINDOW).values())
    return busy_ms / (secs * 1000)


def capacity(stats: ExecutorStats, uptime_secs: int) -> float:
    """Return the share of the calls that a bolt's executor may have under way that it had: of one
    that makes a call after the other, the share of its time in `execute`. At most 1. An async bolt
    whose worker does not say how many it makes at once is at 1 with one."""
    return min(1.0, calls(stats, uptime_secs) / (stats.calls_max or 1))


def known_window(window: str | None) -> str:
    """Return the window that a caller asked for, or all time if it is unknown."""
    return window if window in WINDOWS else ALL_TIME


K = TypeVar("K")


def merge(sums: dict[K, StreamTotals], more: Mapping[K, StreamTotals]) -> None:
    """Add another executor's streams, or inputs, to the sums."""
    for key, one in more.items():
        sums.setdefault(key, StreamTotals()).merge(one)
