"""Finds the calls of components that are in progress, read from another thread.

A call is not recorded when it begins, because that would make every tuple more expensive. Instead,
the frames of its thread show which task it is and what it was given: those of `core.drive`, through
which the run loop calls components, and of the tasks that are not compiled. `frame.f_locals` is
read only for the engine's own frames; of users' frames only names and lines are read.

Where `next_tuple` may wait (on a thread of its own with `blocking = True`, and in a coroutine),
waiting for input is its purpose. There a call counts only if the component has a
`topology.worker.stall.timeout.secs` of its own.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from squall_common.config.options.typed import TopologyOptions
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK
from squall_engine.acking.dead_letters import roots_of
from squall_engine.core import Batch, BoltCalls, SpoutCalls, Tuple, drive
from squall_engine.observe.given import (
    ROOTS_MAX,
    Names,
    describe_batch,
    describe_message,
    describe_message_id,
    describe_rows,
    describe_tuple,
    roots_of_batch,
)
from squall_engine.tasks.async_ import AsyncBolt, AsyncSpout
from squall_engine.tasks.base import Task
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask
from squall_engine.tasks.thread import ThreadBolt, ThreadSpout

STALL_KEY = "topology.worker.stall.timeout.secs"

_ENGINE = "squall_engine."
_OURS = ("squall.", "squall_common.", "squall_engine.", "squall_worker.")
_FRAMES_MAX = 60  # of a stack that is shown
_COROUTINES_MAX = 8  # of one task, oldest first: one that never ends becomes the oldest
_CALLS = (BoltCalls, SpoutCalls)
_TUPLE_NAMES = ("tup", "current")  # what the engine's functions call the tuple in execution
_NOTIFYING = (drive.notify_each.__code__, drive.call_for.__code__)

Frames = list[tuple[FrameType, int]]


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How long a call may take, in seconds; None: without limit."""

    error_secs: float | None
    restart_secs: float | None

    @classmethod
    def of(cls, options: TopologyOptions) -> CallLimits:
        """The limits of a component, or of what no component calls."""
        timeouts = options.topology_enable_message_timeouts
        return cls(
            options.topology_message_timeout_secs if timeouts else None,
            options.topology_worker_stall_timeout_secs,
        )


@dataclass(frozen=True, slots=True, eq=False)
class CallUnderWay:
    """A call that has not returned. Two with the same `key` are the same call, as long as `holds`
    of either is kept."""

    component: str
    task: int
    name: str  # as `Split.execute`
    # What it was called with, in words; values are left out. Messages that this worker does not
    # know are called what the names given say, by root.
    given: Callable[[Names], str]
    roots: Sequence[int]  # of the trees that are named in it
    limits: CallLimits
    holds: tuple[object, ...]
    frames: Callable[[], Frames]  # innermost last

    @property
    def key(self) -> tuple[object, ...]:
        return (self.component, self.task, *map(id, self.holds))

    def stack(self) -> str:
        """Its Python stack: lines of code, without values."""
        summary = traceback.StackSummary.extract(iter(self.frames()), capture_locals=False)
        return "".join(summary.format()) or "  (no Python frames)\n"

    def place(self) -> str:
        """The innermost line of the file in which it began: a library's own would say less."""
        frames = self.frames()
        if not frames:
            return "unknown"
        file = frames[0][0].f_code.co_filename
        frame, line = [one for one in frames if one[0].f_code.co_filename == file][-1]
        return f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_qualname}"


class CallsUnderWay:
    """The calls that a worker's components are in, and the messages in flight from its spouts. Any
    thread may read it."""

    def __init__(self, built: Sequence[Built], options: TopologyOptions, thread_id: int) -> None:
        """`options` are the topology's, `thread_id` is the run loop's."""
        self._built = built
        self._options = options
        self._thread_id = thread_id

    def on_threads(self) -> Iterator[CallUnderWay]:
        """The calls of components with `blocking = True`."""
        frames = sys._current_frames()
        for one in self._built:
            task = one.task
            if isinstance(task, ThreadBolt):
                tup = task.current
                if tup is not None:
                    frame = frames.get(task.thread_id)
                    given = partial(describe_tuple, tup, self._built)
                    yield _call(one, task.called, given, (tup,), _of_thread(frame), roots_of(tup))
            elif isinstance(task, ThreadSpout):
                frame = frames.get(task.thread_id)
                asked = task.asked
                if asked is None:
                    yield from _notifying(one, frame)
                elif _has_own_limit(one):
                    yield _call(one, "next_tuple", _nothing, (asked,), _of_thread(frame))

    def in_coroutines(self) -> Iterator[CallUnderWay]:
        """The calls of components with `async def` that wait for something. Raises RuntimeError
        when they change meanwhile."""
        for one in self._built:
            task = one.task
            if isinstance(task, AsyncBolt):
                for tup, flying in list(task._flying.items())[:_COROUTINES_MAX]:
                    frames = _of_coroutine(flying)
                    given = partial(describe_tuple, tup, self._built)
                    yield _call(one, task.called, given, (tup,), frames, roots_of(tup))
            elif isinstance(task, AsyncSpout) and _has_own_limit(one):
                asking = task._asking
                waits = None if asking is None else getattr(asking.get_coro(), "cr_await", None)
                if asking is not None and waits is not None:
                    yield _call(one, "next_tuple", _nothing, (asking, waits), _of_coroutine(asking))

    def on_loop(self, held_since: object) -> CallUnderWay:
        """The call that the thread of the run loop is in: a component's, or one that no task made,
        such as a user's callback. The latter is the same call as long as `held_since` is the same
        object."""
        innermost = sys._current_frames().get(self._thread_id)
        return self._call_of_task(innermost) or CallUnderWay(
            SYSTEM_COMPONENT,
            SYSTEM_TASK,
            "a callback",
            _nothing,
            (),
            CallLimits.of(self._options),
            (held_since,),
            _of_thread(innermost),
        )

    def _call_of_task(self, innermost: FrameType | None) -> CallUnderWay | None:
        built = self._built
        chain = chain_of(innermost)
        for at, frame in enumerate(chain):
            one = built_of(frame, built)
            if one is None:
                continue
            task = one.task
            inner = chain[at:]
            users = [f for f in inner if not is_ours(f)]
            ours = inner[: inner.index(users[0])] if users else inner
            tup = _tuple_of(ours)
            given = partial(_given, task, ours, tup, built)
            name = users[0].f_code.co_name if users else ours[-1].f_code.co_name
            first = users[0] if users else ours[-1]
            roots = roots_of_batch(_batch_of(ours)) if tup is None else roots_of(tup)
            return _call(one, name, given, (first, tup), _of_thread(innermost, first), roots)
        return None

    def loop_is_idle(self) -> bool:
        """Whether the event loop of the run loop runs nothing at the moment."""
        frame = sys._current_frames().get(self._thread_id)
        module = "" if frame is None else str(frame.f_globals.get("__name__", ""))
        return module in ("asyncio.runners", "asyncio.base_events", "selectors")

    def message_of(self, root: int) -> str | None:
        """The message of a tree, when it is in flight from a spout of this worker:
        `message id 7`."""
        return describe_message(root, self._built)


def _notifying(one: Built, innermost: FrameType | None) -> Iterator[CallUnderWay]:
    """ack, fail, activate, deactivate or a hook's call on a spout's own thread."""
    for frame in chain_of(innermost):
        if frame.f_code in _NOTIFYING:
            message_id = frame.f_locals.get("message_id")
            given = _nothing if message_id is None else partial(_shown_message, message_id)
            name = str(getattr(frame.f_locals.get("call"), "__name__", "a call"))
            yield _call(one, name, given, (frame, message_id), _of_thread(innermost))
            return


def _call(
    one: Built,
    name: str,
    given: Callable[[Names], str],
    holds: tuple[object, ...],
    frames: Callable[[], Frames],
    roots: Sequence[int] = (),
) -> CallUnderWay:
    task = one.task
    user = type(task.user).__name__
    limits = CallLimits.of(one.options)
    return CallUnderWay(
        task.component,
        task.task,
        f"{user}.{name}",
        given,
        tuple(roots[:ROOTS_MAX]),
        limits,
        holds,
        frames,
    )


def _has_own_limit(one: Built) -> bool:
    return STALL_KEY in one.own_conf


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is of Squall's own code."""
    module = str(frame.f_globals.get("__name__", ""))
    return module.startswith(_OURS)


def chain_of(frame: FrameType | None) -> list[FrameType]:
    """Outermost first."""
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found[::-1]


def built_of(frame: FrameType, built: Sequence[Built]) -> Built | None:
    """The task for which a function of the engine was called: its first argument is the task, or
    the core's calls of it. None for another frame."""
    code = frame.f_code
    if not code.co_argcount:
        return None
    if not str(frame.f_globals.get("__name__", "")).startswith(_ENGINE):
        return None
    owner = frame.f_locals.get(code.co_varnames[0])
    if isinstance(owner, Task):
        return next((one for one in built if one.task is owner), None)
    if isinstance(owner, _CALLS):
        return next((one for one in built if getattr(one.task, "calls", None) is owner), None)
    return None


def _tuple_of(frames: Sequence[FrameType]) -> Tuple | None:
    for frame in reversed(frames):
        for name in _TUPLE_NAMES:
            found = frame.f_locals.get(name)
            if isinstance(found, Tuple):
                return found
    return None


def _given(
    task: Task,
    frames: Sequence[FrameType],
    tup: Tuple | None,
    built: Sequence[Built],
    names: Names,
) -> str:
    if tup is not None:
        return describe_tuple(tup, built, names)
    if isinstance(task, SpoutTask):
        for frame in frames:
            if "message_id" in frame.f_locals:
                return describe_message_id(frame.f_locals["message_id"])
        return ""
    tuples = _batch_of(frames)
    if tuples:
        return describe_batch(tuples, built, names)
    for frame in frames:
        if frame.f_code is drive.run_each.__code__:
            batch, rows = frame.f_locals.get("batch"), frame.f_locals.get("n")
            if isinstance(batch, Batch) and isinstance(rows, int):
                return describe_rows(rows, batch.source)
    return ""


def _batch_of(frames: Sequence[FrameType]) -> list[Tuple]:
    for frame in reversed(frames):
        tuples = frame.f_locals.get("tuples")
        if isinstance(tuples, list) and tuples and isinstance(tuples[0], Tuple):
            return tuples
    return []


def _nothing(names: Names) -> str:
    return ""


def _shown_message(message_id: Any, names: Names) -> str:
    return describe_message_id(message_id)


def _of_thread(innermost: FrameType | None, first: FrameType | None = None) -> Callable[[], Frames]:
    """From `first` on, else from where the engine calls the component."""

    def frames() -> Frames:
        chain = chain_of(innermost)
        if first is None:
            ours = next((at for at, frame in enumerate(chain) if is_ours(frame)), 0)
            begin = next((at for at in range(ours, len(chain)) if not is_ours(chain[at])), 0)
        else:
            begin = chain.index(first) if first in chain else 0
        return [(frame, frame.f_lineno) for frame in chain[begin:]][-_FRAMES_MAX:]

    return frames


def _of_coroutine(task: asyncio.Task[Any]) -> Callable[[], Frames]:
    def frames() -> Frames:
        chain = coroutine_frames(task)
        users = next((at for at, (frame, _) in enumerate(chain) if not is_ours(frame)), 0)
        return chain[users:]

    return frames


def coroutine_frames(task: asyncio.Task[Any]) -> Frames:
    """The whole chain of awaits; `Task.get_stack` stops at the outermost coroutine."""
    frames: Frames = []
    waiting: Any = task.get_coro()
    while waiting is not None and len(frames) < _FRAMES_MAX:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is None:
            break
        frames.append((frame, frame.f_lineno))
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    return frames
