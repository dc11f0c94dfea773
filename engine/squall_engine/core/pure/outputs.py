"""The way out of a task: which tasks a tuple goes to, and the edges where it waits for the end of
the turn.

Every stream of a task is an `Output`, and every (stream, receiving task) an `Edge`, which the tasks
of a component share. The grouping of each consumer is a small object that chooses edges.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Generic, TypeVar

from squall_engine.core.pure.inbox import Inbox
from squall_engine.core.pure.tuples import Batch, Source, Tuple
from squall_engine.core.values import Grouper, draw_steps

Item = TypeVar("Item")


class Edge:
    """From one stream of some tasks to one receiving task."""

    __slots__ = ("_touched", "_waiting", "ids", "inbox", "local", "source", "task")

    def __init__(self, task: int, source: Source, *, local: bool) -> None:
        """`source` is that of one of the tasks; `local`: the receiving task is in this worker."""
        self.task = task
        self.source = source
        self.local = local
        self.ids = (task,)
        self.inbox: Inbox | None = None  # where an outbox delivers what waits here; None: nowhere
        self._waiting: list[Tuple] = []
        self._touched: list[Edge] = []  # of the outbox

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Batch:
        """Remove and return what waits here."""
        waiting, self._waiting = self._waiting, []
        return Batch(waiting[0].source if waiting else self.source, waiting)

    def drop_oldest(self, keep: int) -> None:
        """Keep the `keep` newest only."""
        del self._waiting[: max(0, len(self._waiting) - keep)]

    def _add(self, tup: Tuple) -> None:
        if not self._waiting:
            self._touched.append(self)
        self._waiting.append(tup)


class Outbox(Generic[Item]):
    """The edges of a task, or of the tasks that share theirs, each with what the caller knows it
    by: which of them have something."""

    def __init__(self, items: Sequence[tuple[Edge, Item]]) -> None:
        self._items = dict(items)
        # Edges that were empty when a tuple came; some may have been taken since.
        self._touched = [edge for edge, _ in items if len(edge)]
        for edge, _ in items:
            edge._touched = self._touched

    @property
    def is_empty(self) -> bool:
        """Whether no edge has anything."""
        return not any(map(len, self._touched))

    def deliver(self) -> bool:
        """Move what waits in the edges that have an inbox into these. True when something was
        moved."""
        moved, rest = False, []
        for edge in self._touched:
            if edge.inbox is None:
                rest.append(edge)
            elif len(edge):
                edge.inbox.put_from_here(edge.take())
                moved = True
        self._touched[:] = rest
        return moved

    def take(self) -> list[Item]:
        """Those that have something, to be emptied by the caller: the next call may leave out
        what was named here and is not empty since (and may name one twice)."""
        items = [self._items[edge] for edge in self._touched if len(edge)]
        self._touched.clear()
        return items


class RoundRobin:
    """shuffle, local-or-shuffle and none: every target in turn, in an order of its own for each
    source task, so that sources do not all hit the same task at once."""

    _edges: tuple[Edge, ...]
    _next: int
    _step: int

    def __init__(self, edges: Sequence[Edge], rng: random.Random) -> None:
        self.set_ring(edges, *draw_steps(rng, len(edges)))

    def choose(self, values: Sequence[Any]) -> tuple[Edge, ...]:
        edge = self._edges[self._next]
        self._next = (self._next + self._step) % len(self._edges)
        return (edge,)

    def set_ring(self, edges: Sequence[Edge], start: int, step: int) -> None:
        """Take these in turn from now on, from the place `start`, and then every `step` places
        (see `draw_steps`). A tuple of edges is not copied, so that many tasks may share one."""
        self._edges = tuple(edges)
        self._next, self._step = start, step


class ByFields:
    """fields: the stable hash of some values chooses the task."""

    def __init__(
        self, edges: Sequence[Edge], indexes: Sequence[int], hash_: Callable[[Any], int]
    ) -> None:
        """`hash_` is of the value at the only index, or of the tuple of the values at several."""
        self._edges = tuple(edges)
        self.indexes = tuple(indexes)
        self._key_of: Callable[[Sequence[Any]], Any] = itemgetter(*indexes)
        self._hash = hash_

    def choose(self, values: Sequence[Any]) -> tuple[Edge, ...]:
        number = self._hash(self._key_of(values))
        return (self._edges[number % len(self._edges)],)


class Fixed:
    """all (every target) and global (the one with the lowest id)."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self._edges = tuple(edges)

    def choose(self, values: Sequence[Any]) -> tuple[Edge, ...]:
        return self._edges


class Output:
    """One stream of one task."""

    __slots__ = (
        "_edges", "_emitted", "_groupers", "_transferred", "arity", "direct", "direct_edges",
        "source",
    )  # fmt: skip

    def __init__(self, source: Source, *, direct: bool) -> None:
        self.source = source
        self.arity = len(source.fields)
        self.direct = direct
        self._edges: list[tuple[Edge, ...]] = []  # of each consumer
        self.direct_edges: Mapping[int, Edge] = {}
        self._groupers: list[Grouper[Edge]] = []
        self._emitted = 0
        self._transferred = 0

    def add_consumer(
        self,
        grouper: Grouper[Edge] | None,
        edges: Sequence[Edge],
        by_task: Mapping[int, Edge] | None = None,
    ) -> None:
        """`grouper` None: a direct grouping, which finds its edges in `by_task` (None: a table of
        its own). Before an `Emitter` is made of the output. A tuple of edges is not copied."""
        self._edges.append(tuple(edges))
        if grouper is not None:
            self._groupers.append(grouper)
            return
        if by_task is None:
            by_task = {edge.task: edge for edge in edges}
        self.direct_edges = {**self.direct_edges, **by_task} if self.direct_edges else by_task

    @property
    def edges(self) -> list[Edge]:
        """All of them, of one consumer after the other."""
        return [edge for edges in self._edges for edge in edges]

    @property
    def first_edge(self) -> Edge | None:
        """The first of `edges`, if there are any."""
        return next((edges[0] for edges in self._edges if edges), None)

    def emitted_total(self) -> int:
        """The number of tuples that were emitted."""
        return self._emitted

    def transferred_total(self) -> int:
        """The same, counted once for each edge that a tuple took."""
        return self._transferred

    def _route(self, values: Sequence[Any]) -> tuple[Edge, ...]:
        """The edges that a tuple takes, by every consumer's grouping."""
        if len(self._groupers) == 1:
            return self._groupers[0].choose(values)
        chosen: tuple[Edge, ...] = ()
        for grouper in self._groupers:
            chosen += grouper.choose(values)
        return chosen
