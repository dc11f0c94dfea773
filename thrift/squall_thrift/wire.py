"""Thrift's binary protocol: its numbers, its limits and its errors.

    struct   field* 0x00                field = type(1) id(2) value
    string   length(4) bytes            UTF-8, or any bytes for `binary`
    list     type(1) count(4) value*    a set is written in the same way
    map      key type(1) value type(1) count(4) (key value)*

All integers are signed and big-endian; a bool is one byte; an enum is an i32. The source is
`doc/specs/thrift-binary-protocol.md` of Apache Thrift.
"""

from typing import Final

STOP: Final = 0
BOOL: Final = 2
BYTE: Final = 3
DOUBLE: Final = 4
I16: Final = 6
I32: Final = 8
I64: Final = 10
STRING: Final = 11  # `string` and `binary` alike
STRUCT: Final = 12
MAP: Final = 13
SET: Final = 14
LIST: Final = 15

TYPE_NAMES: Final = {
    BOOL: "bool", BYTE: "byte", DOUBLE: "double", I16: "i16", I32: "i32", I64: "i64",
    STRING: "string", STRUCT: "struct", MAP: "map", SET: "set", LIST: "list",
}  # fmt: skip

# Bytes of a value whose size never varies.
FIXED_SIZES: Final = {BOOL: 1, BYTE: 1, DOUBLE: 8, I16: 2, I32: 4, I64: 8}

# The fewest bytes that a value of a type can take: what a count is checked against.
SIZES_MIN: Final = {**FIXED_SIZES, STRING: 4, STRUCT: 1, MAP: 6, SET: 5, LIST: 5}

# Levels of nested structs and containers, including the outermost (Apache Thrift's own default).
DEPTH_MAX: Final = 64


class ProtocolError(ValueError):
    """Bytes that are not a valid struct or message of the declared kind.

    `reason` says what is wrong, and `offset` where in the bytes.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(f"{reason} (at byte {offset})")
        self.reason = reason
        self.offset = offset


class EncodeError(ValueError):
    """A struct that cannot be written: a required field is not set, or a value has the wrong type
    or is out of range. `path` leads to the field from the outermost struct."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.reason = reason
        self.path = path


class TooManyPartsError(Exception):
    """A valid struct with more values than may be written at once."""
