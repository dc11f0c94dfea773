"""A topology as every part of the cluster sees it: plain values, no user code.

`TopologyBuilder.build()` makes one, Thrift carries it (`model_thrift`), Nimbus checks and compiles
it (`system_topology`), workers run it. `GlobalStreamId` names one stream of one component; an
input maps it to the grouping that picks the consumer's tasks.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from squall_common.topology import drawing
from squall_common.topology.plan import Plan, brief


class ComponentKind(enum.Enum):
    SPOUT = "spout"
    BOLT = "bolt"


class GroupingKind(enum.Enum):
    """How the tasks that receive a tuple are chosen. A global grouping travels as FIELDS with no
    fields, as in Storm; partial-key travels as a CUSTOM one."""

    SHUFFLE = "shuffle"
    FIELDS = "fields"
    ALL = "all"
    GLOBAL = "global"
    DIRECT = "direct"
    LOCAL_OR_SHUFFLE = "local_or_shuffle"
    NONE = "none"
    CUSTOM = "custom"
    CUSTOM_SERIALIZED = "custom_serialized"  # Java bytes: carried, never run here


@dataclass(frozen=True, slots=True)
class PythonObject:
    """A Python object to be made in the worker: `module:Class` and its constructor's arguments,
    as tagged JSON bytes (`squall_common.topology.arguments`). Travels as Thrift's JavaObject with
    one binary argument."""

    class_path: str
    arguments: bytes

    def __str__(self) -> str:
        return self.class_path.rpartition(":")[2]


@dataclass(frozen=True, slots=True)
class ShellObject:
    """A shell component: `argv` is exactly [command, script]."""

    command: str
    script: str

    def __str__(self) -> str:
        return f"{self.command} {self.script}"


# How a stream of Java's Object Serialization begins whose first object is of an ordinary class:
# magic, version, TC_OBJECT, TC_CLASSDESC. The length and the name of the class follow.
_JAVA_OBJECT = b"\xac\xed\x00\x05sr"


@dataclass(frozen=True, slots=True)
class ForeignObject:
    """A component that only another implementation can run: serialized Java, or a Java class with
    arguments as (member of Thrift's JavaObjectArg, value). Carried, refused by the worker with a
    clear error."""

    serialized: bytes = b""
    class_name: str = ""
    args: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return self.java_class.rpartition(".")[2] or "Java"

    @property
    def java_class(self) -> str:
        """The class of the object, also if that is only in its serialized bytes; "" if unknown."""
        if self.class_name or not self.serialized.startswith(_JAVA_OBJECT):
            return self.class_name
        start = len(_JAVA_OBJECT) + 2
        length = int.from_bytes(self.serialized[start - 2 : start])
        name = self.serialized[start : start + length].decode("utf-8", "replace")
        return name if len(name) == length and name.isprintable() else ""


ComponentObject = PythonObject | ShellObject | ForeignObject


@dataclass(frozen=True, slots=True, order=True)
class GlobalStreamId:
    component: str
    stream: str = "default"

    def __str__(self) -> str:
        return self.component if self.stream == "default" else f"{self.component}:{self.stream}"


@dataclass(frozen=True, slots=True)
class Grouping:
    kind: GroupingKind
    fields: tuple[str, ...] = ()  # FIELDS only
    custom: PythonObject | None = None  # CUSTOM only
    serialized: bytes = b""  # CUSTOM_SERIALIZED only

    def __str__(self) -> str:
        if self.kind is GroupingKind.FIELDS:
            return f"fields: {', '.join(self.fields)}"
        if self.kind is GroupingKind.CUSTOM and self.custom is not None:
            return str(self.custom)
        return str(self.kind.value).replace("_", " ")


@dataclass(frozen=True, slots=True)
class StreamInfo:
    fields: tuple[str, ...]
    direct: bool = False


@dataclass(frozen=True, slots=True)
class Component:
    """A spout or a bolt. `conf` is its own part of the configuration (`json_conf`), `plan` what it
    does, as far as whoever built it says so."""

    id: str
    kind: ComponentKind
    object: ComponentObject
    inputs: Mapping[GlobalStreamId, Grouping] = field(default_factory=dict)
    streams: Mapping[str, StreamInfo] = field(default_factory=dict)
    parallelism: int | None = None  # executors; None when the submitter set none (1)
    conf: Mapping[str, Any] = field(default_factory=dict)
    plan: Plan = ()

    @property
    def does(self) -> str:
        """Its class or program, for people; of a component of streams its calls: "map, key_by"."""
        calls = [step for step in self.plan if step.call]
        if not calls:
            return str(self.object)
        if isinstance(self.object, PythonObject) and self.object.class_path in calls[0].functions:
            return str(self.object)
        return brief(calls)

    @property
    def size(self) -> str:
        """Executors and tasks, for people: "×2", "×2, 8 tasks"."""
        # Imported late, as in `system`: defining a topology does without msgspec.
        from squall_common.config.options.typed import TopologyOptions

        executors = self.parallelism or 1
        tasks = TopologyOptions.read_valid(self.conf).topology_tasks
        return f"×{executors}" if tasks in (None, executors) else f"×{executors}, {tasks} tasks"


@dataclass(frozen=True, slots=True, repr=False)
class Topology:
    """Components by id, and what else Thrift's StormTopology carries. A notebook draws it."""

    components: Mapping[str, Component]
    worker_hooks: tuple[PythonObject | ForeignObject, ...] = ()
    dependency_jars: tuple[str, ...] = ()
    dependency_artifacts: tuple[str, ...] = ()
    storm_version: str | None = None
    jdk_version: str | None = None

    @property
    def spouts(self) -> dict[str, Component]:
        return {i: c for i, c in self.components.items() if c.kind is ComponentKind.SPOUT}

    @property
    def bolts(self) -> dict[str, Component]:
        return {i: c for i, c in self.components.items() if c.kind is ComponentKind.BOLT}

    @property
    def component_confs(self) -> dict[str, Mapping[str, Any]]:
        """The configuration of its own that each component has."""
        return {i: c.conf for i, c in self.components.items()}

    def __repr__(self) -> str:
        """One line: `Topology(words, split <- words (shuffle))`."""
        shown = []
        for component in self.components.values():
            inputs = ", ".join(f"{s} ({g})" for s, g in component.inputs.items())
            shown.append(f"{component.id} <- {inputs}" if inputs else component.id)
        return f"Topology({'; '.join(shown)})"

    def to_mermaid(self) -> str:
        """The topology as a flowchart in Mermaid, which many viewers of Markdown draw."""
        return drawing.mermaid(*self._drawn())

    def to_svg(self, notes: Mapping[str, str] | None = None) -> str:
        """The topology as an SVG drawing. `notes` are lines below components, by id."""
        return drawing.svg(*self._drawn(), notes)

    def _repr_html_(self) -> str:
        return self.to_svg()

    def _drawn(self) -> tuple[list[drawing.Node], list[drawing.Edge]]:
        components = self.components.values()
        nodes = [
            drawing.Node(c.id, c.kind is ComponentKind.SPOUT, c.does, c.size) for c in components
        ]
        edges = [
            drawing.Edge(
                source.component,
                c.id,
                str(g) if source.stream == "default" else f"{source.stream} · {g}",
            )
            for c in components
            for source, g in c.inputs.items()
        ]
        return nodes, edges


@dataclass(frozen=True, slots=True, order=True)
class Executor:
    """A range of tasks of one component that run together, both ends included."""

    task_start: int
    task_end: int

    @property
    def tasks(self) -> range:
        return range(self.task_start, self.task_end + 1)


class WorkerSlot(NamedTuple):
    """A place for one worker: a supervisor's id and one of its ports. (A tuple, whose hash is not
    written in Python: workers look their peers up by it, and the scheduler all slots.)"""

    node: str
    port: int

    def __str__(self) -> str:
        return f"{self.node}:{self.port}"
