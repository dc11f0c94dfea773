"""Traces that begin before a topology, and go on behind it (OpenTelemetry, W3C `traceparent`).

    class Orders(Spout):
        def next_tuple(self):
            message = self.client.poll()
            with squall.tracing.incoming(message.headers):   # the trace of whoever sent it
                self.emit([message.value], message_id=message.id)

    class Notify(Bolt):
        def execute(self, tup):
            self.http.post(URL, tup["text"], headers=squall.tracing.outgoing())

Both do nothing without `topology.tracing.enabled`, and without the package opentelemetry-api. The
current span, for attributes and events of one's own, is OpenTelemetry's:
`opentelemetry.trace.get_current_span()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["incoming", "outgoing"]

_NAMES = ("traceparent", "tracestate", "baggage")


@contextmanager
def incoming(headers: Mapping[str, str | bytes]) -> Iterator[None]:
    """Within it, messages that a spout emits continue the trace that the headers name, if that
    trace is sampled. `headers` are those of a request or a record, whatever their case; headers
    without a valid `traceparent` begin no trace, so that the sample rate decides. Raises nothing
    for what is in them.

        with incoming({"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}):
            ...  # emit
    """
    try:
        from opentelemetry import context, propagate
    except ImportError:
        yield
        return
    carrier = {}
    for name, value in headers.items():
        if isinstance(name, str) and name.lower() in _NAMES:
            text = value.decode("latin-1") if isinstance(value, bytes) else value
            if isinstance(text, str):
                carrier[name.lower()] = text
    token = context.attach(propagate.extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def outgoing() -> dict[str, str]:
    """The headers that carry the current trace on: `traceparent`, and `tracestate` if there is
    one. Empty while nothing is traced.

        headers = {"content-type": "text/plain", **outgoing()}
    """
    try:
        from opentelemetry import propagate
    except ImportError:
        return {}
    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers
