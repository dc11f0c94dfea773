"""The facts about a worker and its topology that are known before anything runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from squall_common.errors import SquallError
from squall_common.names import (
    ACKER_COMPONENT,
    DEFAULT_STREAM,
    MARK_FIELDS,
    MARK_STREAM,
    is_system_id,
)
from squall_common.topology.model import (
    Component,
    ComponentKind,
    Executor,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    StreamInfo,
    Topology,
)
from squall_engine.core import ACKER_INDEX_MASK
from squall_engine.loading import check_runnable
from squall_engine.order import consumers, downstream, run_order

_TO_ALL = Grouping(GroupingKind.ALL)


def _with_mark_streams(topology: Topology, marks: Mapping[str, Sequence[str]]) -> Topology:
    """The topology, in which components whose marks others get declare a stream of them."""
    senders = {source for sources in marks.values() for source in sources}
    if not senders:
        return topology
    stream = {MARK_STREAM: StreamInfo(MARK_FIELDS)}
    components = {
        name: replace(one, streams={**one.streams, **stream}) if name in senders else one
        for name, one in topology.components.items()
    }
    return replace(topology, components=components)


class Plan:
    """The tasks of the topology and of this worker, the consumers of each stream, and the
    ackers."""

    def __init__(
        self,
        topology: Topology,
        task_to_component: Mapping[int, str],
        executors: Sequence[Executor],
        *,
        near: frozenset[int] = frozenset(),
        marks: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """`near` are tasks elsewhere that local-or-shuffle groupings treat like those of this
        worker. `marks` has the components whose marks of event time a component gets. Raises
        SquallError for a worker that cannot run."""
        self.marks = marks
        self.topology = _with_mark_streams(topology, marks)
        self.task_to_component = dict(task_to_component)
        self.executors = tuple(sorted(executors))
        self.tasks_of: dict[str, list[int]] = {}
        for task in sorted(task_to_component):
            self.tasks_of.setdefault(task_to_component[task], []).append(task)
        self.executor_of: dict[int, Executor] = {}
        for executor in self.executors:
            for task in executor.tasks:
                if task not in self.task_to_component:
                    raise SquallError(f"executor {executor} has task {task}, which does not exist")
                self.executor_of[task] = executor
        self.local_tasks = frozenset(self.executor_of)
        self.near_tasks = self.local_tasks | near
        for task in sorted(self.local_tasks):
            component = self.component_of(task)
            if not is_system_id(component.id):
                check_runnable(component)

        self.acker_tasks = self.tasks_of.get(ACKER_COMPONENT, [])
        if len(self.acker_tasks) > ACKER_INDEX_MASK:
            raise SquallError(
                f"topology.acker.executors is {len(self.acker_tasks)}; "
                f"at most {ACKER_INDEX_MASK} are supported"
            )
        self.local_ackers = [i for i, t in enumerate(self.acker_tasks) if t in self.local_tasks]

        self._edges = consumers(topology)
        groups = run_order(self._edges)
        self.order = [id_ for group in groups for id_ in group]
        self._group_of = {id_: group for group in groups for id_ in group}
        self.feeders: dict[str, set[str]] = {id_: set() for id_ in topology.components}
        for source, consuming in self._edges.items():
            for id_ in consuming:
                self.feeders[id_].add(source)
        self._inputs: dict[GlobalStreamId, list[tuple[Component, Grouping]]] = {}
        for component_id in sorted(topology.components):
            component = topology.components[component_id]
            if not is_system_id(component_id):
                for stream, grouping in component.inputs.items():
                    self._inputs.setdefault(stream, []).append((component, grouping))
                # Not among its inputs: they are in no key, and in nobody's list of streams.
                for source_id in marks.get(component_id, ()):
                    stream = GlobalStreamId(source_id, MARK_STREAM)
                    self._inputs.setdefault(stream, []).append((component, _TO_ALL))

    def component_of(self, task: int) -> Component:
        return self.topology.components[self.task_to_component[task]]

    def consumers_of(self, component: str, stream: str) -> list[tuple[Component, Grouping]]:
        """The user's components that consume a stream, sorted."""
        return self._inputs.get(GlobalStreamId(component, stream), [])

    def downstream_of(self, component: str) -> frozenset[str]:
        return frozenset(downstream(self._edges, component))

    def cycle_of(self, component: str) -> list[str]:
        """The components on a cycle with the given one, including itself."""
        return self._group_of[component]

    def is_on_cycle(self, component: str) -> bool:
        """Whether what a component emits can come back to it."""
        return not self.feeders[component].isdisjoint(self._group_of[component])

    def on_one_cycle(self, component: str, task: int) -> bool:
        """Whether what a component emits to a task can come back to the component."""
        return self.task_to_component[task] in self._group_of[component]

    def local_user_tasks(self) -> Iterable[int]:
        """The user's tasks of this worker, including spouts, in the order in which a turn runs
        them."""
        place = {component: i for i, component in enumerate(self.order)}
        mine = [t for t in self.local_tasks if not is_system_id(self.task_to_component[t])]
        return sorted(mine, key=lambda task: (place[self.task_to_component[task]], task))

    def failed_key(self, component: str) -> object:
        """The key under which a tuple that a component could not send counts as failed: a stream of
        a spout, an input of a bolt. With several, it is no longer known which one it was."""
        found = self.topology.components[component]
        if found.kind is ComponentKind.SPOUT:
            return next(iter(found.streams)) if len(found.streams) == 1 else DEFAULT_STREAM
        inputs = list(found.inputs)
        if len(inputs) == 1:
            return (inputs[0].component, inputs[0].stream)
        return (component, DEFAULT_STREAM)

    def is_spout(self, task: int) -> bool:
        return self.component_of(task).kind is ComponentKind.SPOUT

    def acker_of_spout(self, task: int) -> int | None:
        """The index of the acker that a spout task uses: one in its own worker if there is one,
        otherwise any, chosen by task id; None when acking is off."""
        if not self.acker_tasks:
            return None
        choice = self.local_ackers or range(len(self.acker_tasks))
        return choice[task % len(choice)]
