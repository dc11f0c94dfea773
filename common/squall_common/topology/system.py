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
import itertools
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from squall_common.config.schema import SCHEMA, TASKS_MAX, counts_for_component, show_value
from squall_common.errors import InvalidTopologyError
from squall_common.names import (
    ACKER_ACK_STREAM,
    ACKER_COMPONENT,
    ACKER_FAIL_STREAM,
    ACKER_INIT_STREAM,
    ACKER_RESET_TIMEOUT_STREAM,
    BOLT_DEAD_LETTER_FIELDS,
    DEAD_LETTER_FIELDS,
    DEAD_LETTER_STREAM,
    EVENTLOGGER_COMPONENT,
    EVENTLOGGER_STREAM,
    METRICS_COMPONENT_KEY,
    METRICS_CONSUMER_PREFIX,
    METRICS_STREAM,
    METRICS_TICK_STREAM,
    RESERVED_PREFIX,
    SYSTEM_COMPONENT,
    SYSTEM_STREAM,
    TICK_STREAM,
    character_error,
    is_system_id,
)
from squall_common.topology.model import (
    Component,
    ComponentKind,
    Executor,
    ForeignObject,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    PythonObject,
    StreamInfo,
    Topology,
)

if TYPE_CHECKING:
    from squall_common.config.options.typed import TopologyOptions

_METRICS_CONSUMERS_MAX = 100  # that are components: each has an input from every component
_ID_BYTES_MAX = 500  # ids become znode and file names, URL-encoded
# "Did you mean": the first so many faults get a suggestion, out of so many names.
_SUGGESTIONS_MAX = 10
_COMPARED_MAX = 500
_NAMES_SHOWN = 10
_STATE_IN_MEMORY = ("memory", "org.apache.storm.state.InMemoryKeyValueStateProvider")

_NO_ARGUMENTS = b'{"args":[],"kwargs":{}}'
_BY_ID = Grouping(GroupingKind.FIELDS, fields=("id",))
_DIRECT = Grouping(GroupingKind.DIRECT)
_DEAD_LETTERS = StreamInfo(DEAD_LETTER_FIELDS)
_BOLT_DEAD_LETTERS = StreamInfo(BOLT_DEAD_LETTER_FIELDS)
_EVENTLOG_FIELDS = ("component", "messageId", "ts", "values")


# ---- What a user may submit ----


def validate_topology(
    topology: Topology,
    options: TopologyOptions | None = None,
    *,
    check_time: Callable[[], None] = lambda: None,
) -> None:
    """Check that a topology, as submitted, can run. Raises InvalidTopologyError that lists all that
    is wrong, naming components. Cycles are allowed. `options` are the topology's, for limits that
    depend on them.

    The time it takes grows with the size of the topology and no faster. `check_time` is called for
    every component, and may raise to end it."""
    problems = list(_topology_problems(topology))
    streams = _Streams(topology)
    for component in topology.components.values():
        check_time()
        where = f"{component.kind.value} {_quote(component.id)}"
        problems.extend(f"{where}: {p}" for p in _component_problems(component))
        for source, grouping in component.inputs.items():
            problems.extend(f"{where}: {p}" for p in streams.problems(source, grouping))
    if not problems:
        problems.extend(_size_problems(topology, options))
        problems.extend(_state_problems(topology, options))
        problems.extend(_letter_problems(topology, options))
    if problems:
        raise InvalidTopologyError.listing(problems)


def _topology_problems(topology: Topology) -> Iterable[str]:
    if not topology.spouts:
        yield "the topology has no spout: nothing would ever flow"
    for hook in topology.worker_hooks:
        if isinstance(hook, ForeignObject):
            yield (
                f"the topology has a worker hook that is a Java object ({_java_class(hook)}), "
                "which only a JVM can run; write it in Python (squall.WorkerHook), or submit it "
                "without (addWorkerHook)"
            )
    if topology.dependency_jars:
        yield (
            f"the topology depends on jars ({_names(topology.dependency_jars)}), which only a JVM "
            "can load; submit it without --jars"
        )


def _size_problems(topology: Topology, options: TopologyOptions | None) -> Iterable[str]:
    if options is None:
        options = _topology_options().read({})
    for name in options.topology_component_tasks or {}:
        if name not in topology.components:
            yield (
                f"topology.component.tasks names {_quote(name)}, and there is no such component "
                f"(there is {_names(topology.components)})"
            )
    tasks = sum(task_count(component, options) for component in topology.components.values())
    consumers = metrics_consumers(options)
    if len(consumers) > _METRICS_CONSUMERS_MAX:
        yield (
            f"topology.metrics.consumer.register has {len(consumers)} consumers with "
            f"parallelism.hint; the limit is {_METRICS_CONSUMERS_MAX}"
        )
    system = num_ackers(options) + num_eventloggers(options) + sum(consumers.values())
    if tasks + system > TASKS_MAX:
        also = f" and {system} of the system (ackers, event loggers, consumers)" if system else ""
        yield f"the topology has {tasks} tasks{also}; the limit is {TASKS_MAX}"


def _component_problems(component: Component) -> Iterable[str]:
    yield from _id_problems("id", component.id)
    if isinstance(component.object, ForeignObject):
        yield _foreign_problem(component.object)
    for stream, info in component.streams.items():
        yield from _id_problems("stream id", stream)
        yield from _field_problems(stream, info)
    if component.kind is ComponentKind.SPOUT and component.inputs:
        yield "a spout has no inputs"
    hint = component.parallelism
    if hint is not None and (type(hint) is not int or hint < 1):
        yield f"parallelism is {show_value(hint)}; expected a whole number of at least 1"
    yield from _conf_problems(component.conf)


def _letter_problems(topology: Topology, options: TopologyOptions | None) -> Iterable[str]:
    """Of bolts that consume what no other bolt emits."""
    if options is None or options.topology_checkpoint_interval_secs is not None:
        return
    for component in topology.components.values():
        for source in component.inputs:
            if source.stream != DEAD_LETTER_STREAM:
                continue
            if topology.components[source.component].kind is not ComponentKind.SPOUT:
                yield (
                    f"bolt {_quote(component.id)}: subscribes to the dead letters of the bolt "
                    f"{_quote(source.component)}; bolts have some with checkpoints only "
                    "(topology.checkpoint.interval.secs): subscribe to those of the spout"
                )


def _state_problems(topology: Topology, options: TopologyOptions | None) -> Iterable[str]:
    """Of bolts whose state is stored: tuples of one key must come to one task."""
    if options is None or options.topology_state_provider in _STATE_IN_MEMORY:
        return
    read = _topology_options().read
    stateful = [
        (component, groups)
        for component in topology.components.values()
        if (groups := read(component.conf).topology_state_max_parallelism) is not None
    ]
    for component, groups in stateful:
        where = f"bolt {_quote(component.id)}"
        for source, grouping in component.inputs.items():
            if grouping.kind not in (GroupingKind.FIELDS, GroupingKind.GLOBAL):
                yield (
                    f"{where}: its state is stored, but it subscribes to {_quote(str(source))} by "
                    f"a grouping ({grouping.kind.value}) that does not give each key a task of its "
                    "own; subscribe by the fields of the key, or globally"
                )
        tasks = task_count(component, options)
        if tasks > groups:
            yield (
                f"{where}: it has {tasks} tasks and only {groups} key groups; raise "
                "topology.state.max.parallelism of the bolt"
            )


def _java_class(obj: ForeignObject) -> str:
    name = obj.java_class
    return f"the Java class {_quote(name)}" if name else "a serialized object"


def _foreign_problem(obj: ForeignObject) -> str:
    return (
        f"it is a Java component ({_java_class(obj)}), which only a JVM can run; write it in "
        "Python (squall.Spout, squall.Bolt), or run a program of any language as a shell component"
    )


def _id_problems(what: str, name: object) -> Iterable[str]:
    if not isinstance(name, str):
        yield f"its {what} is {show_value(name)}; expected text"
    elif not name:
        yield f"its {what} is empty"
    elif is_system_id(name):
        yield f"{what} {_quote(name)} begins with {RESERVED_PREFIX!r}, which is kept for the system"
    elif (why := character_error(name)) is not None:
        yield f"{what} {_quote(name)} has {why}"
    elif len(name.encode(errors="replace")) > _ID_BYTES_MAX:
        yield f"its {what} is longer than {_ID_BYTES_MAX} bytes"


def _field_problems(stream: str, info: StreamInfo) -> Iterable[str]:
    seen = set()
    for field in info.fields:
        if not isinstance(field, str) or not field:
            yield f"stream {_quote(stream)} has a field named {show_value(field)}; expected text"
        elif (why := character_error(field)) is not None:
            yield f"stream {_quote(stream)} has the field {_quote(field)} with {why}"
        elif field in seen:
            yield f"stream {_quote(stream)} has the field {_quote(field)} twice"
        else:
            seen.add(field)


def _conf_problems(conf: Mapping[str, Any]) -> Iterable[str]:
    for key, value in conf.items():
        if not isinstance(key, str):
            yield f"its conf has the key {show_value(key)}; expected text"
            continue
        kind = SCHEMA.get(key)
        if kind is not None and value is not None and not kind.check(value):
            yield f"its {key} is {show_value(value)}; expected {kind.expected}"
            continue
        if not counts_for_component(key):
            yield f"its conf has {key}, which counts for a whole topology only: set it there"
            continue
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            yield (
                f"its conf {_quote(key)} = {show_value(value)} cannot be written as JSON ({error})"
            )


class _Streams:
    """Checks inputs against the streams that there are. Suggestions are few: each compares a name
    with many others."""

    def __init__(self, topology: Topology) -> None:
        self._components = topology.components
        self._fields: dict[tuple[str, str], frozenset[object]] = {}
        self._suggestions_left = _SUGGESTIONS_MAX

    def problems(self, source: GlobalStreamId, grouping: Grouping) -> Iterable[str]:
        """What is wrong with one input."""
        component = self._components.get(source.component)
        name, stream = _quote(source.component), _quote(source.stream)
        if component is None:
            if is_system_id(source.component):
                yield f"subscribes to {name}, which is the system's"
                return
            near = self._did_you_mean(source.component, self._components)
            yield f"subscribes to {name}, and there is no such component{near}"
            return
        info = component.streams.get(source.stream)
        if source.stream == DEAD_LETTER_STREAM:
            is_spout = component.kind is ComponentKind.SPOUT
            info = _DEAD_LETTERS if is_spout else _BOLT_DEAD_LETTERS
        if info is None:
            streams = component.streams
            if not streams:
                yield f"subscribes to {name}, which declares no outputs"
                return
            near = self._did_you_mean(source.stream, streams) or f" (it has {_names(streams)})"
            yield f"subscribes to stream {stream} of {name}, which has no such stream{near}"
            return
        yield from self._grouping_problems(source, grouping, info)

    def _grouping_problems(
        self, source: GlobalStreamId, grouping: Grouping, info: StreamInfo
    ) -> Iterable[str]:
        where = _quote(str(source))
        if grouping.kind is GroupingKind.FIELDS:
            for field in grouping.fields:
                if field not in self._fields_of(source, info):
                    near = self._did_you_mean(field, info.fields)
                    near = near or f" (it has {_names(info.fields)})"
                    yield (
                        f"groups {where} by field {_quote(field)}, "
                        f"which that stream does not have{near}"
                    )
        if grouping.kind is GroupingKind.DIRECT and not info.direct:
            yield f"has a direct grouping on {where}, which is not a direct stream"
        if grouping.kind is not GroupingKind.DIRECT and info.direct:
            yield (
                f"has a grouping {grouping.kind.value!r} on {where}, "
                "which is a direct stream; use a direct grouping"
            )
        if grouping.kind is GroupingKind.CUSTOM and grouping.custom is None:
            yield f"has a custom grouping on {where} that names no class"
        if grouping.kind is GroupingKind.CUSTOM_SERIALIZED:
            yield (
                f"has a custom grouping on {where} that is a serialized Java object, which only a "
                "JVM can run; use a built-in grouping, or a class derived from "
                "squall.CustomGrouping"
            )

    def _fields_of(self, source: GlobalStreamId, info: StreamInfo) -> frozenset[object]:
        key = (source.component, source.stream)
        if key not in self._fields:
            self._fields[key] = frozenset(info.fields)
        return self._fields[key]

    def _did_you_mean(self, name: str, names: Iterable[str]) -> str:
        if self._suggestions_left == 0 or len(name) > _ID_BYTES_MAX:
            return ""
        self._suggestions_left -= 1
        texts = (n for n in names if isinstance(n, str) and len(n) <= _ID_BYTES_MAX)
        compared = list(itertools.islice(texts, _COMPARED_MAX))
        near = difflib.get_close_matches(name, compared, n=1)
        return f" (did you mean {near[0]!r}?)" if near else ""


def _quote(name: object) -> str:
    return show_value(name, 300)


def _names(names: Collection[str]) -> str:
    shown = [_quote(name) for name in itertools.islice(names, _NAMES_SHOWN)]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more else "")


# ---- What runs ----


def num_ackers(options: TopologyOptions) -> int:
    """Acker executors: `topology.acker.executors`, else one a worker. 0: nothing is tracked."""
    ackers = options.topology_acker_executors
    return options.topology_workers if ackers is None else ackers


def num_eventloggers(options: TopologyOptions) -> int:
    """Event logger executors: `topology.eventlogger.executors`, one a worker when null."""
    loggers = options.topology_eventlogger_executors
    return options.topology_workers if loggers is None else loggers


def metrics_consumers(options: TopologyOptions) -> dict[str, int]:
    """The components of metrics consumers that get the data points of all workers, with their
    executors: those of `topology.metrics.consumer.register` that had a `parallelism.hint` when the
    configuration was normalized. (The others run in each worker.) Named by their class as in Storm,
    with `#2` if it is there before."""
    found: dict[str, int] = {}
    for entry, component_id in zip(
        options.topology_metrics_consumer_register, consumer_ids(options), strict=True
    ):
        if component_id is not None:
            found[component_id] = entry["parallelism.hint"]
    return found


def consumer_ids(options: TopologyOptions) -> list[str | None]:
    """For each entry of `topology.metrics.consumer.register` the id of its component; None for one
    that runs in each worker, or whose hint or class means nothing."""
    ids: list[str | None] = []
    seen = Counter[str]()
    for entry in options.topology_metrics_consumer_register:
        hint, path = entry.get("parallelism.hint"), entry.get("class")
        is_count = type(hint) is int and 0 < hint <= TASKS_MAX
        has_component = entry.get(METRICS_COMPONENT_KEY) is True and is_count
        if not has_component or not isinstance(path, str) or character_error(path) is not None:
            ids.append(None)
            continue
        name = METRICS_CONSUMER_PREFIX + path[:_ID_BYTES_MAX]
        seen[name] += 1
        ids.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return ids


def system_topology(topology: Topology, options: TopologyOptions) -> Topology:
    """The topology with what the system adds, by the options of its stored configuration. One that
    has been through here already is returned as it is."""
    if SYSTEM_COMPONENT in topology.components:
        return topology
    wanted = {s for c in topology.components.values() for s in c.inputs}
    components = {i: _with_dead_letters(c, wanted, options) for i, c in topology.components.items()}
    ackers, eventloggers = num_ackers(options), num_eventloggers(options)
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
    for component_id, executors in metrics_consumers(options).items():
        components[component_id] = _metrics_consumer(component_id, topology, executors)
    components[SYSTEM_COMPONENT] = _system_component()
    common = {
        SYSTEM_STREAM: StreamInfo(("event",)),
        METRICS_STREAM: StreamInfo(("task-info", "data-points")),
    }
    return replace(
        topology,
        components={i: replace(c, streams={**c.streams, **common}) for i, c in components.items()},
    )


def _with_dead_letters(
    component: Component, wanted: Collection[GlobalStreamId], options: TopologyOptions
) -> Component:
    """Declares a component's stream of dead letters if there can be any: a bolt consumes it, or it
    is a spout whose replays are limited. `wanted`: all inputs."""
    consumed = GlobalStreamId(component.id, DEAD_LETTER_STREAM) in wanted
    if component.kind is not ComponentKind.SPOUT:
        if not consumed:
            return component
        letters = {DEAD_LETTER_STREAM: _BOLT_DEAD_LETTERS}
        return replace(component, streams={**component.streams, **letters})
    own = options.read_valid(component.conf, over=options)
    if not consumed and own.topology_max_replays is None:
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
    return PythonObject(f"squall_engine:{component_id}", _NO_ARGUMENTS)


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


def _metrics_consumer(component_id: str, topology: Topology, executors: int) -> Component:
    any_task = Grouping(GroupingKind.SHUFFLE)
    return Component(
        id=component_id,
        kind=ComponentKind.BOLT,
        object=_system_object(component_id),
        inputs={GlobalStreamId(i, METRICS_STREAM): any_task for i in topology.components},
        parallelism=executors,
        conf={"topology.tasks": executors},
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


def _topology_options() -> type[TopologyOptions]:
    # Imported late: the definition of a topology, and so `import squall`, does without msgspec.
    from squall_common.config.options.typed import TopologyOptions

    return TopologyOptions


def task_count(component: Component, options: TopologyOptions) -> int:
    """Tasks of a component: what `topology.component.tasks` says of it, else `topology.tasks` (its
    own, else the topology's), else as many as it has executors; of the last two at most
    `topology.max.task.parallelism`. Raises ConfigError for a configuration of
    the component that is wrong."""
    executors = _executors_wanted(component)
    # The number of ackers is part of every message's id and is what the conf says.
    if is_system_id(component.id):
        return executors
    given = (options.topology_component_tasks or {}).get(component.id)
    if given is not None:
        return given
    own = _topology_options().read(component.conf, where=component.id)
    tasks = own.topology_tasks or options.topology_tasks or executors
    limit = own.topology_max_task_parallelism or options.topology_max_task_parallelism
    return tasks if limit is None else min(tasks, limit)


def _executors_wanted(component: Component) -> int:
    return 1 if component.parallelism is None else component.parallelism


def component_tasks(topology: Topology, options: TopologyOptions) -> dict[int, str]:
    """The component of each task: tasks are numbered from 1, component by component, sorted by id.
    Takes the topology as submitted or as compiled. Raises InvalidTopologyError for more than
    TASKS_MAX."""
    components = system_topology(topology, options).components
    counts = [(i, task_count(components[i], options)) for i in sorted(components)]
    total = sum(count for _, count in counts)
    if total > TASKS_MAX:  # a submit is refused; what is stored may be damaged, or another's
        raise InvalidTopologyError(f"the topology has {total} tasks; the limit is {TASKS_MAX}")
    names = (component_id for component_id, count in counts for _ in range(count))
    return dict(enumerate(names, start=1))


def component_parallelism(topology: Topology, options: TopologyOptions) -> dict[str, int]:
    """Executors of each component at the start, at most one a task; without those that have no
    tasks. Takes the topology as submitted or as compiled."""
    components = system_topology(topology, options).components
    found = {}
    for component_id in sorted(components):
        component = components[component_id]
        tasks = task_count(component, options)
        if component_id in (options.topology_component_tasks or {}):
            found[component_id] = tasks
        elif tasks:
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
