"""Where the spans of a topology's tuple trees go (`topology.tracing.enabled`).

The worker owns its process, so the provider is also OpenTelemetry's global one: spans that user
code or an instrumented library makes inside `execute` belong to the same trace. Spans are exported
in batches by a thread; those that do not fit its queue are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError, describe
from squall_common.names import topology_name_of
from squall_common.topology.import_paths import import_path

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

log = get_logger(__name__)

_EXPORT_TIMEOUT_MS = 5_000


class TracingError(SquallError):
    """Tracing cannot begin; the topology runs without it."""


def make_provider(options: TopologyOptions, topology_id: str, worker: str) -> TracerProvider | None:
    """The provider for a worker; None if tracing is off. `worker` is its host:port. Raises
    TracingError without the packages for it, for an exporter that cannot be made, and for settings
    of OpenTelemetry that contradict each other."""
    if not options.topology_tracing_enabled:
        return None
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ALWAYS_ON

        processor = BatchSpanProcessor(_exporter(options), export_timeout_millis=_EXPORT_TIMEOUT_MS)
    except ImportError as error:
        raise TracingError(
            f"topology.tracing.enabled: {error}",
            hint="Install squall[tracing] on the nodes of the supervisors, or name it among the "
            "topology's dependencies.",
        ) from error
    except ValueError as error:  # one variable contradicts another
        raise TracingError(
            f"topology.tracing.enabled: {error}",
            hint="OpenTelemetry's own settings are environment variables: check OTEL_... in "
            "topology.environment.",
        ) from error
    resource = Resource.create(
        {
            "service.name": topology_name_of(topology_id),
            "service.instance.id": worker,
            "squall.topology_id": topology_id,
        }
    )
    # Sampling is decided where a tree begins.
    provider = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    return provider


def _exporter(options: TopologyOptions) -> Any:
    name = options.topology_tracing_exporter
    if name == "otlp":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter(
            endpoint=options.topology_tracing_otlp_endpoint, timeout=_EXPORT_TIMEOUT_MS // 1000
        )
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    try:
        return import_path(name)()
    except Exception as error:
        raise TracingError(
            f"topology.tracing.exporter: {name!r} cannot be made: {describe(error)}",
            hint="Use otlp, console, or the class path (module:Class) of a SpanExporter.",
        ) from error


async def close_provider(provider: TracerProvider) -> None:
    """Export the spans that are left. On a thread that dies with the process, because a collector
    that does not answer may hold it longer than the worker has: cancel it then."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def close() -> None:
        try:
            provider.shutdown()
        except Exception as error:  # of the user's exporter
            log.error("spans_not_closed", error=error, exc_info=error)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=close, name="spans", daemon=True).start()
    await done.wait()
