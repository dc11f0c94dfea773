"""Tuples, and where they come from.

A tuple carries the root of its tree and, when it came from another worker, its id: 64 random bits,
the *edge* of the tree that crossed (see `acking`). Nearly all tuples have one root; one that joins
several has `root == MANY` and a map from root to edge (Storm's MessageId). What else there is to
know of a tuple is shared by all that one task emits on one stream, and lies in its `Source`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from squall_engine.core.values import Source, no_field


# A msgspec struct, because it is made in 40 ns where a class with __slots__ takes 100; and not
# tracked by the garbage collector, because it holds plain values. eq=False: identity, hashable.
class Tuple(msgspec.Struct, gc=False, eq=False):
    """A tuple as a bolt receives it; see `squall.Tuple` for what of it is public."""

    values: Sequence[Any]
    id: int  # 0: never left the worker, or belongs to no tree
    root: int
    source: Source
    # Acked or failed. Not written on the fast path, see `bolts`.
    settled: bool = False
    anchors: dict[int, int] | None = None  # root -> edge (0: local), when root is MANY

    @property
    def fields(self) -> Sequence[str]:
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
    """Tuples of one stream on their way to one task. `source` is that of the first, and of all
    unless tasks share their edges."""

    __slots__ = ("source", "tuples")

    def __init__(self, source: Source, tuples: list[Tuple]) -> None:
        self.source = source
        self.tuples = tuples

    @classmethod
    def of(cls, source: Source, tuples: Iterable[Tuple]) -> Batch:
        """A batch of tuples that exist already."""
        return cls(source, list(tuples))

    def __len__(self) -> int:
        return len(self.tuples)

    def take(self, count: int) -> Batch:
        """The first `count` tuples as a batch of their own; they are no longer in this one."""
        if count >= len(self.tuples):
            head = Batch(self.source, self.tuples)
            self.tuples = []
        else:
            head = Batch(self.source, self.tuples[:count])
            del self.tuples[:count]
        return head

    def by_source(self) -> list[Batch]:
        """Its tuples as batches of one source each."""
        if self.source.local:
            return [self]  # in this core, no two tasks share an edge
        found: dict[Source, list[Tuple]] = {}
        for tup in self.tuples:
            found.setdefault(tup.source, []).append(tup)
        return [Batch(source, tuples) for source, tuples in found.items()]

    def as_tuples(self) -> list[Tuple]:
        return self.tuples[:]

    def rows(self) -> list[Sequence[Any]]:
        """The values of each tuple."""
        return [tup.values for tup in self.tuples]

    def roots(self) -> list[int]:
        """The trees that these tuples belong to, each once."""
        return roots_of(self.tuples)


def roots_of(anchors: Iterable[Tuple]) -> list[int]:
    """The trees that these tuples belong to, each once."""
    found: dict[int, None] = {}
    for anchor in anchors:
        if anchor.anchors is not None:
            found.update(dict.fromkeys(anchor.anchors))
        elif anchor.root:
            found[anchor.root] = None
    return list(found)
