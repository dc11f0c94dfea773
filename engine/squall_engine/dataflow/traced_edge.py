"""Which of the tuples that wait in an edge of the data flow are traced.

The id of a tuple is drawn inside the core when it is emitted, and the core does not return it. What
is known outside is its place: it is the last one in its edge just then. So a traced emit leaves a
mark (from, to, context), and when the edge is emptied, the ids at the marked places are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from squall_engine.core import MANY, Batch, Tuple
from squall_engine.dataflow.outgoing import TupleBuffer

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

_MARKS_MAX = 10_000  # of an edge whose worker is unknown, or takes nothing


class Mark(NamedTuple):
    """Traced tuples in an edge."""

    start: int
    end: int
    contexts: SpanContext | Mapping[int, SpanContext]  # of all of them, or by root


class TracedEdge:
    """An edge whose marked tuples are looked at when they are taken."""

    __slots__ = ("_leave", "inner", "marks")

    def __init__(
        self, inner: TupleBuffer, leave: Callable[[list[tuple[int, SpanContext]]], None]
    ) -> None:
        """`leave` gets the contexts of the tuples that were taken, by edge of their tree."""
        self.inner = inner
        self._leave = leave
        self.marks: list[Mark] = []

    def mark(self, start: int, contexts: SpanContext | Mapping[int, SpanContext]) -> None:
        """Remember that the tuples from `start` on are traced. Under the lock of the task."""
        end = len(self.inner)
        if end > start and len(self.marks) < _MARKS_MAX:
            self.marks.append(Mark(start, end, contexts))

    def __len__(self) -> int:
        return len(self.inner)

    def drop_oldest(self, keep: int) -> None:
        dropped = max(0, len(self.inner) - keep)
        self.inner.drop_oldest(keep)
        if dropped and self.marks:
            moved = (
                Mark(max(0, mark.start - dropped), mark.end - dropped, mark.contexts)
                for mark in self.marks
            )
            self.marks = [mark for mark in moved if mark.end > 0]

    def take(self) -> Batch:
        batch = self.inner.take()
        if self.marks:
            marks, self.marks = self.marks, []
            self._leave(contexts_of(batch, marks))
        return batch


def contexts_of(batch: Batch, marks: list[Mark]) -> list[tuple[int, SpanContext]]:
    """The contexts of the marked tuples, by edge of their tree."""
    tuples = batch.as_tuples()
    found: list[tuple[int, SpanContext]] = []
    for mark in marks:
        for tup in tuples[mark.start : mark.end]:
            contexts = mark.contexts
            if isinstance(contexts, Mapping):
                for root in tup.anchors or (tup.root,):
                    context = contexts.get(root)
                    if context is not None:
                        found += [(edge, context) for edge in edges_of(tup)]
                        break
            else:
                found += [(edge, contexts) for edge in edges_of(tup)]
    return found


def edges_of(tup: Tuple) -> Sequence[int]:
    """The edges of a tuple, one for each tree that it belongs to."""
    if tup.root == MANY:
        return tuple((tup.anchors or {}).values())
    return (tup.id,) if tup.root else ()
