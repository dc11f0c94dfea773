"""A reporter and the thread on which it runs. One that is slow or hangs loses reports, which are
counted in the log; nothing waits for it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

from squall_common.component.metrics.consumers import ConsumerContext
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError, describe
from squall_common.reporters.base import MetricsFilter, MetricsReporter, MetricValue
from squall_common.reporters.entries import Entry

log = get_logger(__name__)

_QUEUE_MAX = 2  # reports that wait for one reporter
_CLOSE_SECS = 1.0


class ReporterThread:
    """Begins with its making, and tells `on_error` what the reporter raises; `secs` is its period.
    Raises SquallError for a reporter that cannot be made."""

    def __init__(
        self, entry: Entry, context: ConsumerContext, on_error: Callable[[BaseException], None]
    ) -> None:
        self._entry = entry
        self._reporter, self._filter = entry.make(context)
        self._context = context
        self._on_error = on_error
        self.secs = entry.secs
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
            self._on_error(SquallError(f"{self._entry.key}: {path}: {text}"))
            return
        while (values := self._queue.get()) is not None:
            self._call(lambda values=values: reporter.report(self._chosen(values)))  # type: ignore[misc]
        self._call(reporter.close)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._on_error(error)

    def _chosen(self, values: list[MetricValue]) -> list[MetricValue]:
        chosen: MetricsFilter | None = self._filter
        if chosen is None:
            return values
        found = []
        seen: dict[str, bool] = {}
        for one in values:
            name = self._reporter.name(one)
            passes = self._passes.get(name)
            if passes is None:
                passes = bool(chosen.matches(name))
            seen[name] = passes
            if passes:
                found.append(one)
        # A daemon's names have topologies and workers in them, which come and go for years.
        self._passes = seen
        return found

    def stop(self) -> None:
        """End the thread after the reports that wait. Call it once."""
        self._queue.put_nowait(None)

    def join(self, secs: float) -> None:
        self._thread.join(secs)
        if self._thread.is_alive():  # it dies with the process
            log.warning("metrics_reporter_stuck", reporter=self._entry.class_path)


def join(threads: Sequence[ReporterThread]) -> None:
    """Wait a moment for threads that were stopped."""
    deadline = time.monotonic() + _CLOSE_SECS
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
