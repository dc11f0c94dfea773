"""Reads the state of running tasks, for `storm state inspect --live`.

A thread that no task has asks; nothing here costs anything before. What it asks for is read where
the methods of the bolt are called (on the run loop, or on the task's own thread), between two
calls: so it never sees half of an `execute`. With checkpoints that also holds for coroutines, whose
calls are drafts until they end; without, they change the state as they go, so a task of theirs is
read when none of them is under way, and says so if there is no such moment.

Reading changes nothing: no entry counts as used, none expires.

Time. A dictionary's keys are copied at once (10 to 15 ms for a million), and looked through on the
asking thread, with pauses; a table on disk is read in pieces. Values are made JSON of a bounded
size.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Protocol, TypeVar

import msgspec

from squall_common.component.state import MemoryState, begins_with
from squall_common.daemon.logs import get_logger
from squall_common.errors import describe
from squall_common.state.disk.state import DiskState
from squall_common.state.keyed import KeyedState, Unstored
from squall_common.telemetry.live_state import (
    ANSWER_BYTES_MAX,
    Answer,
    Entry,
    Question,
    TaskAnswer,
    forms_of,
    order_of,
    prefix_of,
    shown,
)
from squall_engine.atomic.concurrent import DraftState
from squall_engine.core.codec import ValueCodec
from squall_engine.state.sizes import state_of
from squall_engine.tasks.async_ import AsyncBolt
from squall_engine.tasks.built import Built
from squall_engine.tasks.thread import ThreadBolt

log = get_logger(__name__)

T = TypeVar("T")
_Found = list[tuple[Any, Entry]]
"""Keys, and how they are shown."""
_ABSENT: Any = object()

_KEYS_AT_ONCE = 2_000  # looked at between two pauses: about a millisecond
_PAUSE_SECS = 0.002
_BYTES_AT_ONCE = 1024 * 1024  # of a table
_SAMPLE = 50  # entries from which the size of all is estimated
_SAMPLE_FROM = 100_000
_ENTRIES_AT_ONCE = 50  # shown between two tuples
_HELD_SECS = 4.0  # a run loop that does not answer for longer is stuck in a call
_SETTLED_SECS = 2.0  # how long a moment without coroutines under way is waited for
_AGAIN_SECS = 0.01
_ANSWER_BYTES = ANSWER_BYTES_MAX * 3 // 4  # of entries; the rest is for what is around them
_NOT_SHOWN = "..."


class _UnderWayError(Exception):
    """Coroutines of the task are under way."""


class Host(Protocol):
    """What this needs of an engine; from any thread."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    async def call_for(self, user: Any, call: Callable[[], Any]) -> None: ...

    def why_busy(self, one: Built) -> str:
        """What keeps a task from answering."""
        ...


@dataclass(slots=True)
class _Taken:
    """What was read first of a task."""

    answer: TaskAnswer
    keys: list[Any] | None = None  # to look through
    found: _Found = field(default_factory=list)
    unstored: Unstored = field(default_factory=Unstored)


def answer(
    host: Host,
    built: Sequence[Built],
    question: Question,
    *,
    index_of: Callable[[Built], int],
    make_codec: Callable[[], ValueCodec],
    secs: float,
) -> Answer:
    """Answer a question for all tasks of this worker that it is about, within `secs`. Blocks; on a
    thread of the caller's."""
    reading = _Reading(host, question, index_of, make_codec, time.monotonic() + secs)
    asked = [one for one in built if reading.is_asked(one)]
    reading.share_room(len(asked))
    # All at once: where the run loop is stuck, the time is over once.
    started = [(one, reading.start(one)) for one in asked]
    return Answer(tuple(reading.finish(one, taking) for one, taking in started))


class _Reading:
    def __init__(
        self,
        host: Host,
        question: Question,
        index_of: Callable[[Built], int],
        make_codec: Callable[[], ValueCodec],
        until: float,
    ) -> None:
        self._host = host
        self._question = question
        self._index_of = index_of
        self._make_codec = make_codec
        self._until = until
        self._room = _ANSWER_BYTES  # of the entries of one task
        self._asked_at = 0.0  # when a call was begun last

    def share_room(self, tasks: int) -> None:
        """So many tasks answer, each with its part of the bytes: one that had no room for any entry
        could not say where it ends, and the page of the others would leave out its keys."""
        self._room = _ANSWER_BYTES // max(1, tasks)

    def is_asked(self, one: Built) -> bool:
        component = self._question.component
        if component not in (None, one.task.component):
            return False
        return component is not None or _state_of(one) is not None or _windows_of(one) is not None

    def start(self, one: Built) -> Future[_Taken] | None:
        return self._call(one, partial(self._take, one))

    def finish(self, one: Built, taking: Future[_Taken] | None) -> TaskAnswer:
        try:
            taken = self._result(one, taking, partial(self._take, one))
            if taken.keys is None:
                entries = self._judged(taken.found, taken.unstored)
                return msgspec.structs.replace(taken.answer, entries=entries)
            return self._listed(one, taken.answer, taken.keys)
        except _Trouble as trouble:
            return self._answer(one, trouble=str(trouble))
        except Exception as error:
            log.warning("state_not_read", component=one.task.component, error=error, exc_info=error)
            return self._answer(one, trouble=f"its state could not be read: {describe(error)}")

    def _answer(self, one: Built, **values: Any) -> TaskAnswer:
        return TaskAnswer(one.task.component, self._index_of(one), **values)

    # ---- calls where the bolt is called ----

    def _call(self, one: Built, call: Callable[[], T]) -> Future[T] | None:
        """None: the engine has ended."""

        async def run() -> T:
            found: list[T] = []
            await self._host.call_for(one.task.user, lambda: found.append(call()))
            return found[0]

        running = run()
        self._asked_at = time.monotonic()
        try:
            return asyncio.run_coroutine_threadsafe(running, self._host.loop)
        except RuntimeError:
            running.close()
            return None

    def _result(self, one: Built, future: Future[T] | None, call: Callable[[], T]) -> T:
        settled_until = min(self._until, time.monotonic() + _SETTLED_SECS)
        while True:
            if future is None:
                raise _Trouble("its worker is ending")
            try:
                return future.result(max(0.0, self._patience(one) - time.monotonic()))
            except _UnderWayError:
                if time.monotonic() > settled_until:
                    raise _Trouble(
                        "coroutines of its execute have been under way all the time, and change "
                        "the state as they go: with checkpoints they could be told apart"
                    ) from None
                time.sleep(_AGAIN_SECS)
                future = self._call(one, call)
            except CancelledError:
                raise _Trouble("its worker is ending") from None
            except FutureTimeoutError:
                future.cancel()
                raise _Trouble(self._host.why_busy(one)) from None

    def _patience(self, one: Built) -> float:
        """Until when a call may take. A thread has up to 64 tuples to do before."""
        if isinstance(one.task, ThreadBolt):
            return self._until
        return min(self._until, self._asked_at + _HELD_SECS)

    def _again(self, one: Built, call: Callable[[], T]) -> T:
        return self._result(one, self._call(one, call), call)

    # ---- on the bolt's thread ----

    def _take(self, one: Built) -> _Taken:
        _require_settled(one)
        question, state, windows = self._question, _state_of(one), _windows_of(one)
        if not isinstance(state, KeyedState | MemoryState):
            trouble = None
            if state is not None:
                trouble = f"its bolt has a state of its own kind ({type(state).__name__})"
            elif windows is None:
                trouble = "it has no state"
            return _Taken(self._answer(one, windows=windows, trouble=trouble))
        sizes: dict[str, Any] = {"keys": len(state), "windows": windows}
        if isinstance(state, KeyedState):
            sizes |= {
                "bound": state.bound,
                "unstored": state.unstored,
                "epoch": state.completed_epoch,
            }
        if question.key is not None:
            taken = _Taken(self._answer(one, **sizes))
            forms = forms_of(question.key)
            taken.found, _, _ = _shown_entries(state, forms, _ANSWER_BYTES, taken.unstored)
            return taken
        if question.lists:
            keys = state.newer_keys() if isinstance(state, DiskState) else state.keys()
            return _Taken(self._answer(one, **sizes), keys)
        return _Taken(self._answer(one, **sizes, bytes=self._estimated(state)))

    def _estimated(self, state: KeyedState | MemoryState) -> int | None:
        """The encoded bytes of all entries."""
        codec, count = self._make_codec(), len(state)
        sizes: list[int] = []
        if isinstance(state, DiskState):
            keys = state.newer_keys()[:_SAMPLE_FROM]
        else:
            keys = state.first_keys(_SAMPLE_FROM)
        for key in keys[:: max(1, len(keys) // _SAMPLE)]:
            with suppress(ValueError):
                sizes.append(len(codec.encode_rows(((key, state.glance(key)),))))
        if isinstance(state, DiskState):
            rows, _ = state.rows_after(b"", rows_max=_SAMPLE, bytes_max=_BYTES_AT_ONCE)
            sizes += map(len, rows)
        return count * sum(sizes) // len(sizes) if sizes else 0 if not count else None

    # ---- listing ----

    def _listed(self, one: Built, sizes: TaskAnswer, keys: list[Any]) -> TaskAnswer:
        after, more = self._question.after or "", True
        found: _Found = []
        unstored = Unstored()
        # Until there is one: all keys of a page may have expired, or be gone since.
        while more and not found:
            page, more = self._page(self._all_keys(one, keys), after)
            room = self._room
            for start in range(0, len(page), _ENTRIES_AT_ONCE):
                some = page[start : start + _ENTRIES_AT_ONCE]
                show = partial(self._show, one, some, room, unstored, is_first=not found)
                got, room, whole = self._again(one, show)
                found += got
                if not whole:
                    more = True
                    break
            if page:
                after = order_of(page[-1])
        return msgspec.structs.replace(sizes, entries=self._judged(found, unstored), more=more)

    def _judged(self, found: _Found, unstored: Unstored) -> tuple[Entry, ...]:
        """Entries that say whether they are stored."""
        if not any(entry.stored for _, entry in found):
            return tuple(entry for _, entry in found)
        changed = unstored.keys(self._pause)
        return tuple(
            msgspec.structs.replace(entry, stored=key not in changed) for key, entry in found
        )

    def _pause(self) -> None:
        """Let others run, after a millisecond's work on this thread."""
        if time.monotonic() > self._until:
            raise _Trouble("it has more keys than could be looked through in time")
        time.sleep(_PAUSE_SECS)

    def _show(
        self, one: Built, keys: Sequence[Any], room: int, unstored: Unstored, *, is_first: bool
    ) -> tuple[_Found, int, bool]:
        _require_settled(one)
        return _shown_entries(_state_of(one), keys, room, unstored, is_first=is_first)

    def _all_keys(self, one: Built, keys: list[Any]) -> Iterator[Sequence[Any]]:
        """All keys, some at a time. Those of a table that have changed meanwhile may come twice."""
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            yield keys[start : start + _KEYS_AT_ONCE]
        state = _state_of(one)
        if not isinstance(state, DiskState):
            return
        codec = self._make_codec()  # of this thread
        at: bytes | None = b""
        while at is not None:
            take = partial(
                state.rows_after, at, rows_max=_KEYS_AT_ONCE // 2, bytes_max=_BYTES_AT_ONCE
            )
            rows, at = self._again(one, take)
            yield [codec.decode_rows(row)[0][0] for row in rows]

    def _page(self, keys: Iterator[Sequence[Any]], after: str) -> tuple[list[Any], bool]:
        """The keys of the page behind `after`, in their order, and whether more follow."""
        question = self._question
        begins = None if question.prefix is None else begins_with(prefix_of(question.prefix))
        count = question.limit + 1
        best: dict[str, Any] = {}
        last: str | None = None  # of a full page: what comes later is not on it
        for some in keys:
            for key in some:
                if begins is not None and not begins(key):
                    continue
                order = order_of(key)
                if order > after and (last is None or order < last):
                    best[order] = key
            if len(best) > count:
                best = dict(heapq.nsmallest(count, best.items(), key=itemgetter(0)))
                last = max(best)
            self._pause()
        ordered = sorted(best)
        return [best[order] for order in ordered[: question.limit]], len(ordered) >= count


class _Trouble(Exception):
    """Why a task does not answer, as a sentence."""


def _shown_entries(
    state: KeyedState | MemoryState,
    keys: Iterable[Any],
    room: int,
    unstored: Unstored,
    *,
    is_first: bool = True,
) -> tuple[_Found, int, bool]:
    """The entries of keys in so many bytes, how many are left, and whether that are all of them
    that are there. Of the first one of all its key is shown if there is no room for more. `stored`
    is True where `unstored` will know better."""
    found: _Found = []
    keyed = isinstance(state, KeyedState)
    whole = True
    for key in keys:
        value = state.glance(key, _ABSENT)
        if value is _ABSENT:
            continue
        name, name_cut = shown(key)
        text, value_cut = shown(value)
        entry = Entry(name, text, order_of(key), keyed or None, name_cut or value_cut)
        size = len(json.dumps(msgspec.to_builtins(entry)))
        if size > room:
            if found or not is_first:
                whole = False
                break
            entry = msgspec.structs.replace(entry, value=_NOT_SHOWN, cut=True)
        room -= size
        found.append((key, entry))
    if isinstance(state, KeyedState):
        unstored.note((key for key, _ in found), state)
    return found, room, whole


def _state_of(one: Built) -> Any:
    return state_of(one.task.user)


def _windows_of(one: Built) -> dict[str, int] | None:
    shell = getattr(one.task.user, "_squall_shell", None)
    sizes = getattr(shell, "sizes", None)
    return None if sizes is None else dict(sizes())


def _require_settled(one: Built) -> None:
    """Raises _UnderWayError where a call may have done half of its work."""
    task = one.task
    if isinstance(task, AsyncBolt) and task.busy_calls:
        state = getattr(task.user, "state", None)
        if state is not None and not isinstance(state, DraftState):
            raise _UnderWayError
