"""From the topology that a user submits to the one that runs: pure, and the same everywhere.

Nimbus validates what it is given and schedules the tasks; workers derive the same tasks and streams
from the stored topology and its stored configuration, so neither is stored anywhere else.

What the system adds (as Storm's StormCommon.systemTopology does): the acker with its streams, the
system component, and on every component a system and a metrics stream. Tuple trees are tracked
through these streams:

    spout   --__ack_init (id, init-val, spout-task)-->  __acker     fields-grouped by id
    bolt    --__ack_ack (id, ack-val)--------------->   __acker     fields-grouped by id
    bolt    --__ack_fail, __ack_reset_timeout (id)-->   __acker     fields-grouped by id
    __acker --__ack_ack, __ack_fail, __ack_reset_timeout (id, time-delta-ms)--> spout      direct
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from squall.config_schema import SCHEMA, counts_for_component
from squall.errors import InvalidTopologyError
from squall.model import (
    Component,
    ComponentKind,
    Executor,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    PythonObject,
    StreamInfo,
    Topology,
)
from squall.names import (
    ACKER_ACK_STREAM,
    ACKER_COMPONENT,
    ACKER_FAIL_STREAM,
    ACKER_INIT_STREAM,
    ACKER_RESET_TIMEOUT_STREAM,
    DEAD_LETTER_FIELDS,
    DEAD_LETTER_STREAM,
    EVENTLOGGER_COMPONENT,
    EVENTLOGGER_STREAM,
    METRICS_STREAM,
    METRICS_TICK_STREAM,
    RESERVED_PREFIX,
    SYSTEM_COMPONENT,
    SYSTEM_STREAM,
    TICK_STREAM,
    is_system_id,
)

# A wrong or hostile parallelism must not make Nimbus build a table of two billion tasks.
TASKS_MAX = 65_536
_ID_BYTES_MAX = 500  # ids become znode and file names, URL-encoded

_NO_ARGUMENTS = b'{"args":[],"kwargs":{}}'
_BY_ID = Grouping(GroupingKind.FIELDS, fields=("id",))
_DIRECT = Grouping(GroupingKind.DIRECT)
_DEAD_LETTERS = StreamInfo(DEAD_LETTER_FIELDS)
_EVENTLOG_FIELDS = ("component", "messageId", "ts", "values")


# ---- What a user may submit ----


def validate_topology(topology: Topology, conf: Mapping[str, Any] | None = None) -> None:
    """Check that a topology, as submitted, can run. Raises InvalidTopologyError that lists all that
    is wrong, naming components. Cycles are allowed. `conf` is the topology's configuration, for
    limits that depend on it."""
    conf = conf or {}
    problems: list[str] = []
    if not topology.spouts:
        problems.append("the topology has no spout: nothing would ever flow")
    for component in topology.components.values():
        where = f"{component.kind.value} {component.id!r}"
        problems.extend(f"{where}: {p}" for p in _component_problems(component))
        for source, grouping in component.inputs.items():
            problems.extend(f"{where}: {p}" for p in _input_problems(topology, source, grouping))
    if not problems:
        tasks = sum(task_count(component, conf) for component in topology.components.values())
        if tasks > TASKS_MAX:
            problems.append(f"the topology has {tasks} tasks; the limit is {TASKS_MAX}")
    if problems:
        raise InvalidTopologyError.listing(problems)


def _component_problems(component: Component) -> Iterable[str]:
    yield from _id_problems("id", component.id)
    for stream, info in component.streams.items():
        yield from _id_problems("stream id", stream)
        yield from _field_problems(stream, info)
    if component.kind is ComponentKind.SPOUT and component.inputs:
        yield "a spout has no inputs"
    hint = component.parallelism
    if hint is not None and (type(hint) is not int or hint < 1):
        yield f"parallelism is {hint!r}; expected a whole number of at least 1"
    yield from _conf_problems(component.conf)


def _id_problems(what: str, name: object) -> Iterable[str]:
    if not isinstance(name, str):
        yield f"its {what} is {name!r}; expected text"
    elif not name:
        yield f"its {what} is empty"
    elif is_system_id(name):
        yield f"{what} {name!r} begins with {RESERVED_PREFIX!r}, which is kept for the system"
    elif not name.isprintable():
        yield f"{what} {name!r} has characters that cannot be printed"
    elif len(name.encode(errors="replace")) > _ID_BYTES_MAX:
        yield f"its {what} is longer than {_ID_BYTES_MAX} bytes"


def _field_problems(stream: str, info: StreamInfo) -> Iterable[str]:
    seen = set()
    for field in info.fields:
        if not isinstance(field, str) or not field:
            yield f"stream {stream!r} has a field named {field!r}; expected text"
        elif field in seen:
            yield f"stream {stream!r} has the field {field!r} twice"
        else:
            seen.add(field)


def _conf_problems(conf: Mapping[str, Any]) -> Iterable[str]:
    for key, value in conf.items():
        if not isinstance(key, str):
            yield f"its conf has the key {key!r}; expected text"
            continue
        kind = SCHEMA.get(key)
        if kind is not None and value is not None and not kind.check(value):
            yield f"its {key} is {value!r}; expected {kind.expected}"
            continue
        if not counts_for_component(key):
            yield f"its conf has {key}, which counts for a whole topology only: set it there"
            continue
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            yield f"its conf {key!r} = {value!r} cannot be written as JSON ({error})"


def _input_problems(
    topology: Topology, source: GlobalStreamId, grouping: Grouping
) -> Iterable[str]:
    component = topology.components.get(source.component)
    if component is None:
        if is_system_id(source.component):
            yield f"subscribes to {source.component!r}, which is the system's"
            return
        near = _did_you_mean(source.component, topology.components)
        yield f"subscribes to {source.component!r}, and there is no such component{near}"
        return
    info = component.streams.get(source.stream)
    if source.stream == DEAD_LETTER_STREAM and component.kind is ComponentKind.SPOUT:
        info = _DEAD_LETTERS
    if info is None:
        streams = component.streams
        if not streams:
            yield f"subscribes to {source.component!r}, which declares no outputs"
            return
        near = _did_you_mean(source.stream, streams) or f" (it has {_names(streams)})"
        yield (
            f"subscribes to stream {source.stream!r} of {source.component!r}, "
            f"which has no such stream{near}"
        )
        return
    if grouping.kind is GroupingKind.FIELDS:
        for field in grouping.fields:
            if field not in info.fields:
                near = _did_you_mean(field, info.fields) or f" (it has {_names(info.fields)})"
                yield (
                    f"groups {str(source)!r} by field {field!r}, "
                    f"which that stream does not have{near}"
                )
    if grouping.kind is GroupingKind.DIRECT and not info.direct:
        yield f"has a direct grouping on {str(source)!r}, which is not a direct stream"
    if grouping.kind is not GroupingKind.DIRECT and info.direct:
        yield (
            f"has a grouping {grouping.kind.value!r} on {str(source)!r}, "
            "which is a direct stream; use a direct grouping"
        )
    if grouping.kind is GroupingKind.CUSTOM and grouping.custom is None:
        yield f"has a custom grouping on {str(source)!r} that names no class"


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, [n for n in names if isinstance(n, str)], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def _names(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names) or "none"


# ---- What runs ----


def num_ackers(conf: Mapping[str, Any], workers: int | None = None) -> int:
    """Acker executors: `topology.acker.executors`, else one a worker. 0: nothing is tracked."""
    ackers = conf.get("topology.acker.executors")
    if ackers is None:
        ackers = conf.get("topology.workers", 1) if workers is None else workers
    return int(ackers)


def num_eventloggers(conf: Mapping[str, Any], workers: int | None = None) -> int:
    """Event logger executors: `topology.eventlogger.executors`, one a worker when null."""
    loggers = conf.get("topology.eventlogger.executors", 0)
    if loggers is None:
        loggers = conf.get("topology.workers", 1) if workers is None else workers
    return int(loggers)


def system_topology(topology: Topology, conf: Mapping[str, Any]) -> Topology:
    """The topology with what the system adds. `conf` is its normalized configuration, as stored.
    One that has been through here already is returned as it is."""
    if SYSTEM_COMPONENT in topology.components:
        return topology
    components = {i: _with_dead_letters(c, topology) for i, c in topology.components.items()}
    ackers, eventloggers = num_ackers(conf), num_eventloggers(conf)
    if ackers:
        components = {i: _with_acking(c) for i, c in components.items()}
        components[ACKER_COMPONENT] = _acker(topology, ackers)
    if eventloggers:
        log_stream = {EVENTLOGGER_STREAM: StreamInfo(_EVENTLOG_FIELDS)}
        components = {
            i: replace(c, streams={**c.streams, **log_stream}) if i in topology.components else c
            for i, c in components.items()
        }
        components[EVENTLOGGER_COMPONENT] = _eventlogger(topology, eventloggers)
    components[SYSTEM_COMPONENT] = _system_component()
    common = {
        SYSTEM_STREAM: StreamInfo(("event",)),
        METRICS_STREAM: StreamInfo(("task-info", "data-points")),
    }
    return replace(
        topology,
        components={i: replace(c, streams={**c.streams, **common}) for i, c in components.items()},
    )


def _with_dead_letters(component: Component, topology: Topology) -> Component:
    """A spout whose dead letters somebody takes declares their stream."""
    stream = GlobalStreamId(component.id, DEAD_LETTER_STREAM)
    if component.kind is not ComponentKind.SPOUT or not any(
        stream in other.inputs for other in topology.components.values()
    ):
        return component
    return replace(component, streams={**component.streams, DEAD_LETTER_STREAM: _DEAD_LETTERS})


def _with_acking(component: Component) -> Component:
    if component.kind is ComponentKind.BOLT:
        streams = {
            ACKER_ACK_STREAM: StreamInfo(("id", "ack-val")),
            ACKER_FAIL_STREAM: StreamInfo(("id",)),
            ACKER_RESET_TIMEOUT_STREAM: StreamInfo(("id",)),
        }
        return replace(component, streams={**component.streams, **streams})
    return replace(
        component,
        streams={
            **component.streams,
            ACKER_INIT_STREAM: StreamInfo(("id", "init-val", "spout-task")),
        },
        inputs={
            **component.inputs,
            GlobalStreamId(ACKER_COMPONENT, ACKER_ACK_STREAM): _DIRECT,
            GlobalStreamId(ACKER_COMPONENT, ACKER_FAIL_STREAM): _DIRECT,
            GlobalStreamId(ACKER_COMPONENT, ACKER_RESET_TIMEOUT_STREAM): _DIRECT,
        },
    )


def _system_object(component_id: str) -> PythonObject:
    # Never imported: the engine knows the system's components by their ids.
    return PythonObject(f"squall_worker.engine:{component_id}", _NO_ARGUMENTS)


def _acker(topology: Topology, ackers: int) -> Component:
    inputs = {GlobalStreamId(i, ACKER_INIT_STREAM): _BY_ID for i in topology.spouts}
    for bolt in topology.bolts:
        for stream in (ACKER_ACK_STREAM, ACKER_FAIL_STREAM, ACKER_RESET_TIMEOUT_STREAM):
            inputs[GlobalStreamId(bolt, stream)] = _BY_ID
    answer = StreamInfo(("id", "time-delta-ms"), direct=True)
    return Component(
        id=ACKER_COMPONENT,
        kind=ComponentKind.BOLT,
        object=_system_object(ACKER_COMPONENT),
        inputs=inputs,
        streams={
            ACKER_ACK_STREAM: answer,
            ACKER_FAIL_STREAM: answer,
            ACKER_RESET_TIMEOUT_STREAM: answer,
        },
        parallelism=ackers,
        conf={"topology.tasks": ackers},
    )


def _eventlogger(topology: Topology, eventloggers: int) -> Component:
    by_component = Grouping(GroupingKind.FIELDS, fields=("component",))
    return Component(
        id=EVENTLOGGER_COMPONENT,
        kind=ComponentKind.BOLT,
        object=_system_object(EVENTLOGGER_COMPONENT),
        inputs={GlobalStreamId(i, EVENTLOGGER_STREAM): by_component for i in topology.components},
        parallelism=eventloggers,
        conf={"topology.tasks": eventloggers},
    )


def _system_component() -> Component:
    """The source of ticks, task -1: it has streams but no tasks of its own."""
    return Component(
        id=SYSTEM_COMPONENT,
        kind=ComponentKind.BOLT,
        object=_system_object(SYSTEM_COMPONENT),
        streams={
            TICK_STREAM: StreamInfo(("rate_secs",)),
            METRICS_TICK_STREAM: StreamInfo(("interval",)),
        },
        parallelism=0,
        conf={"topology.tasks": 0},
    )


# ---- Tasks and executors ----


def task_count(component: Component, conf: Mapping[str, Any]) -> int:
    """Tasks of a component: `topology.tasks` (its own, else the topology's), else as many as it has
    executors; at most `topology.max.task.parallelism`."""
    tasks = component.conf.get("topology.tasks")
    system = is_system_id(component.id)
    if tasks is None and not system:
        tasks = conf.get("topology.tasks")
    if tasks is None:
        tasks = _executors_wanted(component)
    limit = component.conf.get("topology.max.task.parallelism")
    if limit is None:
        limit = conf.get("topology.max.task.parallelism")
    # The number of ackers is part of every message's id and is what the conf says.
    return int(tasks) if limit is None or system else min(int(tasks), int(limit))


def _executors_wanted(component: Component) -> int:
    return 1 if component.parallelism is None else component.parallelism


def component_tasks(topology: Topology, conf: Mapping[str, Any]) -> dict[int, str]:
    """The component of each task: tasks are numbered from 1, component by component, sorted by id.
    Takes the topology as submitted or as compiled."""
    components = system_topology(topology, conf).components
    counts = ((i, task_count(components[i], conf)) for i in sorted(components))
    names = (component_id for component_id, count in counts for _ in range(count))
    return dict(enumerate(names, start=1))


def component_parallelism(topology: Topology, conf: Mapping[str, Any]) -> dict[str, int]:
    """Executors of each component at the start, at most one a task; without those that have no
    tasks. Takes the topology as submitted or as compiled."""
    components = system_topology(topology, conf).components
    found = {}
    for component_id in sorted(components):
        component = components[component_id]
        tasks = task_count(component, conf)
        if tasks:
            found[component_id] = min(max(_executors_wanted(component), 1), tasks)
    return found


def compute_executors(
    task_to_component: Mapping[int, str], executors_per_component: Mapping[str, int]
) -> list[Executor]:
    """The executors, sorted: each component's tasks in that many ranges of nearly equal size, the
    larger ones first. At least one executor a component, at most one a task."""
    tasks: dict[str, list[int]] = {}
    for task in sorted(task_to_component):
        tasks.setdefault(task_to_component[task], []).append(task)
    executors = []
    for component, members in tasks.items():
        wanted = executors_per_component.get(component, 1)
        count = min(max(wanted, 1), len(members))
        size, larger = divmod(len(members), count)
        start = 0
        for number in range(count):
            end = start + size + (1 if number < larger else 0)
            executors.append(Executor(members[start], members[end - 1]))
            start = end
    return sorted(executors)
