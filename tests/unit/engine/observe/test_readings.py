"""Statistics of executors: exact for each, and sums by component of those of very many."""

import random
from typing import Any

import pytest

from squall_common.cluster import codec
from squall_common.cluster import state as state_module
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import NODE_BYTES_MAX
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import BoltStats, ExecutorStats, SpoutStats, WorkerHeartbeat
from squall_common.history.histogram import unpack
from squall_common.topology.model import Executor, WorkerSlot
from squall_engine.core.stats import Totals
from squall_engine.observe.latencies import TimedCounts
from squall_engine.observe.readings import TIMED_EXECUTORS_MAX, ExecutorReadings
from squall_engine.tasks.base import NO_LOCK
from squall_worker.report.statistics import EXECUTORS_MAX

SLOT = WorkerSlot("sup-a", 6700)
INPUT = ("words", "default")


def executors(count: int) -> list[Executor]:
    return [Executor(task, task) for task in range(1, count + 1)]


class Counting:
    """Tasks of bolts whose totals a test sets; those up to `first_to` are of one component."""

    def __init__(self, count: int, *, first_to: int = 0, spouts: bool = False) -> None:
        self.totals: dict[int, Totals] = {}
        self.readings = ExecutorReadings(
            executors(count),
            self.add,
            lambda task: None,
            lambda task: {},
            is_spout=lambda executor: spouts,
            component_of=lambda executor: "first" if executor.task_start <= first_to else "second",
            now=0.0,
        )

    def add(self, task: int, totals: Totals) -> None:
        for key, value in self.totals.get(task, {}).items():
            totals[key] = totals.get(key, 0) + value

    def count(self, draw: random.Random) -> None:
        for executor in executors(2_000):
            counts = self.totals.setdefault(executor.task_start, {})
            for measure in ("acked", "failed", "executed", "execute_events", "process_events"):
                counts[measure, INPUT] = counts.get((measure, INPUT), 0) + draw.randrange(1, 10**6)
            for measure in ("execute_secs", "process_secs"):
                counts[measure, INPUT] = counts.get((measure, INPUT), 0) + draw.random()
            for measure in ("emitted", "transferred"):
                at = (measure, "default")
                counts[at] = counts.get(at, 0) + draw.randrange(1, 10**6)


def test_few_executors_each_report_their_own_statistics() -> None:
    some = Counting(EXECUTORS_MAX)
    some.count(random.Random(1))
    found = some.readings.stats(EXECUTORS_MAX)
    assert list(found) == executors(EXECUTORS_MAX)
    assert found == some.readings.stats()
    emitted = found[Executor(7, 7)].emitted
    assert emitted[":all-time"] == {"default": some.totals[7]["emitted", "default"]}


def test_many_executors_report_sums_by_component_that_fit() -> None:
    draw = random.Random(1)
    many = Counting(2_000, first_to=300)
    many.count(draw)
    many.readings.tick(100_000.0)
    many.readings.tick(200_000.0)  # every window now begins with what was counted above
    many.count(draw)
    each = many.readings.stats()
    found = many.readings.stats(EXECUTORS_MAX)
    assert list(found) == [Executor(1, 1), Executor(301, 301)]
    for window in ("600", "10800", "86400", ":all-time"):
        assert sum(one.emitted[window]["default"] for one in found.values()) == sum(
            one.emitted[window]["default"] for one in each.values()
        )
    assert found[Executor(1, 1)].emitted["600"] != found[Executor(1, 1)].emitted[":all-time"]
    beat = WorkerHeartbeat("wc-1-1", {e: found.get(e) for e in executors(2_000)}, 1, 1)
    value = codec.encode_heartbeat(beat)
    assert len(value) < NODE_BYTES_MAX / 25
    assert codec.decode_heartbeat("/p", value) == beat
    signs = codec.decode_signs("/p", value).executor_stats
    assert signs.keys() == beat.executor_stats.keys()


class Timed:
    """A task with latencies."""

    def __init__(self, task: int) -> None:
        self.counts = TimedCounts()
        self.counts.executed_many(INPUT, task, task * 0.001 * task)
        self.lock = NO_LOCK
        self.user = None


@pytest.mark.parametrize("count", [TIMED_EXECUTORS_MAX, TIMED_EXECUTORS_MAX + 1])
def test_percentiles_of_many_executors_are_those_of_their_component(count: int) -> None:
    tasks: Any = {executor.task_start: Timed(executor.task_start) for executor in executors(count)}
    readings = ExecutorReadings(
        executors(count),
        lambda task, totals: tasks[task].counts.add_to(totals),
        tasks.get,
        lambda task: {},
        is_spout=lambda executor: False,
        component_of=lambda executor: "first" if executor.task_start <= 40 else "second",
        now=0.0,
    )
    readings.tick(30.0)
    found: dict[int, int] = {}
    for executor, stats in readings.stats().items():
        assert isinstance(stats.specific, BoltStats)
        assert stats.specific.executed[":all-time"][INPUT] == executor.task_start
        packed = stats.specific.execute_histograms.get(":all-time", {}).get(INPUT)
        if packed is not None:
            found[executor.task_start] = sum(unpack(packed).values())
    if count <= TIMED_EXECUTORS_MAX:
        assert found == {task: task for task in tasks}
    else:
        assert found == {1: sum(range(1, 41)), 41: sum(range(41, count + 1))}


def test_averages_of_sums_are_weighted_by_their_counts() -> None:
    two = Counting(2, spouts=True)
    for task, n, ms in ((1, 1, 10.0), (2, 3, 50.0)):
        two.totals[task] = {
            ("acked", "default"): n,
            ("process_events", "default"): n,
            ("process_secs", "default"): n * ms / 1000,
        }
    both = two.readings.stats(1)[Executor(1, 1)]
    assert isinstance(both.specific, SpoutStats)
    assert both.specific.acked[":all-time"] == {"default": 4}
    assert both.specific.complete_ms_avg[":all-time"] == {"default": pytest.approx(40.0)}


async def test_a_heartbeat_that_is_too_large_is_sent_without_statistics(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_module, "NODE_BYTES_MAX", 10_000)
    draw = random.Random(1)
    state = ClusterState(MemoryStore(MemoryEnsemble()))
    await state.start()
    await state.setup_heartbeats("wc-1-1")
    some = executors(200)

    def bolt() -> ExecutorStats:
        windows = ("600", "10800", "86400", ":all-time")
        counts = {window: {INPUT: draw.randrange(10**9)} for window in windows}
        ms = {window: {INPUT: draw.random()} for window in windows}
        return ExecutorStats(BoltStats(counts, counts, counts, ms, ms))

    beat = WorkerHeartbeat("wc-1-1", {e: bolt() for e in some}, 1, 1)
    state.put_worker_beat_nowait(SLOT, beat)
    state.put_worker_beat_nowait(SLOT, beat)
    ((stored, _),) = (await state.worker_beats("wc-1-1")).values()
    assert stored.executor_stats == dict.fromkeys(some)
    assert caplog.text.count("statistics_do_not_fit") == 1
    await state.close()
