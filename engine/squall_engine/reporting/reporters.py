"""Feeds the reporters of a topology: reads on the loop, reports on a thread for each reporter.

A reporter that is slow or hangs loses reports, which are counted in the log; nothing waits for it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence

from squall_common.component.metrics import ConsumerContext
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError, describe
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK
from squall_common.reporters.base import MetricsFilter, MetricsReporter, MetricValue
from squall_engine.reporting.entries import Entry
from squall_engine.reporting.values import WorkerValues
from squall_engine.tasks.built import Built

log = get_logger(__name__)

Report = Callable[[str, int, BaseException], None]
_QUEUE_MAX = 2  # reports that wait for one reporter
_CLOSE_SECS = 1.0
# Reading thousands of tasks takes the loop a while: at most this share of its time.
_READ_SHARE = 50


class _ReporterThread:
    """One reporter, its thread, and when it is due."""

    def __init__(
        self, entry: Entry, values: WorkerValues, context: ConsumerContext, report: Report
    ) -> None:
        self._entry = entry
        self._reporter, self._filter = entry.make(context)
        self._context = context
        self._report = report
        self.values = values
        self.secs = entry.secs
        self.at = 0.0
        self.dropped = 0
        self._passes: dict[str, bool] = {}
        self.runs = True  # not after `prepare` has failed
        # Room for one more: the end.
        self._queue: queue.Queue[list[MetricValue] | None] = queue.Queue(_QUEUE_MAX + 1)
        name = f"reporter:{entry.class_path.rpartition('.')[2]}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def offer(self, values: list[MetricValue]) -> None:
        """Hand over a report; drop it when the reporter is behind."""
        if self._queue.qsize() < _QUEUE_MAX:
            self._queue.put_nowait(values)
            return
        self.dropped += 1
        log.warning("metrics_report_dropped", reporter=self._entry.class_path, dropped=self.dropped)

    def _run(self) -> None:
        reporter: MetricsReporter = self._reporter
        try:
            reporter.prepare(self._entry.options, self._context)
        except Exception as error:
            self.runs = False
            path = self._entry.class_path
            text = str(error) if isinstance(error, SquallError) else describe(error)
            why = SquallError(f"topology.metrics.reporters: {path}: {text}")
            self._report(SYSTEM_COMPONENT, SYSTEM_TASK, why)
            return
        while (values := self._queue.get()) is not None:
            self._call(lambda values=values: reporter.report(self._chosen(values)))  # type: ignore[misc]
        self._call(reporter.close)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._report(SYSTEM_COMPONENT, SYSTEM_TASK, error)

    def _chosen(self, values: list[MetricValue]) -> list[MetricValue]:
        chosen: MetricsFilter | None = self._filter
        if chosen is None:
            return values
        found = []
        for one in values:
            name = self._reporter.name(one)
            passes = self._passes.get(name)
            if passes is None:
                passes = self._passes[name] = bool(chosen.matches(name))
            if passes:
                found.append(one)
        return found

    def stop(self) -> None:
        """End the thread after the reports that wait. Call it once."""
        self._queue.put_nowait(None)

    def join(self, secs: float) -> None:
        self._thread.join(secs)
        if self._thread.is_alive():  # it dies with the process
            log.warning("metrics_reporter_stuck", reporter=self._entry.class_path)


class Reporters:
    """All reporters of a worker. `start` once the components are prepared."""

    def __init__(
        self,
        built: Sequence[Built],
        options: TopologyOptions,
        context: ConsumerContext,
        *,
        clock: Clock,
        report: Report,
    ) -> None:
        """Create the reporters. One that cannot be created is reported, and the others run."""
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._threads: list[_ReporterThread] = []
        for one in options.topology_metrics_reporters:
            try:
                entry = Entry.parse(one)
                if entry is not None:
                    values = WorkerValues(built, clock.monotonic)
                    self._threads.append(_ReporterThread(entry, values, context, report))
            except SquallError as error:
                report(SYSTEM_COMPONENT, SYSTEM_TASK, error)

    def start(self) -> None:
        """Begin the first period."""
        now = self._clock.monotonic()
        for thread in self._threads:
            thread.at = now + thread.secs
        self._wait()

    def _wait(self) -> None:
        self._threads = [thread for thread in self._threads if thread.runs]
        if self._threads:
            due = min(thread.at for thread in self._threads)
            secs = max(0.01, due - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(secs, self._on_timer)

    def _on_timer(self) -> None:
        try:
            for thread in self._threads:
                start = self._clock.monotonic()
                if thread.at <= start:
                    thread.offer(thread.values.read())
                    end = self._clock.monotonic()
                    thread.at = max(thread.at + thread.secs, end + _READ_SHARE * (end - start))
        finally:
            self._wait()

    async def close(self) -> None:
        """Report what there is, and end the reporters."""
        if self._timer is not None:
            self._timer.cancel()
        for thread in self._threads:
            thread.offer(thread.values.read())
            thread.stop()
        if self._threads:
            await asyncio.to_thread(self._join)

    def _join(self) -> None:
        deadline = time.monotonic() + _CLOSE_SECS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
