"""Tracing of the tuple trees that pass through one worker."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from squall_common.topology.model import WorkerSlot
from squall_engine.core import Edge
from squall_engine.core.invocation import InvocationMode
from squall_engine.dataflow.outgoing import TupleBuffer
from squall_engine.dataflow.traced_edge import TracedEdge
from squall_engine.tracing import calls, contexts
from squall_engine.tracing.sites import Shared, Site

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, TracerProvider

    from squall_common.component.collector import BoltCollector
    from squall_engine.core import Tuple
    from squall_engine.dataflow.outgoing import OutgoingEdge
    from squall_engine.tasks.base import TaskParts
    from squall_engine.tasks.bolt import ColumnBolt
    from squall_engine.tasks.spout import SpoutTask

Send = Callable[[WorkerSlot, bytes], None]


class TreeTracing(Shared):
    """Follows sampled tuple trees through the tasks of a worker."""

    def __init__(
        self, provider: TracerProvider, rate: float, rng: random.Random, send: Send
    ) -> None:
        """The share `rate` of messages is traced. `send(worker, section)` sends a section with the
        tuples that leave for that worker."""
        super().__init__(provider, rate, rng)
        self._send = send

    # -- edges --

    def follow(self, edge: Edge, outgoing: OutgoingEdge) -> TupleBuffer:
        """Make the traced edge that takes the place of an edge."""
        traced = TracedEdge(edge, partial(self._leave, outgoing))
        self._edges[edge] = traced
        return traced

    def _leave(self, outgoing: OutgoingEdge, taken: list[tuple[int, SpanContext]]) -> None:
        if outgoing.target is not None:
            for edge, context in taken:
                self.contexts.put((edge,), context)
        elif outgoing.slot is not None and taken:
            self._send(outgoing.slot, contexts.serialize(taken))

    def receive(self, section: bytes) -> None:
        """Take a TRACES section from another worker. Raises CodecError."""
        for edge, context in contexts.parse(section):
            self.contexts.put((edge,), context)

    # -- tasks --

    def of_spout(self, spout: SpoutTask, parts: TaskParts) -> None:
        """Trace messages of a spout, whose collector is set."""
        site = Site(self, parts)
        spout.collector = calls.TracedSpoutCollector(spout.collector, site, spout.outputs)
        spout.on_completed = site.end_messages

    def of_component(self, parts: TaskParts, user: Any, mode: InvocationMode) -> None:
        """Trace executions of a bolt that takes tuples. Call it before its method is looked up."""
        wrap = _WRAPS.get(mode)
        if wrap is not None:
            name, make = wrap
            site = Site(self, parts, auto_ack=bool(user.auto_ack))
            # On the object itself: it hides the method of its class.
            object.__setattr__(user, name, make(site, getattr(user, name)))

    def collector(self, parts: TaskParts, inner: BoltCollector[Tuple]) -> BoltCollector[Tuple]:
        """What a bolt has to emit through in place of `inner`. Under the lock of its task."""
        return calls.TracedBoltCollector(inner, Site(self, parts), parts.outputs)

    def of_columns(self, bolt: ColumnBolt, parts: TaskParts, *, auto_ack: bool) -> None:
        """Trace executions of a bolt that is fed with columns."""
        calls.follow_columns(Site(self, parts, auto_ack=auto_ack), bolt)

    def of_child(self, parts: TaskParts) -> calls.ChildSpans:
        """Spans of a shell bolt."""
        return calls.ChildSpans(Site(self, parts))


_WRAPS: dict[InvocationMode, tuple[str, Callable[..., Any]]] = {
    InvocationMode.SYNC: ("execute", calls.of_single),
    InvocationMode.THREAD: ("execute", calls.of_single),
    InvocationMode.ASYNC: ("execute", calls.of_single_async),
    InvocationMode.BATCH: ("execute_batch", calls.of_batch),
    InvocationMode.THREAD_BATCH: ("execute_batch", calls.of_batch),
    InvocationMode.ASYNC_BATCH: ("execute_batch", calls.of_batch_async),
}
