"""The values of streams, and the fields in which they travel.

A stream's values are any Python values; between tasks they are tuples of these fields:

    value      value                          any value
    keyed      key, value                     a value for an operation by key
    key        key                            the same, where only the key matters
    pair       key, value                     a result by key, which is the value (key, value)
    window     key, value, start_ms, end_ms   a result of a window, which is a `Windowed`
    late       late_tuple                     a value that came too late for its windows
    named      the names that the user gave   for bolts and outputs
    field      any one                        of a spout or bolt of the user's: the value itself
    row        any                            of a spout or bolt: a dict of the fields, or what
                                              `of(**fields)` makes of them

With event time, `value`, `keyed`, `key` and `pair` have a last field `at`.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Collection, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from squall.windows.spec import LATE_TUPLE_FIELD

K = TypeVar("K")
R = TypeVar("R")

TIME_FIELD = "at"


class Windowed(NamedTuple, Generic[K, R]):
    """The result of a window.

        def line(counted: Windowed[str, int]) -> str:
            return f"{counted.key}: {counted.value} until {counted.end_ms}"

    `key` is None without a key. `start_ms` and `end_ms` are milliseconds since the epoch, with the
    edges of `TupleWindow`; `start_ms` is None for a window of a number of values.
    """

    key: K
    value: R
    start_ms: int | None
    end_ms: int


class Layout(enum.Enum):
    """How the values of a stream travel."""

    VALUE = "value"
    KEYED = "keyed"
    KEY = "key"
    PAIR = "pair"
    WINDOW = "window"
    LATE = "late"
    NAMED = "named"
    FIELD = "field"
    ROW = "row"


_FIELDS = {
    Layout.VALUE: ("value",),
    Layout.KEYED: ("key", "value"),
    Layout.KEY: ("key",),
    Layout.PAIR: ("key", "value"),
    Layout.WINDOW: ("key", "value", "start_ms", "end_ms"),
    Layout.LATE: (LATE_TUPLE_FIELD,),
}


def fields_of(layout: Layout, *, timed: bool) -> list[str]:
    """The fields of one of our own streams."""
    time = [TIME_FIELD] if timed and layout not in (Layout.WINDOW, Layout.LATE) else []
    return [*_FIELDS[layout], *time]


Reader = Callable[[Sequence[str], Sequence[list[Any]]], list[Any]]


def reader_of(layout: Layout, of: Callable[..., Any] | None) -> Reader:
    """The function that turns the columns of a batch, with the names of their fields, into
    values."""
    if layout is Layout.PAIR:
        return lambda fields, columns: list(zip(columns[0], columns[1], strict=True))
    if layout is Layout.WINDOW:
        return lambda fields, columns: list(map(Windowed, *columns[:4]))
    if layout is Layout.LATE:
        return lambda fields, columns: [late["values"]["value"] for late in columns[0]]
    if layout is Layout.NAMED:
        return lambda fields, columns: list(zip(*columns, strict=True))
    if layout is not Layout.ROW:
        return lambda fields, columns: columns[0]

    def rows(fields: Sequence[str], columns: Sequence[list[Any]]) -> list[Any]:
        found = [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]
        return found if of is None else [of(**row) for row in found]

    return rows


def times_of(layout: Layout, columns: Sequence[list[Any]]) -> list[Any]:
    """The times of a batch of one of our own streams that has them."""
    if layout is Layout.LATE:
        return [late["values"][TIME_FIELD] for late in columns[0]]
    return columns[3] if layout is Layout.WINDOW else columns[-1]


_PLAIN = frozenset({str, int, float, bool, bytes, type(None)})


def is_plain(value: Any) -> bool:
    """Whether a value is immutable: text, a number, a tuple of these."""
    kind = type(value)
    return kind in _PLAIN or (kind is tuple and _PLAIN.issuperset(map(type, value)))


def own_copy(value: Any) -> Any:
    """A value that does not change when a function changes its state in place: others get it
    without having it encoded where they are in the same worker."""
    return value if is_plain(value) else copy.deepcopy(value)


def check_total(total: Any, before: Any) -> None:
    """Raise TypeError if a function has returned None in place of a total that it can only have
    changed in place."""
    if total is None and isinstance(before, Collection) and not isinstance(before, str | bytes):
        raise TypeError(
            f"the function returned None for a total that is a {type(before).__name__}; return the "
            "total, also if it was changed in place"
        )
