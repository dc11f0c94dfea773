"""What an entry of windows shows to someone without the topology's code: which windows they
are, and the tuples that wait in them.

The windows themselves are pickled, and are not read here: totals, and where each window begins, are
only known to the topology.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

WINDOWS = "$windows"
"""The key under which the windows of a task are stored; (this, group) for those of a key group."""


@dataclass(frozen=True, slots=True)
class WaitingTuple:
    """A tuple in windows."""

    component: str | None  # that emitted it; None if it is not known
    stream: str
    values: list[Any]


@dataclass(frozen=True, slots=True)
class StoredWindows:
    """The windows of a task, or of one of its key groups."""

    plan: str  # in words
    tuples: list[WaitingTuple]
    size: int  # bytes that are stored for the windows, besides these tuples

    def __repr__(self) -> str:
        count = len(self.tuples)
        head = f"{self.plan}: {count} tuple{'s' * (count != 1)}, {self.size} bytes more"
        values = ", ".join(repr(one.values) for one in self.tuples)
        return f"<{head}{': ' * bool(values)}{values}>"

    def as_json(self) -> dict[str, Any]:
        """The same as an object. Its values may be of any type."""
        tuples = [
            {"component": one.component, "stream": one.stream, "values": one.values}
            for one in self.tuples
        ]
        return {"windows": self.plan, "tuples": tuples, "bytes": self.size}


def windows_in(
    key: Any, value: Any, decode: Callable[[bytes], list[list[Any]]]
) -> StoredWindows | None:
    """What an entry of state says of windows; None if it is not an entry of windows, or its
    format is not known. `decode` decodes rows and raises ValueError."""
    is_of_group = type(key) is tuple and len(key) == 2 and key[0] == WINDOWS
    if not (is_of_group or key == WINDOWS) or type(value) is not bytes:
        return None
    try:
        ((data, tasks),) = decode(value)
        ((_, plan, rows, parts),) = decode(data)
        tuples = [WaitingTuple(_emitter(task, tasks), stream, row) for task, stream, row in rows]
        return StoredWindows(_in_words(plan), tuples, len(parts))
    except (ValueError, TypeError):
        return None


def _emitter(task: int, tasks: list[list[Any]]) -> str | None:
    """Which of these components, each with its first task and their number, has a task."""
    return next((name for name, first, count in tasks if first <= task < first + count), None)


def _in_words(plan: str) -> str:
    """The `repr` of a `WindowPlan` as a sentence's subject.

    >>> _in_words("WindowPlan(length_ms=20000, slide_ms=5000, key=('user', 'day'))")
    'windows of 20 s every 5 s by user, day'
    """
    said = dict(_arguments(plan))
    length, slide = _extent(said, "length"), _extent(said, "slide")
    if said.get("gap_ms") is not None:
        words = f"sessions with a gap of {_secs(said['gap_ms'])}"
    elif length == slide:
        words = f"tumbling windows of {length}"
    else:
        words = f"windows of {length} every {slide}"
    return words + (f" by {', '.join(said['key'])}" if said.get("key") else "")


def _arguments(plan: str) -> Iterator[tuple[str, Any]]:
    try:
        call = ast.parse(plan, mode="eval").body
    except SyntaxError as error:
        raise ValueError(str(error)) from error
    if not isinstance(call, ast.Call):
        raise ValueError(f"{plan!r} does not describe windows")
    for argument in call.keywords:
        if argument.arg is not None:
            yield argument.arg, ast.literal_eval(argument.value)


def _extent(said: dict[str, Any], what: str) -> str:
    """A length or an interval: of time or of a number of tuples."""
    count, ms = said.get(f"{what}_count"), said.get(f"{what}_ms")
    if count is not None:
        return f"{count} tuple{'s' * (count != 1)}"
    return "any length" if ms is None else _secs(ms)


def _secs(ms: int) -> str:
    return f"{ms / 1000:.12g} s"
