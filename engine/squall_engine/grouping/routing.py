"""Makes the core's groupers from the groupings of a topology."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from squall_common.component.groupings import (
    CustomGrouping,
    ForwardGrouping,
    NoStableHashError,
    stable_hash,
    stable_hash_of_fields,
)
from squall_common.config.options.typed import TopologyOptions
from squall_common.state.key_groups import by_group
from squall_common.topology.model import Grouping, GroupingKind
from squall_common.topology.serialization import Registry
from squall_engine.core import (
    ByFields,
    Edge,
    EmitError,
    Fixed,
    Grouper,
    RoundRobin,
    Source,
    draw_steps,
)
from squall_engine.grouping.load_balancing import Balance


class Targets:
    """The edges of a stream to the tasks of one consumer. The tasks that share them share all of
    this and copy none of it, so that a task costs the same however many targets it has."""

    def __init__(self, edges: Iterable[Edge], near_tasks: Collection[int]) -> None:
        """`edges`: sorted by task. Those to `near_tasks` are what a local-or-shuffle prefers."""
        self.edges = tuple(edges)
        self.tasks = tuple(edge.task for edge in self.edges)
        self.by_task = dict(zip(self.tasks, self.edges, strict=True))
        self.near_edges = tuple(edge for edge in self.edges if edge.task in near_tasks)
        self._by_group: tuple[Edge, ...] = ()

    def by_group(self, key_groups: int) -> tuple[Edge, ...]:
        """The edges by key group. Raises ValueError if there are fewer groups than tasks."""
        if len(self._by_group) != key_groups:
            if key_groups < len(self.edges):
                raise ValueError(f"{key_groups} key groups are too few for {len(self.edges)} tasks")
            self._by_group = tuple(by_group(self.edges, key_groups))
        return self._by_group


class _Shuffles:
    """The shuffles of a worker that have the same edges: they share weights and a ring, as they see
    the same loads, but not their order in it."""

    def __init__(self, balance: Balance, targets: Targets, rng: random.Random) -> None:
        self.all: list[RoundRobin] = []
        self._balance = balance
        self._targets = targets
        self._rng = rng

    def update(self, loads: Mapping[int, float]) -> None:
        ring = self._balance.update(loads)
        if ring is None:
            return
        edges = tuple([self._targets.by_task[target] for target in ring])
        for shuffle in self.all:
            shuffle.set_ring(edges, *draw_steps(self._rng, len(edges)))


class Balancers:
    """The load-aware shuffles of a worker."""

    def __init__(self, options: TopologyOptions, rng: random.Random) -> None:
        self._rng = rng
        self._higher = options.topology_localityaware_higher_bound
        self._lower = options.topology_localityaware_lower_bound
        self._groups: dict[tuple[Targets, bool], _Shuffles] = {}
        self.targets: frozenset[int] = frozenset()

    def add(self, shuffle: RoundRobin, targets: Targets, *, near: bool) -> None:
        """Add a shuffle; `near`: it prefers the edges to the worker's own tasks, if there are
        any."""
        if len(targets.edges) < 2:
            return
        group = self._groups.get((targets, near))
        if group is None:
            balance = Balance(
                targets.tasks,
                frozenset(edge.task for edge in targets.near_edges) if near else (),
                self._rng,
                higher=self._higher,
                lower=self._lower,
            )
            group = self._groups[targets, near] = _Shuffles(balance, targets, self._rng)
            self.targets |= set(targets.tasks)
        group.all.append(shuffle)

    def update(self, loads: Mapping[int, float]) -> None:
        """Adapt the shuffles to the loads of their targets, once a second."""
        for group in self._groups.values():
            group.update(loads)


class Custom:
    """A custom grouping of the user, or partial-key."""

    def __init__(
        self, grouping: CustomGrouping, edges: Mapping[int, Edge], task: int, describe: str
    ) -> None:
        self._grouping = grouping
        self._edges = edges
        self._task = task
        self._describe = describe

    def choose(self, values: Sequence[Any]) -> tuple[Edge, ...]:
        chosen = self._grouping.choose_tasks(self._task, values)
        try:
            return tuple([self._edges[task] for task in chosen])
        except KeyError as error:
            raise EmitError(
                f"{self._describe}: its grouping chose task {error.args[0]}, which is not one "
                f"of the consumer's tasks {sorted(self._edges)}"
            ) from None


def make_grouper(
    grouping: Grouping,
    source: Source,
    consumer: str,
    targets: Targets,
    *,
    rng: random.Random,
    registry: Registry,
    make_custom: Callable[[Grouping, Sequence[int]], CustomGrouping],
    balancers: Balancers | None = None,
    key_groups: int | None = None,
) -> Grouper[Edge] | None:
    """The grouper of one consumer of a stream. None for a direct grouping. `balancers` None:
    shuffles do not heed load. With `key_groups`, a fields grouping chooses tasks by key group, so
    that a tuple goes where the state of its key is. Raises EmitError for a grouping that cannot
    run here."""
    kind = grouping.kind
    describe = f"{consumer!r} groups stream {source.stream!r} of {source.component!r}"
    if kind in (GroupingKind.SHUFFLE, GroupingKind.NONE):
        shuffle = RoundRobin(targets.edges, rng)
        if balancers is not None:
            balancers.add(shuffle, targets, near=False)
        return shuffle
    if kind is GroupingKind.LOCAL_OR_SHUFFLE:
        shuffle = RoundRobin(targets.near_edges or targets.edges, rng)
        if balancers is not None:
            balancers.add(shuffle, targets, near=True)
        return shuffle
    if kind is GroupingKind.ALL:
        return Fixed(targets.edges)
    if kind is GroupingKind.GLOBAL or (kind is GroupingKind.FIELDS and not grouping.fields):
        return Fixed(targets.edges[:1])
    if kind is GroupingKind.FIELDS:
        try:
            indexes = [source.index[name] for name in grouping.fields]
        except KeyError as error:
            raise EmitError(f"{describe} by {error.args[0]!r}, which it does not have") from None
        edges = targets.edges
        if key_groups is not None and len(edges) > 1:
            edges = targets.by_group(key_groups)  # hash % groups, then the edge of that group
        return ByFields(edges, indexes, _hasher(describe, grouping.fields, registry))
    if kind is GroupingKind.DIRECT:
        return None
    if kind is GroupingKind.CUSTOM:
        custom = make_custom(grouping, targets.tasks)
        if type(custom) is ForwardGrouping:
            return Fixed((targets.by_task[custom.target],))  # without a call for each tuple
        return Custom(custom, targets.by_task, source.task, describe)
    raise EmitError(f"{describe} by a {kind.value} grouping, which only a JVM can run")


def _hasher(describe: str, fields: Sequence[str], registry: Registry) -> Callable[[Any], int]:
    """The hash of a fields grouping: of one value, or of a tuple of several."""
    names = ", ".join(map(repr, fields))

    def hash_(key: Any) -> int:
        try:
            if len(fields) == 1:
                return stable_hash(key, registry)
            return stable_hash_of_fields(key, registry)
        except NoStableHashError as error:
            raise NoStableHashError(
                f"{describe} by {names}: {error.message}", hint=error.hint
            ) from error

    return hash_
