"""What every daemon counts, and the page on which Prometheus reads it.

    metrics = DaemonMetrics("nimbus")
    server = ThriftServer(..., observe=metrics.observe_call)
    web = metrics.server(port=9627, host="127.0.0.1")
    await metrics.start(); await web.start()

The page is OpenMetrics text (`/metrics`). It is made at most once a second, off the loop, however
many ask for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from importlib.metadata import version
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from squall_common.cluster.store import ConnectionState, Store
from squall_common.daemon.loop.loop_lag import LoopLag
from squall_common.daemon.web import Route, WebAuthenticator, WebServer
from squall_common.telemetry.samples import LATENCY_BOUNDS
from squall_thrift.serving.authorization import Authorizer

_KEPT_SECS = 1.0


class DaemonMetrics:
    """The metrics of one daemon. Collectors run on a thread; `before` is awaited on the loop first,
    to read what they show."""

    def __init__(self, daemon: str) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        build = Gauge(
            "squall_build", "The version that runs.", ["daemon", "version"], registry=self.registry
        )
        build.labels(daemon, version("squall")).set(1)
        self._lag = LoopLag()
        lag = Gauge(
            "squall_loop_lag_seconds",
            "The worst delay of a timer of the event loop since the page before.",
            registry=self.registry,
        )
        lag.set_function(self._lag.worst)
        self._calls = Counter(
            "squall_thrift_requests",
            "Thrift calls answered, by how they ended: ok, the declared exception, or error.",
            ["method", "status"],
            registry=self.registry,
        )
        self._call_secs = Histogram(
            "squall_thrift_request_seconds",
            "Time to carry out a Thrift call.",
            ["method"],
            buckets=LATENCY_BOUNDS,
            registry=self.registry,
        )
        self._zookeeper_secs: Histogram | None = None
        self._before: list[Callable[[], Awaitable[None]]] = []
        self._made: tuple[float, bytes] = (float("-inf"), b"")
        self._lock = asyncio.Lock()

    def observe_call(self, method: str, status: str, secs: float) -> None:
        """For `ThriftServer`: a call was answered."""
        self._calls.labels(method, status).inc()
        self._call_secs.labels(method).observe(secs)

    def observe_requests(self) -> Callable[[str, int], None]:
        """For `WebServer(observe=...)`: count its answers. Once a daemon."""
        answers = Counter(
            "squall_http_requests",
            "HTTP requests answered, by route and status; other: no such address.",
            ["route", "status"],
            registry=self.registry,
        )
        return lambda route, status: answers.labels(route, str(status)).inc()

    def follow(self, store: Store) -> None:
        """Count the requests to ZooKeeper, and the changes of its session. Before it starts."""
        secs = Histogram(
            "squall_zookeeper_request_seconds",
            "Time until ZooKeeper answered a request, with the time without a connection.",
            ["operation"],
            buckets=LATENCY_BOUNDS,
            registry=self.registry,
        )
        changes = Counter(
            "squall_zookeeper_connection_changes",
            "Changes of the connection to ZooKeeper, by what it changed to.",
            ["state"],
            registry=self.registry,
        )
        store.observe = lambda operation, took: secs.labels(operation).observe(took)
        store.add_listener(lambda state: _count_change(changes, state))

    def add(
        self, collector: Collector, before: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Show what a collector finds; `before` reads it from elsewhere, and must not raise."""
        self.registry.register(collector)
        if before is not None:
            self._before.append(before)

    def start(self) -> None:
        """Begin to measure the loop that runs."""
        self._lag.start()

    def stop(self) -> None:
        """End that."""
        self._lag.stop()

    async def text(self) -> bytes:
        """The page, at most a second old."""
        async with self._lock:
            now = time.monotonic()
            if now - self._made[0] >= _KEPT_SECS:
                await self._look()
                text = await asyncio.to_thread(generate_latest, self.registry)
                self._made = (time.monotonic(), text)
            return self._made[1]

    async def collect(self) -> list[Metric]:
        """What the page shows, as families."""
        async with self._lock:
            await self._look()
            return await asyncio.to_thread(lambda: list(self.registry.collect()))

    async def _look(self) -> None:
        for before in self._before:
            await before()

    def route(self, permission: str = "metrics") -> Route:
        """`GET /metrics`, for those who have a permission."""

        async def show(_: web.Request) -> web.Response:
            return web.Response(
                body=await self.text(), headers={"Content-Type": CONTENT_TYPE_LATEST}
            )

        return Route("GET", "/metrics", show, permission=permission)

    def server(
        self,
        *,
        name: str,
        host: str,
        port: int,
        insecure: bool,
        hosts: Collection[str],
        authorizer: Authorizer | None = None,
        authenticator: WebAuthenticator | None = None,
    ) -> WebServer:
        """A listener with the page alone, not started; in a secured cluster with both of the last
        arguments: whoever reads it needs `readMetrics`."""
        return WebServer(
            [self.route("readMetrics")],
            name=name,
            host=host,
            port=port,
            body_bytes_max=1024,
            connections_max=64,
            insecure=insecure,
            hosts=hosts,
            authorizer=authorizer,
            authenticator=authenticator,
        )


class FunctionCollector(Collector):
    """A collector that is a function."""

    def __init__(self, collect: Callable[[], Iterable[Any]]) -> None:
        self._collect = collect

    def describe(self) -> Iterable[Any]:
        """Nothing: else the registry would collect once at the registration."""
        return []

    def collect(self) -> Iterable[Any]:
        return self._collect()


def _count_change(changes: Counter, state: ConnectionState) -> None:
    changes.labels(state.value).inc()
