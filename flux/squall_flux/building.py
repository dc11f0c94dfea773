"""A definition as a topology: imports the classes, makes the objects, and connects the components.

The objects are made here as each worker task makes them again, so that what is wrong is found with
its line before anything is submitted.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall import ShellBolt, ShellSpout, TopologyBuilder, WorkerHook
from squall_common.component.groupings import CustomGrouping
from squall_common.errors import InvalidTopologyError
from squall_common.names import DEFAULT_STREAM
from squall_common.topology.arguments import encode_arguments
from squall_common.topology.construction import (
    Constructed,
    Construction,
    attributes_of,
    python_object,
)
from squall_common.topology.import_paths import import_path_of
from squall_common.topology.model import Grouping, GroupingKind, PythonObject, Topology
from squall_common.topology.signatures import signature_of
from squall_flux.definition import Definition, Located
from squall_flux.model import BeanDef, GroupingType, ObjectDef, StreamDef, VertexDef
from squall_flux.recipe import Assembled, Ref, Step, make
from squall_flux.storm_classes import FluxShell
from squall_flux.user_code import blame, check_arguments, import_class, one_line

STEPS_MAX = 10_000
REFERENCES_NESTING_MAX = 50


@dataclass(frozen=True, slots=True)
class Built:
    """A topology that can be submitted."""

    name: str
    conf: dict[str, Any]
    topology: Topology
    classes: dict[str, str]  # of the components of the definition, by id
    made: dict[str, Any]  # the components that travel as recipes, by id


def build(definition: Definition) -> Built:
    """Make the topology of a definition. Raises InvalidTopologyError, which lists what is wrong,
    with the places."""
    if definition.name is None:
        raise InvalidTopologyError("the definition has no name", hint='add: name: "my-topology"')
    conf = {key: option.value for key, option in definition.config.items()}
    classes = {
        id: part.value.class_name
        for id, part in (*definition.spouts.items(), *definition.bolts.items())
    }
    assembly = _Assembly(definition)
    if definition.topology_source is None:
        topology = assembly.topology()
    else:
        topology = assembly.from_source(conf)
    return Built(definition.name.value, conf, topology, classes, assembly.made)


@dataclass(frozen=True, slots=True)
class _Made:
    """An object, and how workers make it."""

    object: Any
    steps: tuple[Step, ...]

    def travelling(self, where: str) -> PythonObject | None:
        """What travels in place of the object; None if its class and arguments do."""
        if len(self.steps) == 1 and self.steps[0].is_plain:
            return None
        try:
            return PythonObject(import_path_of(Assembled), encode_arguments(self.steps, {}))
        except InvalidTopologyError as error:
            raise InvalidTopologyError(f"{where}: {one_line(error)}") from error


class _Assembly:
    def __init__(self, definition: Definition) -> None:
        self._definition = definition
        self._problems: list[str] = []
        self._steps = 0
        self.made: dict[str, Any] = {}

    # ---- The whole ----

    def topology(self) -> Topology:
        """From spouts, bolts and streams."""
        definition = self._definition
        builder = TopologyBuilder()
        declared: dict[str, Any] = {}
        travelling: dict[str, PythonObject] = {}
        for kind, parts in (("spout", definition.spouts), ("bolt", definition.bolts)):
            for part in parts.values():
                try:
                    made = self._make(part)
                    component = self._component(kind, part, made, travelling)
                except InvalidTopologyError as error:
                    self._problems.extend(error.problems)
                    continue
                declared[part.value.id] = self._declare(builder, kind, part, *component)
        for stream in definition.streams:
            self._connect(stream, declared)
        hooks = [self._hook(part) for part in definition.worker_hooks.values()]
        if self._problems:
            raise InvalidTopologyError.listing(self._problems)
        try:
            topology = builder.build()
        except InvalidTopologyError as error:
            raise InvalidTopologyError.listing([self._placed(p) for p in error.problems]) from error
        return dataclasses.replace(
            topology,
            components={
                id: dataclasses.replace(component, object=travelling.get(id, component.object))
                for id, component in topology.components.items()
            },
            worker_hooks=tuple(hook for hook in hooks if hook is not None),
        )

    def _hook(self, part: Located[BeanDef]) -> PythonObject | None:
        """What travels of a worker hook; None if there is a problem with it."""
        try:
            made = self._make(part)
            if not isinstance(made.object, WorkerHook):
                raise InvalidTopologyError(
                    f"{part.where('className')}: {part.value.class_name} is not a worker hook; "
                    "derive it from squall.WorkerHook"
                )
            return made.travelling(part.where()) or python_object(made.object)
        except InvalidTopologyError as error:
            self._problems.extend(error.problems)
            return None

    def from_source(self, conf: dict[str, Any]) -> Topology:
        """From a class or function of the user's that builds it."""
        source = self._definition.topology_source
        assert source is not None
        own = self._definition
        parts = {**own.spouts, **own.bolts, **own.worker_hooks}
        for part in (*parts.values(), *own.streams):
            raise InvalidTopologyError(
                f"{part.where()}: a definition with a topologySource has no spouts, bolts, streams "
                "or worker hooks of its own"
            )
        found = self._make(source).object
        if not isinstance(found, Topology):
            names = [source.value.method_name, _snake(source.value.method_name)]
            method = next((m for n in names if callable(m := getattr(found, n, None))), None)
            if method is None:
                raise InvalidTopologyError(
                    f"{source.where('methodName')}: {source.value.class_name} has no method "
                    f"{names[0]!r}"
                )
            takes_conf = bool(signature_of(method).parameters)
            with blame(source.where(), f"{source.value.class_name}.{names[0]}()"):
                found = method(conf) if takes_conf else method()
        if not isinstance(found, Topology):
            raise InvalidTopologyError(
                f"{source.where()}: {source.value.class_name} returned a "
                f"{type(found).__name__}; expected a Topology, as TopologyBuilder.build() returns"
            )
        return found

    def _placed(self, problem: str) -> str:
        """A problem that the builder found, with the place of its component."""
        match = re.match(r"(spout|bolt) '([^']*)'", problem)
        if match is not None:
            parts = self._definition.spouts if match[1] == "spout" else self._definition.bolts
            if match[2] in parts:
                return f"{parts[match[2]].where()}: {problem}"
        return problem

    # ---- Spouts and bolts ----

    def _component(
        self,
        kind: str,
        part: Located[VertexDef],
        made: _Made,
        travelling: dict[str, PythonObject],
    ) -> tuple[Any, dict[str, Any]]:
        """The object for the builder, and its own configuration."""
        found = made.object
        if isinstance(found, FluxShell):
            return found.component(), found.conf
        if isinstance(found, Constructed) and not isinstance(found, (ShellSpout, ShellBolt)):
            object = made.travelling(part.where())
            if object is not None:
                # The recipe carries what was changed after the constructor, too.
                found.__dict__["_construction"] = Construction(
                    encode_arguments((), {}), attributes_of(found)
                )
                travelling[part.value.id] = object
                self.made[part.value.id] = found
        return found, {}

    def _declare(
        self,
        builder: TopologyBuilder,
        kind: str,
        part: Located[VertexDef],
        component: Any,
        own: Mapping[str, Any],
    ) -> Any:
        vertex = part.value
        loads = {
            "topology.component.resources.onheap.memory.mb": vertex.on_heap_memory_load,
            "topology.component.resources.offheap.memory.mb": vertex.off_heap_memory_load,
            "topology.component.cpu.pcore.percent": vertex.cpu_load,
        }
        conf = {key: value for key, value in loads.items() if value is not None}
        declare = builder.spout if kind == "spout" else builder.bolt
        return declare(
            vertex.id,
            component,
            parallelism=vertex.parallelism,
            tasks=vertex.num_tasks,
            conf={**own, **conf, **(vertex.config or {})},
        )

    def _connect(self, part: Located[StreamDef], declared: Mapping[str, Any]) -> None:
        stream, grouping = part.value, part.value.grouping
        known = [*self._definition.spouts, *self._definition.bolts]
        if stream.source not in known:
            self._unknown(part.where("from"), stream.source, "spout or bolt", known)
            return
        if stream.to not in self._definition.bolts:
            self._unknown(part.where("to"), stream.to, "bolt", list(self._definition.bolts))
            return
        try:
            kind = self._grouping(part)
        except InvalidTopologyError as error:
            self._problems.extend(error.problems)
            return
        bolt = declared.get(stream.to)
        if bolt is None or kind is None:
            return  # already reported
        name = grouping.stream_id or DEFAULT_STREAM
        if isinstance(kind, tuple):
            bolt.partial_key(stream.source, *kind, stream=name)
        else:
            bolt.grouping(stream.source, kind, stream=name)

    def _grouping(self, part: Located[StreamDef]) -> Grouping | tuple[str, ...] | None:
        """The grouping of a stream; of PARTIAL_KEY, its fields."""
        grouping = part.value.grouping
        fields = tuple(grouping.args or ())
        if grouping.type in (GroupingType.FIELDS, GroupingType.PARTIAL_KEY):
            if not fields:
                raise InvalidTopologyError(
                    f"{part.where('grouping')}: {grouping.type.value} needs args, a list of fields"
                )
            if grouping.type is GroupingType.PARTIAL_KEY:
                return fields
            return Grouping(GroupingKind.FIELDS, fields=fields)
        if fields:
            raise InvalidTopologyError(
                f"{part.where('grouping', 'args')}: {grouping.type.value} takes no args"
            )
        if grouping.type is not GroupingType.CUSTOM:
            if grouping.custom_class is not None:
                raise InvalidTopologyError(
                    f"{part.where('grouping', 'customClass')}: {grouping.type.value} takes no "
                    "customClass"
                )
            return Grouping(GroupingKind(grouping.type.value.lower()))
        if grouping.custom_class is None:
            raise InvalidTopologyError(f"{part.where('grouping')}: CUSTOM needs customClass")
        inner = Located(
            grouping.custom_class, part.document, (*part.location, "grouping", "customClass")
        )
        made = self._make(inner)
        if not isinstance(made.object, CustomGrouping):
            raise InvalidTopologyError(
                f"{inner.where('className')}: {inner.value.class_name} is not a CustomGrouping; "
                "derive it from squall.CustomGrouping"
            )
        custom = made.travelling(inner.where())
        if custom is None:
            arguments = encode_arguments(made.steps[0].args, made.steps[0].kwargs)
            custom = PythonObject(import_path_of(type(made.object)), arguments)
        return Grouping(GroupingKind.CUSTOM, custom=custom)

    def _unknown(self, where: str, name: str, what: str, known: list[str]) -> None:
        near = difflib.get_close_matches(name, known, n=1)
        expected = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known[:20])}"
        self._problems.append(f"{where}: there is no {what} {name!r}; {expected}")

    # ---- Objects ----

    def _make(self, part: Located[Any]) -> _Made:
        """Make an object and what it refers to."""
        planned: list[tuple[Step, Located[ObjectDef]]] = []
        self._plan(part, planned, {}, ())
        made: list[Any] = []
        for step, source in planned:
            with blame(source.where(), _shown(source)):
                check_arguments(step)
                made.append(make(step, made))
        return _Made(made[-1], tuple(step for step, _ in planned))

    def _plan(
        self,
        part: Located[ObjectDef],
        planned: list[tuple[Step, Located[ObjectDef]]],
        indexes: dict[str, int],
        open_ids: tuple[str, ...],
    ) -> int:
        """Append the steps that make an object, and return the index of the last. `indexes` are
        those of the components that are planned already."""
        value = part.value

        def refer(id: str, where: str) -> Ref:
            if id not in indexes:
                component = self._referred(id, where, open_ids)
                indexes[id] = self._plan(component, planned, indexes, (*open_ids, id))
            return Ref(indexes[id])

        def arguments(data: Any, *location: str | int) -> tuple[tuple[Any, ...], dict[str, Any]]:
            found = _with_references(data, part, location, refer)
            if isinstance(data, dict) and not isinstance(found, dict):
                raise InvalidTopologyError(
                    f"{part.where(*location)}: expected a list of arguments, such as - ref: ID"
                )
            return ((), found) if isinstance(found, dict) else (tuple(found or ()), {})

        target = import_class(value.class_name, part.where("className"))
        if value.factory is None:
            if value.factory_args:
                raise InvalidTopologyError(f"{part.where('factoryArgs')}: there is no factory")
            args, kwargs = arguments(value.constructor_args, "constructorArgs")
        else:
            if value.constructor_args:
                raise InvalidTopologyError(
                    f"{part.where('constructorArgs')}: a factory takes factoryArgs"
                )
            args, kwargs = arguments(value.factory_args, "factoryArgs")
        properties = []
        for i, prop in enumerate(value.properties or ()):
            where = ("properties", i)
            given = {"ref": prop.ref} if prop.ref is not None else prop.value
            properties.append((prop.name, _with_references(given, part, (*where, "value"), refer)))
        calls = [
            (method.name, *arguments(method.args, "configMethods", i, "args"))
            for i, method in enumerate(value.config_methods or ())
        ]
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise InvalidTopologyError(
                f"{part.where()}: the definition makes more than {STEPS_MAX:,} objects"
            )
        step = Step(target, value.factory, args, kwargs, tuple(properties), tuple(calls))
        planned.append((step, part))
        return len(planned) - 1

    def _referred(self, id: str, where: str, open_ids: tuple[str, ...]) -> Located[BeanDef]:
        known = self._definition.components
        if id not in known:
            near = difflib.get_close_matches(id, known, n=1)
            expected = f"did you mean {near[0]!r}?" if near else "components define what ref names"
            raise InvalidTopologyError(f"{where}: there is no component {id!r}; {expected}")
        if id in open_ids:
            circle = " -> ".join((*open_ids[open_ids.index(id) :], id))
            raise InvalidTopologyError(f"{where}: components refer to each other: {circle}")
        if len(open_ids) >= REFERENCES_NESTING_MAX:
            raise InvalidTopologyError(
                f"{where}: references nest more than {REFERENCES_NESTING_MAX} deep"
            )
        return known[id]


def _with_references(
    data: Any, part: Located[ObjectDef], location: tuple[str | int, ...], refer: Any
) -> Any:
    """Data with a Ref for each `{ref: ID}`, and a list of them for each `{reflist: [ID, ...]}`."""
    if isinstance(data, list):
        return [_with_references(v, part, (*location, i), refer) for i, v in enumerate(data)]
    if not isinstance(data, dict):
        return data
    if data.keys() == {"ref"} and isinstance(data["ref"], str):
        return refer(data["ref"], part.where(*location, "ref"))
    if data.keys() == {"reflist"} and isinstance(data["reflist"], list):
        return [
            refer(str(id), part.where(*location, "reflist", i))
            for i, id in enumerate(data["reflist"])
        ]
    return {
        key: _with_references(value, part, (*location, key), refer) for key, value in data.items()
    }


def _shown(part: Located[ObjectDef]) -> str:
    id = getattr(part.value, "id", None)
    return part.value.class_name if id is None else f"{id!r} ({part.value.class_name})"


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda m: "_" + m[1].lower(), name)
