"""Reads what tasks have counted; heartbeats, metrics and the history are all made from it.

Tasks only count up (`TaskCounts`, the outputs of the core, the tables of the ackers). A reading is
a copy of those totals, taken under the task's lock. Everything reported is made from readings: a
heartbeat from the totals within time windows, a metric or a row of the history from the gain
between two readings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from squall_common.cluster.values import ExecutorStats, SpoutStats
from squall_common.history.histogram import merge, pack, unpack
from squall_common.names import MARK_STREAM
from squall_common.topology.model import Executor
from squall_engine.core.stats import ALL_TIME, Key, Totals, Windows, add_output, executor_stats
from squall_engine.observe.latencies import LatencyWindows, Packed, by_place, packed_sum
from squall_engine.state.sizes import size_of
from squall_engine.tasks.base import Task
from squall_engine.tasks.bolt import BoltTask
from squall_engine.tasks.spout import SpoutTask
from squall_engine.tasks.thread import ThreadBolt

# What a task of the plan (an acker, too) has counted is added to some totals.
AddTotals = Callable[[int, Totals], None]

# Histograms take a kilobyte each, and some time to read. With more executors, the first one of a
# component reports those of all of them together.
TIMED_EXECUTORS_MAX = 100

# The measure of seconds that tasks waited; its key is the component that they waited for.
BLOCKED = "blocked_secs"
# The measure of bytes sent to other workers; its key is the component that they went to.
SENT = "sent_bytes"


def add_totals(task: Task, totals: Totals) -> None:
    """Add what a task has counted, up to now. Marks of event time are nobody's tuples."""
    with task.lock:
        task.counts.add_to(totals)
        if getattr(task.user, "_squall_marks_from", ()):
            inputs = ((one, one[1]) for one in totals if isinstance(one[1], tuple))
            for one in [one for one, (_, stream) in inputs if stream == MARK_STREAM]:
                del totals[one]
        for output in task.outputs:
            if output.source.stream != MARK_STREAM:
                add_output(totals, output)


class Gains:
    """How much one task's totals have grown from reading to reading."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._last: Totals = {}

    def read(self) -> Totals:
        """The gain since the last reading, or since the beginning, including zeros."""
        totals: Totals = {}
        add_totals(self._task, totals)
        gained = {key: value - self._last.get(key, 0) for key, value in totals.items()}
        self._last = totals
        return gained


def waiting(task: Task) -> tuple[str, int] | None:
    """How many tuples wait in a task, under Storm's name for it: a spout's `pending` messages, a
    bolt's `receive` queue."""
    if isinstance(task, SpoutTask):
        return "pending", len(task.pending)
    if isinstance(task, BoltTask):
        return "receive", task.inbox.queued
    return None


def exhausted(tasks: Iterable[Task]) -> int | None:
    """How many tasks of a spout say that their source has ended; None if it does not say whether it
    ends, and for a bolt."""
    ends = [task.source_end if isinstance(task, SpoutTask) else None for task in tasks]
    if not ends or any(end is None or not end.is_known for end in ends):
        return None
    return sum(end.has_ended for end in ends if end is not None)


def calls_max(tasks: Iterable[Task]) -> int | None:
    """How many calls the tasks of a bolt have under way at most, where calls do not take the
    loop's time for as long as they last; None where they do, and for a spout."""
    limits = [task.calls_max if isinstance(task, BoltTask) else None for task in tasks]
    known = [limit for limit in limits if limit is not None]
    return sum(known) if known else None


def key_name(key: Key) -> str:
    """A stream, or a bolt's input as `component:stream`."""
    return ":".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _merge_packed(into: Packed, packed: Packed) -> None:
    for place, one in packed.items():
        if place in into:
            sum_ = unpack(into[place])
            merge(sum_, unpack(one))
            one = pack(sum_)
        into[place] = one


class ExecutorReadings:
    """The totals of a worker's executors within Storm's windows, for its heartbeat.

    `task_of` finds a task that runs here (an acker is none), `credit` what credit tasks have, by
    component; `is_spout` and `component_of` say what an executor runs.
    """

    def __init__(
        self,
        executors: Iterable[Executor],
        add: AddTotals,
        task_of: Callable[[int], Task | None],
        credit: Callable[[Iterable[Task]], Mapping[str, int]],
        *,
        is_spout: Callable[[Executor], bool],
        component_of: Callable[[Executor], str],
        now: float,
    ) -> None:
        self._windows = {executor: Windows(now) for executor in executors}
        self._timed = self._timed_together(component_of)
        self._latencies = {executor: LatencyWindows(now) for executor in self._timed}
        self._add = add
        self._task_of = task_of
        self._credit = credit
        self._is_spout = is_spout
        self._component_of = component_of

    def _timed_together(
        self, component_of: Callable[[Executor], str]
    ) -> dict[Executor, list[Executor]]:
        """The executors whose latencies are added up, under the one that reports them."""
        if len(self._windows) <= TIMED_EXECUTORS_MAX:
            return {executor: [executor] for executor in self._windows}
        by_component: defaultdict[str, list[Executor]] = defaultdict(list)
        for executor in sorted(self._windows):
            by_component[component_of(executor)].append(executor)
        return {members[0]: members for members in by_component.values()}

    def tick(self, now: float) -> None:
        """Let the windows move on; see `Windows.tick`."""
        for executor, windows in self._windows.items():
            windows.tick(now, partial(self._totals, executor))
        for executor, latencies in self._latencies.items():
            latencies.tick(now, partial(self._packed, executor))

    def stats(self, executors_max: int | None = None) -> dict[Executor, ExecutorStats]:
        """The statistics of each executor. With more than `executors_max` executors, those of one
        component are summed under its first one: figures of components and of the topology stay
        exact, but those of single executors are missing."""
        if executors_max is None or len(self._windows) <= executors_max:
            return {executor: self._together([executor]) for executor in self._windows}
        by_component: defaultdict[str, list[Executor]] = defaultdict(list)
        for executor in sorted(self._windows):
            by_component[self._component_of(executor)].append(executor)
        return {members[0]: self._together(members) for members in by_component.values()}

    def _together(self, executors: Sequence[Executor]) -> ExecutorStats:
        sums: dict[str, Totals] = {}
        latencies: dict[str, Packed] = {}
        for executor in executors:
            for window, totals in self._windows[executor].values(self._totals(executor)).items():
                if (sum_ := sums.get(window)) is None:
                    sums[window] = totals
                else:
                    for key, value in totals.items():
                        sum_[key] = sum_.get(key, 0) + value
            timed = self._latencies.get(executor)
            if timed is not None:
                for window, packed in timed.values(self._packed(executor)).items():
                    _merge_packed(latencies.setdefault(window, {}), packed)
        stats = executor_stats(sums, spout=self._is_spout(executors[0]))
        return self._with_details(stats, sums, latencies, executors)

    def _with_details(
        self,
        stats: ExecutorStats,
        windows: Mapping[str, Totals],
        latencies: Mapping[str, Packed],
        executors: Sequence[Executor],
    ) -> ExecutorStats:
        """Add what Storm's statistics do not have."""
        process = by_place(latencies, "process")
        specific: Any
        if isinstance(stats.specific, SpoutStats):
            specific = replace(stats.specific, complete_histograms=process)
        else:
            execute = by_place(latencies, "execute")
            specific = replace(
                stats.specific, process_histograms=process, execute_histograms=execute
            )
        tuples = octets = 0
        for task in self._tasks(executors):
            with task.lock:
                tuples += (waiting(task) or ("", 0))[1]
                octets += task.queued_bytes() if isinstance(task, BoltTask) else 0
        size = size_of(self._tasks(executors))
        blocked = {
            window: {
                str(key): value for (measure, key), value in totals.items() if measure == BLOCKED
            }
            for window, totals in windows.items()
        }
        return replace(
            stats,
            specific=specific,
            queue_tuples=tuples,
            queue_bytes=octets,
            exhausted_tasks=exhausted(self._tasks(executors)),
            calls_max=calls_max(self._tasks(executors)),
            on_threads=any(isinstance(task, ThreadBolt) for task in self._tasks(executors)),
            blocked_secs={window: waits for window, waits in blocked.items() if waits},
            credit_bytes=dict(self._credit(self._tasks(executors))),
            sent_bytes={
                str(key): int(value)
                for (measure, key), value in windows[ALL_TIME].items()
                if measure == SENT
            },
            state_keys=None if size is None else size.keys,
            state_bytes=None if size is None else size.stored_bytes,
        )

    def _tasks(self, executors: Iterable[Executor]) -> Iterator[Task]:
        for executor in executors:
            for task_id in executor.tasks:
                if (task := self._task_of(task_id)) is not None:
                    yield task

    def _packed(self, executor: Executor) -> Packed:
        return packed_sum(self._tasks(self._timed[executor]))

    def _totals(self, executor: Executor) -> Totals:
        totals: Totals = {}
        for task_id in executor.tasks:
            self._add(task_id, totals)
        return totals
