"""Emitting with all that there is: any stream, any grouping, any anchors. The collectors' fast
paths (`bolts`, `spouts`) do the common case themselves and come here for the rest."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from squall_engine.core.pure.acking import Ledger
from squall_engine.core.pure.outputs import Edge, Output
from squall_engine.core.pure.tuples import Tuple
from squall_engine.core.values import ID_BITS, MANY, UNANCHORED, EmitError, Inspector, wrong_values


class Emitter:
    """The outputs of one task."""

    def __init__(
        self,
        component: str,
        task: int,
        outputs: Mapping[str, Output],
        ledger: Ledger,
        next_bits: Callable[[int], int],  # random bits: random.Random.getrandbits
        *,
        inspector: Inspector | None = None,
        on_rejected: Callable[[Exception, Collection[int]], None],
    ) -> None:
        """`on_rejected(error, roots)` is called for a tuple that the inspector refused: it is not
        delivered, and its trees must fail."""
        self.component = component
        self.task = task
        self.outputs = outputs
        self._ledger = ledger
        self.next_bits = next_bits
        self._inspector = inspector
        self._on_rejected = on_rejected

    def output(self, stream: str, values: Sequence[Any]) -> Output:
        """The output of a stream. Raises EmitError when it is not declared or `values` are not
        what it carries."""
        output = self.find(stream)
        try:
            fits = not isinstance(values, str | bytes) and len(values) == output.arity
        except TypeError:
            fits = False
        if not fits:
            raise wrong_values(output.source, values)
        return output

    def find(self, stream: str) -> Output:
        """The output of a stream. Raises EmitError when it is not declared."""
        output = self.outputs.get(stream)
        if output is None:
            near = difflib.get_close_matches(stream, self.outputs, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise EmitError(f"{self.component!r} declares no stream {stream!r}{hint}")
        return output

    def edges(self, output: Output, values: Sequence[Any]) -> tuple[Edge, ...]:
        """Where a tuple goes. Raises EmitError on a direct stream."""
        if output.direct:
            raise EmitError(
                f"stream {output.source.stream!r} of {self.component!r} is direct: use emit_direct"
            )
        return output.route(values)

    def direct_edges(self, output: Output, task: int) -> tuple[Edge, ...]:
        """Where a direct tuple goes: nowhere when the task does not consume the stream (as in
        Storm). Raises EmitError on a stream that is not direct."""
        if not output.direct:
            raise EmitError(
                f"stream {output.source.stream!r} of {self.component!r} is not direct: "
                "declare it with Stream(fields, direct=True), or use emit"
            )
        edge = output.direct_edges.get(task)
        return () if edge is None else (edge,)

    def send(
        self, output: Output, edges: Iterable[Edge], values: Sequence[Any], roots: Collection[int]
    ) -> None:
        """Put a tuple into the buffers of `edges`, as a part of the trees of `roots`."""
        if not output.single:
            output.emitted += 1
        if self._inspector is not None:
            try:
                values = self._inspector.inspect(output.source, values)
            except ValueError as error:
                self._on_rejected(error, roots)
                return
        source, ledger = output.source, self._ledger
        counts, xors = ledger.counts, ledger.xors
        for edge in edges:
            bits = 0
            if roots and not edge.local:
                bits = self.next_bits(ID_BITS)
            for root in roots:
                if bits:
                    xors[root] = xors.get(root, 0) ^ bits
                else:
                    counts[root] = counts.get(root, 0) + 1
            if not roots:
                tup = Tuple(values, 0, UNANCHORED, source)
            elif len(roots) == 1:
                tup = Tuple(values, bits, next(iter(roots)), source)
            else:
                tup = Tuple(values, 0, MANY, source, False, dict.fromkeys(roots, bits))
            edge.buffer.append(tup)


def ids_of(edges: Sequence[Edge]) -> tuple[int, ...]:
    """The task ids that an emit returns."""
    return edges[0].ids if len(edges) == 1 else tuple([edge.task for edge in edges])


def as_anchors(anchors: Tuple | Iterable[Tuple]) -> tuple[Tuple, ...]:
    """`anchors=` as a tuple of tuples. Raises TypeError."""
    if isinstance(anchors, Tuple):
        return (anchors,)
    found = tuple(anchors)
    for anchor in found:
        if not isinstance(anchor, Tuple):
            raise TypeError(f"anchors are tuples that the bolt received, not {anchor!r}")
    return found
