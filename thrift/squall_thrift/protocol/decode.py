"""The second pass: turns bytes that `scan` accepted into the declared structs.

A reader is a function `(data, offset) -> (value, end)`. Readers are built once for each struct from
its declaration and kept. The peer's data may differ from the declaration:

- a field that is not declared here, or that has another type on the wire: skipped, as every Thrift
  implementation does;
- i32 where i64 is declared, or the reverse: read by the type on the wire (Storm 2 sends its
  heartbeats' `time_secs` as i32, Storm 3 as i64);
- an enum value that is unknown here: as if the field were absent;
- a required field that is absent, a union without exactly one field, text that is not UTF-8:
  ProtocolError.

A list that is a map's key or a set's element is read as a tuple, since Python's lists do not hash.
"""

import functools
import struct
from collections.abc import Callable
from typing import Any

from squall_thrift import idl, wire
from squall_thrift.protocol.scan import skip_value
from squall_thrift.wire import ProtocolError

Reader = Callable[[bytes, int], tuple[Any, int]]

_count_at = struct.Struct(">i").unpack_from

# The result of an enum reader for a value that is unknown here.
_UNKNOWN: Any = object()


def struct_reader(cls: Any) -> Reader:
    """Return the reader of a struct's class. Its data must have passed `scan.scan_struct`."""
    return _struct_reader(cls)


def _fixed(layout: str) -> Reader:
    unpack, size = struct.Struct(layout).unpack_from, struct.calcsize(layout)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return unpack(data, at)[0], at + size

    return read


_SCALARS: dict[int, Reader] = {
    wire.BOOL: _fixed(">?"),
    wire.BYTE: _fixed(">b"),
    wire.DOUBLE: _fixed(">d"),
    wire.I16: _fixed(">h"),
    wire.I32: _fixed(">i"),
    wire.I64: _fixed(">q"),
}


def _read_binary(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 4
    end = start + _count_at(data, at)[0]
    return data[start:end], end


def _read_text(data: bytes, at: int) -> tuple[str, int]:
    start = at + 4
    end = start + _count_at(data, at)[0]
    try:
        return data[start:end].decode(), end
    except UnicodeDecodeError as error:
        raise _no_text(start + error.start) from None


def _no_text(at: int) -> ProtocolError:
    return ProtocolError("a string is not UTF-8", at)


def _read_i64_as_i32(data: bytes, at: int) -> tuple[int, int]:
    value, end = _SCALARS[wire.I64](data, at)
    if not -(2**31) <= value < 2**31:
        raise ProtocolError(f"{value} does not fit into the i32 that is declared", at)
    return value, end


def _enum_reader(enum: Any) -> Reader:
    members = {member.value: member for member in enum}

    def read(data: bytes, at: int) -> tuple[Any, int]:
        return members.get(_count_at(data, at)[0], _UNKNOWN), at + 4

    return read


@functools.cache
def _readers(type_: idl.Type, hashable: bool = False) -> dict[int, Reader]:
    """Return the readers of a declared type, by the type on the wire."""
    match type_:
        case idl.Scalar(wire.I64):
            return {wire.I64: _SCALARS[wire.I64], wire.I32: _SCALARS[wire.I32]}
        case idl.Scalar(wire.I32):
            return {wire.I32: _SCALARS[wire.I32], wire.I64: _read_i64_as_i32}
        case idl.Scalar(wire_type):
            return {wire_type: _SCALARS[wire_type]}
        case idl.Text():
            return {wire.STRING: _read_text}
        case idl.Binary():
            return {wire.STRING: _read_binary}
        case idl.Enumeration(enum):
            return {wire.I32: _enum_reader(enum)}
        case idl.Struct(cls):
            return {wire.STRUCT: _struct_reader(cls)}
        case idl.List(element):
            return {wire.LIST: _list_reader(element, tuple if hashable else None)}
        case idl.Set(element):
            return {wire.SET: _list_reader(element, frozenset if hashable else set)}
        case idl.Map(key, value):
            return {wire.MAP: _map_reader(key, value)}


def _list_reader(element: idl.Type, make: Any) -> Reader:
    readers = _readers(element, hashable=make is not None)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        [count] = _count_at(data, at + 1)
        if not count:
            return ([] if make is None else make()), at + 5
        reader = _element_reader(readers, data, at, at)
        at += 5
        values = []
        for _ in range(count):
            value, at = reader(data, at)
            if value is not _UNKNOWN:
                values.append(value)
        return (values if make is None else make(values)), at

    return read


def _map_reader(key_type: idl.Type, value_type: idl.Type) -> Reader:
    key_readers, value_readers = _readers(key_type, hashable=True), _readers(value_type)

    def read(data: bytes, at: int) -> tuple[Any, int]:
        [count] = _count_at(data, at + 2)
        values: dict[Any, Any] = {}
        if not count:
            return values, at + 6
        read_key = _element_reader(key_readers, data, at, at)
        read_value = _element_reader(value_readers, data, at + 1, at)
        at += 6
        for _ in range(count):
            key, at = read_key(data, at)
            value, at = read_value(data, at)
            if value is not _UNKNOWN and key is not _UNKNOWN:
                values[key] = value
        return values, at

    return read


def _element_reader(readers: dict[int, Reader], data: bytes, type_at: int, at: int) -> Reader:
    """Return the reader for the elements of a container, by the type that it gives for them."""
    try:
        return readers[data[type_at]]
    except KeyError:
        declared = wire.TYPE_NAMES[next(iter(readers))]
        found = wire.TYPE_NAMES[data[type_at]]
        raise ProtocolError(f"a container holds {found} where {declared} is declared", at) from None


@functools.cache
def _struct_reader(cls: Any) -> Reader:
    spec = idl.spec_of(cls)
    # Maps a field's head as it is on the wire (type and id) to its name and reader. If the entry is
    # None, the field is text and the loop itself reads it: half of all fields are text.
    table: dict[bytes, tuple[str, Reader | None]] = {}
    for field in spec.fields:
        for wire_type, reader in _readers(field.type).items():
            head = struct.pack(">Bh", wire_type, field.id)
            table[head] = (field.name, None if reader is _read_text else reader)
    entry_of, count_at = table.get, _count_at
    new = cls.__new__
    absent = {field.name: field.default for field in spec.fields}
    copied = [name for name, default in absent.items() if isinstance(default, dict | list | set)]
    required = {field.name for field in spec.fields if field.required}
    union = spec.kind is idl.Kind.UNION
    # With this many fields found there are no more: nothing is left to check or to fill in.
    count = len(absent) if not union else -1
    # All structs without fields share one object: a frame can hold very many of them.
    empty = new(cls) if not count else None

    def read(data: bytes, at: int) -> tuple[Any, int]:
        start = at
        found: dict[str, Any] = {}
        while data[at]:
            entry = entry_of(data[at : at + 3])
            if entry is None:
                at = skip_value(data, data[at], at + 3)
                continue
            name, reader = entry
            if reader is None:
                text = at + 7
                at = text + count_at(data, at + 3)[0]
                try:
                    found[name] = data[text:at].decode()
                except UnicodeDecodeError as error:
                    raise _no_text(text + error.start) from None
            else:
                value, at = reader(data, at + 3)
                if value is not _UNKNOWN:
                    found[name] = value
        if len(found) == count:
            if empty is not None:
                return empty, at + 1
            made = new(cls)
            made.__dict__ = found
            return made, at + 1
        if not required <= found.keys():
            name = min(required - found.keys())
            raise ProtocolError(f"{spec.name} lacks its required field {name!r}", start)
        if union and len(found) != 1:
            raise ProtocolError(f"union {spec.name} does not have exactly one field", start)
        made = new(cls)
        made.__dict__ = absent | found
        for name in copied:
            if name not in found:
                made.__dict__[name] = absent[name].copy()
        return made, at + 1

    return read
