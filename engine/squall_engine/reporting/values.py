"""The values of a worker's tasks that reporters get.

Counts are those since the worker began. Latencies and percentiles are those of the interval since
the report before, so each reporter reads for itself. Metrics of the older interface
(`register_metric`) are not among them: reading would reset them for the metrics consumers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from squall_common.component.metrics.instruments import Gauge, InstrumentReader
from squall_common.daemon.logs import get_logger
from squall_common.daemon.own_memory import memory_bytes
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK
from squall_common.reporters.base import MetricValue
from squall_engine.core.stats import Totals
from squall_engine.observe.readings import Gains, add_totals, key_name, waiting
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask

log = get_logger(__name__)

_COUNTS = {
    "emitted": "__emit-count",
    "transferred": "__transfer-count",
    "executed": "__execute-count",
    "acked": "__ack-count",
    "failed": "__fail-count",
}


class TaskValues:
    """Reads one task."""

    def __init__(self, built: Built, now: float) -> None:
        self._built = built
        self._gains = Gains(built.task)
        self._began = now
        self._readers: dict[str, InstrumentReader] = {}
        self._failing: set[str] = set()

    def read(self, now: float) -> Iterator[MetricValue]:
        """Under the lock of the task."""
        task = self._built.task
        component, number = task.component, task.task
        totals: Totals = {}
        add_totals(task, totals)
        for (measure, key), value in totals.items():
            if measure in _COUNTS:
                name = _COUNTS[measure]
                yield MetricValue(component, number, name, value, "counter", key_name(key))
        gained = self._gains.read()
        what = {"process": "__complete-latency"}
        if not isinstance(task, SpoutTask):
            what = {"process": "__process-latency", "execute": "__execute-latency"}
        for measure, name in what.items():
            for (found, key), events in gained.items():
                if found == f"{measure}_events" and events:
                    secs = gained.get((f"{measure}_secs", key), 0.0)
                    mean_ms = 1000.0 * secs / events
                    yield MetricValue(component, number, name, mean_ms, "gauge", key_name(key))
        if (held := waiting(task)) is not None:
            yield MetricValue(component, number, f"__{held[0]}", held[1])
        for name, instrument in list(self._built.context.instruments.items()):
            reader = self._readers.get(name)
            if reader is None:
                reader = self._readers[name] = InstrumentReader(name, instrument, self._began)
            try:
                found_values = reader.read(now)
            except Exception as error:  # of a gauge's function
                if name not in self._failing:
                    self._failing.add(name)
                    log.warning("metric_not_read", metric=name, error=error)
                continue
            if isinstance(instrument, Gauge):
                if isinstance(found_values.get(name), int | float):
                    yield MetricValue(component, number, name, found_values[name])
                continue
            if instrument.kind == "counter":  # it may go down, too
                yield MetricValue(component, number, name, instrument.count)
                continue
            counted = f"{name}.count"
            yield MetricValue(component, number, counted, instrument.count, "counter")
            for one, value in found_values.items():
                if one != counted:
                    yield MetricValue(component, number, one, value)


class WorkerValues:
    """Reads all tasks of a worker, on its loop."""

    def __init__(self, built: Sequence[Built], now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self._tasks = [(one.task, TaskValues(one, self._began)) for one in built]

    def read(self) -> list[MetricValue]:
        """All values now."""
        now = self._now()
        found = [
            MetricValue(SYSTEM_COMPONENT, SYSTEM_TASK, name, value, "gauge")
            for name, value in (
                ("memory-bytes", memory_bytes()[1]),
                ("uptime-secs", now - self._began),
            )
        ]
        cpu = time.process_time()
        found.append(MetricValue(SYSTEM_COMPONENT, SYSTEM_TASK, "cpu-seconds", cpu, "counter"))
        for task, values in self._tasks:
            with task.lock:
                found += values.read(now)
        return found
