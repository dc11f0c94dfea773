"""Sampling, log levels, profiling, credentials, heartbeats and metrics over Thrift."""

import pytest
from tests.support.nimbus_service import LocalNimbus

from squall_common.cluster.values import DebugOptions
from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError


@pytest.fixture
async def nimbus(tmp_path):
    async with LocalNimbus(tmp_path) as nimbus:
        await nimbus.leads()
        supervisor = await nimbus.supervisor("sup-a", host="host-a")
        yield nimbus
        await supervisor.close()


@pytest.fixture
async def topology_id(nimbus) -> str:
    return await nimbus.submit()


async def test_sampling_of_an_unknown_component_is_refused(nimbus, topology_id) -> None:
    with pytest.raises(ThriftApplicationError, match="'wordcount' has no component 'cuont'"):
        await nimbus.call("debug", "wordcount", "cuont", True, 10.0)
    assert (await nimbus.state.storm_base(topology_id)).component_debug == {}


async def test_sampling_is_stored_for_a_component_and_for_the_topology(nimbus, topology_id) -> None:
    await nimbus.call("debug", "wordcount", "count", True, 25.0)
    await nimbus.call("debug", "wordcount", "", True, 5.0)
    assert (await nimbus.state.storm_base(topology_id)).component_debug == {
        "count": DebugOptions(True, 25.0),
        topology_id: DebugOptions(True, 5.0),
    }
    page = await nimbus.call("getTopologyPageInfo", topology_id, "600", False)
    assert page.debug_options == storm.DebugOptions(enable=True, samplingpct=5.0)
    page = await nimbus.call("getComponentPageInfo", topology_id, "count", "600", False)
    assert page.debug_options == storm.DebugOptions(enable=True, samplingpct=25.0)
    await nimbus.call("deactivate", "wordcount")
    assert len((await nimbus.state.storm_base(topology_id)).component_debug) == 2
    with pytest.raises(ThriftApplicationError, match="not between 0 and 100"):
        await nimbus.call("debug", "wordcount", "", True, 101.0)


def level(action: storm.LogLevelAction, name: str | None = None, secs: int = 0) -> storm.LogLevel:
    return storm.LogLevel(action=action, target_log_level=name, reset_log_level_timeout_secs=secs)


async def test_log_levels_are_merged(nimbus, topology_id) -> None:
    update, remove = storm.LogLevelAction.UPDATE, storm.LogLevelAction.REMOVE
    await nimbus.call(
        "setLogConfig",
        topology_id,
        storm.LogConfig(
            named_logger_level={"ROOT": level(update, "DEBUG", 30), "a": level(update, "INFO")}
        ),
    )
    await nimbus.call(
        "setLogConfig",
        "wordcount",
        storm.LogConfig(named_logger_level={"a": level(remove), "b": level(update, "WARN")}),
    )
    found = (await nimbus.call("getLogConfig", topology_id)).named_logger_level
    assert set(found) == {"ROOT", "b"}
    assert found["ROOT"].action == storm.LogLevelAction.UNCHANGED
    assert found["ROOT"].target_log_level == "DEBUG"
    assert found["ROOT"].reset_log_level_timeout_epoch > 1_700_000_000_000
    assert found["b"].reset_log_level_timeout_epoch is None


async def test_a_profiling_request_is_pending_until_it_is_done(nimbus, topology_id) -> None:
    dump = storm.ProfileAction.JSTACK_DUMP
    request = storm.ProfileRequest(
        nodeInfo=storm.NodeInfo(node="host-a", port={6700}), action=dump, time_stamp=17
    )
    await nimbus.call("setWorkerProfiler", topology_id, request)
    pending = await nimbus.call("getComponentPendingProfileActions", topology_id, "count", dump)
    assert pending == [request]
    other = storm.ProfileAction.JMAP_DUMP
    assert not await nimbus.call("getComponentPendingProfileActions", topology_id, "count", other)
    assert not await nimbus.call("getComponentPendingProfileActions", topology_id, "none", dump)


async def test_credentials_are_replaced_by_their_owner_only(nimbus, topology_id) -> None:
    await nimbus.call("uploadNewCredentials", "wordcount", storm.Credentials(creds={"a": "1"}))
    assert nimbus.nimbus.credentials.read(topology_id).values == {"a": "1"}
    with pytest.raises(ThriftApplicationError, match="is owned by anonymous"):
        await nimbus.call(
            "uploadNewCredentials",
            "wordcount",
            storm.Credentials(creds={}, topoOwner="mallory"),
        )
    assert nimbus.nimbus.credentials.read(topology_id).values == {"a": "1"}


async def test_a_node_gets_its_assignments(nimbus, topology_id) -> None:
    found = (await nimbus.call("getSupervisorAssignments", "sup-a")).storm_assignment
    assert set(found) == {topology_id}
    assert found[topology_id].node_host == {"sup-a": "host-a"}
    assert (await nimbus.call("getSupervisorAssignments", "other")).storm_assignment == {}


async def test_heartbeats_over_thrift_keep_executors_alive(nimbus, topology_id) -> None:
    assignment, _ = await nimbus.state.assignment(topology_id)
    executors = [
        storm.ExecutorInfo(task_start=e.task_start, task_end=e.task_end)
        for e in assignment.executor_slot
    ]
    beat = storm.SupervisorWorkerHeartbeat(storm_id=topology_id, executors=executors, time_secs=5)
    await nimbus.call("sendSupervisorWorkerHeartbeat", beat)
    beat.time_secs = 6
    await nimbus.call(
        "sendSupervisorWorkerHeartbeats",
        storm.SupervisorWorkerHeartbeats(supervisor_id="sup-a", worker_heartbeats=[beat]),
    )
    monitor, now = nimbus.nimbus.monitor, nimbus.nimbus.clock.monotonic()
    offered = {"sup-a": {slot.port for slot in assignment.executor_slot.values()}}
    # Launched, they would have 120 s; they beat, so they have 45.
    assert monitor.dead(topology_id, offered, now + 44) == frozenset()
    assert monitor.dead(topology_id, offered, now + 46) == set(assignment.executor_slot)
    beat.storm_id = "nobody-1-1"
    with pytest.raises(storm.NotAliveException):
        await nimbus.call("sendSupervisorWorkerHeartbeat", beat)


def metrics(topology_id: str, count: int) -> storm.WorkerMetrics:
    points = [
        storm.WorkerMetricPoint(
            metricName="m", timestamp=i, metricValue=1.0, componentId="count",
            executorId="2-2", streamId="default",
        )
        for i in range(count)
    ]  # fmt: skip
    return storm.WorkerMetrics(
        topologyId=topology_id,
        port=6700,
        hostname="host-a",
        metricList=storm.WorkerMetricList(metrics=points),
    )


async def test_metrics_are_kept_and_bounded(nimbus, topology_id) -> None:
    await nimbus.call("processWorkerMetrics", metrics(topology_id, 9_999))
    await nimbus.call("processWorkerMetrics", metrics(topology_id, 2))
    points = nimbus.nimbus.metrics.points(topology_id)
    assert len(points) == 10_000
    assert points[0].time_ms == 1
    await nimbus.call("processWorkerMetrics", metrics("nobody-1-1", 5))
    assert nimbus.nimbus.metrics.points("nobody-1-1") == []
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=0))
    nimbus.nimbus.metrics.keep(await nimbus.state.topology_ids())
    assert nimbus.nimbus.metrics.points(topology_id) == []
