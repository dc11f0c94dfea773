"""The span contexts of tuples on their way, and how they cross to another worker.

A tuple of a tree has an id of 64 random bits (its *edge*), which stays the same on the wire. So the
context of a traced tuple need not travel inside it: the sender puts it into a table, or into a
section of its own (TRACES) that leaves for the worker of the tuple, and the receiver looks it up by
the id. Untraced tuples have no entry, and the format of tuples does not know of traces.

A context that gets lost (a worker ends, a route changes, the table is full) ends a trace early;
nothing waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from squall_engine.core import MANY, Tuple
from squall_engine.core.codec import CodecError
from squall_engine.core.wire_format import Kind
from squall_engine.dataflow.traced_edge import edges_of

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

CONTEXTS_MAX = 20_000  # of tuples on their way; the oldest are forgotten

_KIND = bytes([Kind.TRACES])
_Wire = tuple[int, bytes, bytes, int, str]  # edge, trace id, span id, flags, trace state
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Wire]).decode


class Contexts(dict[int, "SpanContext"]):
    """Edge -> context of the span that emitted the tuple, or of the one that executes it. Read it
    as the dict that it is, from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def put(self, edges: Iterable[int], context: SpanContext) -> None:
        """Keep the context of tuples with these edges."""
        with self._lock:
            for edge in edges:
                self[edge] = context
            while len(self) > CONTEXTS_MAX:
                del self[next(iter(self))]

    def drop(self, edges: Iterable[int]) -> None:
        """Forget these, which are executed."""
        with self._lock:
            for edge in edges:
                self.pop(edge, None)

    def of(self, tup: Tuple) -> SpanContext | None:
        """The context of a tuple; of one that joins several trees, the first that is traced."""
        if tup.root != MANY:
            return self.get(tup.id)
        found = (self.get(edge) for edge in edges_of(tup))
        return next((context for context in found if context is not None), None)


def serialize(contexts: Iterable[tuple[int, SpanContext]]) -> bytes:
    """A TRACES section."""
    rows = [
        (
            edge,
            context.trace_id.to_bytes(16),
            context.span_id.to_bytes(8),
            int(context.trace_flags),
            context.trace_state.to_header(),
        )
        for edge, context in contexts
    ]
    return _KIND + _encode(rows)


def parse(section: bytes) -> list[tuple[int, SpanContext]]:
    """The contexts of a TRACES section, by edge. Raises CodecError."""
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState

    try:
        rows = _decode(memoryview(section)[1:])
    except msgspec.MsgspecError as error:
        raise CodecError(f"a section of {len(section)} bytes cannot be read: {error}") from error
    return [
        (
            edge,
            SpanContext(
                int.from_bytes(trace),
                int.from_bytes(span),
                is_remote=True,
                trace_flags=TraceFlags(flags & 0xFF),
                trace_state=TraceState.from_header([state]) if state else None,
            ),
        )
        for edge, trace, span, flags, state in rows
    ]
