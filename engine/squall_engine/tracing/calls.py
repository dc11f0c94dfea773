"""Collectors and calls of components that keep traces together.

A spout's collector decides which messages are traced, a bolt's passes the context of the execution
on to what it emits. `of_single` and its neighbours wrap the method that executes tuples: for a
traced one it runs in a span, which user code finds with `opentelemetry.trace.get_current_span()`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from squall_common.component.collector import (
    BoltCollector,
    DelegatingBoltCollector,
    DelegatingSpoutCollector,
    SpoutCollector,
)
from squall_engine.core import Batch, Tuple
from squall_engine.dataflow.traced_edge import edges_of
from squall_engine.tasks.bolt import ColumnBolt, Work

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext

    from squall_engine.core import Output
    from squall_engine.tracing.sites import Site

_IN_TREE: ContextVar[bool] = ContextVar("squall_in_traced_tree", default=False)
_LINKS_MAX = 64


class _Marking:
    """Marks what was just emitted as traced."""

    def __init__(self, site: Site, outputs: Iterable[Output]) -> None:
        self._site = site
        self._edges = {
            output.source.stream: site.shared.edges_by_task(output) for output in outputs
        }

    def _mark(self, stream: str, tasks: Sequence[int], context: SpanContext) -> None:
        edges = self._edges.get(stream, {})
        for edge in (edges[task] for task in tasks if task in edges):
            traced = self._site.shared.edge_of(edge)
            if traced is not None:
                traced.mark(len(edge) - 1, context)


class TracedSpoutCollector(_Marking, DelegatingSpoutCollector):
    """Begins a trace for some messages of a spout. A message that is emitted while a sampled span
    is current continues the trace of that span; while a span is current that is not sampled, it is
    not traced."""

    def __init__(self, inner: SpoutCollector, site: Site, outputs: Iterable[Output]) -> None:
        _Marking.__init__(self, site, outputs)
        DelegatingSpoutCollector.__init__(self, inner)
        self._rate = site.shared.rate
        self._draw = site.shared.rng.random

    def _begin(self, message_id: Hashable, stream: str) -> SpanContext | None:
        span = trace.get_current_span()
        if span is trace.INVALID_SPAN:
            if self._draw() >= self._rate:
                return None
        elif not span.get_span_context().trace_flags.sampled:
            return None
        return self._site.begin_message(message_id, stream)

    def emit(
        self, values: Sequence[Any], message_id: Hashable | None = None, stream: str = "default"
    ) -> Sequence[int]:
        context = None if message_id is None else self._begin(message_id, stream)
        tasks = self._inner.emit(values, message_id, stream)
        if context is not None:
            self._mark(stream, tasks, context)
        return tasks

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        message_id: Hashable | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        context = None if message_id is None else self._begin(message_id, stream)
        tasks = self._inner.emit_direct(task, values, message_id, stream)
        if context is not None:
            self._mark(stream, tasks, context)
        return tasks

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        message_ids: Sequence[Hashable] | None = None,
        stream: str = "default",
    ) -> None:
        if message_ids is None:
            self._inner.emit_columns(columns, None, stream)
            return
        rows = self._picked(message_ids)
        fits = {len(column) for column in columns} == {len(message_ids)}
        if not rows or not fits:
            self._inner.emit_columns(columns, message_ids, stream)
            return
        # A traced row is emitted by itself, between those before and after it.
        start = 0
        for row in [*rows, len(message_ids)]:
            if row > start:
                part = [column[start:row] for column in columns]
                self._inner.emit_columns(part, message_ids[start:row], stream)
            if row < len(message_ids):
                message_id = message_ids[row]
                context = self._site.begin_message(message_id, stream)
                values = [column[row] for column in columns]
                self._mark(stream, self._inner.emit(values, message_id, stream), context)
            start = row + 1

    def _picked(self, message_ids: Sequence[Hashable]) -> list[int]:
        """The rows to trace, among those that are messages."""
        rows = [row for row, message_id in enumerate(message_ids) if message_id is not None]
        span = trace.get_current_span()
        if span is trace.INVALID_SPAN:
            return [row for row in rows if self._draw() < self._rate]
        return rows if span.get_span_context().trace_flags.sampled else []


class TracedBoltCollector(_Marking, DelegatingBoltCollector[Tuple]):
    """Passes the context of the execution, or of the anchors, on to what a bolt emits."""

    def __init__(self, inner: BoltCollector[Tuple], site: Site, outputs: Iterable[Output]) -> None:
        _Marking.__init__(self, site, outputs)
        DelegatingBoltCollector.__init__(self, inner)
        self._contexts = site.shared.contexts

    def emit(
        self,
        values: Sequence[Any],
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        if not self._contexts:
            return self._inner.emit(values, anchors, stream)
        if anchors is not None and not isinstance(anchors, Tuple):
            anchors = tuple(anchors)
        context = self._parent(anchors)
        tasks = self._inner.emit(values, anchors, stream)
        if context is not None:
            self._mark(stream, tasks, context)
        return tasks

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Tuple | Iterable[Tuple] | None = None,
        stream: str = "default",
    ) -> Sequence[int]:
        if not self._contexts:
            return self._inner.emit_direct(task, values, anchors, stream)
        if anchors is not None and not isinstance(anchors, Tuple):
            anchors = tuple(anchors)
        context = self._parent(anchors)
        tasks = self._inner.emit_direct(task, values, anchors, stream)
        if context is not None:
            self._mark(stream, tasks, context)
        return tasks

    def _parent(self, anchors: Tuple | tuple[Tuple, ...] | None) -> SpanContext | None:
        """The span that an emitted tuple comes from. A span that user code has made inside the
        execution is nearer than that of the execution."""
        current = trace.get_current_span().get_span_context()
        if anchors is None:
            return current if _IN_TREE.get() else None
        for anchor in (anchors,) if isinstance(anchors, Tuple) else anchors:
            context = self._contexts.of(anchor) if isinstance(anchor, Tuple) else None
            if context is not None:
                return current if current.trace_id == context.trace_id else context
        return None


@contextmanager
def _execution(
    site: Site, parents: Sequence[SpanContext], tuples: Sequence[Tuple], count: int
) -> Iterator[Span]:
    """A span for the execution of `tuples`, whose contexts are `parents`, among `count` tuples."""
    source = tuples[0].source
    attributes = {
        **site.attributes,
        "squall.source.component": source.component,
        "squall.stream": source.stream,
    }
    if count > 1:
        attributes["squall.tuples"] = count
    first, *others = {parent.span_id: parent for parent in parents}.values()
    span = site.shared.tracer.start_span(
        site.component,
        trace.set_span_in_context(trace.NonRecordingSpan(first)),
        SpanKind.CONSUMER,
        attributes,
        links=[Link(other) for other in others[:_LINKS_MAX]],
    )
    edges = [edge for tup in tuples for edge in edges_of(tup)]
    contexts = site.shared.contexts
    contexts.put(edges, span.get_span_context())
    token = _IN_TREE.set(True)
    try:
        # Ends the span, and notes an error in it.
        with trace.use_span(span, end_on_exit=True):
            yield span
    finally:
        _IN_TREE.reset(token)
        if site.auto_ack:
            contexts.drop(edges)


def of_single(site: Site, execute: Callable[[Tuple], Any]) -> Callable[[Tuple], Any]:
    """`execute(tup)`, in a span if the tuple is traced."""
    contexts = site.shared.contexts

    def traced(tup: Tuple) -> Any:
        parent = contexts.of(tup) if contexts else None
        if parent is None:
            return execute(tup)
        with _execution(site, (parent,), (tup,), 1):
            return execute(tup)

    return traced


def of_single_async(site: Site, execute: Callable[[Tuple], Any]) -> Callable[[Tuple], Any]:
    """The same of a coroutine."""
    contexts = site.shared.contexts

    async def traced(tup: Tuple) -> Any:
        parent = contexts.of(tup) if contexts else None
        if parent is None:
            return await execute(tup)
        with _execution(site, (parent,), (tup,), 1):
            return await execute(tup)

    return traced


def of_batch(site: Site, execute: Callable[[list[Tuple]], Any]) -> Callable[[list[Tuple]], Any]:
    """`execute_batch(tuples)`, in one span if any of them is traced: it belongs to the trace of
    the first one, and links to the others."""

    def traced(tuples: list[Tuple]) -> Any:
        found = _traced(site, tuples)
        if not found:
            return execute(tuples)
        with _execution(site, list(found.values()), list(found), len(tuples)):
            return execute(tuples)

    return traced


def of_batch_async(
    site: Site, execute: Callable[[list[Tuple]], Any]
) -> Callable[[list[Tuple]], Any]:
    """The same of a coroutine."""

    async def traced(tuples: list[Tuple]) -> Any:
        found = _traced(site, tuples)
        if not found:
            return await execute(tuples)
        with _execution(site, list(found.values()), list(found), len(tuples)):
            return await execute(tuples)

    return traced


def _traced(site: Site, tuples: Iterable[Tuple]) -> Mapping[Tuple, SpanContext]:
    contexts = site.shared.contexts
    if not contexts:
        return {}
    found = ((tup, contexts.of(tup)) for tup in tuples)
    return {tup: context for tup, context in found if context is not None}


def follow_columns(site: Site, bolt: ColumnBolt) -> None:
    """Let `execute_columns` run in a span like `of_batch`. What it emits is traced if it is
    anchored to a traced row."""
    tables = [site.shared.edges_by_task(output) for output in bolt.outputs]

    def traced(work: Work, batches: list[Batch], count: int) -> int:
        tuples: list[Tuple] = []
        if site.shared.contexts:
            for batch in batches:
                tuples += batch.as_tuples()
        found = _traced(site, tuples[:count])
        if not found:
            return work(batches, count)
        before = [(edge, len(edge)) for edges in tables for edge in edges.values()]
        with _execution(site, list(found.values()), list(found), count) as span:
            done = work(batches, count)
        own = span.get_span_context()
        roots = {root: own for tup in found for root in (tup.anchors or (tup.root,))}
        for edge, length in before:
            place = site.shared.edge_of(edge)
            if place is not None:
                place.mark(length, roots)
        return done

    bolt.around = traced


class ChildSpans:
    """Spans of a shell bolt: from when its child is given a tuple until it acks or fails it."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._open: dict[int, Span] = {}

    def begin(self, tup: Tuple) -> None:
        """The child gets a tuple."""
        contexts = self._site.shared.contexts
        parent = contexts.of(tup) if contexts else None
        if parent is None:
            return
        source = tup.source
        span = self._site.shared.tracer.start_span(
            self._site.component,
            trace.set_span_in_context(trace.NonRecordingSpan(parent)),
            SpanKind.CONSUMER,
            {
                **self._site.attributes,
                "squall.source.component": source.component,
                "squall.stream": source.stream,
            },
        )
        contexts.put(edges_of(tup), span.get_span_context())
        self._open[edges_of(tup)[0]] = span

    def settled(self, tup: Tuple, failed: bool) -> None:
        """The child has acked or failed it."""
        edges = edges_of(tup)
        span = self._open.pop(edges[0], None) if edges else None
        if span is not None:
            if failed:
                span.set_status(Status(StatusCode.ERROR, "failed"))
            span.end()
            self._site.shared.contexts.drop(edges)
