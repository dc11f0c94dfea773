"""Answers to clients: summaries and pages with numbers from heartbeats, and no secrets."""

import asyncio
import json
from dataclasses import replace

import pytest
from tests.support.nimbus_service import LocalNimbus, eventually

from squall_common.cluster.values import (
    BlobHolder,
    BoltStats,
    CheckpointReport,
    ErrorInfo,
    ExecutorStats,
    SpoutStats,
)
from squall_common.history.histogram import bucket_of, pack
from squall_common.names import code_blob_key
from squall_common.topology.model import Executor, WorkerSlot
from squall_thrift import codec, storm
from squall_thrift.protocol.messages import ThriftApplicationError

SLOT = WorkerSlot("sup-a", 6700)
# Components are numbered in the order of their names: __acker 1, count 2 and 3, words 4.
ACKER, COUNT_1, COUNT_2, WORDS = (Executor(task, task) for task in (1, 2, 3, 4))
WORD = ("words", "default")


def everywhere(value):
    return dict.fromkeys(("600", "10800", "86400", ":all-time"), value)


def took(ms: float, tuples: int) -> bytes:
    return pack({bucket_of(ms / 1000): tuples})


def bolt(executed: int, execute_ms: float, acked: int, process_ms: float) -> ExecutorStats:
    return ExecutorStats(
        specific=BoltStats(
            acked=everywhere({WORD: acked}),
            failed=everywhere({WORD: 1}),
            executed=everywhere({WORD: executed}),
            process_ms_avg=everywhere({WORD: process_ms}),
            execute_ms_avg=everywhere({WORD: execute_ms}),
            execute_histograms=everywhere({WORD: took(execute_ms, executed)}),
            process_histograms=everywhere({WORD: took(process_ms, acked)}),
        ),
        emitted=everywhere({"default": 5, "__ack_ack": 100}),
        transferred=everywhere({"default": 5, "__ack_ack": 100}),
        queue_tuples=executed,
        queue_bytes=1_000,
        state_keys=executed,
        state_bytes=100 * executed,
        blocked_secs=everywhere({"sink": 6.0}),
        credit_bytes={"sink": 100 * acked},
    )


SPOUT_STATS = ExecutorStats(
    specific=SpoutStats(
        acked=everywhere({"default": 38}),
        failed=everywhere({"default": 2}),
        complete_ms_avg=everywhere({"default": 12.5}),
        complete_histograms=everywhere({"default": took(12.5, 38), "__system": b"damaged"}),
    ),
    emitted={**everywhere({"default": 40, "__ack_init": 40}), "600": {"default": 10}},
    transferred=everywhere({"default": 40, "__ack_init": 40}),
)
STATS = {
    ACKER: None,
    COUNT_1: bolt(executed=30, execute_ms=10.0, acked=20, process_ms=4.0),
    COUNT_2: bolt(executed=10, execute_ms=2.0, acked=10, process_ms=1.0),
    WORDS: SPOUT_STATS,
}


@pytest.fixture
async def nimbus(tmp_path):
    conf = {"storm.zookeeper.auth.payload": "user:secret", "nimbus.seeds": ["127.0.0.1"]}
    async with LocalNimbus(tmp_path, conf=conf) as nimbus:
        await nimbus.leads()
        supervisor = await nimbus.supervisor("sup-a", host="host-a")
        yield nimbus
        await supervisor.close()


@pytest.fixture
async def topology_id(nimbus) -> str:
    topology_id = await nimbus.submit(
        conf={"topology.version": "7", "my.password": "hunter2", "mine": [1, None]}
    )
    await nimbus.beat(topology_id, SLOT, STATS, uptime_secs=60)
    error = ErrorInfo("Traceback: boom", 1_700_000_001, "host-a", 6700)
    await nimbus.state.report_error(topology_id, "count", error)
    return topology_id


async def complete(result: object) -> object:
    """Strict clients fail on a result that lacks a required field: so does our encoder."""
    codec.to_bytes(result)
    return result


async def test_the_cluster_summary_has_an_entry_for_each(nimbus, topology_id) -> None:
    info = await complete(await nimbus.call("getClusterInfo"))
    (supervisor,) = info.supervisors
    assert (supervisor.host, supervisor.supervisor_id) == ("host-a", "sup-a")
    assert (supervisor.num_workers, supervisor.num_used_workers) == (2, 1)
    assert supervisor.uptime_secs == 7
    (topology,) = info.topologies
    assert (topology.id, topology.name, topology.status) == (topology_id, "wordcount", "ACTIVE")
    assert (topology.num_tasks, topology.num_executors, topology.num_workers) == (4, 4, 1)
    assert topology.topology_version == "7"
    assert topology.sched_status == "Fully Scheduled"
    (one,) = info.nimbuses
    assert (one.host, one.port, one.isLeader) == ("127.0.0.1", 6627, True)
    assert one.uptime_secs < 60
    assert tuple(map(int, one.version.split("."))) >= (1, 1, 0)
    assert await nimbus.call("getTopologySummaries") == [topology]
    assert await nimbus.call("getTopologySummary", topology_id) == topology
    assert await nimbus.call("getTopologySummaryByName", "wordcount") == topology


async def test_the_topology_page_sums_up_what_executors_report(nimbus, topology_id) -> None:
    page = await complete(await nimbus.call("getTopologyPageInfo", topology_id, ":all-time", False))
    assert (page.num_tasks, page.num_executors, page.num_workers) == (4, 4, 1)
    words = page.id_to_spout_agg_stats["words"]
    assert words.type == storm.ComponentType.SPOUT
    assert (words.common_stats.emitted, words.common_stats.transferred) == (40, 40)
    assert (words.common_stats.acked, words.common_stats.failed) == (38, 2)
    assert words.specific_stats.spout.complete_latency_ms == 12.5
    assert set(page.id_to_bolt_agg_stats) == {"count"}
    count = page.id_to_bolt_agg_stats["count"]
    assert (count.common_stats.num_executors, count.common_stats.num_tasks) == (2, 2)
    assert (count.common_stats.emitted, count.common_stats.acked) == (10, 30)
    assert count.common_stats.failed == 2
    assert count.specific_stats.bolt.executed == 40
    assert count.specific_stats.bolt.execute_latency_ms == pytest.approx((300 + 20) / 40)
    assert count.specific_stats.bolt.process_latency_ms == pytest.approx((80 + 10) / 30)
    # The busier executor: 30 times 10 ms in the 60 s that its worker runs.
    assert count.specific_stats.bolt.capacity == pytest.approx(0.3 / 60)
    assert count.last_error.error == "Traceback: boom"
    stats = page.topology_stats
    assert stats.window_to_emitted == {**everywhere(50), "600": 20}
    assert stats.window_to_acked == everywhere(38)  # how the spouts' tuples ended
    assert stats.window_to_failed == everywhere(2)
    assert stats.window_to_complete_latencies_ms == everywhere(12.5)
    (worker,) = page.workers
    assert (worker.host, worker.port, worker.uptime_secs) == ("host-a", 6700, 60)
    assert worker.component_to_num_tasks == {"count": 2, "words": 1}
    assert json.loads(page.topology_conf)["my.password"] == "*****"


@pytest.mark.parametrize(
    ("limits", "calls", "calls_max", "capacity"),
    [
        ((100, 50), 0.5 + 1 / 30, 150, 0.5 / 100),
        ((1, 1), 0.5 + 1 / 30, 2, 0.5),
        ((None, None), None, None, 0.5),
    ],
)
async def test_capacity_is_a_share_of_the_calls_that_a_bolt_makes_at_once(
    nimbus, topology_id, limits, calls, calls_max, capacity
) -> None:
    """In a minute 300 calls of 100 ms, and 100 of 20 ms."""
    one, other = (
        replace(stats, calls_max=limit, on_threads=limit == 1)
        for stats, limit in zip(
            (bolt(300, 100.0, 300, 100.0), bolt(100, 20.0, 100, 20.0)), limits, strict=True
        )
    )
    stats = {**STATS, COUNT_1: one, COUNT_2: other}
    await nimbus.beat(topology_id, SLOT, stats, uptime_secs=60)
    page = await complete(await nimbus.call("getTopologyPageInfo", topology_id, "600", False))
    found = page.id_to_bolt_agg_stats["count"].specific_stats.bolt
    assert found.capacity == pytest.approx(capacity)
    assert found.calls_max == calls_max
    assert found.calls == (None if calls is None else pytest.approx(calls))
    assert found.on_threads == (None if calls is None else limits == (1, 1))


async def test_pages_have_percentiles_of_all_tuples_together(nimbus, topology_id) -> None:
    page = await complete(await nimbus.call("getTopologyPageInfo", topology_id, "600", True))
    execute = page.id_to_bolt_agg_stats["count"].specific_stats.bolt.execute_latency
    # 10 of 40 tuples took 2 ms, the others 10 ms.
    assert (execute.count, execute.buckets) == (40, None)
    assert execute.p50_ms == execute.p95_ms == execute.p99_ms == pytest.approx(10, rel=0.05)
    words = page.id_to_spout_agg_stats["words"].specific_stats.spout
    assert words.complete_latency.p50_ms == pytest.approx(12.5, rel=0.05)
    times = page.topology_stats.window_to_complete_latency
    assert set(times) == set(everywhere(0))
    assert (times["600"].count, times["600"].p99_ms) == (38, pytest.approx(12.5, rel=0.05))
    assert page.id_to_bolt_agg_stats["__acker"].specific_stats.bolt.execute_latency is None

    page = await complete(
        await nimbus.call("getComponentPageInfo", topology_id, "count", "600", False)
    )
    stats = page.window_to_stats["600"].specific_stats.bolt.process_latency
    assert [bucket.count for bucket in stats.buckets] == [10, 20]
    assert stats.buckets[0].upper_ms == pytest.approx(1.0, rel=0.1)
    (source,) = page.gsid_to_input_stats.values()
    assert source.specific_stats.bolt.execute_latency.count == 40


async def test_pages_say_what_waits_and_for_whom(nimbus, topology_id) -> None:
    page = await nimbus.call("getTopologyPageInfo", topology_id, "600", False)
    common = page.id_to_bolt_agg_stats["count"].common_stats
    assert (common.queue_tuples, common.queue_bytes) == (40, 2_000)
    assert (common.state_keys, common.state_bytes) == (40, 4_000)
    words = page.id_to_spout_agg_stats["words"].common_stats
    assert (words.state_keys, words.state_bytes) == (None, None)  # it has no state
    assert common.blocked_share == {"sink": pytest.approx(0.1)}  # 6 of 60 s, both of them
    assert common.credit_bytes == {"sink": 1_000}
    (worker,) = page.workers
    assert worker.usage is None  # an older worker does not report it


async def test_the_worker_is_named_whose_store_fails(nimbus) -> None:
    """Not only the one that coordinates the checkpoints."""
    topology_id = await nimbus.submit(conf={"topology.workers": 2})
    assignment, _ = await nimbus.state.assignment(topology_id)
    executors = sorted(assignment.executor_slot)
    coordinates = assignment.executor_slot[executors[0]]
    (other,) = set(assignment.executor_slot.values()) - {coordinates}
    mine = {
        slot: {one: None for one in executors if assignment.executor_slot[one] == slot}
        for slot in (coordinates, other)
    }
    report = CheckpointReport(epoch=3, interval_ms=1000)
    await nimbus.beat(topology_id, coordinates, mine[coordinates], checkpoints=report)
    await nimbus.beat(topology_id, other, mine[other], store_failure="the disk is full")
    page = await nimbus.call("getTopologyPageInfo", topology_id, "600", False)
    assert page.checkpoints.failure == f"the disk is full (host-a:{other.port})"
    await nimbus.beat(topology_id, other, mine[other], time_secs=2)

    async def works() -> bool:
        page = await nimbus.call("getTopologyPageInfo", topology_id, "600", False)
        return page.checkpoints.failure is None

    await eventually(works, "the failure is gone")


async def test_system_components_and_streams_are_shown_when_asked_for(nimbus, topology_id) -> None:
    page = await nimbus.call("getTopologyPageInfo", topology_id, "600", True)
    assert "__acker" in page.id_to_bolt_agg_stats
    assert page.id_to_bolt_agg_stats["count"].common_stats.emitted == 210
    assert page.id_to_spout_agg_stats["words"].common_stats.emitted == 10


async def test_a_topology_without_reports_has_pages_of_zeros(nimbus) -> None:
    topology_id = await nimbus.submit("quiet")
    page = await complete(await nimbus.call("getTopologyPageInfo", topology_id, "600", True))
    assert page.id_to_spout_agg_stats["words"].common_stats.emitted == 0
    assert page.topology_stats.window_to_complete_latencies_ms == everywhere(0.0)
    info = await complete(await nimbus.call("getTopologyInfo", topology_id))
    assert {one.uptime_secs for one in info.executors} == {0}
    await complete(await nimbus.call("getComponentPageInfo", topology_id, "count", "600", False))


async def test_the_component_page_of_a_bolt(nimbus, topology_id) -> None:
    page = await complete(
        await nimbus.call("getComponentPageInfo", topology_id, "count", ":all-time", False)
    )
    assert page.component_type == storm.ComponentType.BOLT
    assert (page.num_executors, page.num_tasks) == (2, 2)
    source = storm.GlobalStreamId(componentId="words", streamId="default")
    received = page.gsid_to_input_stats[source]
    assert received.specific_stats.bolt.executed == 40
    assert received.common_stats.acked == 30
    assert page.sid_to_output_stats["default"].common_stats.emitted == 10
    assert page.window_to_stats["600"].specific_stats.bolt.executed == 40
    assert [one.exec_summary.executor_info.task_start for one in page.exec_stats] == [2, 3]
    assert [one.stats.specific_stats.bolt.executed for one in page.exec_stats] == [30, 10]
    assert [error.error for error in page.errors] == ["Traceback: boom"]


async def test_the_component_page_of_a_spout(nimbus, topology_id) -> None:
    page = await complete(
        await nimbus.call("getComponentPageInfo", topology_id, "words", "600", False)
    )
    assert page.component_type == storm.ComponentType.SPOUT
    assert page.gsid_to_input_stats == {}
    default = page.sid_to_output_stats["default"]
    assert (default.common_stats.emitted, default.common_stats.acked) == (10, 38)
    assert default.specific_stats.spout.complete_latency_ms == 12.5
    with pytest.raises(ThriftApplicationError, match="no component 'nobody'"):
        await nimbus.call("getComponentPageInfo", topology_id, "nobody", "600", False)


@pytest.mark.parametrize(
    ("choice", "number"),
    [
        (storm.NumErrorsChoice.ALL, 2),
        (storm.NumErrorsChoice.ONE, 1),
        (storm.NumErrorsChoice.NONE, 0),
        (None, 2),
    ],
)
async def test_topology_info_has_as_many_errors_as_asked_for(
    nimbus, topology_id, choice, number
) -> None:
    newer = ErrorInfo("newer", 1_700_000_002)
    await nimbus.state.report_error(topology_id, "count", newer)
    options = storm.GetInfoOptions(num_err_choice=choice)
    info = await complete(await nimbus.call("getTopologyInfoWithOpts", topology_id, options))
    assert len(info.errors["count"]) == number
    if number:
        assert info.errors["count"][0].error == "newer"
    assert info.errors["words"] == []
    by_name = await nimbus.call("getTopologyInfoByNameWithOpts", "wordcount", options)
    assert by_name.errors == info.errors
    executors = {one.executor_info.task_start: one for one in info.executors}
    assert {task: one.component_id for task, one in executors.items()} == {
        1: "__acker", 2: "count", 3: "count", 4: "words",
    }  # fmt: skip
    assert executors[4].stats.specific.spout.acked[":all-time"] == {"default": 38}
    assert executors[1].stats is None
    assert executors[4].uptime_secs == 60


async def test_the_supervisor_page(nimbus, topology_id) -> None:
    for args in (("sup-a", None), (None, "host-a")):
        page = await complete(await nimbus.call("getSupervisorPageInfo", *args, True))
        assert [one.supervisor_id for one in page.supervisor_summaries] == ["sup-a"]
        (worker,) = page.worker_summaries
        assert worker.topology_id == topology_id
        assert worker.component_to_num_tasks == {"__acker": 1, "count": 2, "words": 1}
    nobody = await nimbus.call("getSupervisorPageInfo", "other", None, True)
    assert nobody.worker_summaries == []


async def test_the_topology_as_submitted_and_as_compiled(nimbus, topology_id) -> None:
    mine = await complete(await nimbus.call("getUserTopology", topology_id))
    assert set(mine.bolts) == {"count"}
    compiled = await complete(await nimbus.call("getTopology", topology_id))
    assert set(compiled.bolts) == {"__acker", "__system", "count"}
    assert "__ack_init" in compiled.spouts["words"].common.streams


async def test_confs_are_shown_without_secrets_and_name_this_nimbus(nimbus, topology_id) -> None:
    mine = json.loads(await nimbus.call("getTopologyConf", topology_id))
    assert mine["mine"] == "*****"  # a key of the topology's own may hold anything
    assert mine["my.password"] == "*****"
    assert mine["topology.name"] == "wordcount"
    assert (mine["nimbus.seeds"], mine["nimbus.thrift.port"]) == (["127.0.0.1"], 6627)
    conf = json.loads(await nimbus.call("getNimbusConf"))
    assert conf["storm.zookeeper.auth.payload"] == "*****"
    assert "secret" not in json.dumps(conf)
    assert conf["nimbus.task.timeout.secs"] == 45


async def test_sums_for_an_owner(nimbus, topology_id) -> None:
    await nimbus.submit("second")
    (owner,) = await nimbus.call("getOwnerResourceSummaries", None)
    assert (owner.owner, owner.total_topologies) == ("anonymous", 2)
    assert (owner.total_executors, owner.total_tasks, owner.total_workers) == (8, 8, 2)
    (nobody,) = await nimbus.call("getOwnerResourceSummaries", "nobody")
    assert nobody.total_topologies == 0


@pytest.mark.parametrize("name", ["", "a/b", " a", "..", "a.b", "x" * 300])
async def test_invalid_names_are_not_allowed(nimbus, name) -> None:
    assert await nimbus.call("isTopologyNameAllowed", name) is False


async def test_a_live_name_is_not_allowed_and_a_free_one_is(nimbus, topology_id) -> None:
    assert await nimbus.call("isTopologyNameAllowed", "wordcount") is False
    assert await nimbus.call("isTopologyNameAllowed", "other") is True


@pytest.mark.parametrize("topology_id", ["nobody", "", "../storms", "a/b", "x-1-1"])
@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("getTopology", ()),
        ("getTopologyConf", ()),
        ("getTopologyInfo", ()),
        ("getTopologySummary", ()),
        ("getTopologyPageInfo", ("600", False)),
    ],
)
async def test_an_unknown_id_is_not_alive(nimbus, method, more, topology_id) -> None:
    with pytest.raises(storm.NotAliveException):
        await nimbus.call(method, topology_id, *more)


async def test_the_platforms_of_supervisors_are_reported(nimbus) -> None:
    async with asyncio.timeout(20):
        assert await nimbus.call("getSupervisorPlatforms") == {}
        states = [
            await nimbus.supervisor("old", host="a", platform="cp3.11 linux_x86_64 glibc2.31"),
            await nimbus.supervisor("new", host="b", platform="cp3.11 linux_x86_64 glibc2.36"),
            await nimbus.supervisor("silent", host="c"),
        ]
        assert await nimbus.call("getSupervisorPlatforms") == {
            "a": "cp3.11 linux_x86_64 glibc2.31",
            "b": "cp3.11 linux_x86_64 glibc2.36",
        }
        for state in states:
            await state.close()


async def test_only_known_resources_are_shown(nimbus, topology_id) -> None:
    info = await complete(await nimbus.call("getClusterInfo"))
    (supervisor,) = info.supervisors
    assert (supervisor.used_mem, supervisor.used_cpu) == (None, None)
    (owner,) = await nimbus.call("getOwnerResourceSummaries", None)
    assert (owner.memory_usage, owner.cpu_usage) == (None, None)


async def test_the_replication_count_is_that_of_the_topologys_code(nimbus, topology_id) -> None:
    async def counts() -> set[int]:
        summary = await nimbus.call("getTopologySummary", topology_id)
        info = await nimbus.call("getTopologyInfo", topology_id)
        page = await nimbus.call("getTopologyPageInfo", topology_id, None, False)
        return {one.replication_count for one in (summary, info, page)}

    assert await counts() == {1}
    holder = BlobHolder("127.0.0.1", 9, await code_version(nimbus, topology_id))
    await nimbus.state.announce_blob(code_blob_key(topology_id), holder)
    assert await counts() == {2}


async def code_version(nimbus, topology_id: str) -> int:
    record, _ = await nimbus.state.blob(code_blob_key(topology_id))
    return record.meta.version


async def test_the_health_of_a_topology_is_in_its_summary(nimbus, topology_id) -> None:
    """Its supervisor publishes no reports here, like an older one."""
    assert (await nimbus.call("getTopologySummary", topology_id)).health == "ok"
    waiting = await nimbus.submit("waiting", conf={"topology.workers": 2})
    more = await nimbus.submit("more")
    assert (await nimbus.call("getTopologySummary", waiting)).health == "ok"
    assert (await nimbus.call("getTopologySummary", more)).health == "no free slot"


async def test_the_submitter_is_the_connections_user(nimbus) -> None:
    said = {"topology.submitter.user": "root", "topology.submitter.principal": "root@EXAMPLE"}
    topology_id = await nimbus.submit("forged", conf=said)
    conf = json.loads(await nimbus.call("getTopologyConf", topology_id))
    assert conf["topology.submitter.user"] == "anonymous"
    assert conf["topology.submitter.principal"] is None
    base = await nimbus.state.storm_base(topology_id)
    assert (base.owner, base.principal) == ("anonymous", None)
