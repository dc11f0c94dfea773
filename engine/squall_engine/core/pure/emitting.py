"""Emitting: any stream, any grouping, any anchors."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from squall_engine.core.pure.ids import Ids
from squall_engine.core.pure.outputs import Edge, Output
from squall_engine.core.pure.tuples import Source, Tuple, roots_of
from squall_engine.core.values import MANY, UNANCHORED, EmitError, Inspector, wrong_values

Anchors = Tuple | Iterable[Tuple] | None


class Emitter:
    """The outputs of one task."""

    def __init__(
        self,
        component: str,
        task: int,
        outputs: Mapping[str, Output],
        next_bits: Callable[[int], int],
        *,
        inspector: Inspector | None = None,
        on_rejected: Callable[[Exception, Collection[int]], None],
    ) -> None:
        """`outputs` are complete; `next_bits(n)` draws n random bits. `on_rejected(error, roots)`
        is called for a tuple that the inspector refused: it is not delivered, and its trees must
        fail."""
        self.component = component
        self.task = task
        self.outputs = dict(outputs)
        self._inspector = inspector
        self._on_rejected = on_rejected
        self._ids = Ids(next_bits(64))

    def _output(self, stream: str, values: Sequence[Any]) -> Output:
        """The output of a stream. Raises EmitError when it is not declared or `values` are not
        what it carries."""
        output = self._find(stream)
        if type(values) in (tuple, list) and len(values) == output.arity:
            return output
        try:
            fits = not isinstance(values, str | bytes) and len(values) == output.arity
        except TypeError:
            fits = False
        if not fits:
            raise wrong_values(output.source, values)
        return output

    def _find(self, stream: str) -> Output:
        """The output of a stream. Raises EmitError when it is not declared."""
        output = self.outputs.get(stream)
        if output is None:
            near = difflib.get_close_matches(stream, self.outputs, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise EmitError(f"{self.component!r} declares no stream {stream!r}{hint}")
        return output

    def _edges(self, output: Output, values: Sequence[Any]) -> tuple[Edge, ...]:
        """Where a tuple goes. Raises EmitError on a direct stream."""
        if output.direct:
            raise EmitError(
                f"stream {output.source.stream!r} of {self.component!r} is direct: use emit_direct"
            )
        return output._route(values)

    def _direct_edges(self, output: Output, task: int) -> tuple[Edge, ...]:
        """Where a direct tuple goes: nowhere when the task does not consume the stream (as in
        Storm). Raises EmitError on a stream that is not direct."""
        if not output.direct:
            raise EmitError(
                f"stream {output.source.stream!r} of {self.component!r} is not direct: "
                "declare it with Stream(fields, direct=True), or use emit"
            )
        edge = output.direct_edges.get(task)
        return () if edge is None else (edge,)

    def _send(
        self,
        output: Output,
        edges: tuple[Edge, ...],
        values: Sequence[Any],
        anchors: Sequence[Tuple],
    ) -> None:
        """Put a tuple into `edges`, as a part of the trees of `anchors`."""
        output._emitted += 1
        if self._inspector is not None:
            try:
                values = self._inspector.inspect(output.source, values)
            except ValueError as error:
                self._on_rejected(error, roots_of(anchors))
                return
        output._transferred += len(edges)
        for edge in edges:
            edge._add(self._child(values, output.source, anchors))

    def _child(self, values: Sequence[Any], source: Source, anchors: Sequence[Tuple]) -> Tuple:
        """A tuple on one edge, with an id that is added to its anchors."""
        roots: dict[int, int] = {}
        for anchor in anchors:
            if anchor.root == UNANCHORED:
                continue
            # One id for each anchor, not one for each child: two anchors of the same root would
            # cancel each other out.
            bits = self._ids.draw()
            anchor._axor ^= bits
            if len(anchors) == 1 and anchor.root != MANY:
                return Tuple(values, bits, anchor.root, source)
            for root in anchor.anchors or (anchor.root,):
                roots[root] = roots.get(root, 0) ^ bits
        if not roots:
            return Tuple(values, 0, UNANCHORED, source)
        if len(roots) == 1:
            ((root, bits),) = roots.items()
            return Tuple(values, bits, root, source)
        return Tuple(values, 0, MANY, source, False, roots)


def ids_of(edges: Sequence[Edge]) -> tuple[int, ...]:
    """The task ids that an emit returns."""
    return edges[0].ids if len(edges) == 1 else tuple([edge.task for edge in edges])


def as_anchors(anchors: Tuple | Iterable[Tuple]) -> tuple[Tuple, ...]:
    """`anchors=` as a tuple of tuples. Raises TypeError."""
    if isinstance(anchors, Tuple):
        return (anchors,)
    found = tuple(anchors)  # (one that is named twice gets two ids, which are as good as one)
    for anchor in found:
        if not isinstance(anchor, Tuple):
            raise TypeError(f"anchors are tuples that the bolt received, not {anchor!r}")
    return found
