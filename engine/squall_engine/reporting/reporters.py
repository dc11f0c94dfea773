"""Feeds the reporters of a topology: reads on the loop, reports on a thread for each reporter.

A reporter that is slow or hangs loses reports, which are counted in the log; nothing waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from squall_common.component.metrics.consumers import ConsumerContext
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import Clock
from squall_common.errors import SquallError
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK
from squall_common.reporters.entries import Entry
from squall_common.reporters.thread import ReporterThread, join
from squall_engine.reporting.values import WorkerValues
from squall_engine.tasks.built import Built

Report = Callable[[str, int, BaseException], None]
# Reading thousands of tasks takes the loop a while: at most this share of its time.
_READ_SHARE = 50


class _ReporterThread(ReporterThread):
    """One reporter, what it reports, and when it is due."""

    def __init__(
        self, entry: Entry, values: WorkerValues, context: ConsumerContext, report: Report
    ) -> None:
        super().__init__(entry, context, lambda error: report(SYSTEM_COMPONENT, SYSTEM_TASK, error))
        self.values = values
        self.at = 0.0


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
            await asyncio.to_thread(join, self._threads)
