"""Spans of two real worker processes, sent to a receiver by OpenTelemetry's own exporter."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.support.local_workers import code_of, wait_until

from squall import TopologyBuilder
from squall._workers import LocalWorkers
from squall_common.config.options.typed import TopologyOptions
from squall_worker.report.tracing import TracingError, make_provider

CODE = """
    from squall import Bolt, Spout

    class Numbers(Spout):
        outputs = ["n"]

        def open(self, conf, context):
            self.n = 0

        def next_tuple(self):
            if self.n < 40:
                self.n += 1
                self.emit([self.n], message_id=self.n)

    class Pass(Bolt):
        outputs = ["n"]

        def execute(self, tup):
            self.emit([tup["n"]])

    class Sink(Bolt):
        def execute(self, tup):
            pass
"""


class Receiver:
    """A collector of traces on loopback."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []  # (service.instance.id, span)
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                request = ExportTraceServiceRequest.FromString(data)
                for resource in request.resource_spans:
                    of = {one.key: one.value.string_value for one in resource.resource.attributes}
                    assert of["service.name"] == "traced"
                    for scope in resource.scope_spans:
                        receiver.spans += [(of["service.instance.id"], s) for s in scope.spans]
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from code_of(tmp_path, monkeypatch, "traced_numbers", CODE)


def topology() -> Any:
    import traced_numbers  # type: ignore[import-not-found]

    builder = TopologyBuilder()
    builder.spout("numbers", traced_numbers.Numbers())
    builder.bolt("pass", traced_numbers.Pass(), parallelism=2).shuffle("numbers")
    builder.bolt("sink", traced_numbers.Sink(), parallelism=2).shuffle("pass")
    return builder.build()


def test_spans_of_two_workers_arrive_and_their_parents_are_right(
    code: Path, receiver: Receiver
) -> None:
    conf = {
        "topology.tracing.enabled": True,
        "topology.tracing.sample.rate": 1.0,
        "topology.tracing.otlp.endpoint": receiver.url,
        "topology.environment": {"OTEL_BSP_SCHEDULE_DELAY": "200"},
    }
    cluster = LocalWorkers(2, code_dir=code)
    try:
        cluster.submit_topology("traced", conf, topology())
        wait_until(cluster, "spans", lambda: len(receiver.spans) >= 120)
        assert not cluster.errors("traced")
    finally:
        cluster.shutdown()
    spans = {span.span_id: (worker, span) for worker, span in receiver.spans}
    assert len(spans) == 120
    over = {"numbers": None, "pass": "numbers", "sink": "pass"}
    crossed = 0
    for worker, span in spans.values():
        expected = over[span.name]
        if expected is None:
            assert not span.parent_span_id
            continue
        parent_worker, parent = spans[span.parent_span_id]
        assert parent.name == expected
        assert parent.trace_id == span.trace_id
        crossed += parent_worker != worker
    assert crossed > 10
    assert len({span.trace_id for _, span in spans.values()}) == 40


@pytest.mark.parametrize(
    ("exporter", "says"), [("nowhere:Exporter", "nowhere"), ("traced_numbers:Nothing", "Nothing")]
)
def test_an_exporter_that_cannot_be_made_is_reported_and_the_topology_runs(
    code: Path, exporter: str, says: str
) -> None:
    conf = {"topology.tracing.enabled": True, "topology.tracing.exporter": exporter}
    cluster = LocalWorkers(1, code_dir=code)
    try:
        cluster.submit_topology("traced", conf, topology())
        wait_until(cluster, "an error", lambda: bool(cluster.errors("traced")))
        assert says in cluster.errors("traced")[0].text
        wait_until(
            cluster,
            "counts",
            lambda: cluster.counts("traced")[0].get("sink", {}).get("executed", 0) >= 40,
        )
    finally:
        cluster.shutdown()


def test_a_collector_that_is_away_delays_neither_tuples_nor_the_end(code: Path) -> None:
    conf = {
        "topology.tracing.enabled": True,
        "topology.tracing.sample.rate": 1.0,
        "topology.tracing.otlp.endpoint": "http://127.0.0.1:1/v1/traces",
    }
    cluster = LocalWorkers(1, code_dir=code)
    try:
        cluster.submit_topology("traced", conf, topology())
        wait_until(
            cluster,
            "counts",
            lambda: cluster.counts("traced")[0].get("sink", {}).get("executed", 0) >= 40,
        )
        began = time.monotonic()
    finally:
        cluster.shutdown()
    assert time.monotonic() - began < 9  # an export has 10 s


def test_settings_of_opentelemetry_that_contradict_each_other_are_an_error_of_tracing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5000")
    options = TopologyOptions.read({"topology.tracing.enabled": True})
    with pytest.raises(TracingError, match="max_export_batch_size") as caught:
        make_provider(options, "traced-1-1", "host:6700")
    assert "topology.environment" in str(caught.value.hint)
