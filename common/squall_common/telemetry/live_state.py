"""What is asked about the state of running tasks, and what their workers answer.

    storm state inspect --live -> Nimbus -> supervisor -> a file in the worker's folder -> worker
                              <-        <-            <-                               <-

Both are JSON: a key is what the command line can say, and a value what it can show. Nimbus and
supervisors read the question, to find the workers, and hand on the answers as they are.

A listing comes in pages. Keys have an order (`order_of`), in which each worker lists those that
come after a given one; `merged` makes one page of the pages of several.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import msgspec

QUESTION_BYTES_MAX = 8_192
ANSWER_BYTES_MAX = 256 * 1024
"""Of one worker: a page ends earlier where its values are large."""
LIMIT_MAX = 1_000
"""Keys of a page."""
QUESTIONS = "?"
"""The key, beside topologies, of what Nimbus' answer to heartbeats says about questions."""

_PARTS_MAX = 2_000  # of a value that is shown: its items, and those in them
_CHARS_MAX = 16_384
_DEPTH_MAX = 20


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question. Without `key` and `lists` it is for sizes only."""

    component: str | None = None  # None: all that have state
    key: str | None = None  # its value is wanted: JSON, or plain text
    lists: bool = False  # a page of keys with their values
    prefix: str | None = None  # of those keys: a text, or a JSON list for tuples
    limit: int = 100
    after: str | None = None  # `Entry.order` of the last one of the page before


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key with its value now, as JSON can have them."""

    key: Any
    value: Any
    order: str
    stored: bool | None = None
    """Whether the last complete epoch has the same value; None: it is stored nowhere."""
    cut: bool = False  # the value is larger than what is shown


class TaskAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The state of one task."""

    component: str
    task: int  # its index among the tasks of its component
    keys: int | None = None  # None: it has no state by key
    bytes: int | None = None  # encoded, estimated from some entries
    bound: int | None = None  # keys that belong to the task
    unstored: int | None = None  # entries that have changed since the last complete epoch
    epoch: int | None = None  # that one; None: nothing is stored, or not yet
    windows: Mapping[str, int] | None = None  # sizes of its windows
    entries: tuple[Entry, ...] = ()
    more: bool = False  # keys follow after the last of the entries
    trouble: str | None = None  # why it does not answer, or not in full


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one worker answers."""

    tasks: tuple[TaskAnswer, ...] = ()
    trouble: str | None = None  # of the whole worker


def decode_question(data: str | bytes) -> Question:
    """Raises ValueError, which says what is wrong with it."""
    if len(data) > QUESTION_BYTES_MAX:
        raise ValueError(f"it has more than {QUESTION_BYTES_MAX} bytes")
    question = msgspec.json.decode(data, type=Question)
    if not 1 <= question.limit <= LIMIT_MAX:
        raise ValueError(f"a page has 1 to {LIMIT_MAX} keys, not {question.limit}")
    return question


def encode_answer(answer: Answer) -> bytes:
    """For `decode_answer`."""
    # Not by msgspec alone: integers may have any size, and text may have lone surrogates.
    return json.dumps(msgspec.to_builtins(answer), separators=(",", ":")).encode()


def decode_answer(data: bytes) -> Answer:
    """Raises ValueError for what no worker of ours answers.

    >>> decode_answer(encode_answer(Answer((TaskAnswer("count", 0, keys=7),)))).tasks[0].keys
    7
    """
    if len(data) > ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of more than {ANSWER_BYTES_MAX} bytes")
    try:
        return msgspec.convert(json.loads(data), Answer)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"a damaged answer: {error}") from error


# ---- keys ----


def forms_of(text: str) -> list[Hashable]:
    """The keys that a text may mean: itself, and what it is as JSON; a list is a tuple.

    >>> forms_of("ann"), forms_of("7"), forms_of('["ann", 7]')
    (['ann'], ['7', 7], ['["ann", 7]', ('ann', 7)])
    """
    found: list[Hashable] = [text]
    try:
        value = _tuples(json.loads(text))
        hash(value)
    except (ValueError, TypeError, RecursionError):
        return found
    return [*found, value]


def prefix_of(text: str) -> str | tuple[Any, ...]:
    """A text, or the tuple that a JSON list means."""
    last = forms_of(text)[-1]
    return last if isinstance(last, tuple) else text


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def order_of(key: Any) -> str:
    """Where a key is in a listing: by its type, and texts by their characters."""
    if type(key) is str:
        return f"str:{key}"
    return f"{type(key).__name__}:{_safe_repr(key)}"


def merged(pages: Iterable[TaskAnswer], limit: int) -> tuple[list[tuple[TaskAnswer, Entry]], bool]:
    """One page of those of several tasks, by key, and whether more keys follow. Beyond the end of a
    page that its worker has cut, other pages would leave out its keys."""
    answers = list(pages)
    ends = [one.entries[-1].order for one in answers if one.more and one.entries]
    end = min(ends, default=None)
    found = sorted(
        ((one, entry) for one in answers for entry in one.entries), key=lambda each: each[1].order
    )
    if end is not None:
        found = [each for each in found if each[1].order <= end]
    return found[:limit], bool(ends) or len(found) > limit


# ---- values ----


class _Shown:
    """Makes a value what JSON can have, up to a size."""

    def __init__(self) -> None:
        self.parts = 0
        self.chars = 0
        self.cut = False

    def of(self, value: Any, depth: int = 0) -> Any:
        self.parts += 1
        if value is None or type(value) is bool:
            return value
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is int:
            if value.bit_length() > 4_096:  # too long to be converted
                return self._text(f"an int of {value.bit_length()} bits")
            return value
        if kind is float:
            return value if math.isfinite(value) else repr(value)
        if depth >= _DEPTH_MAX:
            self.cut = True
            return "..."
        if kind in (list, tuple):
            return [self.of(item, depth + 1) for item in self._some(value)]
        if kind is dict:
            return {
                self._text(one if type(one) is str else _safe_repr(one)): self.of(
                    value[one], depth + 1
                )
                for one in self._some(value)
            }
        return self._text(_safe_repr(value))

    def _some(self, items: Iterable[Any]) -> Iterable[Any]:
        for item in items:
            if self.parts >= _PARTS_MAX or self.chars >= _CHARS_MAX:
                self.cut = True
                return
            yield item

    def _text(self, text: str) -> str:
        room = max(0, _CHARS_MAX - self.chars)
        self.chars += len(text)
        if len(text) <= room:
            return text
        self.cut = True
        return text[:room] + "..."


def shown(value: Any) -> tuple[Any, bool]:
    """A value as JSON can have it, and whether that is only a part of it. Types that JSON does not
    have are texts.

    >>> shown({"at": (1, 2.5), 7: b"x"})
    ({'at': [1, 2.5], '7': "b'x'"}, False)
    """
    made = _Shown()
    return made.of(value), made.cut


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _CHARS_MAX
_repr.maxlong = 1_000
_repr.maxset = _repr.maxfrozenset = _repr.maxdeque = _repr.maxarray = 100
_repr.maxtuple = _repr.maxlist = _repr.maxdict = 100


def _safe_repr(value: Any) -> str:
    """What a class of the topology's makes of itself may fail."""
    try:
        return _repr.repr(value)
    except Exception:
        return f"<{type(value).__name__}>"
