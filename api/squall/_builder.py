"""TopologyBuilder: makes a `Topology` from spouts, bolts and the streams between them.

The methods that describe a topology never raise an error about it. `build()` checks everything at
once and raises one InvalidTopologyError that lists all problems.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, TypeVar

from squall._inspection import grouping_object, hook_object, look_at, one_line
from squall.windows.bolt import (
    WindowedBolt,
    window_problems,
    window_words,
    windowed_conf,
    with_late_stream,
)
from squall.windows.spec import WINDOW_KEYS, Windows, window_fields
from squall_common.component.component import Bolt, ShellBolt, ShellSpout, Spout
from squall_common.component.hooks import WorkerHook
from squall_common.component.stateful import StatefulBolt
from squall_common.config.schema import TASKS_MAX
from squall_common.errors import ConfigError, InvalidTopologyError
from squall_common.names import DEFAULT_STREAM
from squall_common.state.key_groups import max_parallelism
from squall_common.topology.arguments import encode_arguments
from squall_common.topology.model import Component as Declared
from squall_common.topology.model import (
    ComponentKind,
    ComponentObject,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    PythonObject,
    ShellObject,
    Topology,
)
from squall_common.topology.plan import Plan, PlanStep, bounded, with_windows
from squall_common.topology.system import validate_topology

PARTIAL_KEY_CLASS = "squall.groupings:PartialKeyGrouping"  # as it is stored

_Self = TypeVar("_Self", bound="SpoutDeclarer")


class SpoutDeclarer:
    """A spout of a topology that is being built, as `TopologyBuilder.spout` returns it.

        spout = builder.spout("sentences", Sentences("text.txt"))
        spout.memory_load(256).cpu_load(50).conf({"topology.max.spout.pending": 100})

    Every method returns the spout again.
    """

    def __init__(
        self,
        problems: list[str],
        kind: ComponentKind,
        component_id: str,
        component: object,
        parallelism: int | None,
        tasks: int | None,
        conf: Mapping[str, Any] | None,
    ) -> None:
        self.id = component_id
        self._kind = kind
        self._component = component
        self._parallelism = parallelism
        self._conf: dict[str, Any] = dict(conf or {})
        if tasks is not None:
            self._conf["topology.tasks"] = tasks
        self._inputs: dict[GlobalStreamId, Grouping] = {}
        self._partial_keys: dict[GlobalStreamId, tuple[str, ...]] = {}
        self._problems = problems
        self._windows: Windows | None = None
        self._plan: Plan = ()  # of a stream's component: its calls

    def __repr__(self) -> str:
        what = type(self._component).__name__
        return f"<{self._kind.value} {self.id!r}: {what} ×{self._parallelism or 1}>"

    def conf(self: _Self, values: Mapping[str, Any]) -> _Self:
        """Add options to the component's own configuration."""
        self._conf.update(values)
        return self

    def memory_load(self: _Self, on_heap_mb: float, off_heap_mb: float = 0.0) -> _Self:
        """Declare how much memory one task needs, in MiB. A worker's memory limit is the sum over
        its tasks. `off_heap_mb` is for memory that libraries and child processes hold."""
        return self.conf(
            {
                "topology.component.resources.onheap.memory.mb": on_heap_mb,
                "topology.component.resources.offheap.memory.mb": off_heap_mb,
            }
        )

    def cpu_load(self: _Self, percent: float) -> _Self:
        """Declare how much CPU one executor needs, in percent of one core."""
        return self.conf({"topology.component.cpu.pcore.percent": percent})


class BoltDeclarer(SpoutDeclarer):
    """A bolt of a topology that is being built. Each grouping method subscribes it to one more
    stream.

    `source` is the id of the component that emits the stream, or the object that `spout()` or
    `bolt()` returned for that component.

        split = builder.bolt("split", Split(), parallelism=2).shuffle("sentences")
        builder.bolt("count", Count(), parallelism=2, tasks=8).fields(split, "word")
    """

    def shuffle(self, source: str | SpoutDeclarer, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Spread tuples evenly over the tasks."""
        return self._subscribe(source, stream, Grouping(GroupingKind.SHUFFLE))

    def fields(
        self,
        source: str | SpoutDeclarer,
        *fields: str | Sequence[str],
        stream: str = DEFAULT_STREAM,
    ) -> BoltDeclarer:
        """Send tuples with equal values of these fields to the same task. The fields may be given
        as a list, too."""
        names = self._field_names(source, fields)
        if not names:
            self._problems.append(
                f"bolt {self.id!r}: fields({_id(source)!r}) names no field; "
                "for all tuples in one task, use global_"
            )
        return self._subscribe(source, stream, Grouping(GroupingKind.FIELDS, fields=names))

    def all(self, source: str | SpoutDeclarer, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send each tuple to every task."""
        return self._subscribe(source, stream, Grouping(GroupingKind.ALL))

    def global_(self, source: str | SpoutDeclarer, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send all tuples to one task, the one with the lowest id."""
        return self._subscribe(source, stream, Grouping(GroupingKind.GLOBAL))

    def direct(self, source: str | SpoutDeclarer, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Let the emitter pick the task (`emit_direct`). The stream must be a direct stream."""
        return self._subscribe(source, stream, Grouping(GroupingKind.DIRECT))

    def local_or_shuffle(
        self, source: str | SpoutDeclarer, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Keep tuples in their worker if it has a task of this bolt, otherwise shuffle them."""
        return self._subscribe(source, stream, Grouping(GroupingKind.LOCAL_OR_SHUFFLE))

    def none(self, source: str | SpoutDeclarer, stream: str = DEFAULT_STREAM) -> BoltDeclarer:
        """Send tuples to any task: the same as `shuffle`."""
        return self._subscribe(source, stream, Grouping(GroupingKind.NONE))

    def partial_key(
        self,
        source: str | SpoutDeclarer,
        *fields: str | Sequence[str],
        stream: str = DEFAULT_STREAM,
    ) -> BoltDeclarer:
        """Send tuples with equal values of these fields to one of two tasks, whichever was sent
        fewer tuples so far. Use it when a few keys are very common."""
        names = self._field_names(source, fields)
        if not names:
            self._problems.append(f"bolt {self.id!r}: partial_key({_id(source)!r}) names no field")
        self._partial_keys[GlobalStreamId(_id(source), stream)] = names
        custom = PythonObject(PARTIAL_KEY_CLASS, encode_arguments(names, {}))
        return self._subscribe(source, stream, Grouping(GroupingKind.CUSTOM, custom=custom))

    def grouping(
        self, source: str | SpoutDeclarer, grouping: Grouping, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Subscribe with a `squall_common.topology.model.Grouping`, for example one taken from
        another topology: `Grouping(GroupingKind.FIELDS, fields=("word",))`."""
        if not isinstance(grouping, Grouping):
            self._problems.append(
                f"bolt {self.id!r}: grouping of {_id(source)!r} is {grouping!r}; "
                "expected a Grouping"
            )
            return self
        return self._subscribe(source, stream, grouping)

    def custom(
        self, source: str | SpoutDeclarer, grouping: object, stream: str = DEFAULT_STREAM
    ) -> BoltDeclarer:
        """Let a `CustomGrouping` of your own pick the tasks."""
        where = f"bolt {self.id!r}: grouping of {_id(source)!r}"
        try:
            custom = grouping_object(grouping)
        except InvalidTopologyError as error:
            self._problems.append(f"{where}: {one_line(error)}")
            return self
        return self._subscribe(source, stream, Grouping(GroupingKind.CUSTOM, custom=custom))

    def windowed(self, windows: Windows) -> BoltDeclarer:
        """Set the windows of a `WindowedBolt`: `tumbling(...)`, `sliding(...)` or `session(...)` of
        `squall.windows`. They replace those of its class.

            builder.bolt("count", Count()).windowed(tumbling(secs=60)).fields("words", "word")
        """
        if not isinstance(self._component, WindowedBolt):
            self._problems.append(
                f"bolt {self.id!r}: windowed() is for a WindowedBolt, not "
                f"{type(self._component).__name__}"
            )
        elif not isinstance(windows, Windows):
            self._problems.append(
                f"bolt {self.id!r}: windowed({windows!r}): expected tumbling(...), sliding(...) "
                "or session(...)"
            )
        else:
            for key in WINDOW_KEYS:
                self._conf.pop(key, None)
            self._windows = windows
        return self

    def _field_names(
        self, source: str | SpoutDeclarer, fields: Sequence[str | Sequence[str]]
    ) -> tuple[str, ...]:
        """The names among `fields`, in which there may be lists of them."""
        names: list[str] = []
        for field in fields:
            for name in [field] if isinstance(field, str) else _listed(field):
                if isinstance(name, str):
                    names.append(name)
                else:
                    self._problems.append(
                        f"bolt {self.id!r}: grouping of {_id(source)!r} by {name!r}; "
                        "expected names of fields"
                    )
        return tuple(names)

    def _subscribe(
        self, source: str | SpoutDeclarer, stream: str, grouping: Grouping
    ) -> BoltDeclarer:
        input_id = GlobalStreamId(_id(source), stream)
        if input_id in self._inputs:
            self._problems.append(
                f"bolt {self.id!r} subscribes to {str(input_id)!r} twice; "
                "use one grouping per stream"
            )
        self._inputs[input_id] = grouping
        return self


class TopologyBuilder:
    """Puts a topology together.

        builder = TopologyBuilder()
        builder.spout("sentences", Sentences(path="pg1661.txt"))
        builder.bolt("split", Split(), parallelism=4).shuffle("sentences")
        builder.bolt("count", Count(), parallelism=4).fields("split", "word")
        topology = builder.build()

    Nothing is checked until `build`, which reports everything that is wrong at once.
    """

    def __init__(self) -> None:
        self._declarers: list[SpoutDeclarer] = []
        self._worker_hooks: list[WorkerHook] = []
        self._problems: list[str] = []

    def spout(
        self,
        id: str,
        spout: Spout | ShellSpout,
        parallelism: int | None = 1,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> SpoutDeclarer:
        """Add a spout that runs in `parallelism` executors with `tasks` tasks in total (None: one
        task per executor). `tasks` is the most executors that a rebalance can give it. Its
        `component_conf` overrides the topology's configuration, and `conf`
        overrides both."""
        declarer = SpoutDeclarer(
            self._problems, ComponentKind.SPOUT, id, spout, parallelism, tasks, conf
        )
        self._declarers.append(declarer)
        return declarer

    def bolt(
        self,
        id: str,
        bolt: Bolt | ShellBolt,
        parallelism: int | None = 1,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> BoltDeclarer:
        """Add a bolt that runs in `parallelism` executors with `tasks` tasks in total (None: one
        task per executor). `tasks` is the most executors that a rebalance can give it. Its
        `component_conf` overrides the topology's configuration, and `conf`
        overrides both. Call the grouping methods of the returned object to subscribe the bolt to
        streams."""
        declarer = BoltDeclarer(
            self._problems, ComponentKind.BOLT, id, bolt, parallelism, tasks, conf
        )
        self._declarers.append(declarer)
        return declarer

    def add_worker_hook(self, hook: WorkerHook) -> TopologyBuilder:
        """Add a hook that runs when each worker starts and ends. Hooks start in the order in which
        they were added. Returns the builder."""
        self._worker_hooks.append(hook)
        return self

    def __repr__(self) -> str:
        return f"TopologyBuilder({', '.join(declarer.id for declarer in self._declarers)})"

    def _repr_html_(self) -> str:
        """In a notebook: a drawing, or what is wrong."""
        try:
            return self._build_for_test()[0].to_svg()
        except InvalidTopologyError as error:
            listed = "".join(f"<li>{escape(problem)}</li>" for problem in error.problems)
            return f"<p>This topology cannot run yet:</p><ul>{listed}</ul>"

    def build(self) -> Topology:
        """Return the topology. Raises InvalidTopologyError, which lists all its problems."""
        return self._build(None)

    def _build_for_test(self) -> tuple[Topology, dict[str, type]]:
        """The topology, and the classes that no worker could import, because they are defined
        inside a function: of components by id, of worker hooks by class path."""
        local: dict[str, type] = {}
        return self._build(local), local

    def _build(self, local: dict[str, type] | None) -> Topology:
        problems = list(self._problems)
        components: dict[str, Declared] = {}
        for declarer in self._declarers:
            where = f"{declarer._kind.value} {declarer.id!r}"
            if declarer.id in components:
                problems.append(f"{where}: there is a component with this id already")
                continue
            classes: list[type] | None = None if local is None else []
            conf = {
                **_own_conf(where, declarer._component, declarer._windows, problems),
                **declarer._conf,
            }
            if isinstance(declarer._component, StatefulBolt):
                conf = _with_key_groups(conf, declarer._parallelism)
            found, streams = look_at(where, declarer._kind, declarer._component, problems, classes)
            if local is not None and classes:
                (local[declarer.id],) = classes
            if isinstance(declarer._component, WindowedBolt):
                problems.extend(f"{where}: {p}" for p in window_problems(declarer._component, conf))
                streams = with_late_stream(streams, conf)
            components[declarer.id] = Declared(
                id=declarer.id,
                kind=declarer._kind,
                object=found or ShellObject("", ""),
                inputs=dict(declarer._inputs),
                streams=streams,
                parallelism=declarer._parallelism,
                conf=conf,
                plan=_plan(declarer, found, conf),
            )
        for declarer in self._declarers:
            problems.extend(_partial_key_problems(declarer, components))
            problems.extend(_window_field_problems(declarer, components))
        topology = Topology(components, worker_hooks=tuple(self._hooks(problems, local)))
        try:
            validate_topology(topology)
        except InvalidTopologyError as error:
            problems.extend(error.problems)
        if problems:
            raise InvalidTopologyError.listing(problems)
        return topology

    def _hooks(self, problems: list[str], local: dict[str, type] | None) -> Iterator[PythonObject]:
        for hook in self._worker_hooks:
            classes: list[type] | None = None if local is None else []
            try:
                found = hook_object(hook, classes)
            except InvalidTopologyError as error:
                problems.append(f"worker hook: {one_line(error)}")
                continue
            if local is not None and classes:
                (local[found.class_path],) = classes
            yield found


def _partial_key_problems(
    declarer: SpoutDeclarer, components: Mapping[str, Declared]
) -> Iterator[str]:
    """Fields that a partial-key grouping names but the stream does not have. (`validate_topology`
    checks the fields of a fields grouping; these are hidden in the arguments of a class.)"""
    for source, fields in declarer._partial_keys.items():
        component = components.get(source.component)
        info = component.streams.get(source.stream) if component is not None else None
        for field in fields if info is not None else ():
            if info is not None and field not in info.fields:
                yield (
                    f"bolt {declarer.id!r}: groups {str(source)!r} by field {field!r}, "
                    f"which that stream does not have (it has {', '.join(map(repr, info.fields))})"
                )


def _window_field_problems(
    declarer: SpoutDeclarer, components: Mapping[str, Declared]
) -> Iterator[str]:
    """Fields by which a bolt has windows but that one of its inputs does not have."""
    if not isinstance(declarer._component, WindowedBolt):
        return
    conf = components[declarer.id].conf
    for source in declarer._inputs:
        component = components.get(source.component)
        info = component.streams.get(source.stream) if component is not None else None
        for field, use in window_fields(conf) if info is not None else ():
            if info is not None and field not in info.fields:
                yield (
                    f"bolt {declarer.id!r}: {use} {field!r}, which {str(source)!r} does not have "
                    f"(it has {', '.join(map(repr, info.fields))})"
                )


def _own_conf(
    where: str, component: object, windows: Windows | None, problems: list[str]
) -> dict[str, Any]:
    """The configuration that a component brings along."""
    if isinstance(component, (ShellSpout, ShellBolt)):
        return component.conf()
    own = component.component_conf if isinstance(component, (Spout, Bolt)) else {}
    if not isinstance(own, Mapping):
        problems.append(f"{where}: component_conf is {own!r}; expected a dict")
        return {}
    if isinstance(component, WindowedBolt):
        return windowed_conf(component, windows)
    return dict(own)


def _plan(declarer: SpoutDeclarer, found: ComponentObject | None, conf: Mapping[str, Any]) -> Plan:
    """What a component does: the calls of streams, and the windows of a windowed bolt."""
    steps = declarer._plan
    if isinstance(declarer._component, WindowedBolt):
        words = window_words(declarer._component, conf, with_key=not steps)
        if words:
            classes = (found.class_path,) if isinstance(found, PythonObject) else ()
            steps = with_windows(steps or (PlanStep("", classes),), words)
    return bounded(steps)


def _with_key_groups(conf: dict[str, Any], parallelism: int | None) -> dict[str, Any]:
    """The configuration of a stateful bolt, with its number of key groups: it is fixed now."""
    from squall_common.config.options.typed import TopologyOptions

    try:
        tasks = TopologyOptions.read(conf).topology_tasks or parallelism
    except ConfigError:
        tasks = None
    if not isinstance(tasks, int) or not 1 <= tasks <= TASKS_MAX:
        tasks = 1  # another check says what is wrong
    return {"topology.state.max.parallelism": max_parallelism(tasks), **conf}


def _listed(field: object) -> Sequence[object]:
    return field if isinstance(field, (list, tuple)) else [field]


def _id(source: str | SpoutDeclarer) -> str:
    return source.id if isinstance(source, SpoutDeclarer) else source
