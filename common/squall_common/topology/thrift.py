"""Topologies to and from Thrift's StormTopology: the one place that knows both.

A Python component is a `java_object` whose `full_class_name` is `module:Class` and whose only
argument is binary. A worker hook is such a `java_object` too, as bytes. A global grouping is a
fields grouping with no fields, as in Storm. What only another implementation can run is carried
unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from squall_common.config.schema import SCHEMA
from squall_common.errors import InvalidTopologyError
from squall_common.topology.model import (
    Component,
    ComponentKind,
    ComponentObject,
    ForeignObject,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    PythonObject,
    ShellObject,
    StreamInfo,
    Topology,
)
from squall_common.topology.plan import Plan, PlanStep, bounded
from squall_thrift import storm
from squall_thrift.codec import from_bytes, to_bytes

_NULL_KINDS = {
    GroupingKind.SHUFFLE: "shuffle",
    GroupingKind.ALL: "all",
    GroupingKind.NONE: "none",
    GroupingKind.DIRECT: "direct",
    GroupingKind.LOCAL_OR_SHUFFLE: "local_or_shuffle",
}
_JAVA_STREAM = b"\xac\xed"  # how every serialized Java object begins
_ARG_KINDS = ("int_arg", "long_arg", "string_arg", "bool_arg", "binary_arg", "double_arg")


def to_thrift(topology: Topology) -> storm.StormTopology:
    """A topology as Thrift's struct."""
    return storm.StormTopology(
        spouts={
            i: storm.SpoutSpec(spout_object=_object_to_thrift(c.object), common=_common(c))
            for i, c in topology.spouts.items()
        },
        bolts={
            i: storm.Bolt(bolt_object=_object_to_thrift(c.object), common=_common(c))
            for i, c in topology.bolts.items()
        },
        state_spouts={},
        worker_hooks=[_hook_to_thrift(hook) for hook in topology.worker_hooks],
        dependency_jars=list(topology.dependency_jars),
        dependency_artifacts=list(topology.dependency_artifacts),
        storm_version=topology.storm_version,
        jdk_version=topology.jdk_version,
    )


def from_thrift(struct: storm.StormTopology) -> Topology:
    """A topology from Thrift's struct, which any client may have made. Raises InvalidTopologyError
    that lists what no topology may have: an id that two components share, a union that is not
    exactly one thing, a `json_conf` that is not a JSON object. `validate_topology` checks the rest.
    """
    problems: list[str] = []
    components: dict[str, Component] = {}

    def add(kind: ComponentKind, specs: Mapping[str, Any] | None) -> None:
        for component_id, spec in (specs or {}).items():
            where = f"{kind.value} {component_id!r}"
            if component_id in components:
                problems.append(f"{where}: there is a component with this id already")
                continue
            try:
                obj = spec.spout_object if kind is ComponentKind.SPOUT else spec.bolt_object
                components[component_id] = _component(component_id, kind, obj, spec.common)
            except InvalidTopologyError as error:
                problems.extend(f"{where}: {problem}" for problem in error.problems)

    add(ComponentKind.SPOUT, struct.spouts)
    add(ComponentKind.BOLT, struct.bolts)
    problems.extend(
        f"state spout {component_id!r}: state spouts are not supported, nor are they by Storm"
        for component_id in struct.state_spouts or {}
    )
    if problems:
        raise InvalidTopologyError.listing(problems)
    return Topology(
        components,
        worker_hooks=tuple(_hook_from_thrift(hook) for hook in struct.worker_hooks or ()),
        dependency_jars=tuple(struct.dependency_jars or ()),
        dependency_artifacts=tuple(struct.dependency_artifacts or ()),
        storm_version=struct.storm_version,
        jdk_version=struct.jdk_version,
    )


def _common(component: Component) -> storm.ComponentCommon:
    return storm.ComponentCommon(
        inputs={
            storm.GlobalStreamId(componentId=s.component, streamId=s.stream): _grouping(g)
            for s, g in component.inputs.items()
        },
        streams={
            i: storm.StreamInfo(output_fields=list(s.fields), direct=s.direct)
            for i, s in component.streams.items()
        },
        parallelism_hint=component.parallelism,
        json_conf=json.dumps(dict(component.conf)) if component.conf else None,
        plan=[
            storm.PlanStep(call=s.call, functions=list(s.functions), windows=s.windows or None)
            for s in component.plan
        ]
        or None,
    )


def _object_to_thrift(obj: ComponentObject) -> storm.ComponentObject:
    if isinstance(obj, ShellObject):
        shell = storm.ShellComponent(execution_command=obj.command, script=obj.script)
        return storm.ComponentObject(shell=shell)
    if isinstance(obj, PythonObject):
        return storm.ComponentObject(java_object=_java_object(obj))
    if obj.class_name:
        args = [storm.JavaObjectArg(**{kind: value}) for kind, value in obj.args]
        java = storm.JavaObject(full_class_name=obj.class_name, args_list=args)
        return storm.ComponentObject(java_object=java)
    return storm.ComponentObject(serialized_java=obj.serialized)


def _java_object(obj: PythonObject) -> storm.JavaObject:
    argument = storm.JavaObjectArg(binary_arg=obj.arguments)
    return storm.JavaObject(full_class_name=obj.class_path, args_list=[argument])


def _hook_to_thrift(hook: PythonObject | ForeignObject) -> bytes:
    return to_bytes(_java_object(hook)) if isinstance(hook, PythonObject) else hook.serialized


def _hook_from_thrift(hook: bytes) -> PythonObject | ForeignObject:
    if hook.startswith(_JAVA_STREAM):
        return ForeignObject(hook)
    try:
        found = _object_from_java(from_bytes(storm.JavaObject, hook))
    except Exception:  # bytes that anyone may have made: whatever is wrong with them
        return ForeignObject(hook)
    return found if isinstance(found, PythonObject) else ForeignObject(hook)


def _grouping(grouping: Grouping) -> storm.Grouping:
    if grouping.kind in _NULL_KINDS:
        struct = storm.Grouping()
        setattr(struct, _NULL_KINDS[grouping.kind], storm.NullStruct())
        return struct
    if grouping.kind is GroupingKind.CUSTOM and grouping.custom is not None:
        return storm.Grouping(custom_object=_java_object(grouping.custom))
    if grouping.kind is GroupingKind.CUSTOM_SERIALIZED:
        return storm.Grouping(custom_serialized=grouping.serialized)
    return storm.Grouping(fields=list(grouping.fields))


def _component(
    component_id: str, kind: ComponentKind, obj: Any, common: storm.ComponentCommon
) -> Component:
    return Component(
        id=component_id,
        kind=kind,
        object=_object_from_thrift(obj),
        inputs={
            GlobalStreamId(s.componentId, s.streamId): _grouping_from_thrift(s, g)
            for s, g in (common.inputs or {}).items()
        },
        streams={
            i: StreamInfo(tuple(s.output_fields), bool(s.direct))
            for i, s in (common.streams or {}).items()
        },
        parallelism=common.parallelism_hint,
        conf=_conf(common.json_conf),
        plan=plan_of(common),
    )


def plan_of(common: storm.ComponentCommon) -> Plan:
    """What a component does; () if whoever built it did not say. Any client may have written it, so
    its size is bounded here."""
    return bounded(
        PlanStep(step.call, tuple(step.functions or ()), step.windows or "")
        for step in common.plan or ()
    )


def _conf(json_conf: str | None) -> dict[str, Any]:
    if not json_conf:
        return {}
    try:
        conf = json.loads(json_conf, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise InvalidTopologyError(f"its json_conf is not JSON ({error})") from error
    if conf is None:
        return {}
    if not isinstance(conf, dict):
        raise InvalidTopologyError(f"its json_conf is {json_conf[:80]!r}; expected a JSON object")
    return {key: _as_read(key, value) for key, value in conf.items()}


def _as_read(key: str, value: Any) -> Any:
    kind = SCHEMA.get(key)
    # Some clients know no integers. What is wrong is reported with the topology's other problems.
    return kind.read(value) if kind is not None and kind.check(value) else value


def _refuse_constant(text: str) -> Any:
    raise ValueError(f"{text} is not a JSON value")


def _the_one(struct: Any, names: tuple[str, ...], what: str) -> tuple[str, Any]:
    """The field of a union that is set."""
    given = [(name, getattr(struct, name)) for name in names if getattr(struct, name) is not None]
    if len(given) != 1:
        raise InvalidTopologyError(f"its {what} is {len(given)} things at once; expected exactly 1")
    return given[0]


def _object_from_thrift(obj: storm.ComponentObject) -> ComponentObject:
    kind, value = _the_one(obj, ("serialized_java", "shell", "java_object"), "component object")
    if kind == "shell":
        return ShellObject(value.execution_command or "", value.script or "")
    if kind == "serialized_java":
        return ForeignObject(value)
    return _object_from_java(value)


def _object_from_java(java: storm.JavaObject) -> PythonObject | ForeignObject:
    args = tuple(_the_one(a, _ARG_KINDS, "constructor argument") for a in java.args_list or ())
    python = _python_object(java.full_class_name, args)
    return python or ForeignObject(class_name=java.full_class_name, args=args)


def _python_object(class_name: str, args: tuple[tuple[str, Any], ...]) -> PythonObject | None:
    if ":" in class_name and len(args) == 1 and args[0][0] == "binary_arg":
        return PythonObject(class_name, args[0][1])
    return None


def _grouping_from_thrift(source: storm.GlobalStreamId, grouping: storm.Grouping) -> Grouping:
    names = ("fields", *_NULL_KINDS.values(), "custom_object", "custom_serialized")
    kind, value = _the_one(grouping, names, f"grouping on {source.componentId!r}")
    if kind in _GROUPINGS:
        return _GROUPINGS[kind](value)
    return Grouping(GroupingKind(kind))


def _custom(value: storm.JavaObject) -> Grouping:
    obj = _object_from_java(value)
    if isinstance(obj, ForeignObject):
        raise InvalidTopologyError(
            f"its custom grouping {value.full_class_name!r} is a Java class and cannot run here"
        )
    return Grouping(GroupingKind.CUSTOM, custom=obj)


def _fields(value: list[str]) -> Grouping:
    if not value:
        return Grouping(GroupingKind.GLOBAL)
    return Grouping(GroupingKind.FIELDS, fields=tuple(value))


_GROUPINGS: dict[str, Callable[[Any], Grouping]] = {
    "fields": _fields,
    "custom_object": _custom,
    "custom_serialized": lambda v: Grouping(GroupingKind.CUSTOM_SERIALIZED, serialized=v),
}
