"""Reporters that need no server: the console, and CSV files."""

from __future__ import annotations

import csv
import io
import logging
import logging.handlers
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from squall_common.component.metrics.consumers import ConsumerContext
from squall_common.reporters.base import MetricsReporter, MetricValue, text_option

_FILE_BYTES_MAX = 10 * 1024 * 1024
_OLD_FILES_MAX = 5


class ConsoleReporter(MetricsReporter):
    """Prints to the worker's standard output, which is its log.

        conf = {"topology.metrics.reporters": [{"class": "squall.metrics.ConsoleReporter"}]}

    A line names the task and the metric, and says its value.
    """

    def report(self, values: Sequence[MetricValue]) -> None:
        lines = [f"{self.name(one)} = {one.value:g}" for one in values]
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        print("\n".join([f"-- metrics {stamp} --", *lines]), flush=True)


class CsvReporter(MetricsReporter):
    """Appends to `TOPOLOGY_ID-PORT.csv` in `csv.log.dir` (a relative path, by default `csvmetrics`,
    is in the folder of the worker's logs): time in seconds since 1970, component, task, name,
    stream, kind, value. A file has at most 10 MiB; the five before it are kept.

        conf = {
            "topology.metrics.reporters": [
                {"class": "squall.metrics.CsvReporter", "csv.log.dir": "/var/log/metrics"}
            ]
        }
    """

    options = ("csv.log.dir",)

    def prepare(self, options: Mapping[str, Any], context: ConsumerContext) -> None:
        folder = Path(text_option(options, "csv.log.dir", "csvmetrics"))
        if context.log_dir is not None:
            folder = context.log_dir / folder
        folder.mkdir(parents=True, exist_ok=True)
        self._handler = _CsvHandler(
            folder / f"{context.topology_id}-{context.worker_port}.csv",
            maxBytes=_FILE_BYTES_MAX,
            backupCount=_OLD_FILES_MAX,
            encoding="utf-8",
        )

    def report(self, values: Sequence[MetricValue]) -> None:
        now = int(time.time())
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        for one in values:
            writer.writerow(
                [now, one.component, one.task, one.name, one.stream, one.kind, f"{one.value:.10g}"]
            )
        if values:
            self._handler.write(text.getvalue().removesuffix("\n"))

    def close(self) -> None:
        self._handler.close()


class _CsvHandler(logging.handlers.RotatingFileHandler):
    """The rotation of log files, for a file with a heading."""

    _HEADING = "time,component,task,name,stream,kind,value\n"

    def _open(self) -> io.TextIOWrapper:
        file = super()._open()
        if file.tell() == 0:
            file.write(self._HEADING)
        return file

    def write(self, text: str) -> None:
        self.emit(logging.LogRecord("csv", logging.INFO, "", 0, "%s", (text,), None))

    def handleError(self, record: logging.LogRecord) -> None:
        """Let the caller know, where a log would print it."""
        raise
