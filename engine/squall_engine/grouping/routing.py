"""Makes the core's groupers from the groupings of a topology."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from squall_common.component.groupings import (
    CustomGrouping,
    NoStableHashError,
    stable_hash,
    stable_hash_of_fields,
)
from squall_common.config.options.typed import TopologyOptions
from squall_common.topology.model import Grouping, GroupingKind
from squall_common.topology.serialization import Registry
from squall_engine.core import ByFields, Edge, EmitError, Fixed, Grouper, RoundRobin, Source
from squall_engine.grouping.load_balancing import Balance


class Balancers:
    """The load-aware shuffles of a worker."""

    def __init__(self, options: TopologyOptions, rng: random.Random) -> None:
        self._rng = rng
        self._higher = options.topology_localityaware_higher_bound
        self._lower = options.topology_localityaware_lower_bound
        self._all: list[tuple[Balance, RoundRobin, dict[int, Edge]]] = []
        self.targets: frozenset[int] = frozenset()

    def add(self, shuffle: RoundRobin, edges: Sequence[Edge], near: Collection[int]) -> None:
        """Add a shuffle, which prefers the edges to `near` if there are any."""
        if len(edges) > 1:
            targets = [edge.task for edge in edges]
            balance = Balance(targets, near, self._rng, higher=self._higher, lower=self._lower)
            self._all.append((balance, shuffle, {edge.task: edge for edge in edges}))
            self.targets |= set(targets)

    def update(self, loads: Mapping[int, float]) -> None:
        """Adapt all shuffles to the loads of their targets, once a second."""
        for balance, shuffle, edges in self._all:
            ring = balance.update(loads)
            if ring is not None:
                shuffle.set_ring([edges[target] for target in ring])


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
    edges: Sequence[Edge],
    *,
    local_tasks: frozenset[int],
    rng: random.Random,
    registry: Registry,
    make_custom: Callable[[Grouping, Sequence[int]], CustomGrouping],
    balancers: Balancers | None = None,
) -> Grouper | None:
    """The grouper of one consumer of a stream; `edges` lead to its tasks, sorted by task. None for
    a direct grouping. `balancers` None: shuffles do not heed load. Raises EmitError for a grouping
    that cannot run here."""
    kind = grouping.kind
    describe = f"{consumer!r} groups stream {source.stream!r} of {source.component!r}"
    if kind in (GroupingKind.SHUFFLE, GroupingKind.NONE):
        shuffle = RoundRobin(edges, rng)
        if balancers is not None:
            balancers.add(shuffle, edges, ())
        return shuffle
    if kind is GroupingKind.LOCAL_OR_SHUFFLE:
        local = [edge for edge in edges if edge.task in local_tasks]
        shuffle = RoundRobin(local or edges, rng)
        if balancers is not None:
            balancers.add(shuffle, edges, local_tasks)
        return shuffle
    if kind is GroupingKind.ALL:
        return Fixed(edges)
    if kind is GroupingKind.GLOBAL or (kind is GroupingKind.FIELDS and not grouping.fields):
        return Fixed(edges[:1])
    if kind is GroupingKind.FIELDS:
        try:
            indexes = [source.index[name] for name in grouping.fields]
        except KeyError as error:
            raise EmitError(f"{describe} by {error.args[0]!r}, which it does not have") from None
        return ByFields(edges, indexes, _hasher(describe, grouping.fields, registry))
    if kind is GroupingKind.DIRECT:
        return None
    if kind is GroupingKind.CUSTOM:
        custom = make_custom(grouping, [edge.task for edge in edges])
        return Custom(custom, {edge.task: edge for edge in edges}, source.task, describe)
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
