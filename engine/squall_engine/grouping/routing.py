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

# The most places of new rings in one update: some 50 ms. Shuffles beyond that get theirs in the
# next ones; a worker may have thousands of tasks that shuffle to thousands.
_PLACES_MAX = 100_000


class _Shuffles:
    """The shuffles of a worker that have the same edges: they share weights, as they see the same
    loads, but not the order of their targets."""

    def __init__(self, balance: Balance, edges: Sequence[Edge]) -> None:
        self.all: list[RoundRobin] = []
        self._balance = balance
        self._edges = {edge.task: edge for edge in edges}
        self._next = 0
        self._due = 0  # how many have an old ring

    def update(self, loads: Mapping[int, float], places_max: float) -> None:
        ring = self._balance.update(loads)
        if ring is not None:
            self._due = len(self.all)
        places = 0
        while self._due and places < places_max:
            if ring is None:
                ring = self._balance.draw_ring()
            self.all[self._next].set_ring([self._edges[target] for target in ring])
            self._next = (self._next + 1) % len(self.all)
            self._due -= 1
            places += len(ring)
            ring = None


class Balancers:
    """The load-aware shuffles of a worker."""

    def __init__(self, options: TopologyOptions, rng: random.Random) -> None:
        self._rng = rng
        self._higher = options.topology_localityaware_higher_bound
        self._lower = options.topology_localityaware_lower_bound
        self._groups: dict[tuple[tuple[Edge, ...], bool], _Shuffles] = {}
        self.targets: frozenset[int] = frozenset()

    def add(self, shuffle: RoundRobin, edges: Sequence[Edge], near: Collection[int]) -> None:
        """Add a shuffle, which prefers the edges to `near`, the worker's own tasks, if there are
        any."""
        if len(edges) < 2:
            return
        key = (tuple(edges), bool(near))
        group = self._groups.get(key)
        if group is None:
            targets = [edge.task for edge in edges]
            balance = Balance(targets, near, self._rng, higher=self._higher, lower=self._lower)
            group = self._groups[key] = _Shuffles(balance, edges)
            self.targets |= set(targets)
        group.all.append(shuffle)

    def update(self, loads: Mapping[int, float]) -> None:
        """Adapt the shuffles to the loads of their targets, once a second."""
        for group in self._groups.values():
            group.update(loads, _PLACES_MAX / len(self._groups))


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
) -> Grouper[Edge] | None:
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
