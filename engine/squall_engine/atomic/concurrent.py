"""Coroutines with checkpoints: calls of one key run one after the other, in the order in which
their tuples came, and those of different keys side by side.

A call sees the state as it was, and what it has changed itself: it works on a *draft*. When it
returns, the draft is put into the state and what it has emitted leaves, in one go; if it raises,
both are dropped. So a call never sees half of another.

Two calls may use the same entry although their keys differ, as with a total. The one that returns
first counts. The other has worked with what is no longer true: its draft is dropped, and it runs
again alone, while no other call of the task is under way. That is not one of its tries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from squall_common.component.state import KeyValueState, begins_with
from squall_common.state.key_checks import ALWAYS_TAKEN
from squall_common.state.keyed import IMMUTABLE, NO_KEY, KeyedState
from squall_common.state.task_state import RowCodec
from squall_engine.atomic.batches import parts_of, places_of
from squall_engine.atomic.tries import Failure, Held, wait_secs
from squall_engine.atomic.undo import BatchKeys
from squall_engine.core import Tuple

_ABSENT: Any = object()


class CallEndedError(RuntimeError):
    """State or collector of a call that has ended, used by what it has left running."""

    def __init__(self) -> None:
        super().__init__(
            "the call of execute() that this belongs to has ended: with checkpoints, await in it "
            "whatever uses the state or emits"
        )


class _Call:
    """A try of a call under way."""

    def __init__(self, keys: BatchKeys) -> None:
        self.keys = keys
        self.held: Held = []
        self.failed: list[Any] | None = None
        self.ended = False
        self.outdated = False  # another call has changed what this one has used
        self.scans = False  # it has looked at all entries
        self.used: dict[Hashable, None] = {}  # keys of entries
        self.writes: dict[Hashable, Any] = {}  # or _ABSENT
        # Copies of values that the call may change in place, and what they were.
        self.copies: dict[Hashable, tuple[Any, bytes]] = {}


_CALL: ContextVar[_Call | None] = ContextVar("squall_atomic_call", default=None)


def _current() -> _Call | None:
    call = _CALL.get()
    if call is not None and call.ended:
        raise CallEndedError
    return call


class DraftState(KeyValueState):
    """The state of a task, as each call sees it."""

    def __init__(self, state: KeyedState, codec: RowCodec) -> None:
        self.inner = state
        self._codec = codec
        self._users: dict[Hashable, set[_Call]] = {}  # calls under way, by what they have used
        self._scanning: set[_Call] = set()

    # ---- for the bolt ----

    def get(self, key: Hashable, default: Any = None) -> Any:
        call = _current()
        if call is None:
            return self.inner.get(key, default)
        value = self._value(call, key)
        return default if value is _ABSENT else value

    def put(self, key: Hashable, value: Any) -> None:
        call = _current()
        if call is None:
            self.inner.put(key, value)
            self._outdate((key,))
            return
        self._check(call, key, value)
        self._use(call, key)
        call.copies.pop(key, None)
        call.writes[key] = value

    def _check(self, call: _Call, key: Hashable, value: Any) -> None:
        """Raises StateValueError for what the state would refuse when the call returns."""
        inner = self.inner
        if type(key) not in ALWAYS_TAKEN:
            inner.current = call.keys.owner_of(key)  # which an error names
        try:
            inner.check(key, value)
        finally:
            inner.current = NO_KEY

    def delete(self, key: Hashable) -> None:
        call = _current()
        if call is None:
            self.inner.delete(key)
            self._outdate((key,))
            return
        self._use(call, key)
        call.copies.pop(key, None)
        call.writes[key] = _ABSENT

    def iterate(self) -> Iterator[tuple[Any, Any]]:
        return self._entries(lambda _: True)

    def prefix(self, prefix: str | bytes | tuple[Any, ...]) -> Iterator[tuple[Any, Any]]:
        return self._entries(begins_with(prefix))

    def _entries(self, wanted: Callable[[Any], bool]) -> Iterator[tuple[Any, Any]]:
        call = _current()
        if call is None:
            yield from ((key, value) for key, value in self.inner.iterate() if wanted(key))
            return
        for key in [key for key in self._keys(call) if wanted(key)]:
            value = self._value(call, key)
            if value is not _ABSENT:
                yield key, value

    def _keys(self, call: _Call) -> list[Hashable]:
        call.scans = True
        self._scanning.add(call)
        keys = dict.fromkeys(self.inner.keys())
        for key, value in call.writes.items():
            if value is _ABSENT:
                keys.pop(key, None)
            else:
                keys[key] = None
        return list(keys)

    def __len__(self) -> int:
        call = _current()
        return len(self.inner) if call is None else len(self._keys(call))

    def _value(self, call: _Call, key: Hashable) -> Any:
        if key in call.writes:
            return call.writes[key]
        copied = call.copies.get(key)
        if copied is not None:
            return copied[0]
        self._use(call, key)
        value = self.inner.peek(key, _ABSENT)
        if value is _ABSENT or type(value) in IMMUTABLE:
            return value
        data = self._codec.encode_rows(((value,),))
        copy = self._codec.decode_rows(data)[0][0]
        call.copies[key] = (copy, data)
        return copy

    def _use(self, call: _Call, key: Hashable) -> None:
        if key not in call.used:
            call.used[key] = None
            self._users.setdefault(key, set()).add(call)

    # ---- for the calls ----

    def begin(self) -> None:
        """A call begins."""
        self.inner.expire()

    def end(self, call: _Call) -> None:
        """A try has ended, whatever became of it."""
        for key in call.used:
            users = self._users.get(key)
            if users is not None:
                users.discard(call)
                if not users:
                    del self._users[key]
        self._scanning.discard(call)

    def apply(self, call: _Call) -> None:
        """Put a draft into the state. Raises StateValueError, before anything is changed."""
        writes = call.writes
        for key, (copy, data) in call.copies.items():
            # The same bytes: it was not changed in place.
            if self._codec.encode_rows(((copy,),)) != data:
                writes[key] = copy
        for key, value in writes.items():
            if value is not _ABSENT:
                self.inner.check(key, value)
        inner, owner_of = self.inner, call.keys.owner_of
        for key in call.used:
            inner.check_use(key, owner_of(key), puts=writes.get(key, _ABSENT) is not _ABSENT)
        try:
            for key in call.used:
                # What was only read counts as used under this key, too: see `KeyedState`.
                inner.current = owner_of(key)
                value = writes.get(key, call)
                if value is _ABSENT:
                    inner.delete(key)
                elif value is not call:
                    inner.put(key, value)
                else:
                    inner.use(key)
        finally:
            inner.current = NO_KEY
        self._outdate(writes, call)

    def _outdate(self, keys: Iterable[Hashable], by: _Call | None = None) -> None:
        """What calls under way have used of these keys is no longer true."""
        changed = False
        for key in keys:
            changed = True
            for call in self._users.get(key, ()):
                if call is not by:
                    call.outdated = True
        if changed:
            for call in self._scanning:
                if call is not by:
                    call.outdated = True


class ConcurrentCalls:
    """The calls of the coroutines of one task."""

    def __init__(
        self,
        tries_max: int,
        *,
        keys_of: Callable[[Sequence[Tuple]], Iterable[Any]] | None,
        report: Callable[[BaseException], None],
        give_up: Callable[[Tuple, Exception], None],
        fault: Callable[[BaseException], None],
    ) -> None:
        """`keys_of` gives the keys of tuples that a fields grouping brings; None: there is none.
        The others are as in `Tries`."""
        self.state: DraftState | None = None
        self._tries_max = tries_max
        self._keys_of = keys_of
        self._report = report
        self._give_up = give_up
        self._fault = fault
        self._last: dict[Any, asyncio.Event] = {}  # by key: the end of the last call that came
        self._running = 0
        self._idle = asyncio.Event()
        self._gate = asyncio.Lock()  # has the call that runs alone

    # ---- for the collector: see `Holding` ----

    @property
    def held(self) -> Held | None:
        call = _current()
        return None if call is None else call.held

    def fail(self, what: Any) -> None:
        call = _current()
        assert call is not None
        if call.failed is None:
            call.failed = []
        call.failed.append(what)

    # ---- calls ----

    def around(
        self, execute: Callable[[Tuple], Awaitable[Any]]
    ) -> Callable[[Tuple], Awaitable[None]]:
        """`async def execute`, made atomic."""

        async def run(tuples: Sequence[Tuple]) -> None:
            await execute(tuples[0])

        async def atomic(tup: Tuple) -> None:
            tuples = (tup,)
            async with self._turn(tuples):
                await self._alone_or_not(run, tuples)

        return atomic

    def around_batch(
        self, execute: Callable[[list[Tuple]], Awaitable[Any]]
    ) -> Callable[[list[Tuple]], Awaitable[None]]:
        """`async def execute_batch`, made atomic."""

        async def run(tuples: Sequence[Tuple]) -> None:
            await execute(list(tuples))

        async def atomic(tuples: list[Tuple]) -> None:
            async with self._turn(tuples):
                await self._alone_or_not(run, tuples)

        return atomic

    @asynccontextmanager
    async def _turn(self, tuples: Sequence[Tuple]) -> Any:
        """Wait for the calls of these keys that came before."""
        if self._keys_of is None:
            yield
            return
        done = asyncio.Event()
        ahead: dict[int, asyncio.Event] = {}
        keys = self._found_keys(tuples)
        for key in keys:
            before = self._last.get(key)
            if before is not None:
                ahead[id(before)] = before
            self._last[key] = done
        try:
            for before in ahead.values():
                await before.wait()
            yield
        finally:
            done.set()
            for key in keys:
                if self._last.get(key) is done:
                    del self._last[key]

    def _keys(self, tuples: Sequence[Tuple]) -> Iterable[Any]:
        return () if self._keys_of is None else self._keys_of(tuples)

    def _found_keys(self, tuples: Sequence[Tuple]) -> set[Any]:
        """The keys of those that have one. The tries of the others fail: see `_call`."""
        try:
            return BatchKeys(lambda: self._keys(tuples)).all
        except Exception:
            if len(tuples) == 1:
                return set()
        return set().union(*(self._found_keys((tup,)) for tup in tuples))

    async def _alone_or_not(self, run: Any, tuples: Sequence[Tuple]) -> None:
        error, failed = await self._attempt(run, tuples)
        if error is not None:
            if len(tuples) > 1:
                self._report(error)
            await self._part(run, tuples, error, failed)

    async def _part(
        self, run: Any, tuples: Sequence[Tuple], error: Exception, failed: list[Tuple] | None
    ) -> None:
        """Try again what has failed: see `batches`."""
        if len(tuples) == 1:
            await self._last_tries(run, tuples, error)
            return
        for start, stop in parts_of(0, len(tuples), places_of(tuples, failed)):
            some = tuples[start:stop]
            again, failed_again = await self._attempt(run, some)
            if again is not None:
                await self._part(run, some, again, failed_again)

    async def _last_tries(self, run: Any, tuples: Sequence[Tuple], error: Exception) -> None:
        for count in range(1, self._tries_max):
            self._report(error)
            await asyncio.sleep(wait_secs(count))
            next_error, _ = await self._attempt(run, tuples)
            if next_error is None:
                return
            error = next_error
        self._report(error)
        self._give_up(tuples[0], error)

    async def _attempt(
        self, run: Any, tuples: Sequence[Tuple]
    ) -> tuple[Exception | None, list[Tuple] | None]:
        """One try. Returns its error and what it has failed, if it has failed."""
        async with self._gate:
            self._running += 1
        try:
            call = await self._call(run, tuples)
        finally:
            self._running -= 1
            self._idle.set()
        if not isinstance(call, _Outdated):
            return call
        async with self._gate:
            while self._running:
                self._idle.clear()
                await self._idle.wait()
            # Only what is done outside of calls, as by a timer, can come in between.
            while True:
                call = await self._call(run, tuples)
                if not isinstance(call, _Outdated):
                    return call

    async def _call(
        self, run: Any, tuples: Sequence[Tuple]
    ) -> tuple[Exception | None, list[Tuple] | None] | _Outdated:
        state = self.state
        call = _Call(BatchKeys(lambda: self._keys(tuples)))
        if state is not None:
            state.begin()
        token = _CALL.set(call)
        try:
            try:
                if self._keys_of is not None:
                    _ = call.keys.all  # a tuple whose key cannot be found fails
                await run(tuples)
                if call.failed:
                    raise Failure
            finally:
                _CALL.reset(token)
            if not call.outdated and state is not None:
                state.apply(call)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # the worker ends
            return _OUTDATED if call.outdated else (_Cancelled(error), call.failed)
        except Exception as error:
            return _OUTDATED if call.outdated else (error, call.failed)
        finally:
            call.ended = True
            if state is not None:
                state.end(call)
        if call.outdated:
            return _OUTDATED
        try:
            for make, arguments in call.held:
                assert make is not None
                make(*arguments)
        except Exception as error:
            # Some of it may have left.
            self._fault(error)
            raise
        return None, None


class _Cancelled(Exception):
    """The bolt has awaited something that was cancelled."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__("what the call awaited was cancelled")
        self.__cause__ = cause


class _Outdated:
    """A try that has worked with what is no longer true."""


_OUTDATED = _Outdated()
