"""The kinds of values that options have: a type and a range, in words and in code.

A `Kind` says what it expects and checks a value. Every number has both ends, every text and
container a length: a submitter may write anything into a configuration, and a daemon counts,
allocates and waits by it. Where no smaller bound makes sense it is that of Storm's own type, a
signed 32-bit number.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

# Most tasks of one topology, the system's own included: Nimbus and each worker keep a table of
# them.
TASKS_MAX = 65_536

_PORT_MAX = 65_535
INT_MAX = 2**31 - 1
_TEXT_CHARS_MAX = 4096  # a path's length on Linux
_VALUE_CHARS_MAX = 131_072  # of one environment variable on Linux
_ITEMS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of value. `check` is true for values that are of it; `read` turns other spellings of
    the same value (2.0 for 2) into one; `freeze` makes of what was read what typed options hold,
    which has the type `annotation`."""

    expected: str
    check: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda value: value
    bounds: tuple[float, float] | None = None  # of a number: its least and its greatest value
    annotation: str = field(kw_only=True)  # as Python's source has it
    freeze: Callable[[Any], Any] = field(default=lambda value: value, kw_only=True)


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    # Not by isfinite: a whole number may be larger than any float.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    # JSON made by clients that know no integers has 2.0 for 2.
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _read_whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def whole(minimum: int, maximum: int = INT_MAX) -> Kind:
    """A whole number in a range, both ends included."""
    return Kind(
        f"a whole number from {minimum} to {maximum}",
        lambda v: _is_whole(v) and minimum <= v <= maximum,
        _read_whole,
        (minimum, maximum),
        annotation="int",
    )


def number(minimum: float = 0.0, maximum: float = INT_MAX, *, above: bool = False) -> Kind:
    """A number from `minimum`, or above it, to `maximum`."""
    first = f"above {minimum:g} and at most" if above else f"from {minimum:g} to"
    return Kind(
        f"a number {first} {maximum:.10g}",
        lambda v: _is_number(v) and (v > minimum if above else v >= minimum) and v <= maximum,
        bounds=(minimum, maximum),
        annotation="float",
        freeze=float,
    )


def either(*values: str) -> Kind:
    """One of some texts."""
    return Kind(
        "one of " + ", ".join(values),
        lambda v: v in values,
        annotation="Literal[" + ", ".join(map(json.dumps, values)) + "]",
    )


def list_of(kind: Kind, *, empty: bool = True) -> Kind:
    """A list whose items are all of one kind."""
    return Kind(
        f"a list, each item {kind.expected}" + ("" if empty else ", at least one"),
        lambda v: (
            isinstance(v, (list, tuple))
            and (empty or len(v) > 0)
            and len(v) <= _ITEMS_MAX
            and all(map(kind.check, v))
        ),
        lambda v: [kind.read(item) for item in v],
        annotation=f"tuple[{kind.annotation}, ...]",
        freeze=lambda v: tuple(map(kind.freeze, v)),
    )


def map_of(kind: Kind) -> Kind:
    """A map from text to values that are all of one kind."""
    return Kind(
        f"a map from text to {kind.expected}",
        lambda v: (
            isinstance(v, dict)
            and len(v) <= _ITEMS_MAX
            and all(
                isinstance(key, str) and len(key) <= _TEXT_CHARS_MAX and kind.check(value)
                for key, value in v.items()
            )
        ),
        lambda v: {key: kind.read(value) for key, value in v.items()},
        annotation=f"Mapping[str, {kind.annotation}]",
        freeze=lambda v: MappingProxyType({key: kind.freeze(value) for key, value in v.items()}),
    )


TEXT = Kind(
    f"text of at most {_TEXT_CHARS_MAX} characters",
    lambda v: isinstance(v, str) and 0 < len(v) <= _TEXT_CHARS_MAX,
    annotation="str",
)
YES_NO = Kind("true or false", lambda v: isinstance(v, bool), annotation="bool")
COUNT = whole(0)
POSITIVE = whole(1)
TASKS = whole(1, TASKS_MAX)
PORT = whole(0, _PORT_MAX)  # 0: any free one
FIXED_PORT = whole(1, _PORT_MAX)
SECS = number(above=True)
MILLIS = number(above=True)
BYTES_MAX = 2**62  # the kernel's limits are 64-bit numbers
MEGABYTES = number(0.0, BYTES_MAX >> 20)
FRAME = whole(1024)  # its length is a signed 32-bit number on the wire
PERCENT_OF_CORES = number(0.0, 10_000_000)  # 100 is one core
ANY_MAP = map_of(Kind("anything", lambda v: True, annotation="Any"))
JSON_MAP = Kind(
    "a map, or JSON text of one",
    lambda v: ANY_MAP.check(v) or (isinstance(v, str) and len(v) <= _VALUE_CHARS_MAX),
    annotation="str | Mapping[str, Any]",
)
SCALAR = Kind(
    "text, a number, or true or false",
    lambda v: (
        len(v) <= _VALUE_CHARS_MAX
        if isinstance(v, str)
        else isinstance(v, bool) or (_is_number(v) and (isinstance(v, float) or abs(v) < 2**63))
    ),
    annotation="str | float | bool",
)
HOSTS = list_of(TEXT, empty=False)
ZNODE = Kind(
    "a ZooKeeper path such as /storm",
    lambda v: (
        isinstance(v, str)
        and len(v) <= _TEXT_CHARS_MAX
        and v.startswith("/")
        and (v == "/" or not v.endswith("/"))
        and "//" not in v
    ),
    annotation="str",
)
CLASS_PATH = Kind(
    "a class path (module:Class)",
    lambda v: TEXT.check(v) and v.count(":") == 1,
    annotation="str",
)
REGISTRATION = Kind(
    "a class path, or a map from class path to codec path",
    lambda v: (
        TEXT.check(v)
        or (
            isinstance(v, dict)
            and len(v) <= _ITEMS_MAX
            and all(TEXT.check(key) and (x is None or TEXT.check(x)) for key, x in v.items())
        )
    ),
    annotation="str | Mapping[str, str | None]",
)


def show_value(value: object, chars_max: int = 80) -> str:
    """A value as messages quote it: short, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a whole number of more than 4,300 digits
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= chars_max else text[: chars_max - 3] + "..."
