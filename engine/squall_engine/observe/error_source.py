"""What a component was given when it raised: a tuple, a batch or columns."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any

from squall_engine.core import Columns, Tuple
from squall_engine.observe.given import (
    Names,
    describe_batch,
    describe_message_id,
    describe_rows,
    describe_tuple,
)
from squall_engine.tasks.built import Built
from squall_engine.tasks.thread import ThreadBolt

_ENGINE = "squall_engine."
_CALLERS_MAX = 20  # frames that are looked at when an error was not raised


def source_of(error: BaseException, built: Sequence[Built]) -> str:
    """`a tuple of words (task 3), stream default, message id 17`: the outermost argument of the
    calls in which an error was raised, or is reported, that is a tuple, a batch or columns. "" if
    there is none. Call it before the engine's turn ends, which may settle the message, and on the
    thread that reports the error. (A bolt on a thread keeps the ids for its report.)"""
    if error.__traceback__ is None:
        frames = list(_callers(sys._getframe(1)))
    else:
        frames = list(_raised_in(error.__traceback__))
    names = {
        root: describe_message_id(message_id)
        for one in built
        if isinstance(one.task, ThreadBolt)
        for root, message_id in one.task.failing.items()
    }
    # The engine's own calls, which come first, may have a batch of which one tuple is in execution.
    for frame in sorted(frames, key=_is_ours):
        for value in _arguments(frame):
            text = _describe(value, built, names)
            if text:
                return text
    return ""


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith(_ENGINE)


def _raised_in(traceback: TracebackType | None) -> Iterator[FrameType]:
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(_CALLERS_MAX):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _arguments(frame: FrameType) -> Iterator[Any]:
    code, values = frame.f_code, frame.f_locals
    for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
        yield values.get(name)
    if code.co_flags & inspect.CO_VARARGS:
        yield from values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())


def _describe(value: Any, built: Sequence[Built], names: Names) -> str:
    if isinstance(value, Tuple):
        return describe_tuple(value, built, names)
    if isinstance(value, Columns):
        return describe_rows(value.rows, value.source)
    if type(value) is list and value and isinstance(value[0], Tuple):
        return describe_batch(value, built, names)
    return ""
