"""What the tasks of a worker need of its tracing, and one task as its spans name it."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import SpanKind, Status, StatusCode

from squall_engine.core import Edge, Output
from squall_engine.dataflow.traced_edge import TracedEdge
from squall_engine.tasks.base import TaskParts
from squall_engine.tracing.contexts import Contexts

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, TracerProvider

_MESSAGES_MAX = 10_000  # traced messages of one spout task that wait for their outcome
_ID_CHARS_MAX = 200


class Shared:
    """What all tasks of a worker share."""

    def __init__(self, provider: TracerProvider, rate: float, rng: random.Random) -> None:
        """The share `rate` of messages is traced."""
        self.tracer = provider.get_tracer("squall")
        self.rate = rate
        self.rng = rng
        self.contexts = Contexts()
        self._edges: dict[Edge, TracedEdge] = {}
        self._by_task: dict[Edge, dict[int, Edge]] = {}

    def edges_by_task(self, output: Output) -> Mapping[int, Edge]:
        """The edges of an output, by the task that they lead to. Tasks that share one edge share
        all, and have one table: with one for each, thousands of tasks that send to thousands would
        have millions of entries."""
        first = output.first_edge
        if first is None:
            return {}
        table = self._by_task.get(first)
        if table is None:
            table = self._by_task[first] = {edge.task: edge for edge in output.edges}
        return table

    def edge_of(self, edge: Edge) -> TracedEdge | None:
        """The traced edge in place of an edge; None before the tasks are wired."""
        return self._edges.get(edge)


class Site:
    """One task, as spans name it."""

    def __init__(self, shared: Shared, parts: TaskParts, *, auto_ack: bool = False) -> None:
        self.shared = shared
        self.component = parts.component
        self.auto_ack = auto_ack
        self.attributes: dict[str, Any] = {
            "squall.component": parts.component,
            "squall.task": parts.task,
        }
        self._messages: dict[Hashable, Span] = {}

    def begin_message(self, message_id: Hashable, stream: str) -> SpanContext:
        """A span from the emit of a message until its tree is acked or fails. Its parent is the
        current span, if there is one."""
        span = self.shared.tracer.start_span(
            self.component,
            kind=SpanKind.PRODUCER,
            attributes={
                **self.attributes,
                "squall.stream": stream,
                "squall.message_id": str(message_id)[:_ID_CHARS_MAX],
            },
        )
        key = _key_of(message_id)
        earlier = self._messages.pop(key, None)  # emitted again before its outcome was known
        if earlier is not None:
            earlier.end()
        self._messages[key] = span
        while len(self._messages) > _MESSAGES_MAX:
            self._messages.pop(next(iter(self._messages))).end()
        return span.get_span_context()

    def end_messages(self, message_ids: Iterable[Any], acked: bool) -> None:
        """The outcome of messages is known."""
        if not self._messages:
            return
        for message_id in message_ids:
            span = self._messages.pop(_key_of(message_id), None)
            if span is not None:
                if not acked:
                    span.set_status(Status(StatusCode.ERROR, "the message failed"))
                span.end()


def _key_of(message_id: Any) -> Hashable:
    """The id, or its text if it cannot be in a dict, such as a list."""
    try:
        hash(message_id)
    except TypeError:
        return repr(message_id)
    key: Hashable = message_id
    return key
