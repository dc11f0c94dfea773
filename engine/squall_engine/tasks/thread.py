"""Components with `blocking = True`: each task has a thread of its own.

All of the component's methods are called on that thread. Its calls (emit, ack ...) go to buffers
and to a ledger of the task's own, under the task's lock; the loop empties them under the same lock
once a turn. Nothing else is shared.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec, TypeVar

from squall_common.component.collector import (
    BoltCollector,
    DelegatingBoltCollector,
    DelegatingCollector,
    DelegatingSpoutCollector,
    SpoutCollector,
)
from squall_engine.core import CarefulCalls, Tuple
from squall_engine.tasks.base import TaskParts
from squall_engine.tasks.bolt import SLICE_TUPLES_MAX, BoltTask, trees_of
from squall_engine.tasks.spout import SpoutTask

_P = ParamSpec("_P")
_R = TypeVar("_R")

_IDLE_SECS_MAX = 0.05


class Locked(DelegatingCollector):
    """Calls of a component on a thread: each under the lock, and each wakes the loop."""

    _lock: AbstractContextManager[Any]
    _wake: Callable[[], None]

    def _around(self, name: str, call: Callable[_P, _R]) -> Callable[_P, _R]:
        if name == "report_error":
            return call  # thread-safe by itself
        return self.locked(call)

    def locked(self, call: Callable[_P, _R]) -> Callable[_P, _R]:
        """`call`, likewise."""
        lock, wake = self._lock, self._wake

        def calling(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with lock:
                result = call(*args, **kwargs)
            wake()
            return result

        return calling


class LockedSpoutCollector(Locked, DelegatingSpoutCollector):
    """The collector of a `ThreadSpout`."""

    def __init__(
        self, inner: SpoutCollector, lock: AbstractContextManager[Any], wake: Callable[[], None]
    ) -> None:
        self._lock, self._wake = lock, wake
        super().__init__(inner)


class LockedBoltCollector(Locked, DelegatingBoltCollector[Tuple]):
    """The collector of a `ThreadBolt`."""

    def __init__(
        self,
        inner: BoltCollector[Tuple],
        lock: AbstractContextManager[Any],
        wake: Callable[[], None],
    ) -> None:
        self._lock, self._wake = lock, wake
        super().__init__(inner)


class ThreadBolt(BoltTask):
    """`execute(tup)` on a thread."""

    called = "execute"
    ahead = 64  # tuples handed to the thread early, so that it does not wait for the loop
    calls: CarefulCalls
    auto_ack: bool

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self.lock = threading.RLock()
        self.current: Tuple | None = None
        self._work: queue.SimpleQueue[Tuple | Callable[[], Any] | None] = queue.SimpleQueue()
        self._handed = 0  # given to the thread; only the loop adds, only the thread takes away
        self._done = 0
        self._aborted = False
        self._left: list[Tuple] = []  # failed because the worker ends
        # The messages of a call that raised, by root, until that is reported: the loop may end
        # their trees as soon as their tuples have failed, and then nothing knows the ids.
        self.failing: Mapping[int, Any] = {}
        self._thread = threading.Thread(
            target=self._loop, name=f"{self.component}:{self.task}", daemon=True
        )

    def start_thread(self) -> None:
        self._thread.start()

    @property
    def thread_id(self) -> int:
        return self._thread.ident or 0

    @property
    def busy(self) -> bool:
        return bool(self.inbox) or self._handed > self._done

    @property
    def calls_max(self) -> int | None:
        return 1

    def run(self, deadline: float) -> bool:
        started = False
        while batch := self.take(self.ahead - (self._handed - self._done)):
            self._handed += len(batch)
            for tup in batch.as_tuples():
                self._work.put(tup)
            started = True
        return started

    def call_on_thread(self, call: Callable[[], Any]) -> None:
        """Have the thread make a call, after what it was given before. From the loop."""
        self._handed += 1  # it may emit, so the task is busy until then
        self._work.put(call)

    def abort(self) -> None:
        self._aborted = True
        self._work.put(None)

    def join(self, secs: float) -> bool:
        """Wait for the thread's end; False when it still runs (it dies with the process)."""
        self._thread.join(secs)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        try:
            while (work := self._next_work()) is not None:
                if not isinstance(work, Tuple):
                    try:
                        work()
                    finally:
                        self._done += 1
                        self.host.wake()
                elif self._aborted:
                    self._fail(work)
                else:
                    self._execute(work)
        except BaseException as error:
            self.host.die(error)  # SystemExit: as on the loop, not a task that is silent forever

    def _next_work(self) -> Tuple | Callable[[], Any] | None:
        return self._work.get()

    def _in_hand(self) -> list[Tuple]:
        """The tuples that the thread has taken and not finished."""
        return [self.current] if self.current is not None else []

    def give_up(self) -> list[Tuple]:
        """Fail the tuples that the thread was given and has not finished, after waiting for it.
        Returns all tuples that failed because the worker ends."""
        left = self._in_hand()
        calls = []
        with contextlib.suppress(queue.Empty):
            while True:
                work = self._work.get_nowait()
                if isinstance(work, Tuple):
                    left.append(work)
                else:
                    calls.append(work)
        for call in calls:  # including its end, in case the thread gets there
            self._work.put(call)
        for tup in left:
            self._fail(tup)
        return self._left

    def _fail(self, tup: Tuple) -> None:
        with self.lock:
            if not tup.settled:
                self._left.append(tup)
                self.calls.fail(tup)

    def _execute(self, tup: Tuple) -> None:
        calls, now = self.calls, self.host.now
        start = now()
        self.current = tup
        in_hand, cells, processed = self.in_hand, [], 0
        if in_hand is not None:
            cells = [in_hand.put(root, self.task) for root in trees_of(tup)]
        try:
            self.execute(tup)
        except Exception as error:
            self._raised([tup], error)
        else:
            with self.lock:
                if self.auto_ack and not tup.settled:
                    calls.ack(tup)
                    processed = 1
        finally:
            self.current = None
            if in_hand is not None:
                in_hand.clear_batch(cells)
            with self.lock:
                self.counts.executed_many(tup.source.key, 1, now() - start, processed)
                self._done += 1
            self.host.wake()

    def _raised(self, tuples: Sequence[Tuple], error: Exception) -> None:
        """Fail them before the report: in dead letters an error is the reason of the failures that
        it follows."""
        self.failing = self.host.messages_of(tuples)
        try:
            with self.lock:
                for tup in tuples:
                    if not tup.settled:
                        self.calls.fail(tup)
            self.calls.report_error(error)
        finally:
            self.failing = {}


class ThreadBatchBolt(ThreadBolt):
    """`execute_batch(tuples)` on a thread: each batch is what waits then, of one stream."""

    called = "execute_batch"
    ahead = SLICE_TUPLES_MAX

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self._batch: list[Tuple] = []
        # Taken from the queue behind a batch, and not part of it: one at most.
        self._behind: list[Tuple | Callable[[], Any] | None] = []

    def _next_work(self) -> Tuple | Callable[[], Any] | None:
        return self._behind.pop() if self._behind else super()._next_work()

    def _in_hand(self) -> list[Tuple]:
        return [*self._batch, *(work for work in self._behind if isinstance(work, Tuple))]

    def _execute(self, tup: Tuple) -> None:
        tuples = self._batch = [tup]
        with contextlib.suppress(queue.Empty):
            while len(tuples) < self.ahead:
                work = self._work.get_nowait()
                if not isinstance(work, Tuple) or work.source.key != tup.source.key:
                    self._behind.append(work)
                    break
                tuples.append(work)
        self.current = tup  # for reports of calls that do not return
        now, in_hand = self.host.now, self.in_hand
        start, processed = now(), 0
        cells = []
        if in_hand is not None:
            cells = in_hand.put_batch((trees_of(one) for one in tuples), self.task)
        try:
            self.execute(tuples[:])
        except Exception as error:
            self._raised(tuples, error)
        else:
            if self.auto_ack:
                processed = len(tuples)
                with self.lock:
                    self.calls.ack_rest(tuples)
        finally:
            self.current = None
            if in_hand is not None:
                in_hand.clear_batch(cells)
            with self.lock:
                self._batch = []
                self.counts.executed_many(tup.source.key, len(tuples), now() - start, processed)
                self._done += len(tuples)
            self.host.wake()


class ThreadSpout(SpoutTask):
    """`next_tuple()` on a thread. It may wait there for as long as it likes, but acks and fails are
    delivered between two calls, so an endless wait holds them back."""

    on_loop = False

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self.lock = threading.RLock()
        self._events: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._event = False  # one of them is in progress
        self._wakeup = threading.Event()
        self._allowed = False  # by backpressure, as of the last turn
        self.asked: object | None = None  # while next_tuple is under way: another one each time
        self._aborted = False
        self._thread = threading.Thread(
            target=self._loop, name=f"{self.component}:{self.task}", daemon=True
        )

    def start_thread(self) -> None:
        self._thread.start()

    @property
    def thread_id(self) -> int:
        return self._thread.ident or 0

    @property
    def has_emitted(self) -> bool:
        return False  # its calls wake the engine

    @property
    def busy(self) -> bool:
        with self.lock:  # the thread decides under it whether to ask
            return self.has_news or self.asked is not None

    @property
    def has_news(self) -> bool:
        # In this order: the thread sets `_event` before it takes an event.
        waiting = super().has_news or not self._events.empty()
        return waiting or self._event

    def run(self, deadline: float) -> bool:
        if not self._allowed:
            self._allowed = True
            self._wakeup.set()
        return False

    def throttle(self) -> None:
        """Make no more calls for now, because of backpressure."""
        self._allowed = False

    def wake(self) -> None:
        super().wake()
        self._wakeup.set()

    def call_user(self, what: str, message_ids: Sequence[Any]) -> None:
        call = super().call_user
        self._events.put(lambda: call(what, message_ids))
        self._wakeup.set()

    def call_hooks(self, message_ids: Sequence[Any], *, failed: bool) -> None:
        call = super().call_hooks
        self._events.put(lambda: call(message_ids, failed=failed))
        self._wakeup.set()

    def lifecycle(self, call: Callable[[], Any]) -> None:
        inner = super().lifecycle
        self._events.put(lambda: inner(call))
        self._wakeup.set()

    def call_on_thread(self, call: Callable[[], Any]) -> None:
        """Have the thread make a call between two of next_tuple."""
        self._events.put(call)
        self._wakeup.set()

    def abort(self) -> None:
        self._aborted = True
        self._wakeup.set()

    def join(self, secs: float) -> bool:
        """Wait for the thread's end; False when it still runs (it dies with the process)."""
        self._thread.join(secs)
        return not self._thread.is_alive()

    def _loop(self) -> None:
        try:
            self._ask()
        except BaseException as error:
            self.host.die(error)  # SystemExit: as on the loop, not a task that is silent forever

    def _ask(self) -> None:
        idle_secs = 0.001
        while True:
            self._wakeup.clear()
            while not self._events.empty():
                self._event = True
                self._events.get()()
            self._event = False
            if self._aborted:
                return
            with self.lock:
                may_emit = self.active and self._allowed and self.may_emit
                before = self.calls.emitted()
                self.asked = object() if may_emit else None
            if not may_emit:
                if self.pending_max == 0:
                    self.host.wake()  # a barrier waits for this; no call of the task's may come
                self._wakeup.wait()
                continue
            try:
                self.user.next_tuple()
                if self.source_end is not None:
                    more = self.calls.emitted() != before
                    self.ask_end(self.source_end, is_idle=not more, has_emitted=more)
            except Exception as error:
                self.asked = None  # the wait is not part of it
                self.asking_raised(error)
                self._wakeup.wait(self._ERROR_WAIT_SECS_MAX)
                continue
            finally:
                self.asked = None
            if self.calls.emitted() == before:
                self._wakeup.wait(max(idle_secs, self.idle_secs_min))
                idle_secs = min(2 * idle_secs, _IDLE_SECS_MAX)
            else:
                idle_secs = 0.001


async def on_thread(task: ThreadSpout | ThreadBolt, call: Callable[[], Any]) -> None:
    """Make a call on a component's thread and wait for it. Raises what the call raises."""
    await made_by(task.call_on_thread, call)


async def made_by(start: Callable[[Callable[[], None]], object], call: Callable[[], Any]) -> None:
    """Have `start` make a call on another thread, and wait for it. Raises what the call raises."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            call()
        except BaseException as raised:
            # A future cannot hold a StopIteration.
            error = RuntimeError(repr(raised)) if isinstance(raised, StopIteration) else raised
        try:
            loop.call_soon_threadsafe(settle, error)
        except RuntimeError:
            pass  # the loop has ended, so nothing waits any more

    start(run)
    await done
