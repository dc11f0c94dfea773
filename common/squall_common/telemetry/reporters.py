"""Reporters of a daemon: what its page shows to Prometheus, sent somewhere at a period.

    reporters = DaemonReporters(metrics, options, "nimbus", host="n1", port=6627)
    reporters.start()
    ...
    await reporters.close()

They are those of topologies (`squall.metrics`). Storm's `storm.daemon.metrics.reporter.plugins`
names classes; `storm.daemon.metrics.reporters` has entries with options. A reporter that cannot be
made, or fails, is a line in the daemon's log, and the daemon goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from prometheus_client.core import Metric

from squall_common.component.metrics.consumers import ConsumerContext
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.reporters.base import MetricValue
from squall_common.reporters.entries import Entry
from squall_common.reporters.thread import ReporterThread, join
from squall_common.telemetry.page import DaemonMetrics

log = get_logger(__name__)

_PLUGINS = "storm.daemon.metrics.reporter.plugins"
_ENTRIES = "storm.daemon.metrics.reporters"
_PREFIX = "squall_"
_READ_SECS = 5.0  # some figures are asked for elsewhere, and must not hold up the daemon's end
_LEFT_OUT = ("_bucket", "_created")


class ReporterOptions(Protocol):
    """The options of a daemon that are about its reporters."""

    @property
    def storm_daemon_metrics_reporter_plugins(self) -> Sequence[str]: ...

    @property
    def storm_daemon_metrics_reporters(self) -> Sequence[Mapping[str, Any]]: ...

    @property
    def storm_daemon_metrics_reporter_interval_secs(self) -> float: ...

    @property
    def storm_daemon_metrics_reporter_csv_log_dir(self) -> str | None: ...


class DaemonReporters:
    """All reporters of a daemon, each on a thread of its own."""

    def __init__(
        self,
        metrics: DaemonMetrics,
        options: ReporterOptions,
        daemon: str,
        *,
        host: str,
        port: int,
        log_dir: str | None,
    ) -> None:
        """Make the reporters; one that cannot be made is logged, and the others run."""
        self._metrics = metrics
        self._daemon = daemon
        self._tasks: list[asyncio.Task[None]] = []
        self._threads: list[ReporterThread] = []
        folder = None if log_dir is None else Path(log_dir)
        context = ConsumerContext(daemon, host, port, folder, is_daemon=True)
        for key, entry in _entries(options):
            try:
                parsed = Entry.parse(entry, key=key, program=daemon)
                if parsed is not None:
                    self._threads.append(ReporterThread(parsed, context, self._failed))
            except SquallError as error:
                self._failed(error)

    def start(self) -> None:
        """Begin the first periods, on the running loop."""
        for thread in self._threads:
            self._tasks.append(asyncio.create_task(self._run(thread), name="metrics reporter"))

    async def close(self) -> None:
        """Report what there is, and end the reporters."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        values: list[MetricValue] = []
        if self._threads:
            try:
                async with asyncio.timeout(_READ_SECS):
                    values = await self._read()
            except TimeoutError:
                log.warning("metrics_not_read", secs=_READ_SECS)
        for thread in self._threads:
            if thread.runs:
                thread.offer(values)
            thread.stop()
        await asyncio.to_thread(join, self._threads)

    async def _run(self, thread: ReporterThread) -> None:
        while thread.runs:
            await asyncio.sleep(thread.secs)
            thread.offer(await self._read())

    async def _read(self) -> list[MetricValue]:
        try:
            return values_of(await self._metrics.collect(), self._daemon)
        except Exception as error:
            log.error("metrics_not_read", error=error, exc_info=error)
            return []

    def _failed(self, error: BaseException) -> None:
        known = isinstance(error, SquallError)
        log.error("metrics_reporter_failed", error=error, exc_info=None if known else error)


def _entries(options: ReporterOptions) -> Iterable[tuple[str, dict[str, Any]]]:
    secs = options.storm_daemon_metrics_reporter_interval_secs
    folder = options.storm_daemon_metrics_reporter_csv_log_dir
    for path in options.storm_daemon_metrics_reporter_plugins:
        csv = {"csv.log.dir": folder} if folder is not None and "Csv" in path else {}
        yield _PLUGINS, {"class": path, "report.period": secs, **csv}
    for entry in options.storm_daemon_metrics_reporters:
        yield _ENTRIES, {"report.period": secs, **entry}


def values_of(families: Iterable[Metric], daemon: str) -> list[MetricValue]:
    """The samples of families as values: labels are their stream; of histograms sum and count."""
    found = []
    for family in families:
        for sample in family.samples:
            if sample.name.endswith(_LEFT_OUT):
                continue
            grows = family.type == "counter" or sample.name.endswith(("_sum", "_count", "_total"))
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found.append(
                MetricValue(
                    daemon,
                    -1,
                    sample.name.removeprefix(_PREFIX),
                    float(sample.value),
                    "counter" if grows else "gauge",
                    labels,
                )
            )
    return found
