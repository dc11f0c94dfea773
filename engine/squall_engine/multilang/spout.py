"""A shell spout's task: one command at a time, each answered by emits and then `sync`.

Acks and fails wait in a queue and go before the next `next`. While the child is busy with a command
nothing waits for it: the loop goes on, and the next command leaves when its `sync` has come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

from squall_common.daemon.logs import get_logger
from squall_common.names import DEFAULT_STREAM
from squall_engine.core import Tuple
from squall_engine.multilang.messages import Command, UnserializableError
from squall_engine.multilang.shell import (
    ReportedError,
    Shell,
    ShellError,
    stream_of,
    task_of,
    unknown_command,
    values_of,
)
from squall_engine.tasks.async_ import AsyncSpout
from squall_engine.tasks.base import TaskParts

log = get_logger(__name__)

_EMITS_WAIT_SECS = 0.001
_EMITS_MAX = 128
# Libraries of before Storm 1.1 do not know `activate` and `deactivate` and never answer them.
_UNKNOWN_SECS = 1.0


class ShellSpout(AsyncSpout):
    """The task of a shell spout, whose work is done between turns, like that of coroutines."""

    shell: Shell

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self._queue: deque[dict[str, Any]] = deque()  # bounded by the messages that are pending
        self._asked: str | None = None  # the command that it works on
        self._knows_activation = True  # the child answers `activate` and `deactivate`
        self._patience: asyncio.TimerHandle | None = None  # for that answer
        self._granted = 0  # `next` that the engine allows before its next turn
        self._emitted_before = 0
        self._emits = 0  # since the last turn was asked for
        self._wake_timer: asyncio.TimerHandle | None = None
        self._idle: asyncio.Event = asyncio.Event()

    @property
    def busy(self) -> bool:
        return super().busy or self._asked is not None or bool(self._queue)

    # -- to the child --

    def run(self, deadline: float) -> bool:
        self._granted = self.calls_max
        self._advance()
        return False

    def call_user(self, what: str, message_ids: Sequence[Any]) -> None:
        for message_id in message_ids:
            self._queue.append({"command": what, "id": message_id})
        self._advance()

    def send_command(self, command: str) -> None:
        """`activate` or `deactivate`, if there is a child to send it to; the next child gets it
        when it starts."""
        if self.shell.ready and self._knows_activation:
            self._queue.append({"command": command})
            self._advance()

    def child_ready(self) -> None:
        self._knows_activation = True
        if self.active:
            self._queue.append({"command": "activate"})
        self._advance()
        self.host.wake()

    def _advance(self) -> None:
        """Send the next command, when there is one and the child waits."""
        if self._asked is not None or not self.shell.ready:
            return
        if self._queue:
            message = self._queue.popleft()
        elif self._granted > 0 and self.active and self.may_emit:
            now = self.host.now()
            if now < self.idle_until:
                return
            self._granted -= 1
            self.idle_until = 0.0  # nothing is due while it is asked
            self._emitted_before = self.calls.emitted()
            message = {"command": "next"}
        else:
            self._idle.set()
            return
        shell = self.shell
        self._idle.clear()
        self._asked = message["command"]
        try:
            shell.ask(message)
        except UnserializableError as error:  # an id that came from a child of another kind
            self._asked = None
            self.child_fault(ShellError(f"{shell}: {message['command']}: {error}"))
            return
        if self._asked in ("activate", "deactivate"):
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(_UNKNOWN_SECS, self._give_up)

    def _give_up(self) -> None:
        """It does not know the command: go on without an answer, and tell it no more of the kind.
        (Should the answer come later, it is taken for that of the next command: then the child
        has one command more in its input than it works on, which all of them bear.)"""
        log.info(
            "shell_spout_knows_no_activation",
            component=self.component,
            task=self.task,
            command=self._asked,
        )
        self._knows_activation = False
        self._synced()

    def child_takes_more(self) -> None:
        pass

    # -- from the child --

    @property
    def child_works(self) -> bool:
        return False  # it is asked, and waits, or it has answered

    def child_sent(self, name: str, command: Command) -> None:
        if name == "sync":
            self._synced()
        else:
            raise unknown_command(name)

    def child_emits(self, command: Command) -> None:
        ids: Any = ()
        direct = command.task
        message_id = command.id
        try:
            values = values_of(command)
            named = stream_of(command)
            stream = DEFAULT_STREAM if named is None else named
            task = task_of(command)
            direct = task
            if task is None:
                ids = self.collector.emit(values, message_id, stream)
            else:
                ids = self.collector.emit_direct(task, values, message_id, stream)
            self._emits += 1
        except Exception as error:
            if message_id is not None:
                self._queue.append({"command": "fail", "id": message_id})
            said = error.message if isinstance(error, ShellError) else f"{error}"
            raise ShellError(f"an emit could not be made: {said}") from error
        finally:
            if direct is None and command.need_task_ids is not False:
                self.shell.answer(ids)

    def _synced(self) -> None:
        asked, self._asked = self._asked, None
        self._lose_patience()
        self.shell.life.answered()
        if asked == "next":
            if self.calls.emitted() == self._emitted_before:
                self.idle_until = self.host.now() + self._idle_wait()
                self.host.wake()  # the engine must know when to ask again
            else:
                self._idle_runs = 0
        self._advance()
        if self._asked is None:
            self.host.wake()

    def _lose_patience(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def child_paused(self) -> None:
        if self._emits >= _EMITS_MAX or (self._emits and self._asked != "next"):
            self._wake()
        elif self._emits and self._wake_timer is None:
            loop = asyncio.get_running_loop()
            self._wake_timer = loop.call_later(_EMITS_WAIT_SECS, self._wake)

    def _wake(self) -> None:
        self._emits = 0
        if self._wake_timer is not None:
            self._wake_timer.cancel()
            self._wake_timer = None
        self.host.wake()

    # -- when things go wrong, and the end --

    def child_gone(self, error: ShellError) -> None:
        """Forget the messages whose acks it waited for: their source kept them, and the next child
        emits them anew. They must not be mixed up, as many children count ids from 0."""
        self._queue.clear()
        self._asked = None
        self._lose_patience()
        self._idle.set()
        forgotten = len(self.pending)
        self.pending.take(list(self.pending.oldest_first()), self.host.now())
        if self.message_filter is not None:
            self.message_filter.clear()
        if forgotten:
            error = ShellError(
                f"{error.message}; {forgotten} message(s) that it had emitted were in flight: "
                "their acks are dropped"
            )
        self._wake()
        self.child_fault(error)
        if self.dies:
            self.host.die(error)

    def child_fault(self, error: ShellError | ReportedError) -> None:
        self.host.report(self.component, self.task, error)

    def abort(self) -> None:
        self._lose_patience()
        if self._wake_timer is not None:
            self._wake_timer.cancel()
            self._wake_timer = None

    async def wait_aborted(self, secs: float) -> list[Tuple]:
        """Let the child have its last acks, then end it."""
        self._granted = 0
        self._advance()
        if self.shell.ready and (self._asked is not None or self._queue):
            try:
                await asyncio.wait_for(self._idle.wait(), secs)
            except TimeoutError:
                pass
        await self.shell.close(secs)
        return []
