"""Components with coroutines: `async def execute` and `async def next_tuple`.

A bolt has at most `topology.bolt.async.concurrency` tuples in flight. Each has an asyncio task of
its own whose context names the tuple, so an emit deep inside a coroutine, or in a task that it
started, is anchored to the right tuple. A spout has one coroutine, which asks for one tuple after
the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

from squall_common.component.collector import (
    BoltCollector,
    DelegatingSpoutCollector,
    SpoutCollector,
)
from squall_common.daemon.logs import get_logger
from squall_engine.core import CarefulCalls, Tuple
from squall_engine.tasks.base import TaskParts
from squall_engine.tasks.bolt import BoltTask, take_all, trees_of
from squall_engine.tasks.spout import SpoutTask

_P = ParamSpec("_P")
_R = TypeVar("_R")

log = get_logger(__name__)

CURRENT: ContextVar[Tuple | None] = ContextVar("squall_current_tuple", default=None)


def asked_to_end() -> bool:
    """Whether the running asyncio task was cancelled. If not, a CancelledError comes from the
    user's code, which awaited something that was cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class AsyncBolt(BoltTask):
    """`async def execute(tup)`."""

    called = "execute"
    calls: BoltCollector[Tuple]
    auto_ack: bool
    concurrency: int

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self._flying: dict[Tuple, asyncio.Task[None]] = {}
        self._left: list[Tuple] = []  # in flight when the worker began to end

    @property
    def busy(self) -> bool:
        return bool(self.inbox) or bool(self._flying)

    @property
    def calls_max(self) -> int | None:
        return self.concurrency

    @property
    def busy_calls(self) -> int:
        """How many of its coroutines are under way."""
        return len(self._flying)

    def run(self, deadline: float) -> bool:
        started = False
        while batch := self.take(self.concurrency - len(self._flying)):
            for tup in batch.as_tuples():
                name = f"{self.component}:{self.task}"
                task = asyncio.get_running_loop().create_task(self._execute(tup), name=name)
                self._flying[tup] = task
            started = True
        return started

    def on_settled(self, tup: Tuple, failed: bool) -> None:
        """Cancel the coroutine of a tuple that fails meanwhile: the rest of its work is useless."""
        task = self._flying.get(tup)
        if failed and task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _execute(self, tup: Tuple) -> None:
        CURRENT.set(tup)
        calls, now = self.calls, self.host.now
        start = now()
        in_hand, cells, processed = self.in_hand, [], 0
        if in_hand is not None:
            cells = [in_hand.put(root, self.task) for root in trees_of(tup)]
        try:
            await self.execute(tup)
        except asyncio.CancelledError as error:
            # The tuple failed, or the worker ends.
            if not tup.settled:
                calls.fail(tup)
            if not asked_to_end():
                calls.report_error(error)
        except Exception as error:
            if not tup.settled:
                calls.fail(tup)
            calls.report_error(error)
        else:
            if self.auto_ack and not tup.settled:
                calls.ack(tup)
                processed = 1
        finally:
            if in_hand is not None:
                in_hand.clear_batch(cells)
            self.counts.executed_many(tup.source.key, 1, now() - start, processed)
            self._flying.pop(tup, None)
            self.host.wake()

    def abort(self) -> None:
        self._left = list(self._flying)
        for task in self._flying.values():
            task.cancel()

    async def wait_aborted(self, secs: float) -> list[Tuple]:
        """Wait until every cancelled coroutine has ended, at most `secs`. One that goes on
        (`except:` also catches a cancellation) is left behind, and its tuple fails. Returns the
        tuples that they had."""
        if self._flying:
            await asyncio.wait(self._flying.values(), timeout=secs)
        if self._flying:
            log.warning(
                "coroutines_stuck",
                component=self.component,
                task=self.task,
                coroutines=len(self._flying),
            )
        for tup in list(self._flying):
            if not tup.settled:
                self.calls.fail(tup)
        return self._left


class AsyncBatchBolt(AsyncBolt):
    """`async def execute_batch(tuples)`: a batch has at most as many tuples as may be in flight."""

    called = "execute_batch"
    calls: CarefulCalls

    def run(self, deadline: float) -> bool:
        started = False
        while tuples := self._take_batch(self.concurrency - len(self._flying)):
            name = f"{self.component}:{self.task}"
            task = asyncio.get_running_loop().create_task(self._execute_batch(tuples), name=name)
            self._flying.update(dict.fromkeys(tuples, task))
            started = True
        return started

    def _take_batch(self, limit: int) -> list[Tuple]:
        """The first tuples in the inbox that are of one stream."""
        if limit <= 0 or self.blocked:
            return []
        return take_all(*self.inbox.pull(limit))

    async def _execute_batch(self, tuples: list[Tuple]) -> None:
        calls, now = self.calls, self.host.now
        start = now()
        in_hand, cells, processed = self.in_hand, [], 0
        if in_hand is not None:
            cells = in_hand.put_batch((trees_of(tup) for tup in tuples), self.task)
        try:
            await self.execute(tuples[:])
        except (Exception, asyncio.CancelledError) as error:
            for tup in tuples:
                if not tup.settled:
                    calls.fail(tup)
            if not (isinstance(error, asyncio.CancelledError) and asked_to_end()):
                calls.report_error(error)
        else:
            if self.auto_ack:
                processed = len(tuples)
                calls.ack_rest(tuples)
        finally:
            if in_hand is not None:
                in_hand.clear_batch(cells)
            # Each of them was under way for as long as the call, as the limit counts tuples.
            n = len(tuples)
            self.counts.executed_many(tuples[0].source.key, n, n * (now() - start), processed)
            for tup in tuples:
                self._flying.pop(tup, None)
            self.host.wake()


class AsyncSpout(SpoutTask):
    """`async def next_tuple()`: never two calls at once. Backpressure stops and resumes it."""

    _BLOCKED_POLL_SECS = 0.001
    emits_in_turns = False

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self._asking: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        return super().busy or self._asking is not None

    def run(self, deadline: float) -> bool:
        if self._asking is None:
            self.idle_until = 0.0  # past: while it is asked, no turn is due for it
            name = f"{self.component}:{self.task}"
            self._asking = asyncio.get_running_loop().create_task(self._ask(), name=name)
            return True
        return False

    async def _ask(self) -> None:
        """Ask until there is no tuple, or as often as a turn allows; the next turn starts again."""
        emitted = self.calls.emitted
        try:
            for _ in range(self.calls_max):
                before = emitted()
                if not (self.active and self.may_emit):
                    return
                self._woken = False
                await self.user.next_tuple()
                if self.source_end is not None:
                    more = emitted() != before
                    self.ask_end(self.source_end, is_idle=not more, has_emitted=more)
                if emitted() == before:
                    self._rest(self.host.now())
                    return
                self._idle_runs = 0
            self._failures = 0
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and asked_to_end():
                raise
            self._failures += 1
            self.asking_raised(error)
            wait = min(self._ERROR_WAIT_SECS_MAX, 0.001 * 2 ** min(self._failures, 12))
            self.idle_until = self.host.now() + wait
        finally:
            self._asking = None
            self.host.wake()

    def abort(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def wait_aborted(self, secs: float) -> list[Tuple]:
        """Wait until a cancelled next_tuple has ended, at most `secs`. (A spout has no tuples.)"""
        if self._asking is not None:
            await asyncio.wait({self._asking}, timeout=secs)
        if self._asking is not None:
            log.warning("coroutines_stuck", component=self.component, task=self.task, coroutines=1)
        return []


class WakingSpoutCollector(DelegatingSpoutCollector):
    """The collector of an async spout. It wakes the loop, so that tuples emitted between two turns
    are sent."""

    def __init__(self, inner: SpoutCollector, wake: Callable[[], None]) -> None:
        self._wake = wake
        super().__init__(inner)

    def _around(self, name: str, call: Callable[_P, _R]) -> Callable[_P, _R]:
        if name == "report_error":
            return call
        wake = self._wake

        def waking(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            result = call(*args, **kwargs)
            wake()
            return result

        return waking
