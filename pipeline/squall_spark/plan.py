"""From a topology to stages on Spark: pure, and nothing starts before the plan is valid.

A *stage* is one component, computed once: over a data set (a spout that --input replaces), over
nothing (a bounded spout that runs itself), or over the sections that its sources emitted for it.
A bolt has one partition per task. Its rows are moved to the partition of their task unless they are
already there: local-or-shuffle from a component with as many tasks.

Task ids are those of the cluster: numbered over the compiled topology, ackers included, although no
acker runs here. The streams that are written get a task each at the end of the numbers, a *sink*.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from squall.windows.spec import WindowPlan
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import InvalidTopologyError, SquallError
from squall_common.names import (
    ACKER_COMPONENT,
    EVENTLOGGER_COMPONENT,
    SYSTEM_COMPONENT,
    is_system_id,
)
from squall_common.topology.model import (
    Component,
    ComponentKind,
    ForeignObject,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    PythonObject,
    Topology,
)
from squall_common.topology.prepared import prepare
from squall_spark.data.bindings import Format, Source, StreamName, Target, shown_place
from squall_spark.traits import Column, Traits

_NO_ARGUMENTS = b'{"args":[],"kwargs":{}}'
_TICKS = "topology.tick.tuple.freq.secs"
# The files of so many tasks are few, even if they are small.
_FEW_TASKS = 8
_NOT_ON_SPARK = frozenset({ACKER_COMPONENT, EVENTLOGGER_COMPONENT})
# Types whose values a column holds as they are, so that a declared one needs no look at them.
PLAIN_TYPES = frozenset({"boolean", "bigint", "double", "string", "binary"})


class StageKind(enum.Enum):
    DATA = "data set"
    BOUNDED = "bounded spout"
    BOLT = "bolt"


@dataclass(frozen=True, slots=True)
class Stage:
    """One component."""

    component: str
    kind: StageKind
    tasks: tuple[int, ...]
    inputs: tuple[str, ...] = ()  # components whose sections it reads; BOLT only
    moves: bool = True  # False: a row is already in the partition of its task
    sources: tuple[Source, ...] = ()  # DATA only
    readers: int = 0  # how often its sections are read; it is computed only once
    stateful: bool = False  # of a stream: it has something to keep between micro-batches
    windowed: bool = False
    by_time: bool = False  # its tuples come in the order of their timestamps
    timestamp_field: str | None = None  # None: the bolt knows
    tick_secs: float | None = None
    flushes: bool = False


@dataclass(frozen=True, slots=True)
class Sink:
    """A stream that is written. `task` receives its tuples."""

    stream: StreamName
    fields: tuple[str, ...]
    task: int
    path: str
    format: Format
    columns: tuple[Column, ...] = ()  # the types of its fields, if all are declared and plain
    measured: bool = True  # its tuples are read once more before, for their types or their size
    partition_by: tuple[str, ...] = ()
    key: tuple[str, ...] = ()  # the newest tuple of each key is kept; see `current`

    @property
    def name(self) -> str:
        """Of a stream there may be both its tuples and its current values."""
        return f"{self.stream} (current)" if self.key else str(self.stream)

    @property
    def shown(self) -> str:
        """Its path, without passwords."""
        return shown_place(self.path, self.format)

    @property
    def where(self) -> str:
        """The option that has asked for it."""
        return f"{'--current' if self.key else '--output'} {self.stream}"


@dataclass(frozen=True, slots=True)
class SparkPlan:
    """The stages to run, sources before consumers. `topology` is the engine's version of it;
    `task_to_component` leaves out ackers and includes the sinks."""

    name: str
    topology: Topology
    conf: Mapping[str, Any]
    task_to_component: Mapping[int, str]
    stages: tuple[Stage, ...]
    sinks: tuple[Sink, ...]
    # Of the streams that declare types: for each field.
    columns: Mapping[StreamName, tuple[Column, ...]] = field(default_factory=dict)
    # Streams whose consumers all take columns: these may stay Arrow (see `tasks.arrow`).
    arrow_streams: frozenset[StreamName] = frozenset()

    def columns_of(self, stream: StreamName) -> tuple[Column, ...]:
        """The declared types of a stream's fields; () if they are not declared."""
        return self.columns.get(stream, ())

    def stage(self, component: str) -> Stage:
        return next(stage for stage in self.stages if stage.component == component)

    def tasks_of(self, component: str) -> list[int]:
        return sorted(t for t, c in self.task_to_component.items() if c == component)

    def key_groups(self, component: str) -> int:
        """The number of key groups of a stateful bolt: it chooses the task of a key."""
        options = TopologyOptions.read(self.topology.components[component].conf)
        return options.topology_state_max_parallelism or len(self.tasks_of(component))

    def is_written(self, component: str) -> bool:
        """Whether any of its streams goes to an output."""
        return any(sink.stream.component == component for sink in self.sinks)

    @property
    def sink_tasks(self) -> frozenset[int]:
        return frozenset(sink.task for sink in self.sinks)


def make_plan(
    name: str,
    topology: Topology,
    conf: Mapping[str, Any],
    traits: Mapping[str, Traits],
    inputs: Sequence[Source],
    outputs: Sequence[Target],
    *,
    streaming: bool = False,
) -> SparkPlan:
    """Plan a topology; `conf` is its configuration, normalized as Nimbus would. Raises
    InvalidTopologyError with a list of everything that Spark cannot run and of all problems with
    the inputs and outputs."""
    problems = [
        *_component_problems(topology, conf, traits, inputs, streaming=streaming),
        *_cycle_problems(topology),
        *_input_problems(topology, inputs, streaming=streaming),
        *_output_problems(topology, outputs),
    ]
    if problems:
        raise InvalidTopologyError.listing(problems)
    numbered = prepare(topology, conf).task_to_component
    tasks = {task: id_ for task, id_ in numbered.items() if id_ not in _NOT_ON_SPARK}
    columns = {
        StreamName(component, stream): each
        for component, has in traits.items()
        for stream, each in has.columns.items()
    }
    sinks = _sinks(topology, outputs, columns, tasks)
    first = max(numbered, default=0) + 1
    sinks = [replace(sink, task=first + i) for i, sink in enumerate(sinks)]
    return SparkPlan(
        name=name,
        topology=_for_the_engine(topology, conf, sinks),
        conf={**conf, _TICKS: None},
        task_to_component={**tasks, **{sink.task: _sink_id(sink) for sink in sinks}},
        stages=tuple(_stages(topology, conf, tasks, traits, inputs, sinks, streaming=streaming)),
        sinks=tuple(sinks),
        columns=columns,
        arrow_streams=frozenset(_arrow_streams(topology, traits, inputs, sinks)),
    )


def with_parallelism(topology: Topology, tasks: Mapping[str, int]) -> Topology:
    """The topology with other numbers of tasks for some components. Raises SquallError for one that
    it does not have."""
    for id_ in tasks:
        if id_ not in topology.components:
            known = ", ".join(map(repr, topology.components))
            raise SquallError(
                f"--parallelism {id_}: there is no component {id_!r} (there are {known})"
            )
    changed = {
        id_: replace(
            topology.components[id_],
            parallelism=number,
            conf={**topology.components[id_].conf, "topology.tasks": number},
        )
        for id_, number in tasks.items()
    }
    return replace(topology, components={**topology.components, **changed})


# ---- Problems ----


def _component_problems(
    topology: Topology,
    conf: Mapping[str, Any],
    traits: Mapping[str, Traits],
    inputs: Sequence[Source],
    *,
    streaming: bool,
) -> Iterable[str]:
    bound = {source.stream.component for source in inputs}
    for component in topology.components.values():
        where = f"{component.kind.value} {component.id!r}"
        made_of, has = component.object, traits.get(component.id, Traits())
        if isinstance(made_of, ForeignObject):
            yield f"{where} is a Java object, which only Apache Storm's JVM workers can run"
        elif isinstance(made_of, PythonObject) and made_of.class_path.startswith("squall_drpc"):
            yield f"{where} belongs to DRPC: requests and answers have no meaning on Spark"
        elif component.kind is ComponentKind.SPOUT:
            if component.id not in bound:
                yield from _unbound_problems(where, component, has, streaming=streaming)
        else:
            yield from _bolt_problems(where, component, conf, has, streaming=streaming)
        for source, grouping in component.inputs.items():
            if grouping.kind is GroupingKind.CUSTOM_SERIALIZED:
                yield f"{where}: its grouping on {str(source)!r} is a Java object"


def _unbound_problems(
    where: str, component: Component, has: Traits, *, streaming: bool
) -> Iterable[str]:
    use = f"give it data: --input {component.id}=PATH"
    if streaming:
        yield f"{where} has no data; {use}"
    elif not has.bounded:
        yield f"{where} has no end (its class defines no exhausted()); {use}"
    elif has.hears_acks:
        yield f"{where} depends on acks (its class defines ack() or fail()), but gets none; {use}"


def _bolt_problems(
    where: str, component: Component, conf: Mapping[str, Any], has: Traits, *, streaming: bool
) -> Iterable[str]:
    if has.windowed:
        if not streaming and _time_of(component, conf, has) is WindowTime.CLOCK:
            yield (
                f"{where} has windows by the clock, and the data of a batch job comes all at once: "
                "name the field of the timestamp (EventTime), or define timestamp()"
            )
        return
    if streaming and not (has.stateful or has.stateless):
        yield (
            f"{where} would lose its data between two micro-batches: derive it from "
            "squall.StatefulBolt, or set `stateless = True` in its class"
        )


class WindowTime(enum.Enum):
    """What the windows of a bolt end by."""

    EVENTS = "event time"
    CLOCK = "the clock"
    COUNT = "the number of tuples"


def _time_of(component: Component, conf: Mapping[str, Any], has: Traits) -> WindowTime:
    plan = WindowPlan.read(TopologyOptions.read({**conf, **component.conf}))
    if has.timestamps or plan.timestamp_field is not None:
        return WindowTime.EVENTS
    in_time = plan.length_ms is not None or plan.slide_ms is not None or plan.gap_ms is not None
    return WindowTime.CLOCK if in_time else WindowTime.COUNT


def _tick_secs(component: Component, conf: Mapping[str, Any]) -> float | None:
    return TopologyOptions.read({**conf, **component.conf}).topology_tick_tuple_freq_secs or None


def _cycle_problems(topology: Topology) -> Iterable[str]:
    """A line for each cycle found, as a path."""
    consumers: dict[str, list[str]] = {id_: [] for id_ in topology.components}
    for component in topology.components.values():
        for source in component.inputs:
            if source.component in consumers:
                consumers[source.component].append(component.id)
    done: set[str] = set()
    for start in topology.components:
        path: list[str] = []
        # Depth first without recursion: a topology may be a long chain.
        stack = [(start, iter(consumers[start]))] if start not in done else []
        path = [start] if stack else []
        while stack:
            id_, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                done.add(id_)
                stack.pop()
                path.pop()
            elif following in path:
                cycle = [*path[path.index(following) :], following]
                yield f"{' -> '.join(cycle)} is a cycle: Spark computes a component once"
            elif following not in done:
                path.append(following)
                stack.append((following, iter(consumers[following])))


def _input_problems(
    topology: Topology, inputs: Sequence[Source], *, streaming: bool
) -> Iterable[str]:
    seen: set[StreamName] = set()
    for source in inputs:
        where = f"--input {source.stream}"
        component = topology.components.get(source.stream.component)
        if source.stream in seen:
            yield f"{where} is given twice; one path may be a pattern or a folder of many files"
        seen.add(source.stream)
        if component is None or component.kind is not ComponentKind.SPOUT:
            spouts = ", ".join(map(repr, topology.spouts)) or "none"
            what = "is a bolt" if component is not None else "is not a component"
            yield f"{where}: {source.stream.component!r} {what} (spouts: {spouts})"
        elif source.stream.stream not in component.streams:
            yield f"{where}: the spout has no such stream (it has {_names(component.streams)})"
        elif component.streams[source.stream.stream].direct:
            yield f"{where}: a direct stream needs a spout that picks the tasks"
        if source.format is Format.SOCKET and not streaming:
            yield f"{where}: {source.format.value} is for --streaming"
    for spout in topology.spouts.values():
        unbound = set(spout.streams) - {s.stream for s in seen if s.component == spout.id}
        if any(s.component == spout.id for s in seen):
            for consumer in topology.components.values():
                for stream in consumer.inputs:
                    if stream.component == spout.id and stream.stream in unbound:
                        yield (
                            f"spout {spout.id!r}: {consumer.id!r} reads its stream "
                            f"{stream.stream!r}; bind that too: --input "
                            f"{spout.id}:{stream.stream}=PATH"
                        )


def _output_problems(topology: Topology, outputs: Sequence[Target]) -> Iterable[str]:
    for target in outputs:
        name = target.stream
        if name is None:
            if not leaves(topology):
                yield (
                    f"--output {target.path}: every stream is consumed; name one: "
                    f"--output COMPONENT={target.path}"
                )
            continue
        component = topology.components.get(name.component)
        where = f"{'--current' if target.key else '--output'} {name}"
        if component is None:
            known = ", ".join(map(repr, topology.components))
            yield f"{where}: there is no component {name.component!r} (there are {known})"
        elif name.stream not in component.streams:
            yield (
                f"{where}: {name.component!r} has no stream {name.stream!r} "
                f"(it has {_names(component.streams)})"
            )
        elif not component.streams[name.stream].fields:
            yield f"{where}: the stream has no fields"
        elif component.streams[name.stream].direct:
            yield f"{where}: a direct stream cannot be written"
        else:
            fields = component.streams[name.stream].fields
            yield from _partition_problems(target, fields)
            yield from _key_problems(target, fields)
    asked = Counter((t.stream, bool(t.key)) for t in outputs if t.stream is not None)
    for (name, keyed), times in asked.items():
        if times > 1:
            yield f"{'--current' if keyed else '--output'} {name} is given twice"
    places = [target.path for target in outputs]
    formats = {target.path: target.format for target in outputs}
    for path in sorted({path for path in places if places.count(path) > 1}):
        yield f"--output {shown_place(path, formats[path])} is given twice"


def _partition_problems(target: Target, fields: Sequence[str]) -> Iterable[str]:
    if not target.partition_by:
        return
    where = f"--partition-by {target.stream}"
    unknown = [name for name in target.partition_by if name not in fields]
    if unknown:
        there = _names(fields)
        yield f"{where}: the stream has no field {_names(unknown)} (it has {there})"
    elif len(target.partition_by) == len(fields):
        yield f"{where}: no field is left to write"
    if target.format is Format.KAFKA:
        yield f"{where}: a topic has no folders"


def _key_problems(target: Target, fields: Sequence[str]) -> Iterable[str]:
    if not target.key:
        return
    where = f"--key {target.stream}"
    unknown = [name for name in target.key if name not in fields]
    if unknown:
        yield f"{where}: the stream has no field {_names(unknown)} (it has {_names(fields)})"
    jdbc = target.format is Format.SPARK and target.path.partition("?")[0].lower() == "jdbc"
    if target.format not in (Format.PARQUET, Format.DELTA) and not jdbc:
        what = target.format.value
        if target.format is Format.SPARK:
            what += f":{target.path.partition('?')[0]}"
        yield (
            f"--current {target.stream}: {what} cannot be updated by key; use a folder of Parquet, "
            "delta:PATH, or spark:jdbc?..."
        )
    if jdbc and target.partition_by:
        yield f"--current {target.stream}: a table of a database has no folders (--partition-by)"


def _names(streams: Iterable[str]) -> str:
    return ", ".join(map(repr, streams)) or "none"


# ---- Stages ----


def leaves(topology: Topology) -> list[StreamName]:
    """The streams of bolts that have fields and no consumer, which are written by default."""
    read = {source for c in topology.components.values() for source in c.inputs}
    return [
        StreamName(component.id, stream)
        for component in topology.bolts.values()
        for stream, info in component.streams.items()
        if info.fields and not info.direct and GlobalStreamId(component.id, stream) not in read
    ]


def _sinks(
    topology: Topology,
    outputs: Sequence[Target],
    columns: Mapping[StreamName, tuple[Column, ...]],
    tasks: Mapping[int, str],
) -> list[Sink]:
    """The outputs, without their tasks."""
    wanted: dict[tuple[StreamName, bool], Target] = {}
    for target in outputs:
        if target.stream is None:
            for leaf in leaves(topology):
                folder = str(leaf).replace(":", ".").replace("/", "_")
                path = f"{target.path.rstrip('/')}/{folder}"
                wanted.setdefault((leaf, False), replace(target, path=path))
    for target in outputs:
        if target.stream is not None:
            wanted[target.stream, bool(target.key)] = target
    counts = Counter(tasks.values())
    return [
        Sink(
            stream,
            topology.components[stream.component].streams[stream.stream].fields,
            0,
            target.path,
            target.format,
            columns=_plain(columns.get(stream, ())),
            measured=not _plain(columns.get(stream, ())) or counts[stream.component] > _FEW_TASKS,
            partition_by=target.partition_by,
            key=target.key,
        )
        for (stream, _), target in wanted.items()
    ]


_ARROW_GROUPINGS = frozenset(
    {
        GroupingKind.SHUFFLE,
        GroupingKind.NONE,
        GroupingKind.LOCAL_OR_SHUFFLE,
        GroupingKind.FIELDS,
        GroupingKind.ALL,
        GroupingKind.GLOBAL,
    }
)


def _arrow_streams(
    topology: Topology,
    traits: Mapping[str, Traits],
    inputs: Sequence[Source],
    sinks: Sequence[Sink],
) -> Iterable[StreamName]:
    """The streams of data sets, and of bolts that emit columns, whose consumers take columns."""
    bound = {source.stream.component for source in inputs}
    written = {sink.stream for sink in sinks}
    for component in topology.components.values():
        emits = component.id in bound or traits.get(component.id, Traits()).takes_columns
        for stream, info in component.streams.items():
            name = StreamName(component.id, stream)
            consumers = [
                (
                    traits.get(consumer.id, Traits()),
                    _timestamp_field(consumer) is not None,
                    grouping,
                )
                for consumer in topology.components.values()
                for source, grouping in consumer.inputs.items()
                if source == GlobalStreamId(component.id, stream)
            ]
            taken = all(
                has.takes_columns and not by_time and grouping.kind in _ARROW_GROUPINGS
                for has, by_time, grouping in consumers
            )
            read = bool(consumers) or name in written
            if emits and taken and read and info.fields and not info.direct:
                yield name


def _plain(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return columns if all(column.type in PLAIN_TYPES for column in columns) else ()


def _sink_id(sink: Sink) -> str:
    return f"output of {sink.name}"


def _for_the_engine(topology: Topology, conf: Mapping[str, Any], sinks: Sequence[Sink]) -> Topology:
    """The compiled topology without acking and ticks, and with the sinks."""
    untracked = {**conf, "topology.acker.executors": 0, "topology.eventlogger.executors": 0}
    compiled = prepare(topology, untracked).topology
    components = {
        id_: replace(c, conf={**c.conf, _TICKS: None}) if not is_system_id(id_) else c
        for id_, c in compiled.components.items()
    }
    for sink in sinks:
        components[_sink_id(sink)] = Component(
            id=_sink_id(sink),
            kind=ComponentKind.BOLT,
            object=PythonObject("squall_spark:sink", _NO_ARGUMENTS),  # never made
            inputs={
                GlobalStreamId(sink.stream.component, sink.stream.stream): Grouping(
                    GroupingKind.GLOBAL
                )
            },
            parallelism=1,
        )
    return replace(compiled, components=components)


def _stages(
    topology: Topology,
    conf: Mapping[str, Any],
    tasks: Mapping[int, str],
    traits: Mapping[str, Traits],
    inputs: Sequence[Source],
    sinks: Sequence[Sink],
    *,
    streaming: bool,
) -> Iterable[Stage]:
    mine: dict[str, list[int]] = {}
    for task in sorted(tasks):
        mine.setdefault(tasks[task], []).append(task)
    mine.pop(SYSTEM_COMPONENT, None)
    readers = dict.fromkeys(topology.components, 0)
    for component in topology.components.values():
        for source in {s.component for s in component.inputs}:
            readers[source] += 1
    for sink in sinks:
        readers[sink.stream.component] += 2 if sink.measured else 1
    for id_ in _sources_first(topology):
        component = topology.components[id_]
        sources = tuple(s for s in inputs if s.stream.component == id_)
        if component.kind is ComponentKind.BOLT:
            kind = StageKind.BOLT
        else:
            kind = StageKind.DATA if sources else StageKind.BOUNDED
        has = traits.get(id_, Traits())
        is_bolt = component.kind is ComponentKind.BOLT
        by_time = (
            is_bolt and not has.shell and _comes_by_time(component, conf, has, streaming=streaming)
        )
        yield Stage(
            component=id_,
            kind=kind,
            tasks=tuple(mine[id_]),
            inputs=tuple(sorted({s.component for s in component.inputs})),
            moves=not _stays(component, mine),
            sources=sources,
            readers=readers[id_],
            stateful=has.stateful or (has.windowed and streaming),
            windowed=has.windowed,
            by_time=by_time,
            timestamp_field=_timestamp_field(component) if by_time else None,
            tick_secs=_tick_secs(component, conf) if is_bolt else None,
            flushes=has.flushes,
        )


def _comes_by_time(
    component: Component, conf: Mapping[str, Any], has: Traits, *, streaming: bool
) -> bool:
    """Whether a bolt gets its tuples in the order of their timestamps: windows in event time, and
    in a batch job any bolt that names the field of the timestamp."""
    if has.windowed:
        return _time_of(component, conf, has) is WindowTime.EVENTS
    return not streaming and _timestamp_field(component) is not None


def _timestamp_field(component: Component) -> str | None:
    return TopologyOptions.read(component.conf).topology_bolts_tuple_timestamp_field_name


def _stays(component: Component, tasks: Mapping[str, Sequence[int]]) -> bool:
    """Whether the tuples from a bolt's only source are already in the partitions of its tasks."""
    sources = {source.component for source in component.inputs}
    return (
        len(sources) == 1
        and all(g.kind is GroupingKind.LOCAL_OR_SHUFFLE for g in component.inputs.values())
        and len(tasks[next(iter(sources))]) == len(tasks[component.id])
    )


def _sources_first(topology: Topology) -> list[str]:
    """The components, with sources before their consumers. There are no cycles here."""
    waiting = {
        id_: {s.component for s in topology.components[id_].inputs}
        for id_ in sorted(topology.components)
    }
    order: list[str] = []
    while waiting:
        ready = [id_ for id_, sources in waiting.items() if sources <= set(order)]
        assert ready, "a cycle"
        order += ready
        for id_ in ready:
            del waiting[id_]
    return order


def near_tasks(plan: SparkPlan, task: int) -> frozenset[int]:
    """The tasks that a local-or-shuffle grouping of `task` prefers: as if task i of every component
    ran in worker i, or, where a component has fewer tasks than another, in worker i modulo that
    number."""
    component = plan.task_to_component[task]
    own = plan.tasks_of(component)
    index = own.index(task)
    near: set[int] = set()
    for consumer in plan.topology.components.values():
        if any(source.component == component for source in consumer.inputs):
            theirs = plan.tasks_of(consumer.id)
            workers = min(len(own), len(theirs)) or 1
            near.update(t for i, t in enumerate(theirs) if i % workers == index % workers)
    return frozenset(near - plan.sink_tasks)
