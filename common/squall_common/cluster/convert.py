"""Our values to Storm's Thrift structs and back, one pair of functions for each.

`from_*` raises ValueError for a struct that its own declaration allows and that has no meaning,
such as an executor without its two ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from squall_common.cluster import values
from squall_common.topology.model import Executor, WorkerSlot
from squall_thrift import storm

_T = TypeVar("_T")


def to_status(status: values.TopologyStatus) -> storm.TopologyStatus:
    return storm.TopologyStatus(status.value)


def from_status(status: storm.TopologyStatus) -> values.TopologyStatus:
    return values.TopologyStatus(status.value)


def to_storm_base(base: values.StormBase) -> storm.StormBase:
    debug = {
        component: storm.DebugOptions(enable=one.enable, samplingpct=one.sampling_pct)
        for component, one in base.component_debug.items()
    }
    return storm.StormBase(
        name=base.name,
        status=to_status(base.status),
        num_workers=base.num_workers,
        component_executors=dict(base.component_executors),
        launch_time_secs=base.launch_time_secs,
        owner=base.owner,
        topology_action_options=_to_action_options(base.action_options),
        prev_status=None if base.prev_status is None else to_status(base.prev_status),
        component_debug=debug or None,
        principal=base.principal,
        topology_version=base.topology_version,
        savepoint=None if base.savepoint is None else _to_savepoint_request(base.savepoint),
    )


def _to_savepoint_request(request: values.SavepointRequest) -> storm.SavepointRequest:
    return storm.SavepointRequest(
        name=request.name,
        asked_ms=request.asked_ms,
        folder=request.folder,
        stop=request.stop or None,
    )


def from_savepoint_request(request: storm.SavepointRequest) -> values.SavepointRequest:
    return values.SavepointRequest(
        request.name, request.asked_ms, request.folder, bool(request.stop)
    )


def _to_savepoint_result(result: values.SavepointResult) -> storm.SavepointResult:
    return storm.SavepointResult(
        name=result.name,
        asked_ms=result.asked_ms,
        place=result.place,
        epoch=result.epoch,
        size_bytes=result.size_bytes,
        error=result.error,
    )


def _from_savepoint_result(result: storm.SavepointResult) -> values.SavepointResult:
    return values.SavepointResult(
        result.name, result.asked_ms, result.place, result.epoch, result.size_bytes, result.error
    )


def from_storm_base(base: storm.StormBase) -> values.StormBase:
    debug = {
        component: values.DebugOptions(
            enable=bool(one.enable),
            sampling_pct=10.0 if one.samplingpct is None else one.samplingpct,
        )
        for component, one in (base.component_debug or {}).items()
    }
    return values.StormBase(
        name=base.name,
        status=from_status(base.status),
        num_workers=base.num_workers,
        component_executors=base.component_executors or {},
        launch_time_secs=base.launch_time_secs or 0,
        owner=base.owner,
        action_options=_from_action_options(base.topology_action_options),
        prev_status=None if base.prev_status is None else from_status(base.prev_status),
        component_debug=debug,
        principal=base.principal,
        topology_version=base.topology_version,
        savepoint=None if base.savepoint is None else from_savepoint_request(base.savepoint),
    )


def _to_action_options(
    options: values.KillOptions | values.RebalanceOptions | None,
) -> storm.TopologyActionOptions | None:
    if options is None:
        return None
    if isinstance(options, values.KillOptions):
        kill = storm.KillOptions(wait_secs=options.wait_secs)
        return storm.TopologyActionOptions(kill_options=kill)
    return storm.TopologyActionOptions(rebalance_options=to_rebalance_options(options))


def _from_action_options(
    options: storm.TopologyActionOptions | None,
) -> values.KillOptions | values.RebalanceOptions | None:
    if options is None:
        return None
    if options.kill_options is not None:
        return values.KillOptions(wait_secs=options.kill_options.wait_secs)
    if options.rebalance_options is not None:
        return from_rebalance_options(options.rebalance_options)
    return None


def to_rebalance_options(options: values.RebalanceOptions) -> storm.RebalanceOptions:
    resources = {
        component: dict(amounts)
        for component, amounts in options.topology_resources_overrides.items()
    }
    return storm.RebalanceOptions(
        wait_secs=options.wait_secs,
        num_workers=options.num_workers,
        num_executors=dict(options.num_executors) or None,
        topology_resources_overrides=resources or None,
        topology_conf_overrides=options.topology_conf_overrides,
        principal=options.principal,
    )


def from_rebalance_options(options: storm.RebalanceOptions) -> values.RebalanceOptions:
    return values.RebalanceOptions(
        wait_secs=options.wait_secs,
        num_workers=options.num_workers,
        num_executors=options.num_executors or {},
        topology_conf_overrides=options.topology_conf_overrides,
        topology_resources_overrides=options.topology_resources_overrides or {},
        principal=options.principal,
    )


def to_assignment(assignment: values.Assignment) -> storm.Assignment:
    return storm.Assignment(
        master_code_dir=assignment.master_code_dir,
        node_host=dict(assignment.node_host),
        executor_node_port={
            (executor.task_start, executor.task_end): to_node_info(slot)
            for executor, slot in assignment.executor_slot.items()
        },
        executor_start_time_secs={
            (executor.task_start, executor.task_end): secs
            for executor, secs in assignment.executor_start_time_secs.items()
        },
        owner=assignment.owner,
    )


def from_assignment(assignment: storm.Assignment) -> values.Assignment:
    """Executors and slots that occur many times are one object each: an assignment may be large,
    and daemons keep it."""
    executors: dict[tuple[int, ...], Executor] = {}
    slots: dict[WorkerSlot, WorkerSlot] = {}

    def executor(ends: tuple[int, ...]) -> Executor:
        found = executors.get(ends)
        if found is None:
            found = executors[ends] = _executor(ends)
        return found

    def slot(info: storm.NodeInfo) -> WorkerSlot:
        found = from_node_info(info)
        return slots.setdefault(found, found)

    return values.Assignment(
        master_code_dir=assignment.master_code_dir,
        node_host=assignment.node_host or {},
        executor_slot={
            executor(ends): slot(info)
            for ends, info in (assignment.executor_node_port or {}).items()
        },
        executor_start_time_secs={
            executor(ends): secs
            for ends, secs in (assignment.executor_start_time_secs or {}).items()
        },
        owner=assignment.owner,
    )


def to_node_info(slot: WorkerSlot) -> storm.NodeInfo:
    return storm.NodeInfo(node=slot.node, port={slot.port})


def from_node_info(info: storm.NodeInfo) -> WorkerSlot:
    if len(info.port) != 1:
        raise ValueError(f"a slot of {info.node!r} has {len(info.port)} ports")
    return WorkerSlot(info.node, next(iter(info.port)))


def _executor(ends: tuple[int, ...]) -> Executor:
    if len(ends) != 2 or not 0 <= ends[0] <= ends[1]:
        # System tasks (-1) have no executor in an assignment.
        raise ValueError(f"{list(ends)} is not an executor (first task, last task)")
    return Executor(*ends)


def to_executor(executor: Executor) -> storm.ExecutorInfo:
    return storm.ExecutorInfo(task_start=executor.task_start, task_end=executor.task_end)


def from_executor(info: storm.ExecutorInfo) -> Executor:
    return Executor(info.task_start, info.task_end)


def to_supervisor(info: values.SupervisorInfo) -> storm.SupervisorInfo:
    return storm.SupervisorInfo(
        time_secs=info.time_secs,
        hostname=info.hostname,
        assignment_id=info.assignment_id,
        used_ports=list(info.used_ports),
        meta=list(info.meta),
        scheduler_meta=dict(info.scheduler_meta),
        uptime_secs=info.uptime_secs,
        version=info.version,
        resources_map=dict(info.resources),
        server_port=info.server_port,
    )


def from_supervisor(info: storm.SupervisorInfo) -> values.SupervisorInfo:
    return values.SupervisorInfo(
        time_secs=info.time_secs,
        hostname=info.hostname,
        assignment_id=info.assignment_id or "",
        used_ports=tuple(info.used_ports or ()),
        meta=tuple(info.meta or ()),
        scheduler_meta=info.scheduler_meta or {},
        uptime_secs=info.uptime_secs or 0,
        version=info.version or "",
        resources=info.resources_map or {},
        server_port=info.server_port,
    )


def to_nimbus(info: values.NimbusInfo) -> storm.NimbusSummary:
    return storm.NimbusSummary(
        host=info.host,
        port=info.port,
        uptime_secs=info.uptime_secs,
        isLeader=info.is_leader,
        version=info.version,
        sealingKey=info.sealing_key or None,
    )


def from_nimbus(info: storm.NimbusSummary) -> values.NimbusInfo:
    return values.NimbusInfo(
        info.host, info.port, info.uptime_secs, info.isLeader, info.version, info.sealingKey or ""
    )


def to_error(error: values.ErrorInfo) -> storm.ErrorInfo:
    return storm.ErrorInfo(
        error=error.error,
        error_time_secs=error.time_secs,
        host=error.host,
        port=error.port,
        count=error.count if error.count > 1 else None,
    )


def from_error(error: storm.ErrorInfo) -> values.ErrorInfo:
    count = max(1, error.count or 1)
    return values.ErrorInfo(error.error, error.error_time_secs, error.host, error.port, count)


def to_credentials(credentials: values.Credentials) -> storm.Credentials:
    return storm.Credentials(creds=dict(credentials.creds), topoOwner=credentials.owner)


def from_credentials(credentials: storm.Credentials) -> values.Credentials:
    return values.Credentials(credentials.creds, credentials.topoOwner)


def to_log_config(config: values.LogConfig) -> storm.LogConfig:
    return storm.LogConfig(
        named_logger_level={
            name: storm.LogLevel(
                action=storm.LogLevelAction(level.action.value),
                target_log_level=level.target_level,
                reset_log_level_timeout_secs=level.reset_timeout_secs,
                reset_log_level_timeout_epoch=level.reset_epoch_ms,
                reset_log_level=level.reset_level,
            )
            for name, level in config.levels.items()
        }
    )


def from_log_config(config: storm.LogConfig) -> values.LogConfig:
    return values.LogConfig(
        {
            name: values.LogLevel(
                action=values.LogLevelAction(level.action.value),
                target_level=level.target_log_level,
                reset_timeout_secs=level.reset_log_level_timeout_secs,
                reset_epoch_ms=level.reset_log_level_timeout_epoch,
                reset_level=level.reset_log_level,
            )
            for name, level in (config.named_logger_level or {}).items()
        }
    )


def to_profile_request(request: values.ProfileRequest) -> storm.ProfileRequest:
    return storm.ProfileRequest(
        nodeInfo=to_node_info(request.slot),
        action=storm.ProfileAction(request.action.value),
        time_stamp=request.time_stamp,
    )


def from_profile_request(request: storm.ProfileRequest) -> values.ProfileRequest:
    return values.ProfileRequest(
        from_node_info(request.nodeInfo),
        values.ProfileAction(request.action.value),
        request.time_stamp,
    )


def to_heartbeat(beat: values.WorkerHeartbeat) -> storm.ClusterWorkerHeartbeat:
    return storm.ClusterWorkerHeartbeat(
        storm_id=beat.topology_id,
        executor_stats={
            to_executor(executor): _NOTHING_YET if stats is None else to_executor_stats(stats)
            for executor, stats in beat.executor_stats.items()
        },
        time_secs=beat.time_secs,
        uptime_secs=beat.uptime_secs,
        drained=None if beat.drained is None else _to_drained(beat.drained),
        usage=None if beat.usage is None else to_usage(beat.usage),
        stats_ms=beat.stats_ms,
        checkpoints=None if beat.checkpoints is None else to_checkpoints(beat.checkpoints),
        store_failure=beat.store_failure,
        rest_ms=beat.rest_ms,
        says_end=beat.says_end or None,
    )


def to_checkpoints(report: values.CheckpointReport) -> storm.CheckpointReport:
    return storm.CheckpointReport(
        epoch=report.epoch,
        interval_ms=report.interval_ms,
        completed=report.completed,
        given_up=report.given_up,
        waiting_ms=report.waiting_ms,
        duration_ms=report.duration_ms,
        size_bytes=report.size_bytes,
        longest_task=report.longest_task,
        longest_ms=report.longest_ms,
        waited_for=report.waited_for,
        failure=report.failure,
        rollbacks=report.rollbacks,
        rollback_reason=report.rollback_reason,
        rollback_time_ms=report.rollback_time_ms,
        bound_components=list(report.bound_components) or None,
        savepoint=None if report.savepoint is None else _to_savepoint_result(report.savepoint),
    )


def from_checkpoints(report: storm.CheckpointReport) -> values.CheckpointReport:
    return values.CheckpointReport(
        epoch=report.epoch,
        interval_ms=report.interval_ms,
        completed=report.completed,
        given_up=report.given_up,
        waiting_ms=report.waiting_ms,
        duration_ms=report.duration_ms,
        size_bytes=report.size_bytes,
        longest_task=report.longest_task,
        longest_ms=report.longest_ms,
        waited_for=report.waited_for,
        failure=report.failure,
        rollbacks=report.rollbacks,
        rollback_reason=report.rollback_reason,
        rollback_time_ms=report.rollback_time_ms,
        bound_components=tuple(report.bound_components or ()),
        savepoint=None if report.savepoint is None else _from_savepoint_result(report.savepoint),
    )


def _to_drained(drained: values.WorkerDrained) -> storm.WorkerDrained:
    return storm.WorkerDrained(status_zxid=drained.status_zxid, run=drained.run, work=drained.work)


def from_drained(drained: storm.WorkerDrained) -> values.WorkerDrained:
    return values.WorkerDrained(drained.status_zxid, drained.run, drained.work)


def to_usage(usage: values.WorkerUsage) -> storm.WorkerUsage:
    return storm.WorkerUsage(
        cpu_cores=usage.cpu_cores,
        memory_bytes=usage.memory_bytes,
        loop_lag_ms=usage.loop_lag_ms,
    )


def from_usage(usage: storm.WorkerUsage) -> values.WorkerUsage:
    return values.WorkerUsage(usage.cpu_cores, usage.memory_bytes, usage.loop_lag_ms)


def from_heartbeat(beat: storm.ClusterWorkerHeartbeat) -> values.WorkerHeartbeat:
    return values.WorkerHeartbeat(
        topology_id=beat.storm_id,
        executor_stats={
            from_executor(info): None if stats.rate == 0 else from_executor_stats(stats)
            for info, stats in beat.executor_stats.items()
        },
        time_secs=beat.time_secs,
        uptime_secs=beat.uptime_secs,
        drained=None if beat.drained is None else from_drained(beat.drained),
        usage=None if beat.usage is None else from_usage(beat.usage),
        stats_ms=beat.stats_ms,
        checkpoints=None if beat.checkpoints is None else from_checkpoints(beat.checkpoints),
        store_failure=beat.store_failure,
        rest_ms=beat.rest_ms,
        says_end=bool(beat.says_end),
    )


def from_worker_end(end: storm.WorkerEnd) -> values.WorkerEnd:
    return values.WorkerEnd(end.rest_ms, bool(end.says_end))


def to_worker_report(
    report: values.WorkerReport, *, alone: bool, executors_max: int | None = None
) -> storm.SupervisorWorkerHeartbeat:
    """`alone`: it names its supervisor, which a batch does for all. With more than `executors_max`
    executors, only the heartbeat itself lists them."""
    few = executors_max is None or len(report.executors) <= executors_max
    listed = few or not report.heartbeat
    return storm.SupervisorWorkerHeartbeat(
        storm_id=report.topology_id,
        executors=[to_executor(executor) for executor in report.executors] if listed else [],
        time_secs=report.time_secs,
        port=report.slot.port,
        supervisor_id=report.slot.node if alone else None,
        assignment_zxid=report.run[0],
        launch=report.run[1],
        report=report.heartbeat or None,
    )


def from_worker_report(
    report: storm.SupervisorWorkerHeartbeat, node: str | None
) -> values.WorkerReport | None:
    """`node`: the supervisor that a batch names. None if it does not name the worker's slot, as
    those of Storm do not."""
    node = node if node is not None else report.supervisor_id
    if node is None or report.port is None:
        return None
    return values.WorkerReport(
        report.storm_id,
        WorkerSlot(node, report.port),
        tuple(from_executor(info) for info in report.executors),
        report.time_secs,
        (report.assignment_zxid or 0, report.launch or 0),
        report.report or b"",
    )


def to_sums_report(report: values.SumsReport, *, alone: bool) -> storm.SupervisorWorkerHeartbeat:
    """`alone`: it names its supervisor, which a batch does for all."""
    return storm.SupervisorWorkerHeartbeat(
        storm_id=report.topology_id,
        executors=[],
        time_secs=0,
        port=report.slot.port,
        supervisor_id=report.slot.node if alone else None,
        assignment_zxid=report.run[0],
        launch=report.run[1],
        sums=report.sums,
    )


def from_sums_report(
    report: storm.SupervisorWorkerHeartbeat, node: str | None
) -> values.SumsReport | None:
    """`node`: the supervisor that a batch names. None for what is none."""
    node = node if node is not None else report.supervisor_id
    if node is None or report.port is None or report.sums is None:
        return None
    return values.SumsReport(
        report.storm_id,
        WorkerSlot(node, report.port),
        (report.assignment_zxid or 0, report.launch or 0),
        report.sums,
    )


def to_topology_heartbeats(beats: values.TopologyHeartbeats) -> storm.TopologyHeartbeats:
    return storm.TopologyHeartbeats(
        time_secs=beats.time_secs,
        workers=[
            storm.HeardWorker(
                node=one.slot.node,
                port=one.slot.port,
                executors_digest=one.executors,
                silent_secs=one.silent_secs,
                assignment_zxid=one.run[0],
                launch=one.run[1],
            )
            for one in beats.workers
        ],
    )


def from_topology_heartbeats(beats: storm.TopologyHeartbeats) -> values.TopologyHeartbeats:
    return values.TopologyHeartbeats(
        beats.time_secs,
        tuple(
            values.HeardWorker(
                WorkerSlot(one.node, one.port),
                one.executors_digest,
                one.silent_secs,
                (one.assignment_zxid, one.launch),
            )
            for one in beats.workers
        ),
    )


# An executor must be in its worker's heartbeat to count as alive, and Thrift has no null in a map.
# No executor samples at a rate of 0.
_NOTHING_YET = storm.ExecutorStats(
    emitted={},
    transferred={},
    specific=storm.ExecutorSpecificStats(
        bolt=storm.BoltStats(acked={}, failed={}, process_ms_avg={}, executed={}, execute_ms_avg={})
    ),
    rate=0.0,
)


def to_executor_stats(stats: values.ExecutorStats) -> storm.ExecutorStats:
    specific: storm.ExecutorSpecificStats
    if isinstance(stats.specific, values.SpoutStats):
        spout = storm.SpoutStats(
            acked=_copy(stats.specific.acked),
            failed=_copy(stats.specific.failed),
            complete_ms_avg=_copy(stats.specific.complete_ms_avg),
            complete_histograms=_copy(stats.specific.complete_histograms) or None,
        )
        specific = storm.ExecutorSpecificStats(spout=spout)
    else:
        bolt = storm.BoltStats(
            acked=_to_inputs(stats.specific.acked),
            failed=_to_inputs(stats.specific.failed),
            process_ms_avg=_to_inputs(stats.specific.process_ms_avg),
            executed=_to_inputs(stats.specific.executed),
            execute_ms_avg=_to_inputs(stats.specific.execute_ms_avg),
            process_histograms=_to_inputs(stats.specific.process_histograms) or None,
            execute_histograms=_to_inputs(stats.specific.execute_histograms) or None,
        )
        specific = storm.ExecutorSpecificStats(bolt=bolt)
    return storm.ExecutorStats(
        emitted=_copy(stats.emitted),
        transferred=_copy(stats.transferred),
        specific=specific,
        rate=stats.rate,
        queue_tuples=stats.queue_tuples,
        queue_bytes=stats.queue_bytes,
        blocked_secs=_copy(stats.blocked_secs) or None,
        credit_bytes=dict(stats.credit_bytes) or None,
        sent_bytes=dict(stats.sent_bytes) or None,
        state_keys=stats.state_keys,
        state_bytes=stats.state_bytes,
        exhausted_tasks=stats.exhausted_tasks,
        calls_max=stats.calls_max,
        on_threads=stats.on_threads or None,
    )


def from_executor_stats(stats: storm.ExecutorStats) -> values.ExecutorStats:
    spout, bolt = stats.specific.spout, stats.specific.bolt
    specific: values.SpoutStats | values.BoltStats
    if spout is not None:
        specific = values.SpoutStats(
            spout.acked, spout.failed, spout.complete_ms_avg, spout.complete_histograms or {}
        )
    elif bolt is not None:
        specific = values.BoltStats(
            acked=_from_inputs(bolt.acked),
            failed=_from_inputs(bolt.failed),
            executed=_from_inputs(bolt.executed),
            process_ms_avg=_from_inputs(bolt.process_ms_avg),
            execute_ms_avg=_from_inputs(bolt.execute_ms_avg),
            process_histograms=_from_inputs(bolt.process_histograms or {}),
            execute_histograms=_from_inputs(bolt.execute_histograms or {}),
        )
    else:
        raise ValueError("the statistics of an executor are neither a spout's nor a bolt's")
    return values.ExecutorStats(
        specific,
        stats.emitted,
        stats.transferred,
        stats.rate,
        queue_tuples=stats.queue_tuples,
        queue_bytes=stats.queue_bytes,
        blocked_secs=stats.blocked_secs or {},
        credit_bytes=stats.credit_bytes or {},
        sent_bytes=stats.sent_bytes or {},
        state_keys=stats.state_keys,
        state_bytes=stats.state_bytes,
        exhausted_tasks=stats.exhausted_tasks,
        calls_max=None if stats.calls_max is None else max(1, stats.calls_max),
        on_threads=bool(stats.on_threads),
    )


def _copy(by_window: Mapping[str, Mapping[str, _T]]) -> dict[str, dict[str, _T]]:
    return {window: dict(by_stream) for window, by_stream in by_window.items()}


def _to_inputs(
    by_window: Mapping[str, Mapping[tuple[str, str], _T]],
) -> dict[str, dict[storm.GlobalStreamId, _T]]:
    return {
        window: {
            storm.GlobalStreamId(componentId=component, streamId=stream): value
            for (component, stream), value in by_input.items()
        }
        for window, by_input in by_window.items()
    }


def _from_inputs(
    by_window: Mapping[str, Mapping[storm.GlobalStreamId, _T]],
) -> dict[str, dict[tuple[str, str], _T]]:
    return {
        window: {(key.componentId, key.streamId): value for key, value in by_input.items()}
        for window, by_input in by_window.items()
    }
