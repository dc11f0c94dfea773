"""Tuples and batches.

A tuple that belongs to a tree carries its root and its id: 64 random bits, the *edge* of the tree
by which it was emitted (see `acking`). Nearly all tuples have one root; one that joins several has
`root == MANY` and a map from root to edge (Storm's MessageId). What all tuples of one task on one
stream have in common lies in their `Source`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK, TICK_STREAM
from squall_engine.core.values import no_field


class Source:
    """The properties that the tuples of one task on one stream have in common."""

    __slots__ = ("component", "fields", "index", "is_tick", "key", "local", "stream", "task")

    def __init__(
        self,
        component: str,
        task: int,
        stream: str,
        fields: Sequence[str],
        *,
        local: bool = True,  # the task runs in this worker
    ) -> None:
        self.component = component
        self.task = task
        self.stream = stream
        self.fields = tuple(fields)
        self.index = {name: i for i, name in enumerate(self.fields)}
        self.local = local
        self.key = (component, stream)  # of statistics
        self.is_tick = component == SYSTEM_COMPONENT and stream == TICK_STREAM


def tick_source() -> Source:
    """The source of tick tuples."""
    return Source(SYSTEM_COMPONENT, SYSTEM_TASK, TICK_STREAM, ("rate_secs",))


# A msgspec struct, because it is made in 40 ns where a class with __slots__ takes 100; and not
# tracked by the garbage collector, because it holds plain values. eq=False: identity, hashable.
class Tuple(msgspec.Struct, gc=False, eq=False):
    """A tuple as a bolt receives it; see `squall.Tuple` for the public part."""

    values: Sequence[Any]
    id: int  # 0: belongs to no tree, or to several
    root: int
    source: Source
    settled: bool = False  # acked or failed
    anchors: dict[int, int] | None = None  # root -> edge, when root is MANY
    _axor: int = 0  # XOR of the edges that were anchored to it

    @property
    def fields(self) -> tuple[str, ...]:
        return self.source.fields

    @property
    def source_component(self) -> str:
        return self.source.component

    @property
    def source_task(self) -> int:
        return self.source.task

    @property
    def source_stream(self) -> str:
        return self.source.stream

    @property
    def is_tick(self) -> bool:
        return self.source.is_tick

    def __getitem__(self, key: str | int) -> Any:
        if type(key) is str:
            try:
                return self.values[self.source.index[key]]
            except KeyError:
                raise no_field(self.source, key) from None
        return self.values[key]  # type: ignore[index]

    def get(self, field: str, default: Any = None) -> Any:
        index = self.source.index.get(field)
        return default if index is None else self.values[index]

    def as_dict(self) -> dict[str, Any]:
        return dict(zip(self.source.fields, self.values, strict=True))

    def __repr__(self) -> str:
        source = self.source
        return (
            f"Tuple({list(self.values)!r}, from {source.component}:{source.task} {source.stream})"
        )


class Batch:
    """Tuples of one stream on their way to one task, perhaps from several."""

    __slots__ = ("_tuples", "source")

    def __init__(self, source: Source, tuples: list[Tuple]) -> None:
        self.source = source
        self._tuples = tuples

    @classmethod
    def of(cls, source: Source, tuples: Iterable[Tuple]) -> Batch:
        """A batch of tuples that exist already."""
        return cls(source, list(tuples))

    def __len__(self) -> int:
        return len(self._tuples)

    def take(self, count: int) -> Batch:
        """Remove the first `count` tuples; returns them as a batch of their own."""
        head, self._tuples = self._tuples[:count], self._tuples[count:]
        return Batch(head[0].source if head else self.source, head)

    def as_tuples(self) -> list[Tuple]:
        return self._tuples[:]

    def rows(self) -> list[Sequence[Any]]:
        """The values of each tuple."""
        return [tup.values for tup in self._tuples]

    def last_row(self) -> Sequence[Any]:
        """The values of the last tuple. Raises IndexError if there is none."""
        return self._tuples[-1].values

    def roots(self) -> list[int]:
        """The trees that these tuples belong to, each once."""
        return roots_of(self._tuples)

    def _by_source(self) -> list[Batch]:
        """Its tuples as batches of one source each."""
        found: dict[Source, list[Tuple]] = {}
        for tup in self._tuples:
            found.setdefault(tup.source, []).append(tup)
        return [Batch(source, tuples) for source, tuples in found.items()]


def roots_of(anchors: Iterable[Tuple]) -> list[int]:
    """The trees that these tuples belong to, each once."""
    found: dict[int, None] = {}
    for anchor in anchors:
        if anchor.anchors is not None:
            found.update(dict.fromkeys(anchor.anchors))
        elif anchor.root:
            found[anchor.root] = None
    return list(found)
