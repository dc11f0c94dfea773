"""Turns structs into bytes and back: for blobs, ZooKeeper and messages."""

import struct
from typing import Any, TypeVar

from squall_thrift.protocol import decode, encode, scan
from squall_thrift.protocol.encode import Encoded
from squall_thrift.wire import MAP, STRUCT, EncodeError, ProtocolError

__all__ = [
    "EncodeError",
    "Encoded",
    "ProtocolError",
    "encoded",
    "encoded_element",
    "from_bytes",
    "map_keys",
    "read_struct",
    "struct_field",
    "struct_of",
    "to_bytes",
]

T = TypeVar("T")

# Parts below this size are joined: sending each one costs something.
_SMALL_BYTES = 512


def to_bytes(value: object, parts_max: int | None = None) -> bytes:
    """Encode a struct in Thrift's binary protocol. Raises EncodeError, which names the field, and
    TooManyPartsError soon after `parts_max` values were written."""
    out: list[bytes] = [] if parts_max is None else encode.Bounded(parts_max)
    _write(out, value)
    return b"".join(out)


def encoded(value: object) -> Encoded:
    """Encode a struct in parts that are not joined, for large answers. Raises EncodeError."""
    out: list[bytes] = []
    _write(out, value)
    parts: list[bytes] = []
    small: list[bytes] = []
    for part in out:
        if len(part) < _SMALL_BYTES:
            small.append(part)
            continue
        parts += [b"".join(small), part]
        small = []
    parts.append(b"".join(small))
    return Encoded(type(value), parts)


def encoded_element(value: T) -> T:
    """Encode one struct of a list now, so that its objects can be freed. The result stands for
    `value` in a struct to be encoded, and can be used for nothing else. Raises EncodeError."""
    element: Any = Encoded(type(value), [to_bytes(value)])
    return element  # type: ignore[no-any-return]


def struct_of(value: Encoded) -> Any:
    """Decode a struct that was encoded in parts."""
    return from_bytes(value.cls, b"".join(value.parts))


def _write(out: list[bytes], value: object) -> None:
    try:
        encode.struct_writer(type(value))(out, value)
    except EncodeError as error:
        raise EncodeError(error.reason, type(value).__name__ + error.path) from None


def from_bytes(cls: type[T], data: bytes) -> T:
    """Decode the struct of class `cls` that fills `data`. Raises ProtocolError."""
    value, end = read_struct(cls, data, 0)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes follow the struct", end)
    return value


def read_struct(cls: type[T], data: bytes, offset: int) -> tuple[T, int]:
    """Return the struct that begins at `offset`, and where it ends. Raises ProtocolError."""
    end = scan.scan_struct(data, offset)
    value: Any
    value, read_to = decode.struct_reader(cls)(data, offset)
    if read_to != end:  # never, unless one of the two passes is wrong: then trust neither
        raise ProtocolError(f"the struct ends at {end} and was read to {read_to}", offset)
    return value, end


def struct_field(data: bytes, field_id: int, cls: type[T]) -> T | None:
    """Return the struct of class `cls` in field `field_id` of the struct in `data`, or None if it
    has none. Other fields are skipped, not decoded. Raises ProtocolError."""
    found, at = None, 0
    try:
        while data[at]:
            wire_type, found_id = _field_at(data, at)
            at += 3
            end = scan.skip_value(data, wire_type, at)  # checked, before it is read
            if (wire_type, found_id) == (STRUCT, field_id):
                found = decode.struct_reader(cls)(data, at)[0]
            at = end
    except (IndexError, struct.error):
        raise ProtocolError("the data ends within the struct", at) from None
    return found


_field_at = struct.Struct(">Bh").unpack_from
_map_at = struct.Struct(">BBi").unpack_from


def map_keys(data: bytes, field_id: int, key: type[T]) -> list[T]:
    """Return the keys (structs of class `key`) of the map in field `field_id` of the struct in
    `data`. The map's values are skipped, not decoded. Raises ProtocolError."""
    read_key, keys = decode.struct_reader(key), []
    at = 0
    try:
        while data[at]:
            wire_type, found_id = _field_at(data, at)
            at += 3
            if (wire_type, found_id) != (MAP, field_id):
                at = scan.skip_value(data, wire_type, at)
                continue
            key_type, value_type, count = _map_at(data, at)
            at += 6
            if count and key_type != STRUCT:
                raise ProtocolError("the keys of the map are not structs", at)
            for _ in range(count):
                end = scan.skip_value(data, STRUCT, at)  # checked, before it is read
                keys.append(read_key(data, at)[0])
                at = scan.skip_value(data, value_type, end)
    except (IndexError, struct.error):
        raise ProtocolError("the data ends within the struct", at) from None
    if at + 1 != len(data):
        raise ProtocolError(f"{len(data) - at - 1} bytes follow the struct", at + 1)
    return keys
