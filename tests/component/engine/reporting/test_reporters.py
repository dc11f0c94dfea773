"""Reporters of metrics in a real worker process, each against a real receiver."""

from __future__ import annotations

import csv
import io
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.local_workers import code_of, wait_until

from squall import TopologyBuilder
from squall._workers import LocalWorkers

CODE = """
    from squall import Bolt, Spout
    from squall.metrics import MetricsFilter, MetricsReporter

    class Numbers(Spout):
        outputs = ["n"]

        def open(self, conf, context):
            self.n = 0

        def next_tuple(self):
            if self.n < 50:
                self.n += 1
                self.emit([self.n], message_id=self.n)

    class Sink(Bolt):
        def prepare(self, conf, context):
            self.seen = context.counter("seen here")
            self.size = context.histogram("size")
            self.rate = context.meter("rate")
            context.gauge("broken", lambda: 1 / 0)

        def execute(self, tup):
            self.seen.inc()
            self.size.update(tup["n"])
            self.rate.mark()

    class ToFile(MetricsReporter):
        options = ("file",)

        def prepare(self, options, context):
            self.file = options["file"]

        def report(self, values):
            with open(self.file, "a") as file:
                file.writelines(f"{self.name(one)}\\n" for one in values)

        def close(self):
            with open(self.file, "a") as file:
                file.write("closed\\n")

    class OfSinks(MetricsFilter):
        def prepare(self, options):
            self.word = options["word"]

        def matches(self, name):
            return self.word in name
"""


class Graphite:
    """A server for lines over TCP."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile() as lines:
                self.lines += [line.rstrip("\n") for line in lines]

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


class Statsd:
    """A receiver of packets."""

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.port = self._socket.getsockname()[1]
        self._closed = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while not self._closed:
            try:
                self.packets.append(self._socket.recv(65_536))
            except TimeoutError:
                continue

    def lines(self) -> list[str]:
        return [line for packet in list(self.packets) for line in packet.decode().splitlines()]

    def close(self) -> None:
        self._closed = True
        self._thread.join()
        self._socket.close()


class Pushgateway:
    """Takes what is pushed, and keeps the newest of each group."""

    def __init__(self) -> None:
        self.pushed: dict[str, str] = {}
        self.deleted: list[str] = []
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                gateway.pushed[self.path] = data.decode()
                self._answer()

            def do_DELETE(self) -> None:
                gateway.deleted.append(self.path)
                self._answer()

            def _answer(self) -> None:
                self.send_response(202)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def servers() -> Iterator[tuple[Graphite, Statsd, Pushgateway]]:
    found = (Graphite(), Statsd(), Pushgateway())
    yield found
    for server in found:
        server.close()


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from code_of(tmp_path, monkeypatch, "reported_numbers", CODE)


def topology() -> Any:
    import reported_numbers  # type: ignore[import-not-found]

    builder = TopologyBuilder()
    builder.spout("numbers", reported_numbers.Numbers())
    builder.bolt("sink", reported_numbers.Sink()).shuffle("numbers")
    return builder.build()


def test_every_reporter_reaches_its_receiver_with_exact_counts(
    tmp_path: Path,
    code: Path,
    servers: tuple[Graphite, Statsd, Pushgateway],
    capfd: pytest.CaptureFixture[str],
) -> None:
    graphite, statsd, gateway = servers
    own, folder = tmp_path / "own", tmp_path / "csv"
    every = {"report.period": 1}
    conf = {
        "topology.metrics.reporters": [
            {
                "class": "org.apache.storm.metrics2.reporters.GraphiteStormReporter",
                "report.period": 1500,
                "report.period.units": "MILLISECONDS",
                "graphite.host": "127.0.0.1",
                "graphite.port": graphite.port,
                "graphite.prefixed.with": "site",
            },
            {
                "class": "squall.metrics.StatsdReporter",
                "statsd.host": "127.0.0.1",
                "statsd.port": statsd.port,
                **every,
            },
            {
                "class": "squall.metrics.PrometheusReporter",
                "prometheus.endpoint": f"127.0.0.1:{gateway.port}",
                **every,
            },
            {"class": "squall.metrics.CsvReporter", "csv.log.dir": str(folder), **every},
            {
                "class": "org.apache.storm.metrics2.reporters.ConsoleStormReporter",
                "filter": {
                    "class": "org.apache.storm.metrics2.filters.RegexFilter",
                    "expression": r".*\.sink\..*-seen here",
                },
                **every,
            },
            {
                "class": "reported_numbers.ToFile",
                "file": str(own),
                "filter": {"class": "reported_numbers.OfSinks", "word": ".sink."},
                **every,
            },
        ]
    }
    cluster = LocalWorkers(1, code_dir=code)
    try:
        cluster.submit_topology("reported", conf, topology())
        wait_until(
            cluster,
            "Graphite",
            lambda: any(
                ".sink." in x and "-seen here 50 " in x.replace("_", " ") for x in graphite.lines
            ),
        )
        wait_until(cluster, "StatsD", lambda: any(":50|g" in x for x in statsd.lines()))
        wait_until(cluster, "Pushgateway", lambda: "squall_emit_count_total" in str(gateway.pushed))
        wait_until(cluster, "own", lambda: own.exists())
        files: list[Path] = []

        def written() -> bool:
            files[:] = folder.glob("*.csv")
            return bool(files) and "seen here,,gauge,50" in files[0].read_text()

        wait_until(cluster, "CSV", written)
        assert not cluster.errors("reported")
    finally:
        cluster.shutdown()

    line = next(x for x in graphite.lines if "-seen_here 50 " in x)
    name, value, stamp = line.split()
    assert name.startswith("site.storm.topology.reported-1-")
    assert ".sink." in name
    assert value == "50"
    assert abs(int(stamp) - time.time()) < 120

    gained = [x for x in statsd.lines() if "__execute-count" in x]
    assert sum(int(x.rpartition(":")[2].partition("|")[0]) for x in gained) == 50
    assert all(x.endswith("|c") for x in gained)
    assert max(map(len, statsd.packets)) <= 1400

    ((group, text),) = gateway.pushed.items()
    assert group.startswith("/metrics/job/storm/")
    assert "/topology/reported" in group
    families = {family.name: family for family in text_string_to_metric_families(text)}
    emitted = families["squall_emit_count"]
    assert emitted.type == "counter"
    assert {(s.labels["component"], s.labels["stream"], s.value) for s in emitted.samples} == {
        ("numbers", "default", 50.0)
    }
    assert families["squall_seen_here"].samples[0].value == 50
    assert families["squall_size_count"].samples[0].value == 50
    assert gateway.deleted == [group]

    rows = list(csv.DictReader(io.StringIO(files[0].read_text())))
    assert {row["component"] for row in rows} == {"numbers", "sink", "__system"}
    assert {row["name"] for row in rows if row["component"] == "__system"} == {
        "cpu-seconds", "memory-bytes", "uptime-secs",
    }  # fmt: skip

    lines = own.read_text().splitlines()
    assert lines[-1] == "closed"
    assert all(".sink." in line for line in lines[:-1])
    shown = capfd.readouterr()
    console = [x for x in (shown.out + shown.err).splitlines() if "seen here = 50" in x]
    assert console


def test_wrong_entries_are_reported_and_the_others_report(tmp_path: Path, code: Path) -> None:
    own = tmp_path / "own"
    conf = {
        "topology.metrics.reporters": [
            {"class": "org.apache.storm.metrics2.reporters.JmxStormReporter"},
            {"class": "squall.metrics.GraphiteReporter", "graphite.hots": "x"},
            {"class": "squall.metrics.GraphiteReporter"},
            {"class": "squall.metrics.ConsoleReporter", "report.period.units": "FORTNIGHTS"},
            # Nothing listens there.
            {
                "class": "squall.metrics.GraphiteReporter",
                "graphite.host": "127.0.0.1",
                "graphite.port": 1,
                "report.period": 1,
            },
            {"class": "reported_numbers.ToFile", "file": str(own), "report.period": 1},
        ]
    }
    cluster = LocalWorkers(1, code_dir=code)
    try:
        cluster.submit_topology("reported", conf, topology())
        wait_until(cluster, "own", own.exists)
        wait_until(cluster, "five errors", lambda: len(cluster.errors("reported")) >= 5)
        text = "\n".join(error.text for error in cluster.errors("reported"))
    finally:
        cluster.shutdown()
    assert "JMX needs a JVM" in text
    assert "unknown option 'graphite.hots'" in text
    assert "graphite.host: expected text" in text
    assert "'FORTNIGHTS'" in text
    assert "Connection refused" in text
