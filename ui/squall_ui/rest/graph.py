"""The graph of a topology: Storm's `visualization`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from squall_common.names import is_system_id
from squall_thrift import storm
from squall_ui.rest.endpoints import ID, SYS, WINDOW, Ask, Endpoint
from squall_ui.rest.shapes import COUNT, DECIMAL, FLAG, NUMBER, TEXT, array, map_of, nullable, obj
from squall_ui.rest.text import decimal, sanitized_stream

STREAM_ROWS = array(
    obj({":row": array(obj({":stream": TEXT, ":sani-stream": TEXT, ":checked": FLAG}))})
)
_ROW_LENGTH = 4
_BOX = obj(
    {
        ":type": {"type": "string", "enum": ["spout", "bolt"]},
        ":capacity": NUMBER,
        ":latency": nullable(DECIMAL),
        ":transferred": map_of(COUNT),
        ":stats": array(
            obj(
                {
                    ":host": TEXT,
                    ":port": COUNT,
                    ":uptime_secs": COUNT,
                    ":transferred": map_of(COUNT),
                }
            )
        ),
        ":link": TEXT,
        ":inputs": array(
            obj({":component": TEXT, ":stream": TEXT, ":sani-stream": TEXT, ":grouping": TEXT})
        ),
    }
)
WITHOUT_ERRORS = storm.GetInfoOptions(num_err_choice=storm.NumErrorsChoice.NONE)


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream from one component to another."""

    source: str
    stream: str
    target: str
    grouping: str


@dataclass(slots=True)
class Sums:
    """What a component's executors have transferred by stream, and the busiest one's capacity."""

    transferred: dict[str, int] = field(default_factory=dict)
    stats: list[dict[str, Any]] = field(default_factory=list)


def components_of(code: storm.StormTopology, with_system: bool) -> dict[str, storm.ComponentCommon]:
    """Spouts, then bolts."""
    found = {one: spec.common for one, spec in sorted(code.spouts.items())}
    found |= {one: bolt.common for one, bolt in sorted(code.bolts.items())}
    return {one: common for one, common in found.items() if with_system or not is_system_id(one)}


def edges_of(code: storm.StormTopology, with_system: bool) -> list[Edge]:
    """Every stream between two components."""
    return [
        Edge(source.componentId, source.streamId, target, grouping_name(grouping))
        for target, common in components_of(code, with_system).items()
        for source, grouping in common.inputs.items()
        if with_system or not (is_system_id(source.componentId) or is_system_id(source.streamId))
    ]


def grouping_name(grouping: storm.Grouping) -> str:
    """As Storm's UI names it; `fields` with the fields, `global` without any."""
    if grouping.fields is not None:
        return f"fields({', '.join(grouping.fields)})" if grouping.fields else "global"
    for name in ("shuffle", "all", "none", "direct", "local_or_shuffle"):
        if getattr(grouping, name) is not None:
            return name
    custom = grouping.custom_object
    return "custom" if custom is None else f"custom({custom.full_class_name.rpartition('.')[2]})"


def stream_rows(code: storm.StormTopology, with_system: bool) -> list[dict[str, Any]]:
    """All streams, four in a row, with whether they are drawn at first."""
    streams = sorted({edge.stream for edge in edges_of(code, with_system)})
    boxes = [
        {
            ":stream": one,
            ":sani-stream": sanitized_stream(one),
            ":checked": not is_system_id(one),
        }
        for one in streams
    ]
    return [
        {":row": boxes[begin : begin + _ROW_LENGTH]} for begin in range(0, len(boxes), _ROW_LENGTH)
    ]


def sums_of(
    executors: Iterable[storm.ExecutorSummary], window: str, with_system: bool
) -> dict[str, Sums]:
    """By component."""
    found: dict[str, Sums] = {}
    for one in executors:
        sums = found.setdefault(one.component_id, Sums())
        transferred = (one.stats.transferred.get(window) or {}) if one.stats else {}
        own = {s: n for s, n in transferred.items() if with_system or not is_system_id(s)}
        for stream, count in own.items():
            sums.transferred[stream] = sums.transferred.get(stream, 0) + count
        sums.stats.append(
            {
                ":host": one.host,
                ":port": one.port,
                ":uptime_secs": one.uptime_secs,
                ":transferred": own,
            }
        )
    return found


def visualization(
    topology_id: str,
    code: storm.StormTopology,
    page: storm.TopologyPageInfo,
    info: storm.TopologyInfo,
    window: str,
    with_system: bool,
) -> dict[str, Any]:
    sums = sums_of(info.executors, window, with_system)
    inputs: dict[str, list[dict[str, Any]]] = {}
    for edge in edges_of(code, with_system):
        inputs.setdefault(edge.target, []).append(
            {
                ":component": edge.source,
                ":stream": edge.stream,
                ":sani-stream": sanitized_stream(edge.stream),
                ":grouping": edge.grouping,
            }
        )
    stats: Mapping[str, storm.ComponentAggregateStats] = {
        **(page.id_to_spout_agg_stats or {}),
        **(page.id_to_bolt_agg_stats or {}),
    }
    boxes = {}
    for name in components_of(code, with_system):
        own = sums.get(name, Sums())
        specific = stats[name].specific_stats if name in stats else None
        spout = specific.spout if specific else None
        bolt = specific.bolt if specific else None
        latency = spout.complete_latency_ms if spout else bolt.process_latency_ms if bolt else None
        boxes[name] = {
            ":type": "spout" if name in code.spouts else "bolt",
            ":capacity": (bolt.capacity or 0.0) if bolt else 0.0,
            ":latency": None if latency is None else decimal(latency),
            ":transferred": own.transferred,
            ":stats": own.stats,
            ":link": f"/topology/{topology_id}/component/{name}",
            ":inputs": inputs.get(name, []),
        }
    return boxes


async def show(ask: Ask) -> Any:
    summary = await ask.topology()
    nimbus, window, with_system = ask.site.nimbus, ask.window, ask.with_system
    code: storm.StormTopology = await nimbus.read("getTopology", summary.id, max_age_secs=60.0)
    page = await nimbus.read("getTopologyPageInfo", summary.id, window, with_system)
    info = await nimbus.read("getTopologyInfoWithOpts", summary.id, WITHOUT_ERRORS)
    return visualization(summary.id, code, page, info, window, with_system)


async def streams(ask: Ask) -> Any:
    """Storm's visualization-init, which fails there for every topology with a stream."""
    summary = await ask.topology()
    code: storm.StormTopology = await ask.site.nimbus.read(
        "getTopology", summary.id, max_age_secs=60.0
    )
    return {"visualizationTable": stream_rows(code, ask.with_system)}


ENDPOINTS = (
    Endpoint(
        "GET", "/topology/{id}/visualization-init", "The streams of a topology, in rows.",
        obj(visualizationTable=STREAM_ROWS), streams, "getTopology", (ID, WINDOW, SYS),
    ),
    Endpoint(
        "GET", "/topology/{id}/visualization",
        "The graph of a topology: each component with its inputs and sums.",
        map_of(_BOX), show, "getTopologyInfo", (ID, WINDOW, SYS),
    ),
)  # fmt: skip
