"""What a Nimbus answers about one small topology, for tests of the UI."""

from __future__ import annotations

import json
from typing import Any

from tests.support.fake_nimbus import FakeNimbus

from squall_thrift import storm

ID = "words-1-1700000000"
BIG = "big-2-1700000000"
HOSTILE = '<script>alert("x")</script>'


def summary(**changes: Any) -> storm.TopologySummary:
    fields: dict[str, Any] = {
        "id": ID,
        "name": "words",
        "num_tasks": 4,
        "num_executors": 4,
        "num_workers": 1,
        "uptime_secs": 106210,
        "status": "ACTIVE",
        "sched_status": "Fully Scheduled",
        "owner": "ann",
        "replication_count": 2,
        "health": "ok",
        "last_exit": storm.WorkerExit(
            time_secs=1_700_000_100, host="node1", port=6700, reason="signal 9", last_line="x"
        ),
        "restarts": 1,
    }
    return storm.TopologySummary(**{**fields, **changes})


def supervisor() -> storm.SupervisorSummary:
    return storm.SupervisorSummary(
        host="node1",
        uptime_secs=90,
        num_workers=4,
        num_used_workers=1,
        supervisor_id="sup-1",
        version="0.1.0",
        total_resources={"supervisor.memory.capacity.mb": 4096.0, "supervisor.cpu.capacity": 400.0},
        used_mem=1024.0,
        used_cpu=50.0,
        blacklisted=False,
    )


def cluster(*topologies: storm.TopologySummary) -> storm.ClusterSummary:
    return storm.ClusterSummary(
        supervisors=[supervisor()],
        topologies=list(topologies or (summary(),)),
        nimbuses=[
            storm.NimbusSummary(
                host="nimbus1", port=6627, uptime_secs=60, isLeader=True, version="0.1.0"
            ),
            storm.NimbusSummary(
                host="nimbus2", port=6627, uptime_secs=60, isLeader=False, version="0.1.0"
            ),
        ],
    )


def error(text: str = "ValueError: no") -> storm.ErrorInfo:
    return storm.ErrorInfo(error=text, error_time_secs=1_700_000_000, host="node1", port=6700)


def spout(emitted: int = 2400) -> storm.ComponentAggregateStats:
    return storm.ComponentAggregateStats(
        type=storm.ComponentType.SPOUT,
        common_stats=storm.CommonAggregateStats(
            num_executors=1, num_tasks=1, emitted=emitted, transferred=emitted, acked=emitted - 40,
            failed=3,
        ),
        specific_stats=storm.SpecificAggregateStats(
            spout=storm.SpoutAggregateStats(complete_latency_ms=4.8)
        ),
    )  # fmt: skip


def bolt(executed: int = 2400, capacity: float = 0.15) -> storm.ComponentAggregateStats:
    return storm.ComponentAggregateStats(
        type=storm.ComponentType.BOLT,
        common_stats=storm.CommonAggregateStats(
            num_executors=2, num_tasks=2, emitted=7200, transferred=7200, acked=executed, failed=0
        ),
        specific_stats=storm.SpecificAggregateStats(
            bolt=storm.BoltAggregateStats(
                execute_latency_ms=0.02, process_latency_ms=0.015, executed=executed,
                capacity=capacity,
            )
        ),
        last_error=error(),
    )  # fmt: skip


def worker() -> storm.WorkerSummary:
    return storm.WorkerSummary(
        supervisor_id="sup-1", host="node1", port=6700, topology_id=ID, topology_name="words",
        num_executors=4, component_to_num_tasks={"lines": 1, "split": 2}, time_secs=1,
        uptime_secs=100, owner="ann",
    )  # fmt: skip


def topology_page(spouts: Any = None, bolts: Any = None, **changes: Any) -> storm.TopologyPageInfo:
    windows = ("600", "10800", "86400", ":all-time")
    fields: dict[str, Any] = {
        "id": ID,
        "name": "words",
        "uptime_secs": 106210,
        "status": "ACTIVE",
        "num_tasks": 4,
        "num_workers": 1,
        "num_executors": 4,
        "topology_conf": json.dumps({"topology.workers": 1, "topology.message.timeout.secs": 45}),
        "id_to_spout_agg_stats": spouts or {"lines": spout()},
        "id_to_bolt_agg_stats": bolts or {"split": bolt()},
        "sched_status": "Fully Scheduled",
        "topology_stats": storm.TopologyStats(
            window_to_emitted=dict.fromkeys(windows, 12000),
            window_to_transferred=dict.fromkeys(windows, 12000),
            window_to_complete_latencies_ms=dict.fromkeys(windows, 5.123),
            window_to_acked=dict.fromkeys(windows, 6000),
            window_to_failed=dict.fromkeys(windows, 0),
        ),
        "owner": "ann",
        "debug_options": storm.DebugOptions(enable=False, samplingpct=10.0),
        "replication_count": 2,
        "workers": [worker()],
    }
    return storm.TopologyPageInfo(**{**fields, **changes})


def code() -> storm.StormTopology:
    source = storm.GlobalStreamId(componentId="lines", streamId="default")
    made_of = storm.ComponentObject(serialized_java=b"")
    streams = {"default": storm.StreamInfo(output_fields=["x"], direct=False)}
    shuffle = storm.Grouping(shuffle=storm.NullStruct())
    return storm.StormTopology(
        spouts={
            "lines": storm.SpoutSpec(
                spout_object=made_of,
                common=storm.ComponentCommon(inputs={}, streams=streams),
            )
        },
        bolts={
            "split": storm.Bolt(
                bolt_object=made_of,
                common=storm.ComponentCommon(inputs={source: shuffle}, streams=streams),
            )
        },
        state_spouts={},
    )


def executor(component: str, task: int, stats: storm.ExecutorStats | None) -> storm.ExecutorSummary:
    return storm.ExecutorSummary(
        executor_info=storm.ExecutorInfo(task_start=task, task_end=task), component_id=component,
        host="node1", port=6700, uptime_secs=100, stats=stats,
    )  # fmt: skip


def spout_stats(emitted: int) -> storm.ExecutorStats:
    counts = {":all-time": {"default": emitted}, "600": {"default": emitted}}
    return storm.ExecutorStats(
        emitted=counts,
        transferred=counts,
        specific=storm.ExecutorSpecificStats(
            spout=storm.SpoutStats(acked=counts, failed={}, complete_ms_avg={})
        ),
        rate=1.0,
    )


def bolt_stats(executed: int, ms: float = 0.02) -> storm.ExecutorStats:
    source = storm.GlobalStreamId(componentId="lines", streamId="default")
    counts = {":all-time": {source: executed}, "600": {source: executed}}
    means = {":all-time": {source: ms}, "600": {source: ms}}
    return storm.ExecutorStats(
        emitted={},
        transferred={},
        specific=storm.ExecutorSpecificStats(
            bolt=storm.BoltStats(
                acked=counts, failed={}, process_ms_avg=means, executed=counts, execute_ms_avg=means
            )
        ),
        rate=1.0,
    )


def topology_info(**changes: Any) -> storm.TopologyInfo:
    fields: dict[str, Any] = {
        "id": ID,
        "name": "words",
        "uptime_secs": 1,
        "executors": [
            executor("lines", 1, spout_stats(2400)),
            executor("split", 2, bolt_stats(1800)),
            executor("split", 3, bolt_stats(600)),
        ],
        "status": "ACTIVE",
        "errors": {"split": [error()], "lines": []},
    }
    return storm.TopologyInfo(**{**fields, **changes})


def component_page(component: str = "split") -> storm.ComponentPageInfo:
    is_spout = component == "lines"
    one = spout() if is_spout else bolt()
    kind = storm.ComponentType.SPOUT if is_spout else storm.ComponentType.BOLT
    source = storm.GlobalStreamId(componentId="lines", streamId="default")
    return storm.ComponentPageInfo(
        component_id=component,
        component_type=kind,
        topology_id=ID,
        topology_name="words",
        num_executors=2,
        num_tasks=2,
        window_to_stats={"600": one, ":all-time": one},
        gsid_to_input_stats={} if is_spout else {source: bolt()},
        sid_to_output_stats={"default": one},
        exec_stats=[
            storm.ExecutorAggregateStats(exec_summary=executor(component, 2, None), stats=one)
        ],
        errors=[error()],
        debug_options=storm.DebugOptions(enable=True, samplingpct=5.0),
        topology_status="ACTIVE",
    )


def answer_everything(nimbus: FakeNimbus) -> None:
    """Give a fake Nimbus the answers above."""

    def topology_summary(topology_id: str) -> storm.TopologySummary:
        """As `getClusterInfo` answers now."""
        answer = nimbus.answers["getClusterInfo"]
        if isinstance(answer, Exception):
            raise answer
        for one in answer().topologies:
            if one.id == topology_id:
                found: storm.TopologySummary = one
                return found
        raise storm.NotAliveException(msg=f"{topology_id} is not alive")

    nimbus.answers |= {
        "getClusterInfo": lambda: cluster(),
        "getTopologySummary": topology_summary,
        "watchTopology": None,
        "getWorkerHeartbeats": lambda _: [],
        "getWorkerSums": lambda _: [],
        "getNimbusConf": json.dumps({"topology.workers": 1}),
        "getTopologyPageInfo": lambda *_: topology_page(),
        "getTopology": lambda *_: code(),
        "getTopologyInfoWithOpts": lambda *_: topology_info(),
        "getComponentPageInfo": lambda _id, component, *_: component_page(component),
        "getComponentPendingProfileActions": lambda *_: [
            storm.ProfileRequest(
                nodeInfo=storm.NodeInfo(node="node1", port={6700}),
                action=storm.ProfileAction.JPROFILE_START,
                time_stamp=1_700_000_000_000,
            )
        ],
        "getSupervisorPageInfo": lambda *_: storm.SupervisorPageInfo(
            supervisor_summaries=[supervisor()], worker_summaries=[worker()]
        ),
        "getOwnerResourceSummaries": lambda *_: [
            storm.OwnerResourceSummary(owner="ann", total_topologies=1, total_executors=4)
        ],
        "getTopologyHistory": lambda *_: storm.TopologyHistoryInfo(topo_ids=[ID]),
        "getLogConfig": lambda *_: storm.LogConfig(
            named_logger_level={
                "ROOT": storm.LogLevel(
                    action=storm.LogLevelAction.UNCHANGED, target_log_level="DEBUG",
                    reset_log_level="INFO", reset_log_level_timeout_secs=30,
                    reset_log_level_timeout_epoch=1_700_000_000_000,
                )
            }
        ),
    }  # fmt: skip


def big(components: int, executors: int) -> dict[str, Any]:
    """A fake Nimbus' answers about a topology of this size: layers of ten, each component fed by
    two of the layer before."""
    names = [f"component-{number:03}" for number in range(components)]
    streams = {"default": storm.StreamInfo(output_fields=["x"], direct=False)}
    made_of = storm.ComponentObject(serialized_java=b"")

    def inputs(number: int) -> dict[storm.GlobalStreamId, storm.Grouping]:
        before = {number - 10, number - 10 - number % 10 + (number * 7 + 3) % 10}
        return {
            storm.GlobalStreamId(componentId=names[one], streamId="default"): storm.Grouping(
                shuffle=storm.NullStruct()
            )
            for one in before
        }

    topology = storm.StormTopology(
        spouts={
            name: storm.SpoutSpec(
                spout_object=made_of, common=storm.ComponentCommon(inputs={}, streams=streams)
            )
            for name in names[:10]
        },
        bolts={
            name: storm.Bolt(
                bolt_object=made_of,
                common=storm.ComponentCommon(inputs=inputs(number), streams=streams),
            )
            for number, name in enumerate(names)
            if number >= 10
        },
        state_spouts={},
    )
    found = []
    for task in range(executors):
        number = task % components
        if number < 10:
            stats = spout_stats(1000 + task)
        else:
            stats = bolt_stats(1000 + task, 0.1)
        found.append(executor(names[number], task + 1, stats))
    page = topology_page(
        spouts={name: spout() for name in names[:10]}, bolts={name: bolt() for name in names[10:]}
    )
    return {
        "getClusterInfo": lambda: cluster(summary(id=BIG, name="big", last_exit=None)),
        "getTopology": lambda *_: topology,
        "getTopologyPageInfo": lambda *_: page,
        "getTopologyInfoWithOpts": lambda *_: topology_info(executors=found, errors={}),
    }
