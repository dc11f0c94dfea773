"""What a topology with checkpoints cannot have, as far as Nimbus sees it; its workers see the rest,
and name it when they start. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from squall_common.config.options.typed import TopologyOptions
from squall_common.names import is_system_id
from squall_common.state.checkpoint_store import is_relative
from squall_common.topology.model import Component, GroupingKind, ShellObject, Topology
from squall_common.topology.system import task_count

_IN_MEMORY = ("memory", "org.apache.storm.state.InMemoryKeyValueStateProvider")
_INTERVAL = "topology.checkpoint.interval.secs"


def checkpoint_problems(topology: Topology, options: TopologyOptions) -> list[str]:
    """What is wrong, for the user; without checkpoints only with where state is stored."""
    if options.topology_checkpoint_interval_secs is None:
        if options.topology_checkpoint_savepoint is not None:
            return [f"topology.checkpoint.savepoint is set, and {_INTERVAL} is not"]
        return _place_problems(options) if options.topology_state_provider == "store" else []
    problems = _place_problems(options)
    if not options.topology_state_url:
        problems.append(
            f"{_INTERVAL} is set, and topology.state.url is not: set it to a URL such as "
            "s3://bucket/folder, or to a folder that all nodes mount"
        )
    if options.topology_state_provider not in _IN_MEMORY:
        problems.append(
            f"topology.state.provider is set with {_INTERVAL}: unset it, as checkpoints store all "
            "state in topology.state.url"
        )
    if options.topology_max_replays is not None:
        problems.append(f"topology.max.replays is set with {_INTERVAL}: no message is replayed")
    for component in topology.components.values():
        where = f"{component.kind.value} {component.id!r}"
        problems += [f"{where} {problem}" for problem in _component_problems(component)]
        groups = TopologyOptions.read(component.conf).topology_state_max_parallelism
        tasks = task_count(component, options)
        if groups is not None and tasks > groups:
            problems.append(
                f"{where} has {tasks} tasks and only {groups} key groups: raise "
                "topology.state.max.parallelism of the bolt"
            )
    cycle = _on_cycles(topology.components)
    if cycle:
        problems.append(
            f"{', '.join(map(repr, cycle))} lie on a cycle: with {_INTERVAL} a topology has none, "
            "as a barrier would wait for itself"
        )
    return problems


def _place_problems(options: TopologyOptions) -> list[str]:
    url = options.topology_state_url
    if not url or not is_relative(url):
        return []
    return [
        f"topology.state.url is {url!r}, a relative path: each worker would take it for another "
        "folder. Give a URL, or the whole path of a folder that all nodes mount"
    ]


def _component_problems(component: Component) -> Iterable[str]:
    if isinstance(component.object, ShellObject):
        yield "is a shell component, which has no checkpoints"
    options = TopologyOptions.read(component.conf)
    if options.topology_max_replays is not None:
        yield "sets topology.max.replays, and with checkpoints no message is replayed"
    if options.topology_state_max_parallelism is None:
        return
    for stream, grouping in component.inputs.items():
        if grouping.kind is not GroupingKind.FIELDS or not grouping.fields:
            yield (
                f"keeps state by key, and groups {str(stream)!r} by {grouping.kind.value}: with "
                "checkpoints use a fields grouping"
            )


def _on_cycles(components: Mapping[str, Component]) -> list[str]:
    """The components on cycles, and those between two of them; sorted."""
    feeders = {
        name: {stream.component for stream in one.inputs} & components.keys()
        for name, one in components.items()
        if not is_system_id(name)
    }
    feeds: dict[str, set[str]] = {name: set() for name in feeders}
    for name, sources in feeders.items():
        for source in sources & feeds.keys():
            feeds[source].add(name)
    return sorted(_left(feeders) & _left(feeds))


def _left(graph: Mapping[str, set[str]]) -> set[str]:
    """What remains when each node that leads nowhere else is taken away, again and again."""
    left = dict(graph)
    while ends := [name for name, ones in left.items() if not ones & left.keys()]:
        for name in ends:
            del left[name]
    return set(left)
