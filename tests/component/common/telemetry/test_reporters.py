"""Reporters of daemons: what the page shows, sent on."""

from __future__ import annotations

import asyncio
import csv
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Counter, Gauge, Histogram

from squall_common.config.options.typed import NimbusOptions
from squall_common.telemetry.page import DaemonMetrics
from squall_common.telemetry.reporters import DaemonReporters, values_of


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def reporters_of(conf: dict[str, Any], folder: Path | None = None) -> DaemonReporters:
    metrics = DaemonMetrics("nimbus")
    blobs = Gauge("squall_blob_bytes", "x", registry=metrics.registry)
    blobs.set(17)
    metrics.observe_call("getClusterInfo", "ok", 0.002)
    reporters = DaemonReporters(
        metrics,
        NimbusOptions.read({"storm.daemon.metrics.reporter.interval.secs": 1, **conf}),
        "nimbus",
        host="node1.example",
        port=6627,
        log_dir=None if folder is None else str(folder),
    )
    reporters.start()
    return reporters


async def test_storms_csv_plugin_writes_what_the_page_shows(tmp_path: Path) -> None:
    reporters = reporters_of(
        {
            "storm.daemon.metrics.reporter.plugins": [
                "org.apache.storm.daemon.metrics.reporters.CsvPreparableReporter"
            ]
        },
        tmp_path,
    )
    file = tmp_path / "csvmetrics" / "nimbus-6627.csv"
    await wait_until(lambda: file.exists() and "blob_bytes" in file.read_text())
    await reporters.close()
    with file.open() as opened:
        rows = {(row["name"], row["stream"]): row for row in csv.DictReader(opened)}
    assert rows["blob_bytes", ""]["value"] == "17"
    calls = rows["thrift_requests_total", "method=getClusterInfo,status=ok"]
    assert (calls["value"], calls["kind"], calls["component"]) == ("1", "counter", "nimbus")
    assert ("thrift_request_seconds_sum", "method=getClusterInfo") in rows


async def test_an_entry_with_options_is_sent_and_others_are_only_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that does not exist, one that another daemon runs, one with an unknown option."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(30)
        statsd = {"statsd.host": "127.0.0.1", "statsd.port": server.getsockname()[1]}
        reporters = reporters_of(
            {
                "storm.daemon.metrics.reporters": [
                    {"class": "squall.metrics.StatsdReporter", **statsd},
                    {"class": "squall.metrics.Nothing"},
                    {"class": "no.Such", "daemons": ["drpc"]},
                    {"class": "squall.metrics.ConsoleReporter", "color": True},
                ]
            }
        )
        packet = await asyncio.to_thread(server.recv, 65_536)
        while b"blob_bytes" not in packet:
            packet = await asyncio.to_thread(server.recv, 65_536)
        await reporters.close()
    assert b"storm.daemon.nimbus.node1_example.6627-blob_bytes:17|g" in packet
    assert "squall.metrics.Nothing cannot be created" in caplog.text
    assert "unknown option 'color'" in caplog.text
    assert "no.Such" not in caplog.text


def test_of_histograms_sum_and_count_are_values() -> None:
    metrics = DaemonMetrics("drpc")
    Counter("squall_things", "x", ["of"], registry=metrics.registry).labels("a").inc(3)
    Histogram("squall_secs", "x", registry=metrics.registry).observe(0.5)
    found = {
        (one.name, one.stream): (one.value, one.kind)
        for one in values_of(metrics.registry.collect(), "drpc")
    }
    assert found["things_total", "of=a"] == (3, "counter")
    assert found["secs_sum", ""] == (0.5, "counter")
    assert found["secs_count", ""] == (1, "counter")
    assert not any(name.endswith(("_bucket", "_created")) for name, _ in found)


async def test_figures_that_cannot_be_read_do_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are asked of ZooKeeper, which may be away when the daemon ends."""
    monkeypatch.setattr("squall_common.telemetry.reporters._READ_SECS", 0.1)
    plugin = "org.apache.storm.daemon.metrics.reporters.CsvPreparableReporter"
    reporters = reporters_of({"storm.daemon.metrics.reporter.plugins": [plugin]}, tmp_path)
    monkeypatch.setattr(DaemonMetrics, "collect", lambda _: asyncio.Event().wait())
    async with asyncio.timeout(20):
        await reporters.close()
