"""Watches for calls of components that do not return, from the heartbeat thread.

The run loop may be stuck in such a call, so nothing here goes through it: the log is written from
this thread, an error reaches ZooKeeper through a session of its own, and the process ends by
`os._exit`; its supervisor launches another, and the other workers at once fail its messages.

The loop itself shows how long it has been in one piece of work: when it is busy, a callback is
queued on it, and while that has not run, nothing else has either. Only then are the frames of its
thread read. A worker with nothing to do is not woken.

C code that holds the interpreter's lock (a regular expression that backtracks) stops this thread as
well, and with it the heartbeats: the supervisor ends such a worker at its timeout. Before that,
`faulthandler`, which does not need the interpreter, writes the stacks to worker.err.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import ErrorInfo
from squall_common.config.options.typed import WorkerOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.output.printing import print_if_possible
from squall_common.worker_files.zookeeper_file import ZooKeeperFile
from squall_worker.watch.messages import ASK_SECS, Ask, MessageNames
from squall_worker.watch.stalls import Notice, StallWatch, Step, counted_secs

if TYPE_CHECKING:
    from squall_engine.embed import CallsUnderWay, CallUnderWay

log = get_logger(__name__)

EXIT_STALLED = 5  # a call has not returned within topology.worker.stall.timeout.secs

_LOOK_SECS = 1.0
_LOOK_SOON_SECS = 0.25  # while the loop owes an answer
_HELD_SECS = 0.2  # without an answer
_REPORT_SECS = 10.0  # for an error to reach ZooKeeper; a worker that is to end waits half of it
_HINT = (
    "set a timeout for what the call waits for, or give the component a longer "
    "topology.worker.stall.timeout.secs in its own configuration"
)

Errors = Sequence[tuple[str, ErrorInfo]]  # with their components
# Sends errors to ZooKeeper; takes at most about the given seconds.
Send = Callable[[Errors, float], None]


class _Question:
    """Queued on the loop; `answered` once the loop has run it."""

    def __init__(self, asked_at: float) -> None:
        self.asked_at = asked_at
        self.answered = False

    def answer(self) -> None:
        self.answered = True


class Watchdog:
    """`look` is called on the heartbeat thread, and returns how soon it wants to be
    called again."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        *,
        record: Callable[[str, int, str], ErrorInfo],
        send: Send,
        ask: Ask,
        end: Callable[[int], None] = os._exit,
    ) -> None:
        """`record` turns a component, a task and a text into the
        stored error, on any thread. `ask` finds messages of other workers' spouts."""
        self._loop = loop
        self._clock = clock
        self._record = record
        self._send = send
        self._messages = MessageNames(ask)
        self._end = end
        self._calls: CallsUnderWay | None = None  # None: nothing to watch
        self._watch: StallWatch[CallUnderWay] = StallWatch()
        self._question: _Question | None = None
        self._looked_at: float | None = None
        self._asked_secs = _LOOK_SECS
        self._ending = False

    def begin(self, calls: CallsUnderWay) -> None:
        """The components are open: watch their calls from now on."""
        self._calls = calls

    def stop(self) -> None:
        """The worker ends; that has a deadline of its own."""
        self._calls = None

    def look(self) -> float:
        """Seconds until the next look. Never raises."""
        calls = self._calls
        now = self._clock.monotonic()
        if calls is not None and not self._ending:
            since = now - self._looked_at if self._looked_at is not None else 0.0
            try:
                self._look(calls, now, counted_secs(since, self._asked_secs))
            except Exception as error:
                log.error("calls_not_looked_after", error=error, exc_info=error)
        self._looked_at = now
        waits = self._question is not None and not self._question.answered
        self._asked_secs = _LOOK_SOON_SECS if waits else _LOOK_SECS
        return self._asked_secs

    def _look(self, under_way: CallsUnderWay, now: float, elapsed_secs: float) -> None:
        calls = list(under_way.on_threads())
        if self._loop_is_held(under_way, now):
            calls.append(under_way.on_loop(self._question))
        else:
            # (While the loop is held, no coroutine can go on: that is not their fault.)
            try:
                calls += under_way.in_coroutines()
            except RuntimeError:
                pass  # they changed meanwhile; the next look comes soon enough
        errors = []
        for notice in self._watch.observe(calls, elapsed_secs):
            if notice.step is Step.NAMED:
                _name(notice, self._messages.names)
            elif notice.step is Step.LOOKED_UP:
                self._messages.look_up(notice.call.roots, under_way.message_of)
            else:
                self._ending |= notice.step is Step.STALLED
                errors.append((notice, notice.call.stack()))
        self._messages.ask()
        if errors:
            threading.Thread(
                target=self._report, args=(errors, self._ending), name="stalled calls", daemon=True
            ).start()

    def _loop_is_held(self, under_way: CallsUnderWay, now: float) -> bool:
        question = self._question
        if question is not None and not question.answered:
            return now - question.asked_at >= _HELD_SECS
        self._question = None
        if not under_way.loop_is_idle():
            question = _Question(now)
            try:
                self._loop.call_soon_threadsafe(question.answer)
            except RuntimeError:
                return False  # the loop has ended
            self._question = question
        return False

    def _what(self, notice: Notice[CallUnderWay]) -> str:
        call = notice.call
        what = f"{call.name} of task {call.task} has not returned for {notice.secs:.0f} s"
        given = call.given(self._messages.names)
        what += f", given {given}" if given else ""
        if notice.step is not Step.STALLED:
            return f"CallOverdue: {what} (topology.message.timeout.secs)"
        return f"CallStalled: {what}; its worker is restarted (topology.worker.stall.timeout.secs)"

    def _error(self, notice: Notice[CallUnderWay], stack: str) -> tuple[str, ErrorInfo]:
        call, what = notice.call, self._what(notice)
        if notice.step is Step.STALLED:
            log.error(
                "call_stalled", component=call.component, task=call.task, what=what, hint=_HINT
            )
        else:
            log.error("call_overdue", component=call.component, task=call.task, what=what)
        # As a traceback, from which lists take the line that names the error.
        text = f"Traceback (most recent call last):\n{stack.rstrip()}\n{what}"
        return call.component, self._record(call.component, call.task, text)

    def _report(self, found: Sequence[tuple[Notice[CallUnderWay], str]], ending: bool) -> None:
        """On a thread of its own, so that the heartbeats go on. Each call comes with its stack."""
        if ending:
            timer = threading.Timer(_REPORT_SECS, self._end, (EXIT_STALLED,))
            timer.daemon = True
            timer.start()  # whatever else hangs, even a lock of the log
        try:
            self._messages.wait_answered(ASK_SECS)
            errors = [self._error(notice, stack) for notice, stack in found]
            self._send(errors, _REPORT_SECS / 2 if ending else _REPORT_SECS)
        except Exception as error:
            components = [notice.call.component for notice, _ in found]
            log.error("error_report_failed", components=components, error=error)
        if ending:
            # The last line of worker.log.err is the reason that `storm list` shows.
            for notice, _ in found:
                if notice.step is Step.STALLED:
                    print_if_possible(self._what(notice), sys.stderr)
            logging.shutdown()
            self._end(EXIT_STALLED)


def _name(notice: Notice[CallUnderWay], names: Mapping[int, str]) -> None:
    call = notice.call
    log.warning(
        "call_under_way",
        component=call.component,
        task=call.task,
        call=call.name,
        given=call.given(names),
        secs=round(notice.secs, 1),
        at=call.place(),
    )


def dump_when_silent(secs: float) -> None:
    """Write all stacks to stderr unless this is called again within `secs`."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # stderr is gone
        faulthandler.dump_traceback_later(secs)


def send_aside(options: WorkerOptions, topology_id: str, digest: ZooKeeperFile) -> Send:
    """Reports with a temporary loop and ZooKeeper session of its own."""

    def send(errors: Errors, secs: float) -> None:
        async def report() -> None:
            state = ClusterState.of(options, digest.read())
            try:
                async with asyncio.timeout(secs):
                    await state.store.start()
                    for component, info in errors:
                        await state.report_error(topology_id, component, info)
            finally:
                await state.close()

        asyncio.run(report())

    return send
