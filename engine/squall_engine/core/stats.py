"""Statistics of an executor: exact counts, for all time and for Storm's windows.

Counts only grow. A window's value is the count now less the count at its beginning, so all that a
window needs is a ring of copies: twenty of them, taken every twentieth of its length (as Storm's
MultiCountStat divides its windows). A latency is two such counts, seconds and events.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Protocol

from squall_common.cluster.values import BoltStats, ExecutorStats, SpoutStats
from squall_engine.core.values import Source

ALL_TIME = ":all-time"
WINDOWS_SECS = (600, 10_800, 86_400)
_BUCKETS = 20

Key = Hashable  # a stream, or (component, stream) for a bolt's inputs
Totals = dict[tuple[str, Key], float]  # (measure, key) -> count or seconds


class Runs(Protocol):
    """What was executed of one input, and its outcomes. The keys and units are those of
    `TaskCounts`."""

    @property
    def executed(self) -> int: ...
    @property
    def execute_secs(self) -> float: ...
    @property
    def process_events(self) -> int: ...
    @property
    def process_secs(self) -> float: ...

    def add_executed(self, n: int, secs: float, processed: int) -> None: ...
    def add_processed(self, n: int, secs: float) -> None: ...


class Sums:
    """`Runs` without histograms."""

    __slots__ = ("execute_secs", "executed", "process_events", "process_secs")

    def __init__(self) -> None:
        self.executed = 0
        self.execute_secs = 0.0
        # Process latency of a bolt, complete latency of a spout.
        self.process_events = 0
        self.process_secs = 0.0

    def add_executed(self, n: int, secs: float, processed: int) -> None:
        self.executed += n
        self.execute_secs += secs
        if processed:
            self.add_processed(processed, secs)

    def add_processed(self, n: int, secs: float) -> None:
        self.process_events += n
        self.process_secs += secs


class TaskCounts:
    """The counts of one task since it began. The keys are streams for a spout, inputs for a
    bolt."""

    __slots__ = ("_runs", "acked", "failed")

    def __init__(self) -> None:
        self.acked: dict[Key, int] = {}
        self.failed: dict[Key, int] = {}
        self._runs: dict[Key, Runs] = {}

    def runs_of(self, key: Key) -> Runs:
        """What was executed of one input."""
        return self._runs.get(key) or self._runs.setdefault(key, self._make_runs())

    def _make_runs(self) -> Runs:
        return Sums()

    def add(self, counts: dict[Key, int], key: Key, n: int = 1) -> None:
        counts[key] = counts.get(key, 0) + n

    def executed_many(self, key: Key, n: int, secs: float, processed: int = 0) -> None:
        """`n` tuples were executed in `secs`, and `processed` of them acked by the end of it."""
        self.runs_of(key).add_executed(n, secs, processed)

    def processed(self, key: Key, secs: float, n: int = 1) -> None:
        """`n` tuples took `secs` altogether from their arrival to their ack."""
        self.runs_of(key).add_processed(n, secs)

    def add_to(self, totals: Totals) -> None:
        def add(measure: str, key: Key, value: float) -> None:
            totals[measure, key] = totals.get((measure, key), 0) + value

        for measure, counts in (("acked", self.acked), ("failed", self.failed)):
            for key, count in counts.items():
                add(measure, key, count)
        for key, runs in self._runs.items():
            if runs.executed:
                add("executed", key, runs.executed)
                add("execute_events", key, runs.executed)
                add("execute_secs", key, runs.execute_secs)
            if runs.process_events:
                add("process_events", key, runs.process_events)
                add("process_secs", key, runs.process_secs)


class CountedOutput(Protocol):
    """One stream of one task, of either core."""

    @property
    def source(self) -> Source: ...

    def emitted_total(self) -> int: ...
    def transferred_total(self) -> int: ...


def add_output(totals: Totals, output: CountedOutput) -> None:
    """Add what a task emitted on one stream."""
    stream = output.source.stream
    counts = (("emitted", output.emitted_total()), ("transferred", output.transferred_total()))
    for measure, n in counts:
        if n:
            totals[measure, stream] = totals.get((measure, stream), 0) + n


class Windows:
    """The totals of one executor in every window. Pure: `now` is passed in."""

    def __init__(self, now: float) -> None:
        # window -> copies of the totals, oldest first; the first is the window's beginning.
        self._rings: dict[int, deque[tuple[float, Totals]]] = {
            secs: deque([(now, {})]) for secs in WINDOWS_SECS
        }

    def tick(self, now: float, totals: Callable[[], Totals]) -> None:
        """Take the copies that are due. Call it about every 30 s; a late call only makes a
        window a little longer."""
        for secs, ring in self._rings.items():
            if now - ring[-1][0] >= secs / _BUCKETS:
                ring.append((now, totals()))
            # Keep one copy that is at least a window old: the beginning.
            while len(ring) > 1 and ring[1][0] <= now - secs:
                ring.popleft()

    def values(self, totals: Totals) -> dict[str, Totals]:
        """The totals within each window, those that are zero left out."""
        found = {ALL_TIME: totals}
        for secs, ring in self._rings.items():
            start = ring[0][1]
            within = {key: value - start.get(key, 0) for key, value in totals.items()}
            found[str(secs)] = {key: value for key, value in within.items() if value}
        return found


def executor_stats(windows: Mapping[str, Totals], *, spout: bool) -> ExecutorStats:
    """The statistics of an executor for the heartbeat."""

    def counts(measure: str) -> dict[str, dict[object, int]]:
        return {
            window: {key: int(value) for (name, key), value in totals.items() if name == measure}
            for window, totals in windows.items()
        }

    def averages_ms(what: str) -> dict[str, dict[object, float]]:
        return {
            window: {
                key: 1000.0 * totals.get((f"{what}_secs", key), 0.0) / events
                for (name, key), events in totals.items()
                if name == f"{what}_events" and events
            }
            for window, totals in windows.items()
        }

    specific: SpoutStats | BoltStats
    if spout:
        specific = SpoutStats(
            acked=counts("acked"),  # type: ignore[arg-type]  # keys are streams
            failed=counts("failed"),  # type: ignore[arg-type]
            complete_ms_avg=averages_ms("process"),  # type: ignore[arg-type]
        )
    else:
        specific = BoltStats(
            acked=counts("acked"),  # type: ignore[arg-type]  # keys are inputs
            failed=counts("failed"),  # type: ignore[arg-type]
            executed=counts("executed"),  # type: ignore[arg-type]
            process_ms_avg=averages_ms("process"),  # type: ignore[arg-type]
            execute_ms_avg=averages_ms("execute"),  # type: ignore[arg-type]
        )
    return ExecutorStats(
        specific=specific,
        emitted=counts("emitted"),  # type: ignore[arg-type]  # keys are streams
        transferred=counts("transferred"),  # type: ignore[arg-type]
    )
