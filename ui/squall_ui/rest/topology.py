"""One topology: its page, its workers, its lag."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import ConfigError
from squall_thrift import storm
from squall_ui.rest.cluster import (
    TOPOLOGY_SUMMARY,
    WORKER,
    shows_resources,
    topology_summary,
    worker_json,
)
from squall_ui.rest.endpoints import ID, SYS, WINDOW, WINDOWS, Ask, Endpoint
from squall_ui.rest.graph import STREAM_ROWS, stream_rows
from squall_ui.rest.resources import COMPONENT_RESOURCES, component_resources
from squall_ui.rest.shapes import (
    ANY,
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
from squall_ui.rest.text import Logviewers, decimal, encoded, worker_log_link

STATS = obj(
    window=TEXT, windowPretty=TEXT, emitted=COUNT, transferred=COUNT, completeLatency=DECIMAL,
    acked=COUNT, failed=COUNT,
)  # fmt: skip
_LAST_ERROR = obj(
    lastError=TEXT, errorHost=TEXT, errorPort={"type": ["integer", "string"]},
    errorTime=nullable(COUNT), errorLapsedSecs=nullable(COUNT), errorWorkerLogLink=TEXT,
)  # fmt: skip
_COMPONENT = extended(
    extended(COMPONENT_RESOURCES, _LAST_ERROR),
    obj(
        executors=COUNT, tasks=COUNT, emitted=COUNT, transferred=COUNT, acked=COUNT, failed=COUNT,
    ),
)  # fmt: skip
SPOUT = extended(_COMPONENT, obj(spoutId=TEXT, encodedSpoutId=TEXT, completeLatency=DECIMAL))
BOLT = extended(
    _COMPONENT,
    obj(
        boltId=TEXT, encodedBoltId=TEXT, capacity=DECIMAL, executeLatency=DECIMAL, executed=COUNT,
        processLatency=DECIMAL,
    ),
)  # fmt: skip
_SHARES = {
    f"{kind}{part}{where}": f"{kind.lower()}_{part.lower()}_{where_field}"
    for kind in ("requested", "assigned")
    for part in ("Regular", "Shared")
    for where, where_field in (
        ("OnHeapMem", "on_heap_memory"),
        ("OffHeapMem", "off_heap_memory"),
    )
}
CHECKPOINTS = nullable(
    obj(
        epoch=COUNT, intervalMs=COUNT, completed=COUNT, givenUp=COUNT, waitedFor=nullable(TEXT),
        waitingMs=COUNT, durationMs=nullable(COUNT), sizeBytes=nullable(COUNT),
        longestTask=nullable(TEXT), longestMs=nullable(COUNT), failure=nullable(TEXT),
        rollbacks=COUNT,
        rollbackReason=nullable(TEXT), rollbackTimeMs=nullable(COUNT),
    )
)  # fmt: skip
TOPOLOGY: Shape = extended(
    TOPOLOGY_SUMMARY,
    obj(
        {**dict.fromkeys(_SHARES, NUMBER), "bugtracker-url": nullable(TEXT),
         "central-log-url": nullable(TEXT)},
        topologyStats=array(STATS), spouts=array(SPOUT), bolts=array(BOLT), workers=array(WORKER),
        configuration=map_of(ANY), debug=FLAG, samplingPct=NUMBER, msgTimeout=NUMBER, window=TEXT,
        windowHint=TEXT, user=nullable(TEXT), visualizationTable=STREAM_ROWS,
        schedulerDisplayResource=FLAG, checkpoints=CHECKPOINTS, finished=nullable(FLAG),
    ),
)  # fmt: skip
LAG = map_of(obj(optional={"spoutLagResult": ANY, "errorInfo": TEXT}, spoutId=TEXT, spoutType=TEXT))


async def topology(ask: Ask) -> Any:
    summary = await ask.topology()
    window, with_system = ask.window, ask.with_system
    nimbus = ask.site.nimbus
    page: storm.TopologyPageInfo = await nimbus.read(
        "getTopologyPageInfo", summary.id, window, with_system
    )
    code: storm.StormTopology = await nimbus.read("getTopology", summary.id, max_age_secs=60.0)
    return {
        **topology_page(page, summary, window, ask.site.logviewers, time.time()),
        "visualizationTable": stream_rows(code, with_system),
        "schedulerDisplayResource": await shows_resources(ask.site),
    }


def topology_page(
    page: storm.TopologyPageInfo,
    summary: storm.TopologySummary,
    window: str,
    logviewers: Logviewers,
    now_secs: float,
) -> dict[str, Any]:
    """The page without what is made from the topology's code."""
    conf = json.loads(page.topology_conf or "{}")
    debug = page.debug_options
    stats = page.topology_stats or storm.TopologyStats()

    def component(
        kind: str, component_id: str, one: storm.ComponentAggregateStats
    ) -> dict[str, Any]:
        return {
            f"{kind}Id": component_id,
            f"encoded{kind.capitalize()}Id": encoded(component_id),
            **aggregate(one),
            **last_error(one.last_error, page.id, logviewers, now_secs),
            **component_resources(one.common_stats.resources_map if one.common_stats else None),
        }

    return {
        **topology_summary(summary),
        # The page counts what it shows; the summary what has a slot.
        "status": page.status or summary.status,
        "tasksTotal": page.num_tasks or 0,
        "workersTotal": page.num_workers or 0,
        "executorsTotal": page.num_executors or 0,
        "schedulerInfo": page.sched_status or "",
        **{name: getattr(page, field, None) or 0.0 for name, field in _SHARES.items()},
        "topologyStats": [
            {
                "window": one,
                "windowPretty": pretty,
                "emitted": (stats.window_to_emitted or {}).get(one, 0),
                "transferred": (stats.window_to_transferred or {}).get(one, 0),
                "completeLatency": decimal(
                    (stats.window_to_complete_latencies_ms or {}).get(one, 0.0)
                ),
                "acked": (stats.window_to_acked or {}).get(one, 0),
                "failed": (stats.window_to_failed or {}).get(one, 0),
            }
            for one, pretty in WINDOWS.items()
        ],
        "spouts": [
            component("spout", *one) for one in sorted((page.id_to_spout_agg_stats or {}).items())
        ],
        "bolts": [
            component("bolt", *one) for one in sorted((page.id_to_bolt_agg_stats or {}).items())
        ],
        "workers": [worker_json(one, logviewers) for one in page.workers or ()],
        "checkpoints": None if page.checkpoints is None else checkpoints_json(page.checkpoints),
        "finished": page.finished,
        "configuration": conf,
        "debug": bool(debug and debug.enable),
        "samplingPct": (debug.samplingpct if debug else None) or 10.0,
        "msgTimeout": _timeout_secs(conf),
        "window": window,
        "windowHint": WINDOWS[window],
        "user": None,
        "bugtracker-url": None,
        "central-log-url": None,
    }


def checkpoints_json(report: storm.CheckpointReport) -> dict[str, Any]:
    """What has become of a topology's checkpoints."""
    return {
        "epoch": report.epoch,
        "intervalMs": report.interval_ms,
        "completed": report.completed,
        "givenUp": report.given_up,
        "waitedFor": report.waited_for,
        "failure": report.failure,
        "waitingMs": report.waiting_ms,
        "durationMs": report.duration_ms,
        "sizeBytes": report.size_bytes,
        "longestTask": report.longest_task,
        "longestMs": report.longest_ms,
        "rollbacks": report.rollbacks,
        "rollbackReason": report.rollback_reason,
        "rollbackTimeMs": report.rollback_time_ms,
    }


def _timeout_secs(conf: Mapping[str, Any]) -> float:
    """What is masked in the configuration may be of the wrong type."""
    try:
        return TopologyOptions.read(conf).topology_message_timeout_secs
    except ConfigError:
        return TopologyOptions().topology_message_timeout_secs


def aggregate(one: storm.ComponentAggregateStats) -> dict[str, Any]:
    """The sums of a component, an executor or a stream."""
    common = one.common_stats or storm.CommonAggregateStats()
    found: dict[str, Any] = {
        "executors": common.num_executors or 0,
        "tasks": common.num_tasks or 0,
        "emitted": common.emitted or 0,
        "transferred": common.transferred or 0,
        "acked": common.acked or 0,
        "failed": common.failed or 0,
    }
    specific = one.specific_stats
    if specific is not None and specific.spout is not None:
        found["completeLatency"] = decimal(specific.spout.complete_latency_ms)
    else:
        bolt = specific.bolt if specific is not None else None
        bolt = bolt or storm.BoltAggregateStats()
        found["capacity"] = decimal(bolt.capacity)
        found["executeLatency"] = decimal(bolt.execute_latency_ms)
        found["executed"] = bolt.executed or 0
        found["processLatency"] = decimal(bolt.process_latency_ms)
    return found


def last_error(
    error: storm.ErrorInfo | None, topology_id: str, logviewers: Logviewers, now_secs: float
) -> dict[str, Any]:
    """The last error of a component; empty texts if there was none."""
    if error is None:
        return {
            "lastError": "",
            "errorHost": "",
            "errorPort": "",
            "errorTime": None,
            "errorLapsedSecs": None,
            "errorWorkerLogLink": "",
        }
    link = worker_log_link(error.host, error.port, topology_id, logviewers)
    return {
        "lastError": error.error,
        "errorHost": error.host or "",
        "errorPort": "" if error.port is None else error.port,
        "errorTime": error.error_time_secs,
        "errorLapsedSecs": max(0, int(now_secs) - error.error_time_secs),
        "errorWorkerLogLink": link or "",
    }


async def workers(ask: Ask) -> Any:
    summary = await ask.topology()
    page: storm.TopologyPageInfo = await ask.site.nimbus.read(
        "getTopologyPageInfo", summary.id, ":all-time", False
    )
    found = sorted({(one.host or "", one.port or 0) for one in page.workers or ()})
    return {
        "hostPortList": [{"host": host, "port": port} for host, port in found],
        "logviewerPort": ask.site.logviewers.port,
        "logviewerScheme": ask.site.logviewers.scheme,
    }


async def lag(ask: Ask) -> Any:
    """Storm measures Kafka's spouts only; each other spout is answered with why there is nothing
    to see."""
    summary = await ask.topology()
    code: storm.StormTopology = await ask.site.nimbus.read(
        "getTopology", summary.id, max_age_secs=60.0
    )
    return spout_lags(code.spouts)


def spout_lags(spouts: Mapping[str, storm.SpoutSpec]) -> dict[str, Any]:
    return {
        spout: {
            "spoutId": spout,
            "spoutType": "PYTHON",
            "errorInfo": "the lag of this spout's source is not known",
        }
        for spout in sorted(spouts)
    }


_QUERY = (WINDOW, SYS)
ENDPOINTS = (
    Endpoint(
        "GET", "/topology/{id}", "One topology, its components and its workers.",
        TOPOLOGY, topology, "getTopologyPageInfo", (ID, *_QUERY),
    ),
    Endpoint(
        "GET", "/topology/{id}/metrics", "As /topology/{id}.",
        TOPOLOGY, topology, "getTopologyPageInfo", (ID, *_QUERY),
    ),
    Endpoint(
        "GET", "/topology-workers/{id}", "Where the workers of a topology run.",
        obj(
            hostPortList=array(obj(host=TEXT, port=COUNT)),
            logviewerPort=COUNT, logviewerScheme=TEXT,
        ),
        workers, "getTopologyPageInfo", (ID,),
    ),
    Endpoint(
        "GET", "/topology/{id}/lag", "How far spouts are behind their sources, if known.",
        LAG, lag, "getTopology", (ID,),
    ),
)  # fmt: skip
