"""Declared types of output fields: `outputs = Stream({"word": str, "count": int})`.

A type is a class, a union of classes (`int | None`), or a generic (`list[str]`: the list is
checked, not its items). As for type checkers, an int is also a float; but a bool is not an int.
Every emit of a component that declares types is checked, on a cluster, in local mode and on Spark;
a component that declares none pays nothing.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, cast

from squall_common.component.collector import (
    BoltCollector,
    ColumnCollector,
    DelegatingBoltCollector,
    DelegatingCollector,
    DelegatingColumnCollector,
    DelegatingSpoutCollector,
    SpoutCollector,
)
from squall_common.errors import InvalidTopologyError, SquallError

_P = ParamSpec("_P")
_R = TypeVar("_R")
# Where each call has its stream when it is given by position.
_STREAM_AT = {"emit": 2, "emit_direct": 3, "emit_columns": 2}
_VALUES_AT = {"emit": 0, "emit_direct": 1, "emit_columns": 0}
_VALUES_NAME = {"emit": "values", "emit_direct": "values", "emit_columns": "columns"}


class WrongTypeError(SquallError, ValueError):
    """A value is not of the type that its field declares."""


Classes = tuple[type, ...]  # () for any


def classes_of(declared: Any, field: str) -> Classes:
    """The classes whose objects a declared type allows. Raises InvalidTopologyError for what is not
    a type."""
    if declared is Any or declared is object:
        return ()
    if declared is None or declared is types.NoneType:
        return (types.NoneType,)
    origin = typing.get_origin(declared)
    if origin is typing.Union or origin is types.UnionType:
        parts = [classes_of(part, field) for part in typing.get_args(declared)]
        return tuple(cls for part in parts for cls in part) if all(parts) else ()
    cls = origin or declared
    if not isinstance(cls, type):
        raise InvalidTopologyError(
            f"field {field!r}: {declared!r} is not a type",
            hint='write the class itself: Stream({"count": int, "note": str | None})',
        )
    return (cls, int) if cls is float else (cls,)


def fits(value: Any, classes: Classes) -> bool:
    """Whether a value has one of these classes."""
    if not classes:
        return True
    if type(value) is bool:
        return bool in classes
    return isinstance(value, classes)


class StreamTypes:
    """The types that one component declares, by stream."""

    def __init__(self, component: str, declared: Mapping[str, Mapping[str, Any]]) -> None:
        """`declared`: stream -> field -> type."""
        self._component = component
        self._declared = declared
        self._classes = {
            stream: [(field, classes_of(of, field)) for field, of in fields.items()]
            for stream, fields in declared.items()
        }

    def check(self, stream: str, values: Sequence[Any]) -> None:
        """Raises WrongTypeError for the first value that does not fit."""
        fields = self._classes.get(stream, ())
        for (field, classes), value in zip(fields, values, strict=False):
            if not fits(value, classes):
                raise self._wrong(stream, field, value)

    def check_columns(self, stream: str, columns: Sequence[Sequence[Any]]) -> None:
        fields = self._classes.get(stream, ())
        for (field, classes), column in zip(fields, columns, strict=False):
            # Nearly always of one class: look at the classes before the values.
            if not classes or set(map(type, column)) <= set(classes):
                continue
            for value in column:
                if not fits(value, classes):
                    raise self._wrong(stream, field, value)

    def _wrong(self, stream: str, field: str, value: Any) -> WrongTypeError:
        declared = self._declared[stream][field]
        shown = repr(value)
        return WrongTypeError(
            f"{self._component!r} emitted {shown if len(shown) <= 80 else shown[:80] + '...'} "
            f"({type(value).__name__}) in field {field!r} of stream {stream!r}, which it declares "
            f"as {type_name(declared)}"
        )


def type_name(declared: Any) -> str:
    return declared.__name__ if type(declared) is type else str(declared)


def checking(collector: Any, types_: StreamTypes) -> Any:
    """A collector like this one whose emits are checked."""
    if isinstance(collector, ColumnCollector):
        return _CheckingColumnCollector(collector, types_)
    if isinstance(collector, BoltCollector):
        return _CheckingBoltCollector(collector, types_)
    return _CheckingSpoutCollector(collector, types_)


class _Checking(DelegatingCollector):
    _types: StreamTypes

    def _around(self, name: str, call: Callable[_P, _R]) -> Callable[_P, _R]:
        if name not in _STREAM_AT:
            return call
        check = self._types.check_columns if name == "emit_columns" else self._types.check
        values_at, values_name = _VALUES_AT[name], _VALUES_NAME[name]
        stream_at = _STREAM_AT[name]

        def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            values = args[values_at] if len(args) > values_at else kwargs.get(values_name, ())
            stream = args[stream_at] if len(args) > stream_at else kwargs.get("stream", "default")
            check(cast(str, stream), cast("Sequence[Any]", values))
            return call(*args, **kwargs)

        return checked


class _CheckingSpoutCollector(_Checking, DelegatingSpoutCollector):
    def __init__(self, inner: SpoutCollector, types_: StreamTypes) -> None:
        self._types = types_
        super().__init__(inner)


class _CheckingBoltCollector(_Checking, DelegatingBoltCollector[Any]):
    def __init__(self, inner: BoltCollector[Any], types_: StreamTypes) -> None:
        self._types = types_
        super().__init__(inner)


class _CheckingColumnCollector(_Checking, DelegatingColumnCollector[Any]):
    def __init__(self, inner: ColumnCollector[Any], types_: StreamTypes) -> None:
        self._types = types_
        super().__init__(inner)
