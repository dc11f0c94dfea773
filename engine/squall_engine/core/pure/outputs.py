"""The way out of a task: which tasks a tuple goes to, and the buffers where it waits for the end of
the turn.

At start-up every stream of a task becomes an `Output`, and every (stream, receiving task) an
`Edge` with a buffer. Each consumer's grouping becomes a small object that picks edges. A stream
with one consumer whose grouping always picks one task is *single*: emits on it take the fast path
of the collectors, and its tuples are counted when the buffers are flushed, not one by one.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

from squall_engine.core.pure.tuples import Batch, Tuple
from squall_engine.core.values import Source

Append = Callable[[Tuple], None]
Item = TypeVar("Item")
# Where a tuple goes: its buffer's append, the task's id, whether it runs in this worker.
Pair = tuple[Append, tuple[int, ...], bool]

# Whether several tasks may share an edge. Here it is the edges that count what a task emitted.
SHARES_EDGES = False

# A fields grouping remembers where it sent this many values; then it starts afresh.
MEMO_SIZE_MAX = 100_000


class Edge:
    """From one stream of one task to one receiving task."""

    __slots__ = ("buffer", "ids", "local", "pair", "source", "taken", "task")

    def __init__(self, task: int, source: Source, *, local: bool) -> None:
        self.task = task
        self.source = source
        self.local = local
        self.ids = (task,)
        # Always the same list (its `append` is what the collectors hold): a flush copies it.
        self.buffer: list[Tuple] = []
        self.taken = 0  # tuples that have waited here
        self.pair: Pair = (self.buffer.append, self.ids, local)

    def __len__(self) -> int:
        return len(self.buffer)

    def take(self) -> Batch:
        """What waits here, which then waits here no longer."""
        batch = Batch(self.source, self.buffer[:])
        self.buffer.clear()
        self.taken += len(batch.tuples)
        return batch

    def drop_oldest(self, keep: int) -> None:
        """Keep the `keep` newest only."""
        count = max(0, len(self.buffer) - keep)
        del self.buffer[:count]
        self.taken += count


class Outbox(Generic[Item]):
    """The edges of a task, each with what the caller knows it by: which of them have something.
    (Here all are looked at, in C; to note them at the first tuple would cost every tuple.)"""

    def __init__(self, items: Sequence[tuple[Edge, Item]]) -> None:
        self._buffers = [edge.buffer for edge, _ in items]
        self._items = [item for _, item in items]

    @property
    def is_empty(self) -> bool:
        """Whether no edge has anything."""
        return not any(self._buffers)

    def take(self) -> list[Item]:
        """Those that have something, to be emptied by the caller: the next call may leave out
        what was named here and is not empty since (and may name one twice)."""
        return list(itertools.compress(self._items, self._buffers))


class Grouper(Protocol):
    """Picks the edges of one consumer."""

    def choose(self, values: Sequence[Any]) -> tuple[Edge, ...]: ...


class RoundRobin:
    """shuffle, local-or-shuffle and none: every target in turn, in an order of its own for each
    source task, so that sources do not all hit the same task at once."""

    def __init__(self, edges: Sequence[Edge], rng: random.Random) -> None:
        self._edges = rng.sample(list(edges), len(edges))
        self._next = 0

    def choose(self, values: Sequence[Any]) -> tuple[Edge, ...]:
        i = self._next
        self._next = i + 1 if i + 1 < len(self._edges) else 0
        return (self._edges[i],)

    def set_ring(self, edges: Sequence[Edge]) -> None:
        """Take these in turn from now on (from the next round on, on the fast path)."""
        self._edges = list(edges)
        self._next = 0

    def picker(self) -> Callable[[], Pair]:
        """`choose` for the fast path."""
        return self._pairs().__next__

    def _pairs(self) -> Iterator[Pair]:
        while True:
            for edge in self._edges:
                yield edge.pair


def _endless(pairs: Iterable[Pair]) -> Callable[[], Pair]:
    step: Callable[[], Pair] = itertools.cycle(list(pairs)).__next__
    return step


class ByFields:
    """fields: the stable hash of some values picks the task. `memo` is for the fast path: where
    each key went before. (Equal keys hash alike, so one entry may serve 1, 1.0 and True.)"""

    _MEMOIZED = (str, int, bytes)

    def __init__(
        self,
        edges: Sequence[Edge],
        indexes: Sequence[int],
        hash_: Callable[[Any], int],
    ) -> None:
        """`hash_` is of the value at the only index, or of the tuple of the values at several."""
        self.memo: dict[Any, Pair] = {}
        self._edges = edges
        self.indexes = tuple(indexes)
        self._key_of: Callable[[Sequence[Any]], Any] = itemgetter(*indexes)
        self._hash = hash_

    def choose(self, values: Sequence[Any]) -> tuple[Edge, ...]:
        return (self._edge_of(self._key_of(values)),)

    def pick(self, key: Any) -> Pair:
        """Where a key goes that `memo` does not have (or cannot: a list, a dict ...)."""
        pair = self._edge_of(key).pair
        if type(key) in self._MEMOIZED:
            if len(self.memo) >= MEMO_SIZE_MAX:
                self.memo.clear()
            self.memo[key] = pair
        return pair

    def _edge_of(self, key: Any) -> Edge:
        return self._edges[self._hash(key) % len(self._edges)]


class Fixed:
    """all (every target) and global (the one with the lowest id)."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self._edges = tuple(edges)

    def choose(self, values: Sequence[Any]) -> tuple[Edge, ...]:
        return self._edges


class Output:
    """One stream of one task."""

    __slots__ = (
        "arity",
        "by_field",
        "direct",
        "direct_edges",
        "edges",
        "emitted",
        "groupers",
        "next_pair",
        "single",
        "source",
    )

    def __init__(self, source: Source, *, direct: bool) -> None:
        self.source = source
        self.arity = len(source.fields)
        self.direct = direct
        self.edges: list[Edge] = []
        self.groupers: list[Grouper] = []
        self.direct_edges: dict[int, Edge] = {}
        # Fast paths; at most one is set, and only when `single`.
        self.single = False
        self.next_pair: Callable[[], Pair] | None = None
        self.by_field: ByFields | None = None
        self.emitted = 0  # with `single`, without what the edges count

    def add_consumer(self, grouper: Grouper | None, edges: Sequence[Edge]) -> None:
        """`grouper` None: a direct grouping."""
        self.edges.extend(edges)
        if grouper is None:
            self.direct_edges.update((edge.task, edge) for edge in edges)
        else:
            self.groupers.append(grouper)

    def seal(self, *, fast: bool) -> None:
        """All consumers are there. `fast` False: no fast path, whatever the groupings (when every
        tuple is to be looked at: debugging, testing)."""
        if not fast or self.direct or len(self.groupers) != 1:
            return
        grouper = self.groupers[0]
        if isinstance(grouper, ByFields) and len(grouper.indexes) == 1:
            self.by_field = grouper
        elif isinstance(grouper, RoundRobin):
            self.next_pair = grouper.picker()
        elif isinstance(grouper, Fixed) and len(self.edges) == 1:
            self.next_pair = _endless([self.edges[0].pair])
        self.single = self.by_field is not None or self.next_pair is not None

    def route(self, values: Sequence[Any]) -> tuple[Edge, ...]:
        """The edges that a tuple takes, by every consumer's grouping."""
        groupers = self.groupers
        if len(groupers) == 1:
            return groupers[0].choose(values)
        chosen: tuple[Edge, ...] = ()
        for grouper in groupers:
            chosen += grouper.choose(values)
        return chosen

    def emitted_total(self) -> int:
        """Tuples emitted, exact once the edges are empty."""
        return self.emitted + self.transferred_total() if self.single else self.emitted

    def transferred_total(self) -> int:
        """One for each edge that a tuple took: as `emitted_total`."""
        return sum([edge.taken for edge in self.edges])
