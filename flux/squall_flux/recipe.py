"""How an object that YAML describes is made, here and in each worker task.

A component travels as its class and the arguments of its constructor. YAML can do more: set
properties, call methods, and pass objects of any class. Then a *recipe* travels in the place of the
object: the steps that make it and what it refers to, in order. Each task carries them out for
itself, so no two tasks share an object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squall_common.errors import InvalidTopologyError


@dataclass(frozen=True, slots=True)
class Ref:
    """In arguments: the object that an earlier step has made."""

    step: int


@dataclass(frozen=True, slots=True)
class Step:
    """Makes one object. Arguments are positional and by name."""

    target: Any  # a class or a function of a module
    factory: str | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    properties: tuple[tuple[str, Any], ...] = ()
    calls: tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the class and the constructor's arguments say everything."""
        return (
            isinstance(self.target, type)
            and self.factory is None
            and not self.properties
            and not self.calls
        )


class Assembled:
    """A worker calls this instead of a component's class, and gets the object that the steps result
    in, which is not of this class."""

    def __new__(cls, *steps: Step) -> Any:
        made: list[Any] = []
        for step in steps:
            made.append(make(step, made))
        return made[-1]


def make(step: Step, made: Sequence[Any]) -> Any:
    """Carry out one step. Raises InvalidTopologyError if the object lacks a property or method;
    what the user's code raises comes through."""
    function = step.target
    if step.factory is not None:
        function = _method(step.target, step.factory, getattr(step.target, "__name__", "the class"))
    found = function(
        *(resolved(value, made) for value in step.args),
        **{name: resolved(value, made) for name, value in step.kwargs.items()},
    )
    kind = type(found).__name__
    for name, value in step.properties:
        _set_property(found, kind, name, resolved(value, made))
    for name, args, kwargs in step.calls:
        _method(found, name, kind)(*resolved(args, made), **resolved(kwargs, made))
    return found


def resolved(value: Any, made: Sequence[Any]) -> Any:
    """A value with objects in the places of its references."""
    if isinstance(value, Ref):
        return made[value.step]
    if isinstance(value, Mapping):
        return {key: resolved(item, made) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(resolved(item, made) for item in value)
    return value


def _method(owner: Any, name: str, kind: str) -> Any:
    found = None if name.startswith("_") else getattr(owner, name, None)
    if not callable(found):
        raise InvalidTopologyError(f"{kind} has no method {name!r}")
    return found


def _set_property(owner: Any, kind: str, name: str, value: Any) -> None:
    """By `set_name(value)` or `setName(value)`, otherwise as the attribute, which must exist."""
    for setter in (f"set_{name}", f"set{name[:1].upper()}{name[1:]}"):
        method = getattr(owner, setter, None)
        if callable(method):
            method(value)
            return
    if name.startswith("_") or not hasattr(owner, name):
        raise InvalidTopologyError(f"{kind} has no attribute {name!r} and no method set_{name}()")
    setattr(owner, name, value)
