"""Consumers of metrics.

Every worker passes the metrics of its tasks, both the built-in ones and those that components
register, to each class that `topology.metrics.consumer.register` names:

    topology.metrics.consumer.register:
      - class: squall.metrics.LoggingMetricsConsumer
      - class: mypackage.ToGraphite
        argument: {host: graphite.example, port: 2003}
        whitelist: ["__.*-count"]

The names are those of Storm's metrics API (`org.apache.storm.metric.api`), spelled as Python's.
"""

from __future__ import annotations

import logging
import logging.handlers
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.daemon.logs import get_logger

log = get_logger(__name__)

_FILE_BYTES_MAX = 10 * 1024 * 1024
_OLD_FILES_MAX = 5


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """The task that data points come from, and when they were read."""

    src_worker_host: str
    src_worker_port: int
    src_component_id: str
    src_task_id: int
    timestamp: int  # seconds since the epoch
    update_interval_secs: float


@dataclass(frozen=True, slots=True)
class DataPoint:
    """The value of one metric for one interval."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class ConsumerContext:
    """The topology and worker that a consumer runs in. `log_dir` is None in local mode. For a
    reporter of a daemon (`is_daemon`) the daemon is in the place of both: its name, host and port.
    """

    topology_id: str
    worker_host: str
    worker_port: int
    log_dir: Path | None
    is_daemon: bool = False


class MetricsConsumer:
    """Base class of consumers, which receive the metrics of one worker's tasks.

    Each worker makes one instance per registration. All calls to it come from a separate thread, so
    it may block. If it is too slow, data points are dropped and counted.

        class Print(MetricsConsumer):
            def handle_data_points(self, task_info, data_points):
                for point in data_points:
                    print(task_info.src_component_id, point.name, point.value)
    """

    def prepare(self, conf: Mapping[str, Any], argument: Any, context: ConsumerContext) -> None:
        """Called once, first. `argument` is the `argument` of the registration."""

    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        """Called for each task at the end of each interval. An exception is reported as an error of
        the topology's `__system` component and does not stop further calls."""
        raise NotImplementedError(f"{type(self).__name__} does not define handle_data_points()")

    def cleanup(self) -> None:
        """Called at a graceful stop of the worker."""


class LoggingMetricsConsumer(MetricsConsumer):
    """Writes every data point to `worker.log.metrics` beside the worker's log, one per line
    (`2026-11-21T09:12:00 host:6700 12:split __emit-count {"default": 20}`).

        conf["topology.metrics.consumer.register"] = [
            {"class": "squall.metrics.LoggingMetricsConsumer"}
        ]
    """

    def prepare(self, conf: Mapping[str, Any], argument: Any, context: ConsumerContext) -> None:
        self._handler: logging.Handler | None = None
        if context.log_dir is not None:
            self._handler = logging.handlers.RotatingFileHandler(
                context.log_dir / "worker.log.metrics",
                maxBytes=_FILE_BYTES_MAX,
                backupCount=_OLD_FILES_MAX,
                encoding="utf-8",
            )

    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(task_info.timestamp))
        where = f"{task_info.src_worker_host}:{task_info.src_worker_port}"
        for point in data_points:
            line = (
                f"{stamp} {where} {task_info.src_task_id}:{task_info.src_component_id} "
                f"{point.name} {_shown(point.value)}"
            )
            if self._handler is None:
                log.info("metric", line=line)
            else:
                record = logging.LogRecord("metrics", logging.INFO, "", 0, "%s", (line,), None)
                self._handler.emit(record)

    def cleanup(self) -> None:
        if self._handler is not None:
            self._handler.close()


def _shown(value: Any) -> str:
    text = str(value)
    if not text.isprintable():  # nothing from a topology can forge a line
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text
