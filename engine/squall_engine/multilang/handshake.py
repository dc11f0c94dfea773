"""The first message to a child: its configuration, where its pid file goes, and its place in the
topology, as Storm's TopologyContext.toJSONString has it since 0.10."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall_common.component.context import TopologyContext
from squall_common.topology.model import Component, Grouping, GroupingKind

# The names of Thrift's Grouping members. A global grouping is a fields grouping of no fields.
_TYPES = {
    GroupingKind.SHUFFLE: "SHUFFLE",
    GroupingKind.FIELDS: "FIELDS",
    GroupingKind.ALL: "ALL",
    GroupingKind.GLOBAL: "FIELDS",
    GroupingKind.DIRECT: "DIRECT",
    GroupingKind.LOCAL_OR_SHUFFLE: "LOCAL_OR_SHUFFLE",
    GroupingKind.NONE: "NONE",
    GroupingKind.CUSTOM: "CUSTOM_OBJECT",
    GroupingKind.CUSTOM_SERIALIZED: "CUSTOM_SERIALIZED",
}


def handshake(conf: Mapping[str, Any], context: TopologyContext, pid_dir: str) -> dict[str, Any]:
    """The message. `conf` is the component's view of the configuration."""
    me = context.component(context.this_component_id)
    return {
        "conf": dict(conf),
        "pidDir": pid_dir,
        "context": {
            "task->component": {
                str(task): component
                for task, component in sorted(context.task_to_component.items())
            },
            "taskid": context.this_task_id,
            "componentid": me.id,
            "stream->target->grouping": _targets(context),
            "streams": sorted(me.streams),
            "stream->outputfields": {
                stream: list(info.fields) for stream, info in sorted(me.streams.items())
            },
            "source->stream->grouping": _sources(me),
            "source->stream->fields": _source_fields(context, me),
        },
    }


def _grouping(grouping: Grouping) -> dict[str, Any]:
    described: dict[str, Any] = {"type": _TYPES[grouping.kind]}
    if described["type"] == "FIELDS":
        described["fields"] = list(grouping.fields)
    return described


def _targets(context: TopologyContext) -> dict[str, dict[str, Any]]:
    return {
        stream: {consumer: _grouping(grouping) for consumer, grouping in consumers.items()}
        for stream, consumers in context.this_targets.items()
    }


def _sources(me: Component) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for source, grouping in me.inputs.items():
        found.setdefault(source.component, {})[source.stream] = _grouping(grouping)
    return found


def _source_fields(context: TopologyContext, me: Component) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for source in me.inputs:
        fields = context.output_fields(source.component, source.stream)
        found.setdefault(source.component, {})[source.stream] = list(fields)
    return found
