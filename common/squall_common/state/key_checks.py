"""Which keys a state takes: those that can be stored, and are found again under what was stored.

A key that is not found again would begin a new entry each time: NaN and NaT are equal to nothing,
and an object of a class without `__eq__` only to itself. Such a key is refused when it is put, in
the call that puts it: in the snapshot that comes later no tuple could fail for it.
"""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from collections.abc import Hashable
from types import NoneType
from typing import Any

from squall_common.component.groupings import INSTEAD, NoStableHashError, stable_hash
from squall_common.errors import describe
from squall_common.state.errors import StateValueError
from squall_common.state.task_state import RowCodec
from squall_common.topology.serialization import Registry

ALWAYS_TAKEN = frozenset({NoneType, bool, int, str, bytes, uuid.UUID, dt.date, dt.timedelta})
"""Types of keys that need no look at their values."""
SHOWN_CHARS = 60

_NOTHING: Any = object()


def is_always_taken(key: Any) -> bool:
    """Whether a key is of such a type, or a tuple of them, as nearly all are."""
    kind = type(key)
    return kind in ALWAYS_TAKEN or (kind is tuple and ALWAYS_TAKEN.issuperset(map(type, key)))


def equals_itself(value: Any) -> bool:
    """Whether a value, or each in a tuple, is equal to itself: not NaN, NaT, and pandas' NA.

    >>> equals_itself(("ann", 1.5)), equals_itself(("ann", float("nan")))
    (True, False)
    """
    if type(value) is tuple:
        return all(map(equals_itself, value))
    try:
        return bool(value == value)
    except Exception:  # of NA, or an array
        return False


def not_storable(key: Hashable, error: Exception, fields: str = "") -> StateValueError:
    """The error of a key, or of its value, that has no encoding."""
    kind = getattr(error, "kind", None)  # of a `ValueNotEncodableError`
    if kind is None:
        return StateValueError(f"{_shown(key, fields)} cannot be stored: {describe(error)}")
    return StateValueError(
        f"{_shown(key, fields)} cannot be stored: a value of type {kind} has no encoding",
        hint=getattr(error, "reason", None),
    )


def _shown(key: Hashable, fields: str) -> str:
    return f"the state of key {key!r:.{SHOWN_CHARS}}{f' (field {fields})' if fields else ''}"


class KeyChecks:
    """Looks at the keys of one task. Not for several threads at once."""

    fields: str = ""
    """What the key of a tuple consists of, for errors: `'user' and 'day'`."""

    def __init__(self, codec: RowCodec, registry: Registry) -> None:
        self._codec = codec
        self._registry = registry
        self._last: Any = _NOTHING  # the key that was looked at last, and is taken

    def check(self, key: Any, current: Any) -> None:
        """Raises StateValueError for a key that could not be stored, or would not be found again;
        also for one that is equal to a key that is there, as 1 of NumPy's is to 1. `current` is
        the key of the tuple."""
        if is_always_taken(key) or key is self._last:
            return
        fields = self._fields_of(key, current)
        if not equals_itself(key):
            raise StateValueError(
                f"{_shown(key, fields)} would not be found again: it is not equal to itself",
                hint=INSTEAD,
            )
        try:
            data = self._codec.encode_rows(((key,),))
            is_found = _is_by_value(key) or self._codec.decode_rows(data)[0][0] == key
        except ValueError as error:
            raise not_storable(key, error, fields) from error
        if not is_found:
            raise StateValueError(
                f"{_shown(key, fields)} would not be found again: what is read back is not "
                "equal to it",
                hint="give its class an __eq__ that compares values, as a dataclass has",
            )
        self._last = key

    def check_owner(self, owner: Any, current: Any) -> None:
        """The same for a key of a tuple that is to have entries: it needs a key group, too."""
        if is_always_taken(owner):
            return
        self.check(owner, current)
        try:
            stable_hash(owner, self._registry)
        except NoStableHashError as error:
            raise not_storable(owner, error, self._fields_of(owner, current)) from error

    def named(self, key: Any, current: Any, error: StateValueError) -> StateValueError:
        """The error of a key that is refused elsewhere, with its fields."""
        cause = error.__cause__
        assert isinstance(cause, Exception)
        return not_storable(key, cause, self._fields_of(key, current))

    def _fields_of(self, key: Any, current: Any) -> str:
        return self.fields if _is_same(key, current) else ""


def _is_by_value(key: Any) -> bool:
    """Whether what is read back is surely equal."""
    return type(key) is float or isinstance(key, enum.Enum)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two keys are one object, or tuples of the same."""
    if one is other:
        return True
    if type(one) is not tuple or type(other) is not tuple or len(one) != len(other):
        return False
    return all(a is b for a, b in zip(one, other, strict=True))
