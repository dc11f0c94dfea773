"""The state of one task that is stored: flushed every so often, by a thread, and acked after that.

    execute         changes the state; its tuple is *held* instead of acked
    flush           a snapshot is taken, between two calls of the bolt, with the tuples held so far
    ... written     by a thread, meanwhile the bolt goes on
    completed       the tuples of the snapshot are acked

So whatever was acked is in the stored state. A write that fails is tried again with the next flush,
which has its changes, too; tuples are held until then, and time out in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor, Future
from typing import Any

from squall_common.component.collector import BoltCollector, DelegatingBoltCollector
from squall_common.daemon.logs import get_logger
from squall_common.state.errors import StateError, StateStoreError, StateTableLostError
from squall_common.state.keyed import NO_KEY, KeyedState
from squall_common.state.task_state import RowCodec
from squall_common.state.task_store import TaskStore
from squall_engine.core import Tuple
from squall_engine.core.invocation import InvocationMode
from squall_engine.state.keys import AsyncKeyedState, KeyOf
from squall_engine.tasks.bolt import BoltTask

log = get_logger(__name__)

HELD_MAX = 250_000
"""Tuples that wait for a flush, at most; more fail."""

CallLater = Callable[[int, float, Callable[[], Any]], object]


class StoredTask:
    """The state of a task, its store, and the tuples that wait for it."""

    def __init__(
        self,
        component: str,
        task: int,
        state: KeyedState,
        store: TaskStore,
        codec: RowCodec,
        key_of: KeyOf,
        *,
        interval_secs: float,
        threads: Executor,
        now: Callable[[], float],
    ) -> None:
        """`codec` is for the thread that writes, `now()` seconds."""
        self.component, self.task = component, task
        self.state = state
        self.flushes = 0
        self.flushed_bytes = 0
        self.last_flush_secs = 0.0
        self._store = store
        self._codec = codec
        self._key_of = key_of
        self._interval_secs = interval_secs
        self._threads = threads
        self._now = now
        # Only the task's own thread touches `_held`; what a failed write has left is added by it.
        self._held: list[Tuple] = []
        self._left: list[Tuple] = []
        self._flushing: list[Tuple] | None = None  # those of the snapshot that is being written
        self._bolt: BoltTask | None = None
        self._full = False  # tuples fail, because too many are held
        self._call_later: CallLater | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = False
        self._last_epoch = 0
        self._idle = asyncio.Event()  # nothing is being written
        self._idle.set()

    def gauges(self) -> dict[str, Callable[[], float]]:
        """What the task's metrics show beside the size of its state."""
        return {
            "state.held-tuples": lambda: self.held,
            "state.flush-secs": lambda: self.last_flush_secs,
        }

    @property
    def stored_bytes(self) -> int:
        """What a restart reads."""
        return self._store.size

    @property
    def held(self) -> int:
        """Tuples that wait to be acked."""
        return len(self._held) + len(self._left) + len(self._flushing or ())

    # ---- calls of the bolt ----

    def collector(self, inner: BoltCollector[Tuple]) -> BoltCollector[Tuple]:
        """The bolt's collector, whose acks wait for a flush."""
        return _HoldingCollector(inner, self.hold)

    def around(self, mode: InvocationMode, call: Callable[[Any], Any], *, auto_ack: bool) -> Any:
        """The bolt's `execute` or `execute_batch`: called under its tuple's key; its tuples are
        held when it returns."""
        if mode is InvocationMode.ASYNC:
            return self._around_async(call, auto_ack)
        if mode is InvocationMode.ASYNC_BATCH:
            return self._around_async_batch(call, auto_ack)
        if mode in (InvocationMode.BATCH, InvocationMode.THREAD_BATCH):
            return self._around_batch(call, auto_ack)
        return self._around(call, auto_ack)

    def _around(self, execute: Callable[[Tuple], Any], auto_ack: bool) -> Callable[[Tuple], None]:
        state, key_of, held = self.state, self._key_of, self._held

        def followed(tup: Tuple) -> None:
            state.current = key_of(tup)
            try:
                execute(tup)
            finally:
                state.current = NO_KEY
            if auto_ack and not tup.settled:
                if len(held) < HELD_MAX:  # as `hold`, without the call
                    held.append(tup)
                else:
                    self._refuse(tup)

        return followed

    def _around_async(
        self, execute: Callable[[Tuple], Awaitable[Any]], auto_ack: bool
    ) -> Callable[[Tuple], Awaitable[None]]:
        state, key_of, hold = self.state, self._key_of, self.hold
        assert isinstance(state, AsyncKeyedState)

        async def followed(tup: Tuple) -> None:
            state.begin_call(key_of(tup))  # in this coroutine's context
            try:
                await execute(tup)
            finally:
                state.end_call()
            if auto_ack and not tup.settled:
                hold(tup)

        return followed

    def _around_batch(
        self, execute: Callable[[list[Tuple]], Any], auto_ack: bool
    ) -> Callable[[list[Tuple]], None]:
        def followed(tuples: list[Tuple]) -> None:
            given = tuples[:]  # the component may change its list
            execute(tuples)
            if auto_ack:
                self._hold_all(given)

        return followed

    def _around_async_batch(
        self, execute: Callable[[list[Tuple]], Awaitable[Any]], auto_ack: bool
    ) -> Callable[[list[Tuple]], Awaitable[None]]:
        state = self.state
        assert isinstance(state, AsyncKeyedState)

        async def followed(tuples: list[Tuple]) -> None:
            given = tuples[:]
            state.begin_call(NO_KEY)
            try:
                await execute(tuples)
            finally:
                state.end_call()
            if auto_ack:
                self._hold_all(given)

        return followed

    def _hold_all(self, tuples: list[Tuple]) -> None:
        for tup in tuples:
            if not tup.settled:
                self.hold(tup)

    def hold(self, tup: Tuple) -> None:
        """Ack a tuple after the next flush. On the task's own thread."""
        if len(self._held) < HELD_MAX:
            self._held.append(tup)
        else:
            self._refuse(tup)

    def _refuse(self, tup: Tuple) -> None:
        bolt = self._bolt
        assert bolt is not None
        with bolt.lock:
            bolt.calls.fail(tup)
        if not self._full:
            self._full = True
            error = StateStoreError(
                f"{HELD_MAX:,} tuples of {self.component!r}, task {self.task}, wait for its "
                "state to be stored, so more of them fail",
                hint="lower topology.max.spout.pending or "
                "topology.state.checkpoint.interval.ms, or see why the store is slow",
            )
            bolt.host.report(self.component, self.task, error)

    # ---- flushes ----

    def attach(self, bolt: BoltTask) -> None:
        """Set the task, once it is made."""
        self._bolt = bolt

    def begin(self, call_later: CallLater) -> None:
        """Flush from now on. `call_later`: see `TopologyContext.call_later`."""
        self._loop = asyncio.get_running_loop()
        self._call_later = call_later
        self._schedule()

    def hurry(self, secs: float) -> None:
        """Flush now, and every `secs` seconds from now on, because the worker ends."""
        self._interval_secs = min(self._interval_secs, secs)
        self._schedule()

    def _schedule(self) -> None:
        if self._call_later is not None and not self._ended:
            self._call_later(self.task, self._interval_secs, self._flush_and_wait)

    def _flush_and_wait(self) -> None:
        self.flush()
        if self._flushing is None:
            self._schedule()  # otherwise when it is done

    def flush(self) -> None:
        """Begin to store what has changed. On the task's own thread."""
        if self._flushing is not None or self._ended:
            return
        if not (self._held or self._left or self.state.has_changes):
            return
        self._flushing, self._left = [*self._left, *self._held], []
        self._held.clear()
        self._full = False
        epoch = max(self._store.epoch, self._last_epoch) + 1
        self._last_epoch = epoch
        try:
            changes = self.state.snapshot(epoch, base=self._store.wants_base(len(self.state)))
        except StateError as error:  # of state on disk
            self._left, self._flushing = self._flushing, None
            self._failed(error)
            return
        start = self._now()
        self._idle.clear()
        future = self._threads.submit(self._store.write, changes, self._codec)
        future.add_done_callback(lambda done: self._tell(done, epoch, start))

    def _tell(self, done: Future[int], epoch: int, start: float) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._written, done, epoch, start)
        except RuntimeError:
            pass  # the loop is closed

    def _written(self, done: Future[int], epoch: int, start: float) -> None:
        """A write has ended. On the loop."""
        error = None if done.cancelled() else done.exception()
        tuples = self._flushing or []
        if error is not None or done.cancelled():
            self._left = tuples
        else:
            self.state.completed(epoch)
        self._flushing = None  # from now on the bolt's thread may take the next snapshot
        if error is None and not done.cancelled():
            self.flushes += 1
            self.flushed_bytes += done.result()
            self.last_flush_secs = self._now() - start
            self._ack(tuples)
        elif error is not None:
            self._failed(error)
        self._idle.set()
        self._schedule()

    def _ack(self, tuples: list[Tuple]) -> None:
        bolt = self._bolt
        assert bolt is not None
        with bolt.lock:
            ack = bolt.calls.ack
            for tup in tuples:
                if not tup.settled:
                    ack(tup)

    def _failed(self, error: BaseException) -> None:
        bolt = self._bolt
        assert bolt is not None
        bolt.host.report(self.component, self.task, error)
        if isinstance(error, StateStoreError) and not isinstance(error, StateTableLostError):
            return  # the next flush tries again
        self._ended = True
        bolt.host.die(error)  # fenced; or what no flush can store

    async def close(self, secs: float) -> None:
        """Store what is left, for at most so many seconds. After the bolt's cleanup."""
        if self._loop is None or self._ended:
            return
        try:
            async with asyncio.timeout(secs):
                await self._idle.wait()  # what is being written
                self.flush()  # and what came since
                await self._idle.wait()
        except TimeoutError:
            log.warning("state_not_stored", component=self.component, task=self.task, secs=secs)
        self._ended = True


class _HoldingCollector(DelegatingBoltCollector[Tuple]):
    def __init__(self, inner: BoltCollector[Tuple], hold: Callable[[Tuple], None]) -> None:
        self._hold = hold
        super().__init__(inner)

    def ack(self, tup: Tuple) -> None:
        if tup.settled:
            self._inner.ack(tup)  # raises
        self._hold(tup)
