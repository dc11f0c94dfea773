"""Heartbeats of workers with thousands of executors: they fit, and their sums are right."""

import random

from squall_common.cluster import codec
from squall_common.cluster import state as state_module
from squall_common.cluster.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import NODE_BYTES_MAX
from squall_common.cluster.values import BoltStats, ExecutorStats, SpoutStats, WorkerHeartbeat
from squall_common.topology.model import Executor, WorkerSlot
from squall_worker.report.sums import EXECUTORS_MAX, fitting_stats, summed

SLOT = WorkerSlot("sup-a", 6700)
WINDOWS = ("600", "10800", "86400", ":all-time")


def bolt(draw: random.Random) -> ExecutorStats:
    def counts() -> dict[str, dict[tuple[str, str], int]]:
        return {window: {("words", "default"): draw.randrange(10**9)} for window in WINDOWS}

    def averages() -> dict[str, dict[tuple[str, str], float]]:
        return {window: {("words", "default"): draw.random()} for window in WINDOWS}

    emitted = {window: {"default": draw.randrange(10**9)} for window in WINDOWS}
    specific = BoltStats(counts(), counts(), counts(), averages(), averages())
    return ExecutorStats(specific, emitted, emitted)


def executors(count: int) -> list[Executor]:
    return [Executor(task, task) for task in range(1, count + 1)]


def test_few_executors_report_each_their_own():
    draw = random.Random(1)
    some = executors(EXECUTORS_MAX)
    stats = {executor: bolt(draw) for executor in some}
    assert fitting_stats(some, stats, lambda executor: "count") is stats


def test_many_executors_report_sums_by_component_that_fit():
    draw = random.Random(1)
    many = executors(2_000)
    stats = {executor: bolt(draw) for executor in many}
    found = fitting_stats(many, stats, lambda e: "first" if e.task_start <= 300 else "second")
    assert list(found) == [Executor(1, 1), Executor(301, 301)]
    for window in WINDOWS:
        emitted = [one.emitted[window]["default"] for one in stats.values()]
        assert sum(one.emitted[window]["default"] for one in found.values()) == sum(emitted)
    beat = WorkerHeartbeat("wc-1-1", {e: found.get(e) for e in many}, 1, 1)
    value = codec.encode_heartbeat(beat)
    assert len(value) < NODE_BYTES_MAX / 25
    assert codec.decode_heartbeat("/p", value) == beat
    signs = codec.decode_signs("/p", value).executor_stats
    assert signs.keys() == beat.executor_stats.keys()


def test_averages_are_weighed_by_what_they_are_averages_of():
    spouts = [
        ExecutorStats(SpoutStats({"600": {"default": n}}, {}, {"600": {"default": ms}}))
        for n, ms in ((1, 10.0), (3, 50.0))
    ]
    both = summed(spouts)
    assert both.specific == SpoutStats({"600": {"default": 4}}, {}, {"600": {"default": 40.0}})


async def test_a_heartbeat_that_does_not_fit_goes_without_its_statistics(caplog, monkeypatch):
    monkeypatch.setattr(state_module, "NODE_BYTES_MAX", 10_000)
    draw = random.Random(1)
    state = ClusterState(MemoryStore(MemoryEnsemble()))
    await state.start()
    await state.setup_heartbeats("wc-1-1")
    some = executors(200)
    beat = WorkerHeartbeat("wc-1-1", {e: bolt(draw) for e in some}, 1, 1)
    state.put_worker_beat_nowait(SLOT, beat)
    state.put_worker_beat_nowait(SLOT, beat)
    ((stored, _),) = (await state.worker_beats("wc-1-1")).values()
    assert stored.executor_stats == dict.fromkeys(some)
    assert caplog.text.count("statistics_do_not_fit") == 1
    await state.close()
