"""Turns structs into bytes.

A writer is a function `(out, value)` that appends to a list of bytes. Writers are built once for
each struct from its declaration and kept. Each refuses a value that its type cannot hold, so that
no peer ever gets a struct from here that it cannot read.
"""

import enum
import functools
import struct
from collections.abc import Callable, Sized
from typing import Any

from squall_thrift import idl, wire
from squall_thrift.wire import EncodeError, TooManyPartsError

Writer = Callable[[list[bytes], Any], None]


class Encoded:
    """A struct that is already encoded: an element of a list, or a call's answer. So a large answer
    can be made piece by piece, and never exists as objects all at once."""

    __slots__ = ("cls", "parts")

    def __init__(self, cls: Any, parts: list[bytes]) -> None:
        self.cls = cls
        self.parts = parts


class Bounded(list[bytes]):
    """An output of limited length. Writers check it once per container or struct: to check each
    value would slow down every write."""

    __slots__ = ("parts_max",)

    def __init__(self, parts_max: int) -> None:
        super().__init__()
        self.parts_max = parts_max

    def check(self, more: int) -> None:
        if len(self) + more > self.parts_max:
            raise TooManyPartsError


_pack_count = struct.Struct(">i").pack
_LENGTH_MAX = 2**31 - 1


def struct_writer(cls: Any) -> Writer:
    """Return the writer of a struct's class; it raises EncodeError, with the path to the field."""
    return _struct_writer(cls)


def _wrong(value: object, wanted: str) -> EncodeError:
    text = repr(value)
    shown = text if len(text) <= 80 else text[:77] + "..."
    return EncodeError(f"{shown} ({type(value).__name__}) should be {wanted}")


def _write_bool(out: list[bytes], value: Any) -> None:
    if value is True:
        out.append(b"\x01")
    elif value is False:
        out.append(b"\x00")
    else:
        raise _wrong(value, "bool")


def _integer_writer(layout: str, wanted: str) -> Writer:
    pack = struct.Struct(layout).pack

    def write(out: list[bytes], value: Any) -> None:
        if not isinstance(value, int):
            raise _wrong(value, wanted)
        try:
            out.append(pack(value))
        except struct.error:
            raise EncodeError(f"{value} does not fit into an {wanted}") from None

    return write


def _write_double(out: list[bytes], value: Any) -> None:
    if not isinstance(value, float | int):
        raise _wrong(value, "double")
    try:
        out.append(struct.pack(">d", value))
    except OverflowError:
        raise EncodeError(f"{value} does not fit into a double") from None


def _write_text(out: list[bytes], value: Any) -> None:
    if not isinstance(value, str):
        raise _wrong(value, "str")
    try:
        data = value.encode()
    except UnicodeEncodeError as error:
        raise EncodeError(f"the text cannot be written as UTF-8: {error.reason}") from None
    out.append(_length(data))
    out.append(data)


def _write_binary(out: list[bytes], value: Any) -> None:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _wrong(value, "bytes")
    data = bytes(value)
    out.append(_length(data))
    out.append(data)


def _length(value: Sized) -> bytes:
    length = len(value)
    if length > _LENGTH_MAX:
        raise EncodeError(f"{length} bytes or elements are more than {_LENGTH_MAX}")
    return _pack_count(length)


_SCALARS: dict[int, Writer] = {
    wire.BOOL: _write_bool,
    wire.BYTE: _integer_writer(">b", "byte"),
    wire.DOUBLE: _write_double,
    wire.I16: _integer_writer(">h", "i16"),
    wire.I32: _integer_writer(">i", "i32"),
    wire.I64: _integer_writer(">q", "i64"),
}


def _enum_writer(cls: type[enum.IntEnum]) -> Writer:
    packed = {member.value: _pack_count(member.value) for member in cls}

    def write(out: list[bytes], value: Any) -> None:
        try:
            out.append(packed[value])
        except (KeyError, TypeError):
            raise _wrong(value, cls.__name__) from None

    return write


@functools.cache
def _writer(type_: idl.Type) -> Writer:
    match type_:
        case idl.Scalar(wire_type):
            return _SCALARS[wire_type]
        case idl.Text():
            return _write_text
        case idl.Binary():
            return _write_binary
        case idl.Enumeration(cls):
            return _enum_writer(cls)
        case idl.Struct(cls):
            return _struct_writer(cls)
        case idl.List(element):
            return _list_writer(element)
        case idl.Set(element):
            return _set_writer(element)
        case idl.Map(key, value):
            return _map_writer(key, value)


def _list_writer(element: idl.Type) -> Writer:
    write_element = _writer(element)
    head = bytes([element.wire_type])

    def write(out: list[bytes], value: Any) -> None:
        if not isinstance(value, list | tuple):
            raise _wrong(value, "list")
        if out.__class__ is Bounded:
            out.check(len(value))
        out.append(head + _length(value))
        for item in value:
            if item.__class__ is Encoded:
                out.extend(item.parts)
                continue
            try:
                write_element(out, item)
            except EncodeError as error:
                raise _within("[]", error) from None

    return write


def _set_writer(element: idl.Type) -> Writer:
    write_element = _writer(element)
    head = bytes([element.wire_type])

    def write(out: list[bytes], value: Any) -> None:
        if not isinstance(value, set | frozenset):
            raise _wrong(value, "set")
        if out.__class__ is Bounded:
            out.check(len(value))
        items: list[bytes] = []
        for item in value:
            parts: list[bytes] = []
            try:
                write_element(parts, item)
            except EncodeError as error:
                raise _within("[]", error) from None
            items.append(b"".join(parts))
        out.append(head + _length(value))
        out.extend(sorted(items))  # equal sets give equal bytes, in every process

    return write


def _map_writer(key_type: idl.Type, value_type: idl.Type) -> Writer:
    write_key, write_value = _writer(key_type), _writer(value_type)
    head = bytes([key_type.wire_type, value_type.wire_type])

    def write(out: list[bytes], value: Any) -> None:
        if not isinstance(value, dict):
            raise _wrong(value, "dict")
        if out.__class__ is Bounded:
            out.check(len(value))
        out.append(head + _length(value))
        for key, item in value.items():
            try:
                write_key(out, key)
                write_value(out, item)
            except EncodeError as error:
                raise _within(f"[{key!r}]", error) from None

    return write


@functools.cache
def _struct_writer(cls: Any) -> Writer:
    spec = idl.spec_of(cls)
    fields = [
        (f.name, struct.pack(">bh", f.type.wire_type, f.id), _writer(f.type), f.required)
        for f in spec.fields
    ]
    union = spec.kind is idl.Kind.UNION

    def write(out: list[bytes], value: Any) -> None:
        if value.__class__ is not cls:
            raise _wrong(value, spec.name)
        if out.__class__ is Bounded:
            out.check(0)
        written = 0
        for name, head, write_field, required in fields:
            item = getattr(value, name)
            if item is None:
                if required:
                    raise EncodeError("a required field is not set", f".{name}")
                continue
            out.append(head)
            written += 1
            try:
                write_field(out, item)
            except EncodeError as error:
                raise _within(f".{name}", error) from None
        if union and written != 1:
            raise EncodeError(f"union {spec.name} has {written} fields set, not exactly one")
        out.append(b"\x00")

    return write


def _within(step: str, error: EncodeError) -> EncodeError:
    return EncodeError(error.reason, step + error.path)
