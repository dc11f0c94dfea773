"""Whether a topology has finished, from what its workers report."""

from __future__ import annotations

import random

import pytest
from tests.support.nimbus_service import LocalNimbus, LocalPeers, eventually

from squall_common.cluster import codec
from squall_common.cluster.stores.memory import MemoryEnsemble
from squall_common.cluster.values import (
    Assignment,
    ExecutorStats,
    SpoutStats,
    StormBase,
    TopologyStatus,
    WorkerEnd,
    WorkerHeartbeat,
    WorkerReport,
)
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.metrics_page import _Cluster
from squall_nimbus.scheduler.heartbeats import ReportedEnd
from squall_nimbus.views.rest import Rest, has_ended, has_finished_as_reported, were_at_rest
from squall_nimbus.views.stats import Totals
from squall_thrift.protocol.messages import ThriftApplicationError

SLOT = WorkerSlot("sup-a", 6700)
WORDS = Executor(4, 4)


def test_one_worker_at_rest_is_enough_for_itself() -> None:
    assert were_at_rest([Rest(age_secs=0.0, rest_secs=0.0)])
    assert not were_at_rest([None])
    assert not were_at_rest([])


def test_two_workers_were_at_rest_at_the_same_time_for_certain() -> None:
    assert were_at_rest([Rest(1.0, 10.0), Rest(2.0, 8.0)])
    # The first may have worked until a second ago, and the report of the other is older.
    assert not were_at_rest([Rest(0.0, 1.0), Rest(2.0, 100.0)])
    # Reports may have been under way for a while.
    assert not were_at_rest([Rest(0.0, 2.9), Rest(0.0, 100.0)])
    assert were_at_rest([Rest(0.0, 3.0), Rest(0.0, 100.0)])


def test_a_worker_that_is_busy_or_silent_is_not_at_rest() -> None:
    assert not were_at_rest([Rest(0.0, 100.0), None])
    assert not were_at_rest([Rest(31.0, 100.0)])


def test_reports_that_are_taken_as_rest_have_a_moment_in_common() -> None:
    """Whatever the workers did, and however long each report took (up to three seconds)."""
    rng = random.Random(7)
    common = 0
    for _ in range(5_000):
        rests, spans = [], []
        for _ in range(rng.randint(2, 4)):
            age, under_way, rest = rng.uniform(0, 9), rng.uniform(0, 3), rng.expovariate(0.1)
            rests.append(Rest(age, rest))
            made = -age - under_way
            spans.append((made - rest, made))
        if were_at_rest(rests):
            common += 1
            assert max(began for began, _ in spans) <= min(ended for _, ended in spans)
    assert common > 500


def test_a_spout_has_ended_when_all_of_its_tasks_have() -> None:
    assert has_ended(Totals(tasks=2, exhausted=2)) is True
    assert has_ended(Totals(tasks=2, exhausted=1)) is False
    assert has_ended(Totals()) is False  # nothing has reported
    assert has_ended(Totals(tasks=2, exhausted=1, endless=True)) is None


def finished(*workers: ReportedEnd | None, executors: int | None = None) -> bool | None:
    """Of a topology with an executor in each of these workers."""
    slots = [WorkerSlot("sup-a", 6700 + number) for number in range(len(workers))]
    placed = {Executor(n, n): slot for n, slot in enumerate(slots, 1)}
    base = StormBase(
        "words",
        TopologyStatus.ACTIVE,
        len(slots),
        component_executors={"words": len(slots) if executors is None else executors},
    )
    ends = {slot: one for slot, one in zip(slots, workers, strict=True) if one is not None}
    return has_finished_as_reported(base, Assignment("", {}, placed), ends)


AT_REST = ReportedEnd(1.0, WorkerEnd(9_000, says_end=True))
BUSY = ReportedEnd(1.0, WorkerEnd(None, says_end=True))
ENDLESS = ReportedEnd(1.0, WorkerEnd(9_000, says_end=False))


def test_a_list_says_whether_a_topology_has_finished_from_less() -> None:
    assert finished(AT_REST, AT_REST) is True
    assert finished(AT_REST, BUSY) is False
    assert finished(AT_REST, None) is False  # it has not reported
    assert finished(AT_REST, executors=2) is False  # one has no slot
    assert finished(AT_REST, ReportedEnd(40.0, AT_REST.end)) is False  # it may have been replaced
    assert finished(AT_REST, ENDLESS) is None
    assert finished(None, None) is None
    assert finished() is None


def test_executors_without_statistics_count_with_those_that_sum_them_up() -> None:
    """A worker of very many executors reports those of a component under the first."""
    totals = Totals()
    summed = ExecutorStats(SpoutStats(), exhausted_tasks=3)
    for task, stats in ((1, summed), (2, None), (3, None)):
        totals.add(Executor(task, task), stats, 60, ":all-time", include_system=False)
    assert (totals.tasks, totals.exhausted, totals.endless) == (3, 3, False)
    totals.add(Executor(4, 4), ExecutorStats(SpoutStats()), 60, ":all-time", include_system=False)
    assert totals.endless


@pytest.mark.parametrize(
    ("exhausted", "rest_ms", "finished"),
    [(1, 5_000, True), (1, None, False), (0, None, False), (None, 5_000, None)],
)
async def test_the_page_says_whether_a_topology_has_finished(
    tmp_path, exhausted, rest_ms, finished
) -> None:
    async with LocalNimbus(tmp_path, conf={"nimbus.monitor.freq.secs": 3600}) as nimbus:
        await nimbus.leads()
        supervisor = await nimbus.supervisor("sup-a", host="host-a")
        topology_id = await nimbus.submit()
        page = await nimbus.call("getTopologyPageInfo", topology_id, "600", False)
        assert page.finished is False  # no worker has reported
        assert (await nimbus.call("getTopologySummary", topology_id)).finished is None
        assert page.id_to_spout_agg_stats["words"].specific_stats.spout.exhausted_tasks == 0

        executors = (await nimbus.state.assignment(topology_id))[0].slots()[SLOT]
        stats = dict.fromkeys(executors)
        stats[WORDS] = ExecutorStats(SpoutStats(), exhausted_tasks=exhausted)
        beat = WorkerHeartbeat(
            topology_id, stats, 100, 60, rest_ms=rest_ms, says_end=exhausted is not None
        )
        report = WorkerReport(
            topology_id, SLOT, tuple(executors), 100, (5, 1), codec.encode_heartbeat(beat)
        )
        now = nimbus.nimbus.clock.monotonic()
        assert nimbus.nimbus.heartbeats.take(report, now)
        page = await nimbus.call("getTopologyPageInfo", topology_id, "600", False)
        assert page.finished is finished
        spout = page.id_to_spout_agg_stats["words"].specific_stats.spout
        assert spout.exhausted_tasks == exhausted

        (summary,) = (await nimbus.call("getClusterInfo")).topologies
        assert summary.finished is finished
        shown = _Cluster(nimbus.nimbus)
        await shown.read()
        samples = {one.name: one.samples for one in shown.found}["squall_topology_finished"]
        assert [(one.labels, one.value) for one in samples] == (
            [] if finished is None else [({"topology": page.name}, finished)]
        )
        await supervisor.close()


async def test_a_nimbus_that_does_not_lead_says_what_the_leader_says(tmp_path) -> None:
    """In lists and on pages; nothing while the leader cannot be reached, rather than that a
    topology has not finished."""
    ensemble, peers = MemoryEnsemble(), LocalPeers()
    conf = {"nimbus.monitor.freq.secs": 3600}
    async with LocalNimbus(tmp_path / "a", ensemble=ensemble, peers=peers, conf=conf) as leader:
        await leader.leads()
        supervisor = await leader.supervisor("sup-a", host="host-a")
        async with LocalNimbus(
            tmp_path / "b", ensemble=ensemble, peers=peers, port=6628, conf=conf
        ) as other:
            topology_id = await leader.submit()

            async def has_code() -> bool:
                try:
                    return bool(await other.call("getTopologyPageInfo", topology_id, "600", False))
                except ThriftApplicationError:
                    return False

            await eventually(has_code, "the other Nimbus has the topology")

            async def said() -> list[bool | None]:
                (listed,) = await other.call("getTopologySummaries")
                (of_cluster,) = (await other.call("getClusterInfo")).topologies
                one = await other.call("getTopologySummary", topology_id)
                page = await other.call("getTopologyPageInfo", topology_id, "600", False)
                return [listed.finished, of_cluster.finished, one.finished, page.finished]

            assert await said() == [None] * 4  # no worker has reported
            executors = (await leader.state.assignment(topology_id))[0].slots()[SLOT]
            stats = dict.fromkeys(executors)
            stats[WORDS] = ExecutorStats(SpoutStats(), exhausted_tasks=1)
            for rest_ms, finished in ((None, False), (5_000, True)):
                beat = WorkerHeartbeat(topology_id, stats, 100, 60, rest_ms=rest_ms, says_end=True)
                report = WorkerReport(
                    topology_id, SLOT, tuple(executors), 100, (5, 1), codec.encode_heartbeat(beat)
                )
                now = leader.nimbus.clock.monotonic()
                assert leader.nimbus.heartbeats.take(report, now)
                assert await said() == [finished] * 4
            with pytest.raises(ThriftApplicationError, match="is not the leader"):
                await other.call("getFinishedTopologies")
            peers.cut.add(6627)
            assert await said() == [None] * 4
        await supervisor.close()
