"""A shell bolt's task.

Tuples go from the inbox to the child as fast as its pipe takes them: at most
`topology.shellbolt.max.pending` wait between the two, and what the pipe does not take stays in the
inbox, where the engine sees that this bolt is slow. What the child was given and has not acked is
kept, to be failed when the child dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from squall_common.daemon.logs import get_logger
from squall_common.names import DEFAULT_STREAM
from squall_engine.core import Tuple
from squall_engine.multilang.messages import Command, UnserializableError, shown
from squall_engine.multilang.shell import (
    ReportedError,
    Shell,
    ShellError,
    stream_of,
    task_of,
    unknown_command,
    values_of,
)
from squall_engine.tasks.async_ import AsyncBolt
from squall_engine.tasks.base import TaskParts

log = get_logger(__name__)

_SLICE = 64
_WAITING_BYTES_MAX = 1_048_576
# While a child has more to do, its emits, acks and fails wait this long for the next turn, or until
# there are this many: a turn for each would take longer than handling it, and the child waits for
# its task ids.
_DONE_WAIT_SECS = 0.002
_DONE_MAX = 256
_REFUSED_MAX = 1_000


class ShellBolt(AsyncBolt):
    """The task of a shell bolt, whose work is done between turns, like that of coroutines."""

    shell: Shell
    waiting_max: int  # tuples between inbox and pipe
    keep_secs: float | None  # a tuple that is not acked for this long has timed out; None: never
    dies: bool  # the worker dies with the child

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self.admits: Callable[[Tuple], bool] | None = None  # others the child does not get
        self.on_given: Callable[[Tuple], None] | None = None  # with topology.tracing.enabled
        self._given: dict[str, tuple[Tuple, float]] = {}  # id -> tuple, when; oldest first
        self._open = 0  # of them, without ticks (which many children never ack)
        self._next_id = 0
        self._expired = 0  # ids up to it, unless given, have timed out
        self._refused: dict[str, None] = {}  # failed by us: an emit of theirs could not be made
        self._emits = 0  # since the last turn was asked for
        self._settled = 0  # likewise
        self._wake_timer: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        return bool(self.inbox) or self._open > 0

    @property
    def calls_max(self) -> int | None:
        return None  # what is timed is how long the pipe takes tuples

    @property
    def holds_back(self) -> bool:
        return self._wake_timer is not None

    # -- to the child --

    def run(self, deadline: float) -> bool:
        return self._give(deadline)

    def _give(self, deadline: float | None = None) -> bool:
        """Hand over the waiting tuples, as far as the pipe takes them. True if there were any."""
        shell = self.shell
        if not self.inbox or not shell.ready:
            return False
        outbox, now = shell.outbox, self.host.now
        if self.keep_secs is not None and self._given:
            self._expire(now() - self.keep_secs)
        gave = False
        while self.inbox and outbox.tuple_bytes < _WAITING_BYTES_MAX:
            batch = self.take(min(_SLICE, self.waiting_max - outbox.tuples))
            if batch is None:
                break
            count = len(batch)
            gave = True
            start = now()
            for tup in batch.as_tuples():
                if self.admits is None or self.admits(tup):
                    self._give_one(tup, start)
            shell.flush()
            end = now()
            self.counts.executed_many(batch.source.key, count, end - start)
            if deadline is not None and end >= deadline:
                break
        return gave

    def _give_one(self, tup: Tuple, now: float) -> None:
        self._next_id += 1
        tuple_id = str(self._next_id)
        shell = self.shell
        try:
            message = shell.serializer.tuple_message(tuple_id, tup)
        except UnserializableError as error:
            self.calls.fail(tup)
            self.child_fault(ShellError(f"{shell}: a tuple was failed: {error}"))
            return
        self._given[tuple_id] = (tup, now)
        if self.on_given is not None:
            self.on_given(tup)
        if not tup.is_tick:
            self._open += 1
        shell.outbox.add_tuple(tuple_id, message)
        if self.hooks is not None:
            self.hooks.began(tup, now)

    def child_ready(self) -> None:
        self.host.wake()

    def child_takes_more(self) -> None:
        if self._give():
            self.host.wake()  # the inbox is shorter: spouts may go on

    # -- from the child --

    @property
    def child_works(self) -> bool:
        return self._open > 0

    def child_sent(self, name: str, command: Command) -> None:
        if name == "ack":
            self._ack(command.id)
        elif name == "fail":
            self._fail(command.id)
        elif name != "sync":  # the answer to a heartbeat: anything that it says is
            raise unknown_command(name)

    def child_emits(self, command: Command) -> None:
        named, values = command.anchors, command.tuple
        if (
            type(named) is list
            and len(named) == 1
            and type(named[0]) is str
            and type(values) is list
            and command.stream is None
            and command.task is None
            and (known := self._given.get(named[0])) is not None
        ):
            # By far the most frequent case; the code below would handle it as well.
            ids: Any = ()
            try:
                ids = self.calls.emit(values, known[0])
            except Exception as error:
                self._refuse(named[0])
                raise _not_made(error, anchored=True) from error
            finally:
                if command.need_task_ids is not False:
                    self.shell.answer(ids)
            self._emits += 1
        else:
            self._emit(command)

    def _emit(self, command: Command) -> None:
        anchors: list[Tuple] = []
        anchor_ids: list[str] = []
        unknown: list[object] = []
        named = command.anchors
        if named is not None:
            given = self._given
            ids_given: Sequence[object] = named if isinstance(named, list) else (named,)
            for anchor in ids_given:
                known = given.get(anchor) if isinstance(anchor, str) else None
                if known is None or not isinstance(anchor, str):
                    unknown.append(anchor)
                elif anchor not in anchor_ids:
                    anchors.append(known[0])
                    anchor_ids.append(anchor)
        ids: Any = ()
        direct = command.task
        try:
            values = values_of(command)
            stream = stream_of(command) or DEFAULT_STREAM
            task = task_of(command)
            direct = task
            if task is None:
                ids = self.calls.emit(values, anchors, stream)
            else:
                self.calls.emit_direct(task, values, anchors, stream)
            self._emits += 1
        except Exception as error:
            for anchor in anchor_ids:
                self._refuse(anchor)
            raise _not_made(error, anchored=bool(anchors)) from error
        finally:
            # A child that waits for the answer must get one, whatever it emitted.
            if direct is None and command.need_task_ids is not False:
                self.shell.answer(ids)
        if unknown:
            self._report_unknown(unknown, "an emit was anchored to")

    def _ack(self, tuple_id: object) -> None:
        known = self._given.pop(tuple_id, None) if isinstance(tuple_id, str) else None
        if known is None:
            self._report_unknown([tuple_id], "it acked")
            return
        tup, start = known
        self._settled += 1
        if not tup.is_tick:
            self._open -= 1
        self.calls.ack(tup)
        self.counts.processed(tup.source.key, self.host.now() - start)

    def _fail(self, tuple_id: object) -> None:
        known = self._given.pop(tuple_id, None) if isinstance(tuple_id, str) else None
        if known is None:
            self._report_unknown([tuple_id], "it failed")
            return
        self._fail_given(known[0])

    def _fail_given(self, tup: Tuple) -> None:
        self._settled += 1
        if not tup.is_tick:
            self._open -= 1
        self.calls.fail(tup)

    def _refuse(self, tuple_id: str) -> None:
        """Fail a tuple that the child will go on to use."""
        tup, _ = self._given.pop(tuple_id)
        self._fail_given(tup)
        self._refused[tuple_id] = None
        if len(self._refused) > _REFUSED_MAX:
            del self._refused[next(iter(self._refused))]

    def _report_unknown(self, ids: list[object], what: str) -> None:
        """Report ids that name no tuple that the child holds. Its emits are sent all the same, but
        are not tracked."""
        wrong = [i for i in ids if not self._was_failed(i)]
        if not wrong:
            return
        known = isinstance(wrong[0], str) and wrong[0].isdecimal() and self._issued(wrong[0])
        why = "was already settled" if known else "was never the id of a tuple"
        raise ShellError(f"{what} {shown(wrong[0])}, which {why}")

    def _was_failed(self, tuple_id: object) -> bool:
        """Whether the child could not know that the tuple is settled: it has timed out, or we
        failed it."""
        if not isinstance(tuple_id, str) or not tuple_id.isdecimal() or len(tuple_id) > 18:
            return False
        return tuple_id in self._refused or int(tuple_id) <= self._expired

    def _issued(self, tuple_id: str) -> bool:
        return len(tuple_id) <= 18 and 0 < int(tuple_id) <= self._next_id

    def child_paused(self) -> None:
        done = self._emits + self._settled
        if done and (done >= _DONE_MAX or not self._open):
            self._wake()
        elif done and self._wake_timer is None:
            loop = asyncio.get_running_loop()
            self._wake_timer = loop.call_later(_DONE_WAIT_SECS, self._wake)

    def _wake(self) -> None:
        self._settled = 0
        self._emits = 0
        if self._wake_timer is not None:
            self._wake_timer.cancel()
            self._wake_timer = None
        self.host.wake()

    def _expire(self, before: float) -> None:
        """Forget tuples that were given before a time: their spouts have failed them. With children
        that never ack we would otherwise keep everything."""
        given = self._given
        while given:
            tuple_id = next(iter(given))
            tup, start = given[tuple_id]
            if start >= before:
                return
            del given[tuple_id]
            self._expired = max(self._expired, int(tuple_id))
            if not tup.is_tick:
                self._open -= 1

    # -- when things go wrong, and the end --

    def child_gone(self, error: ShellError) -> None:
        """Fail the tuples that the child held, so that their spouts emit them again. Tuples that
        were not yet written to it are kept for the next child."""
        unwritten = set(self.shell.outbox.unwritten())
        held = [i for i in self._given if i not in unwritten]
        for tuple_id in held:
            tup, _ = self._given.pop(tuple_id)
            self._fail_given(tup)
        self._refused.clear()
        self._wake()
        if held:
            error = ShellError(f"{error.message}; {len(held)} tuple(s) that it held were failed")
        self.child_fault(error)
        if self.dies:
            self.host.die(error)  # BuildHost's

    def child_fault(self, error: ShellError | ReportedError) -> None:
        self.host.report(self.component, self.task, error)

    def abort(self) -> None:
        if self._wake_timer is not None:
            self._wake_timer.cancel()
            self._wake_timer = None

    async def wait_aborted(self, secs: float) -> list[Tuple]:
        """Wait until the child is gone, then fail the tuples that it held."""
        await self.shell.close(secs)
        given, self._given = self._given, {}
        left = [tup for tup, _ in given.values() if not tup.is_tick]  # many never ack those
        for tup in left:
            self._fail_given(tup)
        return left


def _not_made(error: Exception, *, anchored: bool) -> ShellError:
    what = error.message if isinstance(error, ShellError) else f"{type(error).__name__}: {error}"
    tail = "; its anchors were failed" if anchored else ""
    return ShellError(f"an emit could not be made: {what}{tail}")
