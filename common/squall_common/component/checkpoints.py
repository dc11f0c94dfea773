"""What a topology with checkpoints may not have, and what runs with checkpoints only: every reason,
in one wording. Pure.

Whoever may refuse a topology asks here, with what it knows. Nimbus knows the configuration and the
structure, and imports no classes of users. Clients and local mode also know the classes; a worker
knows the objects, so it alone sees what a constructor has set, or a class that could not be
imported elsewhere.
"""

from __future__ import annotations

import enum
import graphlib
import inspect
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from squall_common.component.component import Bolt, ShellWrapper, Spout
from squall_common.component.delivery.rewinding import RewindableSpout
from squall_common.component.delivery.transactional import TransactionalSink
from squall_common.component.refusals import Refusal, refusal_of
from squall_common.component.stateful import StatefulBolt
from squall_common.component.stored_state import async_refusals, stored_refusals
from squall_common.daemon.folders import is_local, is_relative
from squall_common.names import is_system_id
from squall_common.topology.import_paths import class_here
from squall_common.topology.model import (
    Component,
    Grouping,
    GroupingKind,
    PythonObject,
    ShellObject,
    Topology,
)
from squall_common.topology.system import task_count

if TYPE_CHECKING:
    from squall_common.config.options.typed import TopologyOptions

INTERVAL = "topology.checkpoint.interval.secs"
IN_MEMORY = ("memory", "org.apache.storm.state.InMemoryKeyValueStateProvider")
"""The values of topology.state.provider that say nothing about where state is stored."""

_OR_UNSET = f", or unset {INTERVAL} to run the topology at least once"


class Place(enum.Enum):
    """Where a topology is to run, as far as its checkpoints depend on that."""

    CLUSTER = "a cluster"
    PROCESS = "one process: local mode"
    WORKERS = "several worker processes of local mode"
    ENGINE = "an engine alone, as on Spark and in the test kit"


def all_refusals(topology: Topology, options: TopologyOptions, place: Place) -> Iterator[Refusal]:
    """All that can be said without the topology's classes. `options` are complete."""
    yield from option_refusals(options, place)
    if options.topology_checkpoint_interval_secs is not None:
        yield from structure_refusals(topology, options)
    else:
        yield from stored_refusals(topology, options)


# ---- where and how it runs


def option_refusals(options: TopologyOptions, place: Place) -> Iterator[Refusal]:
    """Of the configuration of a topology, which is complete."""
    savepoint = options.topology_checkpoint_savepoint
    if savepoint is not None and place is not Place.CLUSTER:
        yield Refusal(
            "topology.checkpoint.savepoint is set, and only a cluster starts a topology from a "
            "savepoint",
            "submit it with storm jar --from-savepoint",
        )
    if options.topology_checkpoint_interval_secs is None:
        if savepoint is not None and place is Place.CLUSTER:
            yield Refusal(
                f"topology.checkpoint.savepoint is set, and {INTERVAL} is not",
                f"set {INTERVAL} and topology.state.url",
            )
        if options.topology_state_provider == "store":
            yield from _folder_refusals(options, place)
        return
    if place is Place.WORKERS:
        yield Refusal(
            f"{INTERVAL} is set, and several worker processes of `storm local` take no checkpoints",
            f"run it without --workers, unset the option, or give `-c {INTERVAL}=null`",
        )
        return
    if place is Place.ENGINE:
        yield Refusal(
            f"{INTERVAL} is set, and nothing takes checkpoints here",
            f"unset it, or give `-c {INTERVAL}=null`; `storm local`, LocalCluster and clusters "
            "take them",
        )
        return
    yield from _folder_refusals(options, place)
    if not options.topology_state_url:
        yield Refusal(
            f"{INTERVAL} is set, and topology.state.url is not",
            "set it to a folder"
            if place is Place.PROCESS
            else "set it to a URL such as s3://bucket/folder, or to a folder that all nodes mount",
        )
    if options.topology_state_provider not in IN_MEMORY:
        yield Refusal(
            f"topology.state.provider is set, and so is {INTERVAL}",
            "unset topology.state.provider: checkpoints store all state in topology.state.url",
        )
    if options.topology_max_replays is not None:
        yield Refusal(
            f"topology.max.replays is set, and so is {INTERVAL}",
            "unset topology.max.replays: with checkpoints no message is replayed (see "
            "topology.checkpoint.tries)",
        )


def _folder_refusals(options: TopologyOptions, place: Place) -> Iterator[Refusal]:
    url = options.topology_state_url
    if not url:
        return
    if place is Place.CLUSTER and is_relative(url):
        yield Refusal(
            f"topology.state.url is {url!r}, a relative path, which is another folder for each "
            "worker",
            "give a URL, or the whole path of a folder that all nodes mount",
        )
    if not is_local(url) and not url.partition("://")[2].strip("/"):
        yield Refusal(
            f"topology.state.url is {url!r}, which names no place",
            "name a bucket and a folder: s3://bucket/folder",
        )
    has_checkpoints = options.topology_checkpoint_interval_secs is not None
    if place is Place.PROCESS and has_checkpoints and not is_local(url):
        yield Refusal(
            f"topology.state.url is {url!r}, and in one process checkpoints go to a folder",
            "set it to the path of a folder",
        )


# ---- its structure


def structure_refusals(topology: Topology, options: TopologyOptions) -> Iterator[Refusal]:
    """Of the components of a topology with checkpoints, and of how they are connected. `topology`
    is as submitted or as compiled."""
    for component in topology.components.values():
        if not is_system_id(component.id):
            yield from _component_refusals(component, options)
    cycle = _cycle(topology)
    if cycle:
        yield Refusal(
            f"the components {' -> '.join(map(repr, cycle))} are a cycle, in which a barrier of "
            "checkpoints would wait for itself",
            f"take one of these subscriptions away{_OR_UNSET}",
        )


def _component_refusals(component: Component, options: TopologyOptions) -> Iterator[Refusal]:
    # Imported late: the definition of a topology does without msgspec.
    from squall_common.config.options.typed import TopologyOptions

    own = TopologyOptions.read(component.conf, where=component.id)
    if isinstance(component.object, ShellObject):
        yield _shell_refusal(component)
    if own.topology_max_replays is not None:
        yield refusal_of(
            component,
            f"sets topology.max.replays, and {INTERVAL} is set",
            "unset topology.max.replays: with checkpoints no message is replayed (see "
            "topology.checkpoint.tries)",
        )
    groups = own.topology_state_max_parallelism
    if groups is None:
        return
    yield from _grouping_refusals(component)
    tasks = task_count(component, options)
    if tasks > groups:
        yield refusal_of(
            component,
            f"has {tasks} tasks, and its state {groups} key groups",
            "give it fewer tasks, or raise topology.state.max.parallelism of the bolt",
        )


def _shell_refusal(component: Component) -> Refusal:
    """Of a component that is a child process."""
    return refusal_of(
        component,
        "is a shell component, whose state and position no checkpoint can hold",
        f"write it in Python{_OR_UNSET}",
    )


def _grouping_refusals(component: Component) -> Iterator[Refusal]:
    """Of a bolt with state by key."""
    remedy = "with checkpoints use a fields grouping, as state belongs to its key"
    if not component.inputs:
        yield refusal_of(component, "keeps state by key, and subscribes to nothing", remedy)
    for stream, grouping in component.inputs.items():
        if grouping.kind is not GroupingKind.FIELDS or not grouping.fields:
            groups = f"groups {str(stream)!r} by {_named(grouping)}"
            yield refusal_of(component, f"keeps state by key, and {groups}", remedy)


def _named(grouping: Grouping) -> str:
    """A grouping as the builder calls it; a global one travels as one by no fields."""
    return "global" if grouping.kind is GroupingKind.FIELDS else str(grouping)


def _cycle(topology: Topology) -> list[str]:
    """The components of one cycle in the direction of the tuples, from the first by name to itself;
    [] if there is none. The time it takes grows with the size of the topology, and no faster."""
    feeders = {
        one.id: [stream.component for stream in one.inputs if not is_system_id(stream.component)]
        for one in topology.components.values()
        if not is_system_id(one.id)
    }
    try:
        graphlib.TopologicalSorter(feeders).prepare()
    except graphlib.CycleError as error:
        found: list[str] = error.args[1][1:]
        first = found.index(min(found))
        return [*found[first:], *found[:first], found[first]]
    return []


# ---- its classes


class _Kind(NamedTuple):
    """A kind of bolt that has something in a checkpoint."""

    name: str
    has: bool


def class_refusals(
    topology: Topology,
    *,
    has_checkpoints: bool,
    backend: str = "memory",
    made: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Refusal]:
    """Of the classes of a topology's components, as far as this process has imported them: whoever
    builds a topology has. `backend` is topology.state.backend of the topology. `made` has objects
    of components, by id, that their class paths do not lead to."""
    for component in topology.components.values():
        if is_system_id(component.id) or not isinstance(component.object, PythonObject):
            continue
        found = made.get(component.id)
        if found is None:
            found = class_here(component.object.class_path)
        cls = found if isinstance(found, type) else type(found)
        if issubclass(cls, Spout | Bolt | ShellWrapper):
            yield from object_refusals(component, found, has_checkpoints=has_checkpoints)
            if not has_checkpoints:
                yield from async_refusals(component, cls, backend)


def object_refusals(component: Component, made: Any, *, has_checkpoints: bool) -> Iterator[Refusal]:
    """Of a component's object, or of its class. What is neither a Spout nor a Bolt is a child
    process."""
    cls = made if isinstance(made, type) else type(made)
    if not has_checkpoints:
        yield from _refusals_without(component, cls)
    elif issubclass(cls, Spout):
        yield from _spout(component, cls)
    elif issubclass(cls, Bolt):
        yield from _bolt(component, made)
    else:
        yield _shell_refusal(component)


def _refusals_without(component: Component, cls: type) -> Iterator[Refusal]:
    if issubclass(cls, RewindableSpout | TransactionalSink):
        kind = "RewindableSpout" if issubclass(cls, Spout) else "TransactionalSink"
        yield refusal_of(
            component,
            f"is a {kind}, which works with checkpoints only",
            f"set {INTERVAL} and topology.state.url",
            cls,
        )


def _spout(component: Component, cls: type[Spout]) -> Iterator[Refusal]:
    if not issubclass(cls, RewindableSpout):
        yield refusal_of(
            component,
            "cannot be read again from a position, so it has no checkpoints",
            f"derive it from RewindableSpout{_OR_UNSET}",
            cls,
        )
        return
    yield from _own_methods(component, cls, RewindableSpout, "seek", ("next_tuple", "seek"))


def _bolt(component: Component, made: Any) -> Iterator[Refusal]:
    cls = made if isinstance(made, type) else type(made)
    windowed = bool(getattr(cls, "_squall_windowed", False))
    is_sink, is_stateful = issubclass(cls, TransactionalSink), issubclass(cls, StatefulBolt)
    kinds = (
        _Kind("a WindowedBolt", windowed),
        _Kind("a StatefulBolt", is_stateful),
        _Kind("a TransactionalSink", is_sink),
    )
    several = [kind.name for kind in kinds if kind.has]
    if len(several) > 1:
        yield refusal_of(
            component,
            f"is {' and '.join(several)}, and a checkpoint holds one of these for each task",
            "make it several bolts",
            cls,
        )
    if not windowed and (not made.auto_ack or not (made.auto_anchor or _takes_many(cls))):
        yield refusal_of(
            component,
            "acks or anchors by hand, so what it holds would be in no checkpoint",
            f"leave auto_ack and auto_anchor on, and keep what it holds as state{_OR_UNSET}",
            cls,
        )
    if is_sink:
        plain = ("execute", "execute_batch", "row", "commit")
        yield from _own_methods(component, cls, TransactionalSink, "commit", plain)
    if is_stateful and "topology.state.max.parallelism" not in component.conf:
        # (Otherwise its structure says so.)
        yield from _grouping_refusals(component)


def _takes_many(cls: type) -> bool:
    """Whether a bolt is called with many tuples at once, which it anchors to by name."""
    return any(
        getattr(cls, name, None) is not getattr(StatefulBolt, name)
        for name in ("execute_batch", "execute_columns")
    )


def _own_methods(
    component: Component, cls: type, base: type, required: str, plain: tuple[str, ...]
) -> Iterator[Refusal]:
    """That a class defines what its base leaves to it, and that the engine can call it: what a
    coroutine or a generator would do never happened, as nothing runs it."""
    if getattr(cls, required) is getattr(base, required):
        yield refusal_of(component, f"does not define {required}()", f"see {base.__name__}", cls)
    for name in plain:
        method = getattr(cls, name)
        is_async = inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method)
        if is_async or inspect.isgeneratorfunction(method):
            how = "is async" if is_async else "contains `yield`"
            yield refusal_of(
                component,
                f"is a {base.__name__} whose {name}() {how}",
                "define it as a plain function; with blocking = True it may wait",
                cls,
            )
