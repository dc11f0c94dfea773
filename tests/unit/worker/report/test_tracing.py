"""The end of tracing."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter

from squall_worker.report.tracing import close_provider


class Failing(SpanExporter):
    def shutdown(self) -> None:
        raise ConnectionError("gone")


async def test_an_exporter_that_fails_at_the_end_does_not_hold_up_the_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(Failing()))
    async with asyncio.timeout(10):
        await close_provider(provider)
    assert "spans_not_closed" in caplog.text
