"""One component: its statistics by window, stream and executor, and its errors."""

from __future__ import annotations

import time
from typing import Any

from squall_common.names import is_system_id
from squall_common.topology.error_text import headline
from squall_common.topology.plan import Plan, plan_as_json
from squall_common.topology.thrift import plan_of
from squall_thrift import storm
from squall_ui.rest.endpoints import (
    COMPONENT,
    ID,
    SYS,
    WINDOW,
    WINDOWS,
    Ask,
    Endpoint,
    RequestError,
)
from squall_ui.rest.resources import COMPONENT_RESOURCES, component_resources
from squall_ui.rest.shapes import (
    COUNT,
    DECIMAL,
    FLAG,
    NUMBER,
    TEXT,
    Shape,
    array,
    extended,
    map_of,
    nullable,
    obj,
)
from squall_ui.rest.text import (
    Logviewers,
    decimal,
    dump_link,
    encoded,
    log_link,
    pretty_executor,
    pretty_secs,
    worker_log_link,
)
from squall_ui.rest.topology import aggregate

_ERROR = obj(
    error=TEXT, headline=TEXT, errorTime=COUNT, errorHost=TEXT,
    errorPort={"type": ["integer", "string"]}, errorLapsedSecs=COUNT, errorWorkerLogLink=TEXT,
    count=COUNT,
)  # fmt: skip
_COUNTS = {"emitted": COUNT, "transferred": COUNT, "acked": COUNT, "failed": COUNT}
_BOLT = {
    "capacity": DECIMAL, "executeLatency": DECIMAL, "executed": COUNT, "processLatency": DECIMAL,
}  # fmt: skip
_WINDOWED = {"window": TEXT, "windowPretty": TEXT}
_LATENCY = obj(count=COUNT, p50=NUMBER, p95=NUMBER, p99=NUMBER)
# Beside Storm's fields, of what workers report: percentiles in ms, and what waits, and for whom.
_MEASURED: dict[str, Shape] = {
    "latencies": obj(optional={"complete": _LATENCY, "execute": _LATENCY, "process": _LATENCY}),
    "queueTuples": COUNT, "queueBytes": COUNT, "blocked": map_of(NUMBER), "credit": map_of(COUNT),
    "stateKeys": COUNT, "stateBytes": COUNT,
    "exhaustedTasks": COUNT,
    "calls": NUMBER, "callsMax": COUNT, "onThreads": FLAG,
}  # fmt: skip
_INPUT = obj(
    component=TEXT, encodedComponentId=TEXT, encodedComponent=TEXT, stream=TEXT,
    executeLatency=DECIMAL, processLatency=DECIMAL, executed=COUNT, acked=COUNT, failed=COUNT,
)  # fmt: skip
_OUTPUT = obj(
    stream=TEXT, emitted=COUNT, transferred=COUNT,
    optional={"completeLatency": DECIMAL, "acked": COUNT, "failed": COUNT},
)  # fmt: skip
_EXECUTOR = obj(
    _COUNTS, id=TEXT, encodedId=TEXT, uptime=TEXT, uptimeSeconds=COUNT, host=TEXT, port=COUNT,
    workerLogLink=TEXT, optional={"completeLatency": DECIMAL, **_BOLT, **_MEASURED},
)  # fmt: skip
_STEP = obj(step=TEXT, functions=array(TEXT), windows=nullable(TEXT))
_PROFILE = obj(host=TEXT, port=TEXT, dumplink=TEXT, timestamp=TEXT)
_BY_WINDOW: dict[str, Shape] = {
    "spoutSummary": array(
        obj({**_WINDOWED, **_COUNTS}, completeLatency=DECIMAL, optional=_MEASURED)
    ),
    "boltStats": array(obj({**_WINDOWED, **_COUNTS, **_BOLT}, optional=_MEASURED)),
}
COMPONENT_PAGE: Shape = extended(
    COMPONENT_RESOURCES,
    obj(
        user=nullable(TEXT), id=TEXT, encodedId=TEXT, name=TEXT, executors=COUNT, tasks=COUNT,
        topologyId=TEXT, encodedTopologyId=TEXT, topologyStatus=TEXT, window=TEXT, windowHint=TEXT,
        componentType={"type": "string", "enum": ["spout", "bolt"]}, debug=FLAG, samplingPct=NUMBER,
        eventLogLink=nullable(TEXT), profilingAndDebuggingCapable=FLAG, profileActionEnabled=FLAG,
        profilerActive=array(_PROFILE), componentErrors=array(_ERROR), inputStats=array(_INPUT),
        outputStats=array(_OUTPUT), executorStats=array(_EXECUTOR), eventLoggerCount=COUNT,
        schedulerDisplayResource=FLAG, plan=array(_STEP),
        optional=_BY_WINDOW,
    ),
)  # fmt: skip


ALL_ERRORS = storm.GetInfoOptions(num_err_choice=storm.NumErrorsChoice.ALL)


async def component(ask: Ask) -> Any:
    summary = await ask.topology()
    nimbus, name = ask.site.nimbus, ask.path["component"]
    code: storm.StormTopology = await nimbus.read("getTopology", summary.id, max_age_secs=60.0)
    if name not in code.spouts and name not in code.bolts:
        raise RequestError(404, f"topology {summary.name} has no component {name!r}")
    page: storm.ComponentPageInfo = await nimbus.read(
        "getComponentPageInfo", summary.id, name, ask.window, ask.with_system
    )
    active = await nimbus.read(
        "getComponentPendingProfileActions", summary.id, name, storm.ProfileAction.JPROFILE_START
    )
    # The event loggers write beside the log of their worker.
    loggers: storm.ComponentPageInfo | None = None
    if "__eventlogger" in code.bolts:
        loggers = await nimbus.read(
            "getComponentPageInfo",
            summary.id,
            "__eventlogger",
            ":all-time",
            True,
            max_age_secs=30.0,
        )
    found = code.spouts.get(name) or code.bolts[name]
    return component_page(
        page,
        summary,
        plan_of(found.common),
        loggers,
        active,
        ask.window,
        ask.site.logviewers,
        time.time(),
    )


def component_page(
    page: storm.ComponentPageInfo,
    summary: storm.TopologySummary,
    plan: Plan,
    loggers: storm.ComponentPageInfo | None,
    active: list[storm.ProfileRequest],
    window: str,
    logviewers: Logviewers,
    now_secs: float,
) -> dict[str, Any]:
    is_spout = page.component_type == storm.ComponentType.SPOUT
    debug = page.debug_options
    by_window = page.window_to_stats or {}
    windows = [
        {
            "window": one,
            "windowPretty": pretty,
            **_without_sizes(by_window.get(one) or _nothing(page.component_type)),
        }
        for one, pretty in WINDOWS.items()
    ]
    return {
        "user": None,
        "id": page.component_id,
        "encodedId": encoded(page.component_id),
        "name": summary.name,
        "executors": page.num_executors or 0,
        "tasks": page.num_tasks or 0,
        **component_resources(page.resources_map),
        "topologyId": summary.id,
        "encodedTopologyId": encoded(summary.id),
        "topologyStatus": page.topology_status or summary.status,
        "window": window,
        "windowHint": WINDOWS[window],
        "componentType": "spout" if is_spout else "bolt",
        "debug": bool(debug and debug.enable),
        "samplingPct": (debug.samplingpct if debug else None) or 10.0,
        "eventLogLink": _event_log(loggers, summary.id, logviewers),
        "eventLoggerCount": loggers.num_executors or 0 if loggers else 0,
        "profilingAndDebuggingCapable": True,
        "profileActionEnabled": True,
        "profilerActive": [
            {
                "host": one.nodeInfo.node,
                "port": str(port),
                "dumplink": dump_link(one.nodeInfo.node, port, summary.id, logviewers),
                "timestamp": str(one.time_stamp or 0),
            }
            for one in active
            for port in sorted(one.nodeInfo.port)
        ],
        "componentErrors": [
            error_json(one, summary.id, logviewers, now_secs) for one in page.errors or ()
        ],
        "spoutSummary" if is_spout else "boltStats": windows,
        "inputStats": [
            _input(source, one) for source, one in (page.gsid_to_input_stats or {}).items()
        ],
        "outputStats": [
            _output(stream, one, is_spout)
            for stream, one in sorted((page.sid_to_output_stats or {}).items())
        ],
        "executorStats": [
            _executor(one, page.component_type, summary.id, logviewers)
            for one in page.exec_stats or ()
        ],
        "schedulerDisplayResource": False,
        "plan": plan_as_json(plan),
    }


def _nothing(kind: storm.ComponentType) -> storm.ComponentAggregateStats:
    spout = kind == storm.ComponentType.SPOUT
    specific = (
        storm.SpecificAggregateStats(spout=storm.SpoutAggregateStats())
        if spout
        else storm.SpecificAggregateStats(bolt=storm.BoltAggregateStats())
    )
    return storm.ComponentAggregateStats(type=kind, specific_stats=specific)


def _without_sizes(one: storm.ComponentAggregateStats) -> dict[str, Any]:
    found = aggregate(one)
    del found["executors"], found["tasks"]
    return {**found, **_measured(one)}


def _measured(one: storm.ComponentAggregateStats) -> dict[str, Any]:
    """What workers of Squall report; without what they do not."""
    found: dict[str, Any] = {}
    common, specific = one.common_stats, one.specific_stats
    spout, bolt = (specific.spout, specific.bolt) if specific is not None else (None, None)
    latencies = {
        "complete": spout.complete_latency if spout is not None else None,
        "execute": bolt.execute_latency if bolt is not None else None,
        "process": bolt.process_latency if bolt is not None else None,
    }
    known = {name: _latency(times) for name, times in latencies.items() if times is not None}
    if known:
        found["latencies"] = known
    if common is not None:
        values = {
            "queueTuples": common.queue_tuples,
            "queueBytes": common.queue_bytes,
            "blocked": common.blocked_share,
            "credit": common.credit_bytes,
            "stateKeys": common.state_keys,
            "stateBytes": common.state_bytes,
            "exhaustedTasks": None if spout is None else spout.exhausted_tasks,
            "calls": None if bolt is None else bolt.calls,
            "callsMax": None if bolt is None else bolt.calls_max,
            "onThreads": None if bolt is None else bolt.on_threads,
        }
        found |= {name: value for name, value in values.items() if value is not None}
    return found


def _latency(times: storm.LatencyDistribution) -> dict[str, Any]:
    return {"count": times.count, "p50": times.p50_ms, "p95": times.p95_ms, "p99": times.p99_ms}


def _event_log(
    loggers: storm.ComponentPageInfo | None, topology_id: str, logviewers: Logviewers
) -> str | None:
    for one in (loggers.exec_stats or ()) if loggers else ():
        where = one.exec_summary
        if where is not None and where.host:
            file = f"{topology_id}/{where.port}/events.log"
            return log_link(where.host, logviewers, file)
    return None


def error_json(
    error: storm.ErrorInfo, topology_id: str, logviewers: Logviewers, now_secs: float
) -> dict[str, Any]:
    """One error, with how many it stands for."""
    link = worker_log_link(error.host, error.port, topology_id, logviewers)
    return {
        "error": error.error,
        "headline": headline(error.error),
        "errorTime": error.error_time_secs,
        "errorHost": error.host or "",
        "errorPort": "" if error.port is None else error.port,
        "errorLapsedSecs": max(0, int(now_secs) - error.error_time_secs),
        "errorWorkerLogLink": link or "",
        "count": error.count or 1,
    }


def _input(source: storm.GlobalStreamId, one: storm.ComponentAggregateStats) -> dict[str, Any]:
    found = aggregate(one)
    return {
        "component": source.componentId,
        "encodedComponentId": encoded(source.componentId),
        # The name of this field in another version of Storm.
        "encodedComponent": encoded(source.componentId),
        "stream": source.streamId,
        "executeLatency": found.get("executeLatency", decimal(0)),
        "processLatency": found.get("processLatency", decimal(0)),
        "executed": found.get("executed", 0),
        "acked": found["acked"],
        "failed": found["failed"],
    }


def _output(stream: str, one: storm.ComponentAggregateStats, is_spout: bool) -> dict[str, Any]:
    found = aggregate(one)
    row = {
        "stream": stream,
        "emitted": found["emitted"],
        "transferred": found["transferred"],
    }
    if is_spout:
        row["completeLatency"] = found.get("completeLatency", decimal(0))
        row["acked"], row["failed"] = found["acked"], found["failed"]
    return row


def _executor(
    one: storm.ExecutorAggregateStats,
    kind: storm.ComponentType,
    topology_id: str,
    logviewers: Logviewers,
) -> dict[str, Any]:
    where = one.exec_summary
    assert where is not None
    executor = pretty_executor(where.executor_info)
    return {
        "id": executor,
        "encodedId": encoded(executor),
        "uptime": pretty_secs(where.uptime_secs),
        "uptimeSeconds": where.uptime_secs,
        "host": where.host,
        "port": where.port,
        **_without_sizes(one.stats or _nothing(kind)),
        "workerLogLink": worker_log_link(where.host, where.port, topology_id, logviewers) or "",
    }


async def errors(ask: Ask) -> Any:
    """Of all components, newest first. Squall's own: Storm has them on one page a component."""
    summary = await ask.topology()
    info: storm.TopologyInfo = await ask.site.nimbus.read(
        "getTopologyInfoWithOpts", summary.id, ALL_ERRORS, max_age_secs=1.0
    )
    now = time.time()
    found = [
        {
            "component": component_id,
            **error_json(one, summary.id, ask.site.logviewers, now),
        }
        for component_id, some in info.errors.items()
        for one in some
        if ask.with_system or not is_system_id(component_id) or component_id == "__system"
    ]
    found.sort(key=lambda one: -one["errorTime"])
    return {"errors": found}


ENDPOINTS = (
    Endpoint(
        "GET", "/topology/{id}/component/{component}",
        "One component, with its streams, executors and errors.",
        COMPONENT_PAGE, component, "getComponentPageInfo", (ID, COMPONENT, WINDOW, SYS),
    ),
    Endpoint(
        "GET", "/topology/{id}/errors", "The errors of all components, newest first (not Storm's).",
        obj(errors=array(extended(_ERROR, obj(component=TEXT)))),
        errors, "getTopologyInfo", (ID, SYS),
    ),
)  # fmt: skip
