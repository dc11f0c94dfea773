"""The record that an object keeps of its constructor, which is all of it that is sent to workers.

Components and custom groupings are made twice. In the client, the constructor runs so that
`TopologyBuilder` can look at the object; what travels is its class' import path and the arguments
*as they were passed* (`squall_common.component.constructed`). In the worker each task makes its
own from these. Whatever else the client's object holds never arrives, so the builder refuses one
that was changed after its constructor.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from squall_common.errors import InvalidTopologyError
from squall_common.topology.import_paths import import_path_of
from squall_common.topology.model import PythonObject

# Whether objects that are made now will travel, and must remember how they were made. False in the
# worker, where they have arrived: looking at an object's `__dict__` makes each of its attributes
# 10 ns slower forever (CPython keeps them in place until then).
travels: ContextVar[bool] = ContextVar("squall_travels", default=True)


@dataclass(frozen=True, slots=True)
class Construction:
    """How an object was constructed: its arguments as tagged JSON, or why they cannot travel; and
    the attributes that it had when its constructor had ended."""

    arguments: bytes | InvalidTopologyError
    attributes: Mapping[str, Any]


class Constructed:
    """An object that can travel as a class path and arguments."""

    _construction: Construction


# Ours, and what `typing` sets on an object of `Generic` after its constructor.
_OWN = frozenset({"_construction", "_collector", "_squall_pending", "__orig_class__"})


def attributes_of(obj: Constructed) -> dict[str, Any]:
    """The instance attributes of an object, those in `__slots__` too, without our own."""
    found = {name: value for name, value in vars(obj).items() if name not in _OWN}
    for cls in type(obj).__mro__:
        slots = cls.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in {"__dict__", "__weakref__"} and hasattr(obj, name):
                found[name] = getattr(obj, name)
    return found


def changes_since_construction(obj: Constructed) -> dict[str, str]:
    """The attributes that were "added", "rebound" or "removed" since the constructor ended."""
    made = obj._construction.attributes
    now = attributes_of(obj)
    changes = {}
    for name in sorted(made.keys() | now.keys()):
        if name not in made:
            changes[name] = "added"
        elif name not in now:
            changes[name] = "removed"
        elif now[name] is not made[name]:
            changes[name] = "rebound"
    return changes


def python_object(obj: Constructed, local: list[type] | None = None) -> PythonObject:
    """The form in which an object travels. Raises InvalidTopologyError when its class has no import
    path or its arguments cannot travel. With `local`, a class without an import path is appended to
    it instead, and the object can be made in this process only."""
    cls = type(obj)
    try:
        class_path = import_path_of(cls)
    except InvalidTopologyError:
        if local is None:
            raise
        local.append(cls)
        class_path = f"{cls.__module__}:{cls.__qualname__}"
    arguments = obj._construction.arguments
    if isinstance(arguments, InvalidTopologyError):
        raise InvalidTopologyError(
            f"{type(obj).__name__}(...): argument {arguments.message}", hint=arguments.hint
        ) from arguments
    return PythonObject(class_path, arguments)
