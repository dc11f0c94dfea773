"""Where a worker's heartbeats for Nimbus go.

They go into a file, which the supervisor passes on and removes. A file that is still there after
more than a period shows that the supervisor is away, or cannot deliver: then the worker reports
alone, to Nimbus itself, or to ZooKeeper while Nimbus is away as well (`ReportSender`). It stops
when its supervisor takes its file again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from squall_common.client.reporting import ReportSender
from squall_common.cluster.values import WorkerReport
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.worker_files.report_file import has_report, write_report

log = get_logger(__name__)

# How long the end of a worker waits for a report that is under way.
_END_SECS = 1.0


def patience_secs(period_secs: float) -> float:
    """How long a report may lie in its file. With the period before it and the attempt after it,
    a worker is silent for less than the default session timeout of ZooKeeper (20 s), after which
    Nimbus moves the work of a node whose supervisor is gone."""
    return 1.5 * period_secs + 1.0


class Alone(Protocol):
    """Sends reports without the supervisor. No method waits."""

    def send(self, report: WorkerReport) -> None:
        """Send a report, unless one is under way."""
        ...

    def rest(self) -> None:
        """Close what is open: the supervisor reports again."""
        ...

    def stop(self) -> None: ...


class OutgoingReports:
    """Used by the heartbeat thread only."""

    def __init__(self, folder: Path, *, period_secs: float, clock: Clock, alone: Alone) -> None:
        self._folder = folder
        self._patience_secs = patience_secs(period_secs)
        self._clock = clock
        self._alone = alone
        self._is_alone = False
        self._waiting_since: float | None = None  # for the file to be taken
        self._write_failed = False

    def report(self, report: WorkerReport) -> None:
        """Send a heartbeat on its way."""
        now = self._clock.monotonic()
        taken = not has_report(self._folder)
        if taken or self._waiting_since is None:
            self._waiting_since = now
        written = self._write(report)
        self._be_alone(not written or now - self._waiting_since >= self._patience_secs)
        if self._is_alone:
            self._alone.send(report)

    def _write(self, report: WorkerReport) -> bool:
        try:
            write_report(self._folder, report.time_secs, report.heartbeat)
        except OSError as error:  # the disk is full, for example
            if not self._write_failed:
                log.warning("report_not_written", folder=self._folder, error=error)
            self._write_failed = True
            return False
        self._write_failed = False
        return True

    def _be_alone(self, alone: bool) -> None:
        if alone and not self._is_alone:
            log.warning("supervisor_takes_no_reports", what_now="this worker reports itself")
        elif self._is_alone and not alone:
            log.info("supervisor_takes_reports_again")
            self._alone.rest()
        self._is_alone = alone


class AloneThread:
    """Sends on a thread with a loop of its own, which begins with the first report: the worker's
    loop may be stuck, and its heartbeat thread must not wait."""

    def __init__(self, make_sender: Callable[[], ReportSender]) -> None:
        self._make_sender = make_sender
        self._sender: ReportSender | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._busy = False

    def send(self, report: WorkerReport) -> None:
        if self._busy:
            return
        if self._loop is None:
            self._begin()
        assert self._loop is not None
        self._busy = True
        asyncio.run_coroutine_threadsafe(self._send(report), self._loop)

    def _begin(self) -> None:
        """Raises RuntimeError if this process may have no more threads; the next report tries
        again."""
        self._sender = self._make_sender()
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._run, args=(loop,), name="report alone", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            loop.close()
            raise
        self._loop, self._thread = loop, thread

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        loop.run_forever()
        loop.run_until_complete(self._end())
        loop.close()

    async def _end(self) -> None:
        assert self._sender is not None
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._sender.close()

    async def _send(self, report: WorkerReport) -> None:
        assert self._sender is not None
        try:
            await self._sender.send([report])
        except Exception as error:
            log.error("report_not_sent", error=error, exc_info=error)
        finally:
            self._busy = False

    def rest(self) -> None:
        if self._loop is not None and self._sender is not None:
            asyncio.run_coroutine_threadsafe(self._sender.close(), self._loop)

    def stop(self) -> None:
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECS)
        self._loop = None
