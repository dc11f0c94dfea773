"""The arguments of a component's constructor, on their way from the client to the worker.

They travel as JSON in which what JSON lacks is *tagged*: `{"!": "tuple", "v": [1, 2]}`. Whoever
holds a topology can read them; only a worker turns them into objects again, and only it imports
what they name. Types come back as they went: a tuple as a tuple, 1 as 1 and 1.0 as 1.0, NaN, an
int of any size. What cannot come back the same is refused here, in the client, by name.

    {"args": ["pg1661.txt", {"!": "bytes", "v": "AP8="}], "kwargs": {}}

Pickle would carry more, but would run code in the process that opens it and break between Python
versions.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import io
import json
import math
import types
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from squall_common.daemon import fast_json
from squall_common.errors import InvalidTopologyError
from squall_common.topology.construction import (
    Constructed,
    changes_since_construction,
    python_object,
    travels,
)
from squall_common.topology.import_paths import import_path, import_path_of
from squall_common.topology.model import PythonObject

TAG = "!"
TAGGED = b'{"!":"'  # in arguments that name code, or are of a type that JSON lacks
_NESTING_MAX = 100
_INT64 = range(-(2**63), 2**63)


def encode_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Arguments as tagged JSON. Raises InvalidTopologyError that names the argument (`args[0]`,
    `path`, `options['key'][2]`) and why it cannot travel."""
    value = {
        "args": [_encode(arg, f"args[{i}]", 0) for i, arg in enumerate(args)],
        "kwargs": {name: _encode(arg, name, 0) for name, arg in kwargs.items()},
    }
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def decode_arguments(data: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inverse of `encode_arguments`; imports the modules that the arguments name. Raises
    InvalidTopologyError when the bytes are none of ours or name what is not there."""
    try:
        value = fast_json.loads(data)
        args = tuple(_decode(arg) for arg in value["args"])
        kwargs = {str(name): _decode(arg) for name, arg in value["kwargs"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise InvalidTopologyError(f"constructor arguments cannot be read: {error}") from error
    return args, kwargs


def instantiate(obj: PythonObject, local: type | None = None) -> Any:
    """Make the object in this process: import its module, call its class (`local`: this class
    instead, without an import). Raises InvalidTopologyError when module or class are not there;
    what the user's own code raises on import or in the constructor comes through as it is."""
    cls = local or import_path(obj.class_path)
    if not callable(cls):
        raise InvalidTopologyError(f"{obj.class_path} is not a class but {cls!r}")
    token = travels.set(False)
    try:
        args, kwargs = decode_arguments(obj.arguments)
        return cls(*args, **kwargs)
    finally:
        travels.reset(token)


# Exact types, each with how it is written and read. Subclasses are something else (an IntEnum is
# no int), and would come back as what they are not.
_SCALARS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "bytes": (bytes, lambda v: base64.b64encode(v).decode(), base64.b64decode),
    "bytearray": (
        bytearray,
        lambda v: base64.b64encode(v).decode(),
        lambda v: bytearray(base64.b64decode(v)),
    ),
    "complex": (complex, lambda v: [repr(v.real), repr(v.imag)], lambda v: _complex(*v)),
    "decimal": (Decimal, str, Decimal),
    "fraction": (Fraction, str, Fraction),
    "date": (date, date.isoformat, date.fromisoformat),
    "timedelta": (
        timedelta,
        lambda v: [v.days, v.seconds, v.microseconds],
        lambda v: timedelta(*v),
    ),
    "uuid": (UUID, str, UUID),
    "path": (type(Path()), str, Path),
    "purepath": (type(PurePath()), str, PurePath),
    "range": (range, lambda v: [v.start, v.stop, v.step], lambda v: range(*v)),
    "slice": (slice, lambda v: [v.start, v.stop, v.step], lambda v: slice(*v)),
}
_SCALAR_TAG: dict[type, str] = {cls: tag for tag, (cls, _, _) in _SCALARS.items()}
_SEQUENCES: dict[str, Callable[[Any], Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_SEQUENCE_TAG = {tuple: "tuple", set: "set", frozenset: "frozenset"}


def _complex(real: str, imag: str) -> complex:
    return complex(float(real), float(imag))


def _encode(value: Any, where: str, depth: int) -> Any:
    if depth > _NESTING_MAX:
        raise InvalidTopologyError(
            f"{where.split('[')[0]} is nested more than {_NESTING_MAX} deep, or contains itself"
        )
    kind: Any = type(value)
    if value is None or kind is bool or kind is str:
        return _text(value, where) if kind is str else value
    if kind is int:
        return value if value in _INT64 else {TAG: "int", "v": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {TAG: "float", "v": repr(value)}
    if kind is list:
        return [_encode(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
    if kind is dict:
        return _encode_dict(value, where, depth)
    if kind in _SCALAR_TAG:
        tag = _SCALAR_TAG[kind]
        return {TAG: tag, "v": _SCALARS[tag][1](value)}
    if kind in _SEQUENCE_TAG:
        items = [_encode(v, f"{where}[{i}]", depth + 1) for i, v in enumerate(value)]
        if kind is not tuple:
            items.sort(key=lambda v: json.dumps(v, sort_keys=True))  # the same bytes every run
        return {TAG: _SEQUENCE_TAG[kind], "v": items}
    if kind is datetime or kind is time:
        return _encode_time(value, where)
    try:
        return _encode_imported(value, where, depth)
    except InvalidTopologyError as error:
        if error.message.startswith(where):
            raise
        raise InvalidTopologyError(f"{where} cannot travel: {error.message}") from None


def _text(value: str, where: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidTopologyError(f"{where} cannot travel: {value!r} is not valid text") from None
    return value


def _encode_dict(value: dict[Any, Any], where: str, depth: int) -> Any:
    if all(type(key) is str for key in value) and TAG not in value:
        return {_text(k, where): _encode(v, f"{where}[{k!r}]", depth + 1) for k, v in value.items()}
    pairs = [
        [_encode(k, f"{where} key {k!r}", depth + 1), _encode(v, f"{where}[{k!r}]", depth + 1)]
        for k, v in value.items()
    ]
    return {TAG: "dict", "v": pairs}


def _encode_time(value: datetime | time, where: str) -> Any:
    tag = "datetime" if isinstance(value, datetime) else "time"
    encoded: dict[str, Any] = {TAG: tag, "v": value.isoformat()}
    if isinstance(value.tzinfo, ZoneInfo):
        encoded = {TAG: tag, "v": value.replace(tzinfo=None).isoformat(), "zone": value.tzinfo.key}
    if value.fold:
        encoded["fold"] = 1
    if _decode(encoded) != value:
        raise InvalidTopologyError(f"{where} cannot travel: its time zone is {value.tzinfo!r}")
    return encoded


def _encode_imported(value: Any, where: str, depth: int) -> Any:
    """Values of types that live in some module: the worker imports it."""
    if isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType)):
        return {TAG: "import", "v": import_path_of(value)}
    kind = type(value)
    if isinstance(value, enum.Enum):
        if value.name is None or kind.__members__.get(value.name) is not value:
            raise InvalidTopologyError(f"{value!r} is a combination without a name")
        return {TAG: "enum", "t": import_path_of(kind), "v": value.name}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        items = [
            _encode(v, f"{where}.{f}", depth + 1) for f, v in zip(kind._fields, value, strict=True)
        ]
        return {TAG: "namedtuple", "t": import_path_of(kind), "v": items}
    if dataclasses.is_dataclass(value):
        return _encode_dataclass(value, where, depth)
    if isinstance(value, Constructed):
        return _encode_component(value, where)
    hint = "pass the values that it is made from, and make it in open() or prepare()"
    if isinstance(value, io.IOBase):
        hint = "pass its path, and open it in open() or prepare()"
    raise InvalidTopologyError(f"{value!r} is a {_name(kind)}; {hint}")


def _encode_component(value: Any, where: str) -> Any:
    """A spout, bolt or grouping that another one wraps: as it was constructed."""
    if changed := ", ".join(changes_since_construction(value)):
        raise InvalidTopologyError(
            f"{where} cannot travel: {changed} changed after its constructor, and only the "
            "constructor's arguments travel"
        )
    made = python_object(value)
    return {TAG: "component", "t": made.class_path, "v": json.loads(made.arguments)}


def _encode_dataclass(value: Any, where: str, depth: int) -> Any:
    kind = type(value)
    given = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
    encoded = {
        TAG: "dataclass",
        "t": import_path_of(kind),
        "v": {name: _encode(v, f"{where}.{name}", depth + 1) for name, v in given.items()},
    }
    try:
        same = kind(**given) == value
    except Exception as error:
        raise InvalidTopologyError(
            f"{_name(kind)} cannot be made from its own fields ({error})"
        ) from error
    if not same:
        raise InvalidTopologyError(f"{value!r} is not equal to one made from its fields")
    return encoded


def _name(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(v) for v in value]
    if not isinstance(value, dict):
        return value
    if TAG not in value:
        return {key: _decode(v) for key, v in value.items()}
    tag, body = value[TAG], value["v"]
    if tag in _SCALARS:
        return _SCALARS[tag][2](body)
    if tag in _SEQUENCES:
        return _SEQUENCES[tag](_decode(v) for v in body)
    if tag == "int":
        return int(body, 16)
    if tag == "float":
        return float(body)
    if tag == "dict":
        return {_decode(k): _decode(v) for k, v in body}
    if tag in {"datetime", "time"}:
        moment = (datetime if tag == "datetime" else time).fromisoformat(body)
        if "zone" in value:
            moment = moment.replace(tzinfo=ZoneInfo(value["zone"]))
        return moment.replace(fold=value.get("fold", 0))
    if tag == "import":
        return import_path(body)
    if tag == "enum":
        return import_path(value["t"])[body]
    if tag == "namedtuple":
        return import_path(value["t"])(*(_decode(v) for v in body))
    if tag == "component":
        return import_path(value["t"])(
            *_decode(body["args"]), **{name: _decode(v) for name, v in body["kwargs"].items()}
        )
    if tag == "dataclass":
        return import_path(value["t"])(**{name: _decode(v) for name, v in body.items()})
    raise ValueError(f"unknown type {tag!r}")
