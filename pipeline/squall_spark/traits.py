"""The facts about users' classes that the planner needs: looked up once, in the driver."""

from __future__ import annotations

import datetime as dt
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from types import NoneType, UnionType
from typing import Any

from squall.windows.bolt import WindowedBolt
from squall_common.component.component import Bolt, Spout, declared_types
from squall_common.component.stateful import StatefulBolt
from squall_common.component.typed import classes_of
from squall_common.errors import PackageError
from squall_common.topology.model import Component, PythonObject, ShellObject, Topology
from squall_common.topology.serialization import load_class


@dataclass(frozen=True, slots=True)
class Column:
    """A field with a declared type, as Spark sees it."""

    type: str | None  # Spark's name; None: Spark has none for it
    required: bool  # None is not one of its values


@dataclass(frozen=True, slots=True)
class Traits:
    """The methods and marks of a component's class. All False for a shell component: they are not
    known for a program."""

    flushes: bool = False  # Bolt.flush
    bounded: bool = False  # Spout.exhausted
    hears_acks: bool = False  # Spout.ack or Spout.fail
    stateful: bool = False  # a StatefulBolt
    stateless: bool = False  # Bolt.stateless
    takes_columns: bool = False  # Bolt.execute_columns, without a state
    windowed: bool = False  # a WindowedBolt
    timestamps: bool = False  # one that defines timestamp()
    shell: bool = False  # not a class of Python's: a program
    # By stream, for each field; streams that declare no types are left out.
    columns: Mapping[str, tuple[Column, ...]] = field(default_factory=dict)


def traits_of(topology: Topology) -> dict[str, Traits]:
    """The traits of every component. Raises PackageError when a class cannot be imported."""
    return {id_: _traits(component) for id_, component in topology.components.items()}


def _traits(component: Component) -> Traits:
    if not isinstance(component.object, PythonObject):
        return Traits(shell=isinstance(component.object, ShellObject))
    try:
        cls = load_class(component.object.class_path)
    except (ImportError, AttributeError, ValueError) as error:
        raise PackageError(
            f"component {component.id!r}: {component.object.class_path} cannot be imported: {error}"
        ) from error
    return Traits(
        flushes=_defines(cls, "flush", Bolt),
        bounded=_defines(cls, "exhausted", Spout),
        hears_acks=_defines(cls, "ack", Spout) or _defines(cls, "fail", Spout),
        stateful=isinstance(cls, type) and issubclass(cls, StatefulBolt),
        stateless=getattr(cls, "stateless", False) is True,
        takes_columns=_defines(cls, "execute_columns", Bolt) and not issubclass(cls, StatefulBolt),
        windowed=isinstance(cls, type) and issubclass(cls, WindowedBolt),
        timestamps=_defines(cls, "timestamp", WindowedBolt),
        columns={
            stream: tuple(column_of(declared, name) for name, declared in types.items())
            for stream, types in declared_types(getattr(cls, "outputs", ())).items()
        },
    )


_TYPES: Mapping[Any, str] = {
    bool: "boolean",
    int: "bigint",
    float: "double",
    str: "string",
    bytes: "binary",
    Decimal: "decimal(38,18)",
    dt.datetime: "timestamp",
    dt.date: "date",
}


def column_of(declared: Any, field: str) -> Column:
    """The column for a declared type."""
    classes = classes_of(declared, field)
    required = bool(classes) and NoneType not in classes
    if typing.get_origin(declared) in (typing.Union, UnionType):
        parts = [part for part in typing.get_args(declared) if part is not NoneType]
        if len(parts) == 1:
            declared = parts[0]
    origin, arguments = typing.get_origin(declared), typing.get_args(declared)
    if origin is list and len(arguments) == 1:
        item = column_of(arguments[0], field).type
        return Column(None if item is None else f"array<{item}>", required)
    if origin is dict and len(arguments) == 2 and arguments[0] is str:
        item = column_of(arguments[1], field).type
        return Column(None if item is None else f"map<string,{item}>", required)
    known = _TYPES.get(declared) if isinstance(declared, type) else None
    return Column(known, required)


def _defines(cls: type, name: str, base: type) -> bool:
    return issubclass(cls, base) and getattr(cls, name, None) is not getattr(base, name)
