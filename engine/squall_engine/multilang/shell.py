"""The child process of one task: starts it, talks to it, kills it when it hangs, and replaces it.

This module has what spouts and bolts share; the task itself is the `Owner`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from squall_common.component.metrics.shell_metrics import ShellMetric
from squall_common.component.shell_logs import ShellLogHandler
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_engine.multilang.life import BEAT_SECS, ChildLife
from squall_engine.multilang.life_table import Do, State
from squall_engine.multilang.messages import HEARTBEAT, Command, Fault, Serializer, Wrong, shown
from squall_engine.multilang.outbox import Outbox
from squall_engine.multilang.process import ChildProcess

log = get_logger(__name__)

# ShellLogHandler's levels; Python has no level below DEBUG.
_LEVELS = {
    0: logging.DEBUG,
    1: logging.DEBUG,
    2: logging.INFO,
    3: logging.WARNING,
    4: logging.ERROR,
}
# Faults of a child that are reported, at most one in so many seconds.
_FAULT_SECS = 1.0
_STOP_SECS = 1.0  # from SIGTERM to SIGKILL
# The loop has other work: however much a child writes, reading stops after this time.
_CONVERSE_SECS_MAX = 0.002
_METRICS_MAX = 1_000


class ShellError(SquallError):
    """Something that a shell component did, or that happened to its child."""


class ReportedError(SquallError):
    """An error that a shell component reported itself: its own text."""


@dataclass(frozen=True, slots=True)
class ShellSetting:
    """A task's child process, and how to communicate with it."""

    component: str
    task: int
    argv: tuple[str, str]
    cwd: Path
    env: Mapping[str, str]
    pid_dir: Path
    handshake: Mapping[str, Any]
    timeout_secs: float  # of silence
    message_bytes_max: int
    linger_secs: float = 0.0  # for one message, after an answer; 0: never
    dies_with_us: bool = False  # when this process is killed; in a worker the supervisor sees to it


class Owner(Protocol):
    """The task."""

    @property
    def child_works(self) -> bool:
        """Whether it holds something that it has not finished: it will say more, maybe soon."""

    def child_ready(self) -> None:
        """A child is there and waits for its first message."""

    def child_emits(self, command: Command) -> None:
        """An emit. May raise ShellError: reported."""

    def child_sent(self, name: str, command: Command) -> None:
        """Another command that is not the same for spouts and bolts. May raise ShellError."""

    def child_paused(self) -> None:
        """Everything that was read at once has been passed on."""

    def child_takes_more(self) -> None:
        """The pipe has room again."""

    def child_gone(self, error: ShellError) -> None:
        """The child ended unasked; the error is to be reported. Another follows."""

    def child_fault(self, error: ShellError | ReportedError) -> None:
        """To be reported."""


class Shell:
    """See above. `outbox` is filled by the owner, who then calls `flush`."""

    def __init__(
        self,
        setting: ShellSetting,
        serializer: Serializer,
        owner: Owner,
        metrics: dict[str, ShellMetric],
        log_handler: ShellLogHandler,
        *,
        beats: bool,
        now: Callable[[], float],
    ) -> None:
        self.setting = setting
        self.serializer = serializer
        self.outbox = Outbox()
        self.life = ChildLife(timeout_secs=setting.timeout_secs, beats=beats)
        self._owner = owner
        self._metrics = metrics
        self._now = now
        self._log_handler = log_handler
        self._heartbeat = serializer.message(HEARTBEAT)
        self._process: ChildProcess | None = None
        self._reader = serializer.reader(setting.message_bytes_max)
        self._pids: set[int] = set()
        self._killed_why: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] | None = None
        self._answered = False  # it was just given what it waits for
        self._answers: list[bytes] = []  # to what is being heard
        self._fault_at = float("-inf")
        self._faults = 0  # not reported
        self._handling = False

    def __str__(self) -> str:
        pid = "" if self._process is None else f", pid {self._process.pid}"
        return f"{self.setting.component!r} ({' '.join(self.setting.argv)}{pid})"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def ready(self) -> bool:
        """Whether there is a child that has sent its pid."""
        return self.life.state is State.RUNNING

    # -- life --

    def start(self) -> None:
        """Start the first child. Raises ShellError when that cannot be done."""
        self._start()
        self._timer = asyncio.get_running_loop().call_later(BEAT_SECS, self._tick)

    def _start(self) -> None:
        setting = self.setting
        try:
            setting.pid_dir.mkdir(parents=True, exist_ok=True)
            message = self.serializer.message(dict(setting.handshake))
            self._reader = self.serializer.reader(setting.message_bytes_max)
            self._process = ChildProcess(
                setting.argv,
                cwd=setting.cwd,
                env=setting.env,
                dies_with_us=setting.dies_with_us,
                on_output=self._received,
                on_writable=self._writable,
                on_error_line=self._received_error_line,
                on_exit=self._exited,
            )
        except (OSError, ValueError) as error:
            raise ShellError(
                f"the child process of {self} cannot be started in {setting.cwd}: {error}",
                hint="the command is searched for on the worker's PATH, the script in resources/ "
                "of the package",
            ) from error
        self._killed_why = None
        self.life.started(self._now())
        self._note_pid(self._process.pid)
        log.info(
            "shell_child_started",
            component=setting.component,
            task=setting.task,
            pid=self._process.pid,
            command=setting.argv[0],
            script=setting.argv[1],
        )
        self.outbox.add_urgent(message)
        self.flush()

    def _tick(self) -> None:
        now = self._now()
        starting = self.life.state is State.STARTING
        todo = self.life.tick(now)
        if todo is Do.KILL:
            self._kill(
                f"was killed because it was silent for {self.setting.timeout_secs:g} s "
                "(topology.subprocess.timeout.secs): it "
                + (
                    "never sent its pid"
                    if starting
                    else "answered no heartbeat"
                    if self.life.beats
                    else "did not end its turn with sync"
                )
            )
        elif todo is Do.BEAT:
            self.outbox.add_urgent(self._heartbeat)
            self.flush()
        elif todo is Do.START:
            try:
                self._start()
            except ShellError as error:
                self.life.start_failed(now)
                self._owner.child_fault(error)
        elif self.life.warns(now):
            log.warning(
                "shell_child_silent",
                component=self.setting.component,
                task=self.setting.task,
                pid=self.pid,
                secs=round(self.life.silent_secs(now), 1),
                killed_after_secs=self.setting.timeout_secs,
            )
        self._schedule_tick(BEAT_SECS)

    def _schedule_tick(self, secs: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self.life.state is not State.STOPPED:
            self._timer = asyncio.get_running_loop().call_later(secs, self._tick)

    def _kill(self, why: str) -> None:
        if self._process is not None and self._killed_why is None:
            self._killed_why = why
            self.life.killed(self._now())
            self._process.kill()

    def _exited(self, status: int) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        self._forget_pids()
        if self._ended is not None:
            if not self._ended.done():
                self._ended.set_result(None)
            return
        self.outbox.drop_written()
        how = self._killed_why or _how_it_ended(status)
        # What happened comes last: where there is room for one line of an error, it is the last.
        lines = "".join(f"    {line}\n" for line in process.error_lines)
        error = ShellError(
            (f"last lines on its stderr:\n{lines}" if lines else "")
            + f"the child process of {self.setting.component!r} "
            f"({' '.join(self.setting.argv)}, pid {process.pid}) {how}"
        )
        pause = self.life.exited(self._now())
        log.warning(
            "shell_child_ended",
            component=self.setting.component,
            task=self.setting.task,
            pid=process.pid,
            how=how,
            next_in_secs=round(pause, 1),
        )
        self._owner.child_gone(error)
        self._schedule_tick(pause)

    async def close(self, secs: float = _STOP_SECS) -> None:
        """End the child: it sees the end of its input and SIGTERM, `secs` later SIGKILL."""
        self.life.stop(self._now())
        self._schedule_tick(0)  # none any more
        if self._process is None:
            return
        self._ended = asyncio.get_running_loop().create_future()
        self._process.terminate()
        try:
            await asyncio.wait_for(asyncio.shield(self._ended), secs)
        except TimeoutError:
            log.warning(
                "shell_child_killed",
                component=self.setting.component,
                task=self.setting.task,
                pid=self.pid,
                reason="it did not exit on SIGTERM",
            )
        finally:
            process: ChildProcess | None = self._process
            if process is not None:
                process.close()
                self._process = None
            self._forget_pids()

    def _note_pid(self, pid: int) -> None:
        """An empty file for the supervisor. The child makes one, too; not all do it at once."""
        self._pids.add(pid)
        with contextlib.suppress(OSError):
            (self.setting.pid_dir / str(pid)).touch()

    def _forget_pids(self) -> None:
        for pid in self._pids:
            with contextlib.suppress(OSError):
                (self.setting.pid_dir / str(pid)).unlink(missing_ok=True)
        self._pids.clear()

    # -- messages to the child --

    def answer(self, ids: Sequence[int]) -> None:
        """The task ids of an emit; written when everything that it said has been read."""
        self._answers.append(self.serializer.task_ids(ids))

    def ask(self, message: dict[str, Any]) -> None:
        """A command that it must answer (spouts). Raises UnserializableError."""
        self.outbox.add_urgent(self.serializer.message(message))
        self.life.asked(self._now())
        self._answered = True
        if not self._handling:
            self.flush()

    def flush(self) -> None:
        """Write as much as the pipe takes."""
        process, outbox = self._process, self.outbox
        if process is None or process.is_full:
            return
        while chunk := outbox.chunk():
            n = process.write(chunk)
            outbox.wrote(n)
            if n < len(chunk):
                if outbox.urgent_bytes > self.setting.message_bytes_max:
                    self._kill("was killed because it does not read the task ids that it asks for")
                return

    def _writable(self) -> None:
        self.flush()
        self._owner.child_takes_more()

    # -- what it says --

    def _received(self, data: bytes) -> None:
        self._handle(data)
        if self._answered:
            self._converse()

    def _converse(self) -> None:
        """It was just given what it waits for: stay a moment for its next word, which spares the
        loop's way around and waking a sleeper. Also when it has finished one tuple of several."""
        secs, owner = self.setting.linger_secs, self._owner
        if secs <= 0:
            return
        end = perf_counter() + _CONVERSE_SECS_MAX
        while (
            (self._answered or owner.child_works)
            and (process := self._process)
            and not process.is_full
        ):
            data = process.read_within(secs)
            if not data:
                break
            self._handle(data)
            if perf_counter() >= end:
                break

    def _handle(self, data: bytes) -> None:
        if self._killed_why is not None:
            return
        life = self.life
        if life.owes:
            life.heard(self._now())
        self._answered = False
        self._handling = True
        try:
            for message in self._reader.feed(data):
                try:
                    if isinstance(message, Fault):
                        self._wrong(message)
                    elif message.command == "emit":
                        self._owner.child_emits(message)
                    else:
                        self._dispatch(message)
                except ShellError as error:
                    self._fault(error.message)
                except Exception as error:  # what follows is not lost for it: it may wait for ids
                    log.error("shell_message_unusable", error=error, exc_info=error)
                    self._fault(f"a message cannot be used: {type(error).__name__}: {error}")
        finally:
            self._handling = False
        # What it waits for comes first: it works while we do.
        if self._answers:
            self._write_answers()
        if self.outbox:
            self.flush()
        self._owner.child_paused()

    def _wrong(self, fault: Fault) -> None:
        if fault.fatal:
            self._kill(f"was killed, because {fault}")
        else:
            self._fault(str(fault))

    def _write_answers(self) -> None:
        answers, self._answers = self._answers, []
        data = answers[0] if len(answers) == 1 else b"".join(answers)
        self._answered = True
        process, outbox = self._process, self.outbox
        if process is not None and not process.is_full and outbox.is_clear:
            n = process.write(data)
            if n < len(data):
                outbox.add_rest(data, n)
        else:
            outbox.add_urgent(data)

    def _dispatch(self, command: Command) -> None:
        name = command.command
        if name == "ack":
            self._owner.child_sent(name, command)
        elif name is None:
            self._pid_received(command.pid)
        elif name == "log":
            self._log_command(command)
        elif name == "error":
            # That its input has ended, and similar effects of being stopped, are not errors.
            if self.life.state is not State.STOPPED:
                self._owner.child_fault(ReportedError(str(command.msg)))
        elif name == "metrics":
            self._metric(command)
        else:
            self._owner.child_sent(name, command)  # type: ignore[arg-type]  # compared there

    def _pid_received(self, pid: object) -> None:
        if isinstance(pid, int) and not isinstance(pid, bool) and pid > 0:
            # Another one than that of the process that was started, if a shell is in between.
            self._pids.add(pid)
        if self.life.pid_received(self._now()):
            log.info(
                "shell_child_ready",
                component=self.setting.component,
                task=self.setting.task,
                pid=pid,
            )
            self.outbox.holds_tuples = False
            self._owner.child_ready()

    def _log_command(self, command: Command) -> None:
        said = command.level
        level = _LEVELS.get(said, logging.INFO) if isinstance(said, int) else logging.INFO
        try:
            self._log_handler.log(level, str(command.msg))
        except Exception as error:  # of a user's handler
            raise ShellError(
                f"{type(self._log_handler).__name__}.log (topology.multilang.log.handler) raised "
                f"{type(error).__name__}: {error}"
            ) from error

    def _metric(self, command: Command) -> None:
        name = command.name
        if not isinstance(name, str):
            raise ShellError(f"a metrics command has the name {shown(name)}; expected text")
        metric = self._metrics.get(name)
        if metric is None:
            if len(self._metrics) >= _METRICS_MAX:
                raise ShellError(f"more than {_METRICS_MAX} metrics: {shown(name)} is dropped")
            metric = self._metrics[name] = ShellMetric()
        try:
            metric.update(command.params)
        except OverflowError as error:
            raise ShellError(
                f"metric {shown(name)}: {error}: {shown(command.params)} is not added"
            ) from error

    def _received_error_line(self, line: str) -> None:
        log.info(
            "shell_stderr", component=self.setting.component, task=self.setting.task, line=line
        )

    def _fault(self, what: str) -> None:
        """Report what a child did wrong: one a second, for some do it all the time."""
        if self.life.state is State.STOPPED:
            return
        now = self._now()
        if now - self._fault_at < _FAULT_SECS:
            self._faults += 1
            return
        self._fault_at = now
        more = f" ({self._faults} similar faults before)" if self._faults else ""
        self._faults = 0
        self._owner.child_fault(ShellError(f"{self}: {what}{more}"))


def unknown_command(name: str) -> ShellError:
    """The error for a command that the protocol does not have."""
    return ShellError(f"it sent the command {shown(name)}, which is unknown and was ignored")


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def stream_of(command: Command) -> str | None:
    """The stream of an emit, None for the default one. Raises ShellError."""
    stream = command.stream
    if stream is None or stream == "":
        return None
    if not isinstance(stream, str):
        raise ShellError(f"an emit has the stream {shown(stream)}; expected text")
    return stream


def task_of(command: Command) -> int | None:
    """The task of a direct emit; None for all others (0 is none, as in Storm). Raises
    ShellError."""
    task = command.task
    if task is None or task == 0:
        return None
    if not isinstance(task, int) or isinstance(task, bool):
        raise ShellError(f"an emit has the task {shown(task)}; expected a number")
    return task


def values_of(command: Command) -> Sequence[Any]:
    """The values of an emit. Raises ShellError."""
    values = command.tuple
    if not isinstance(values, list):
        raise ShellError(f"an emit has the tuple {shown(values)}; expected a list")
    return values


__all__ = [
    "Owner",
    "ReportedError",
    "Shell",
    "ShellError",
    "ShellSetting",
    "Wrong",
    "stream_of",
    "task_of",
    "unknown_command",
    "values_of",
]
