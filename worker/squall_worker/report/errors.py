"""Errors of components on their way to ZooKeeper: a few, not thousands a second."""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Awaitable, Callable

from squall_common.cluster.values import ErrorInfo
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.output.redaction import redact_text
from squall_common.errors import SquallError, describe_fully
from squall_common.names import SYSTEM_TASK
from squall_common.topology.error_text import with_source
from squall_common.topology.error_throttle import ErrorThrottle

log = get_logger(__name__)

# Length of one error's text: a znode is not a log file.
_TEXT_CHARS_MAX = 16_000
# Reports that wait for ZooKeeper; more are only logged.
_WAITING_MAX = 100


def report_text(error: BaseException) -> str:
    """An error as text for people, in bounded length: its traceback with the message at the end, or
    only the message of an expected failure, with its notes."""
    if isinstance(error, SquallError):
        return describe_fully(error)
    text = "".join(traceback.format_exception(error)).rstrip()
    if len(text) > _TEXT_CHARS_MAX:
        half = _TEXT_CHARS_MAX // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters ...\n{text[-half:]}"
    return text


Send = Callable[[str, ErrorInfo], Awaitable[object]]
# Takes an error's component, task and text, and how many errors it stands for.
Note = Callable[[str, int, str, int], None]


class ErrorReporter:
    """Sends errors of components to ZooKeeper (the engine logs them), throttled for each component
    (topology.max.error.report.per.interval, topology.error.throttle.interval.secs)."""

    def __init__(self, *, host: str, port: int, clock: Clock, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        self.throttle_by(TopologyOptions())
        self._host = host
        self._port = port
        self._clock = clock
        self._send = send
        self.note: Note | None = None  # called as well; from any thread
        # Returns what a component was given when it raised, "" if unknown.
        self.source_of: Callable[[BaseException], str] = lambda error: ""
        self._waiting: set[asyncio.Task[None]] = set()

    def throttle_by(self, options: TopologyOptions) -> None:
        """Take the limits from a topology's configuration (Storm's defaults until then)."""
        self._throttle = ErrorThrottle.of(options)

    def report(self, component: str, task: int, error: BaseException) -> None:
        """Take an error, on any thread; never blocks or raises."""
        if not self._throttle.passes(component, self._clock.monotonic()):
            return
        suppressed = self._throttle.take_missed(component)
        if suppressed:
            log.warning("component_errors_not_reported", component=component, errors=suppressed)
        text = with_source(report_text(error), self.source_of(error))
        info = self.record(component, task, text, count=1 + suppressed)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._start, component, info)

    def record(self, component: str, task: int, text: str, *, count: int = 1) -> ErrorInfo:
        """An error in the form in which it is stored, without secrets that can be recognized in it,
        for callers that send it themselves; calls `note`."""
        text = redact_text(text)
        if self.note is not None:
            self.note(component, task, text, count)
        return ErrorInfo(text, int(self._clock.time()), self._host, self._port, count)

    def note_rest(self) -> None:
        """Call `note` for the errors that were not reported since a component's last report."""
        if self.note is None:
            return
        for component in self._throttle.components_missed():
            errors = self._throttle.take_missed(component)  # another thread may have
            if errors:
                self.note(component, SYSTEM_TASK, "(not reported individually)", errors)

    def _start(self, component: str, info: ErrorInfo) -> None:
        if len(self._waiting) < _WAITING_MAX:
            sending = self._loop.create_task(self._deliver(component, info))
            self._waiting.add(sending)
            sending.add_done_callback(self._waiting.discard)

    async def _deliver(self, component: str, info: ErrorInfo) -> None:
        try:
            await self._send(component, info)
        except Exception as error:
            log.warning("error_report_failed", component=component, error=error)

    async def close(self, secs: float) -> None:
        """Wait at most `secs` for what is under way, then drop it."""
        await asyncio.sleep(0)  # lets a report made just now start
        waiting = list(self._waiting)
        if waiting:
            await asyncio.wait(waiting, timeout=secs)
        for task in waiting:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*waiting, return_exceptions=True)
