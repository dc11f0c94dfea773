"""The first pass over bytes from outside: do they really hold everything that they claim to hold?

A length, a count or a depth in a Thrift message is only a claim. This walk makes no objects and
follows no claim beyond the end of the data, so it takes at most time proportional to the data's
real length. The decoder may read accepted data without looking at lengths again.

Small data could still ask for much in one way: a container of very many structs without fields, one
byte each, of which each would become an object. So all containers together (those of scalars
aside) may have at most one element for each four bytes of data, beyond the first 1024. No honest
data comes near: the smallest string takes four bytes, the smallest struct with a field takes five.
"""

import struct

from squall_thrift.wire import (
    DEPTH_MAX,
    FIXED_SIZES,
    LIST,
    MAP,
    SET,
    SIZES_MIN,
    STOP,
    STRING,
    STRUCT,
    TYPE_NAMES,
    ProtocolError,
)

ELEMENTS_FREE = 1024
BYTES_PER_ELEMENT = 4

_length_at = struct.Struct(">i").unpack_from


def scan_struct(data: bytes, offset: int = 0) -> int:
    """Check the struct that begins at `offset` and return where it ends.

    Raises ProtocolError for a struct that is cut short, a length or count that is negative or
    larger than the rest of the data, an unknown type, nesting deeper than `DEPTH_MAX`, or more
    elements than the data's length allows. Types are not compared with any declaration here.
    """
    return _Scan(data, offset).value(STRUCT, offset, DEPTH_MAX)


def skip_value(data: bytes, wire_type: int, offset: int) -> int:
    """Return where the value of `wire_type` at `offset` ends. Raises as `scan_struct` does."""
    return _Scan(data, offset).value(wire_type, offset, DEPTH_MAX)


class _Scan:
    """One walk. The method for each type takes where a value begins and how many levels deeper it
    may nest, and returns where the value ends."""

    __slots__ = ("_data", "_elements_left", "_end")

    def __init__(self, data: bytes, offset: int) -> None:
        self._data = data
        self._end = len(data)
        self._elements_left = ELEMENTS_FREE + (len(data) - offset) // BYTES_PER_ELEMENT

    def value(self, wire_type: int, at: int, depth_left: int) -> int:
        size = FIXED_SIZES.get(wire_type)
        if size is None:
            walk = _WALKS.get(wire_type)
            if walk is None:
                raise _no_type(wire_type, at)
            return walk(self, at, depth_left)
        if at + size > self._end:
            raise _cut_short(TYPE_NAMES[wire_type], at)
        return at + size

    def struct(self, at: int, depth_left: int) -> int:
        if depth_left <= 0:
            raise _too_deep(at)
        data, end = self._data, self._end
        sizes, length_at = FIXED_SIZES, _length_at
        while at < end:
            wire_type = data[at]
            if wire_type == STOP:
                return at + 1
            at += 3  # the type and the field's id
            if wire_type == STRING:  # by far the most common
                start = at + 4
                if start > end:
                    raise _cut_short("string", at)
                [length] = length_at(data, at)
                if length < 0 or start + length > end:
                    raise _wrong_length(length, end - start, at)
                at = start + length
            elif wire_type in sizes:
                at += sizes[wire_type]
                if at > end:
                    raise _cut_short(TYPE_NAMES[wire_type], end)
            elif wire_type in _WALKS:
                at = _WALKS[wire_type](self, at, depth_left - 1)
            else:
                raise _no_type(wire_type, at)
        raise _cut_short("struct", at)

    def string(self, at: int, depth_left: int) -> int:
        start = at + 4
        if start > self._end:
            raise _cut_short("string", at)
        length: int = _length_at(self._data, at)[0]
        if length < 0 or start + length > self._end:
            raise _wrong_length(length, self._end - start, at)
        return start + length

    def list(self, at: int, depth_left: int) -> int:
        if depth_left <= 0:
            raise _too_deep(at)
        start = at + 5
        if start > self._end:
            raise _cut_short("list", at)
        wire_type = self._data[at]
        count: int = _length_at(self._data, at + 1)[0]
        if count == 0:  # writers may omit the type
            return start
        size = self._check_count(count, (wire_type,), start)
        if wire_type in FIXED_SIZES:
            return start + count * size
        self._spend(count, at)
        walk, depth_left = _WALKS[wire_type], depth_left - 1
        at = start
        for _ in range(count):
            at = walk(self, at, depth_left)
        return at

    def map(self, at: int, depth_left: int) -> int:
        if depth_left <= 0:
            raise _too_deep(at)
        start = at + 6
        if start > self._end:
            raise _cut_short("map", at)
        key_type, value_type = self._data[at], self._data[at + 1]
        count: int = _length_at(self._data, at + 2)[0]
        if count == 0:
            return start
        self._check_count(count, (key_type, value_type), start)
        self._spend(count, at)
        value, depth_left = self.value, depth_left - 1
        at = start
        for _ in range(count):
            at = value(value_type, value(key_type, at, depth_left), depth_left)
        return at

    def _check_count(self, count: int, wire_types: tuple[int, ...], start: int) -> int:
        """Return the fewest bytes of one element. Raises ProtocolError if `count` do not fit."""
        size = 0
        for wire_type in wire_types:
            if wire_type not in SIZES_MIN:
                raise _no_type(wire_type, start)
            size += SIZES_MIN[wire_type]
        left = self._end - start
        if count < 0 or count * size > left:
            raise ProtocolError(f"{count} elements are claimed where {left} bytes are left", start)
        return size

    def _spend(self, count: int, at: int) -> None:
        self._elements_left -= count
        if self._elements_left < 0:
            raise ProtocolError("there are too many elements for so few bytes", at)


_WALKS = {
    STRUCT: _Scan.struct,
    STRING: _Scan.string,
    LIST: _Scan.list,
    SET: _Scan.list,
    MAP: _Scan.map,
}


def _no_type(wire_type: int, at: int) -> ProtocolError:
    return ProtocolError(f"type {wire_type} does not exist", at)


def _cut_short(what: str, at: int) -> ProtocolError:
    return ProtocolError(f"the data ends within this value: {what}", at)


def _wrong_length(length: int, left: int, at: int) -> ProtocolError:
    return ProtocolError(f"a string of {length} bytes is claimed where {left} are left", at)


def _too_deep(at: int) -> ProtocolError:
    return ProtocolError(f"structs and containers nest deeper than {DEPTH_MAX}", at)
