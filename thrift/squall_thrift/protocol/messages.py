"""Calls and replies: the envelope around a struct, and the errors that Thrift itself defines.

    0x8001 00 type(1) | name length(4) name | sequence id(4) | struct

That is the strict form, the only one that Storm uses; the older one, which begins with the name, is
refused. A reply carries the name and the sequence id of its call.
"""

import enum
import struct
from dataclasses import dataclass

from squall_thrift import wire
from squall_thrift.protocol import scan
from squall_thrift.wire import ProtocolError

_VERSION_1 = 0x80010000
_VERSION_MASK = 0xFFFF0000
# Long enough for any method; it is copied into replies and logs.
_NAME_BYTES_MAX = 256

_head_at = struct.Struct(">Ii").unpack_from
_int_at = struct.Struct(">i").unpack_from


class MessageType(enum.IntEnum):
    CALL = 1
    REPLY = 2
    EXCEPTION = 3
    ONEWAY = 4


class ApplicationErrorType(enum.IntEnum):
    """The kind of failure of a call itself; the numbers are Thrift's (TApplicationException)."""

    UNKNOWN = 0
    UNKNOWN_METHOD = 1
    INVALID_MESSAGE_TYPE = 2
    WRONG_METHOD_NAME = 3
    BAD_SEQUENCE_ID = 4
    MISSING_RESULT = 5
    INTERNAL_ERROR = 6
    PROTOCOL_ERROR = 7


class ThriftApplicationError(Exception):
    """The peer could not make the call, or did not answer it properly. (Exceptions that the
    interface declares are raised as they are.)"""

    def __init__(self, type: ApplicationErrorType, message: str) -> None:
        super().__init__(message)
        self.type = type
        self.message = message


@dataclass(frozen=True, slots=True)
class Message:
    """An envelope; the struct follows at `body` in the bytes that were parsed."""

    type: MessageType
    name: str
    sequence_id: int
    body: int

    def __str__(self) -> str:
        return f"{self.type.name} {self.name} #{self.sequence_id}"


def parse(data: bytes) -> Message:
    """Parse the envelope of a message. Raises ProtocolError."""
    if len(data) < 12:
        raise ProtocolError("the data ends within a message's head", 0)
    version, length = _head_at(data)
    if version & _VERSION_MASK != _VERSION_1:
        raise ProtocolError("this is not a message of Thrift's strict binary protocol", 0)
    try:
        type_ = MessageType(version & 0xFF)
    except ValueError:
        raise ProtocolError(f"message type {version & 0xFF} does not exist", 3) from None
    body = 12 + length
    if not 0 <= length <= _NAME_BYTES_MAX or body > len(data):
        raise ProtocolError(f"a method's name of {length} bytes is claimed", 4)
    try:
        name = data[8 : 8 + length].decode()
    except UnicodeDecodeError:
        raise ProtocolError("a method's name is not UTF-8", 8) from None
    return Message(type_, name, _int_at(data, 8 + length)[0], body)


def serialize(type_: MessageType, name: str, sequence_id: int, body: bytes) -> bytes:
    """Put a message around the bytes of a struct."""
    encoded = name.encode()
    head = struct.pack(">Ii", _VERSION_1 | type_, len(encoded))
    return b"".join((head, encoded, struct.pack(">i", sequence_id), body))


def serialize_application_error(error: ThriftApplicationError) -> bytes:
    """Encode the struct TApplicationException: field 1 is the message, field 2 the type."""
    message = error.message.encode("utf-8", "replace")
    return struct.pack(
        f">Bhi{len(message)}sBhiB",
        *(wire.STRING, 1, len(message), message),
        *(wire.I32, 2, error.type, wire.STOP),
    )


def parse_application_error(data: bytes, offset: int) -> ThriftApplicationError:
    """Decode the struct TApplicationException; an unknown type becomes UNKNOWN. Raises
    ProtocolError."""
    scan.scan_struct(data, offset)
    message, type_ = "", ApplicationErrorType.UNKNOWN
    at = offset
    while data[at] != wire.STOP:
        wire_type, field = data[at], _field_id_at(data, at + 1)[0]
        at += 3
        if (wire_type, field) == (wire.STRING, 1):
            length = _int_at(data, at)[0]
            message = data[at + 4 : at + 4 + length].decode("utf-8", "replace")
        elif (wire_type, field) == (wire.I32, 2):
            number = _int_at(data, at)[0]
            if number in ApplicationErrorType.__members__.values():
                type_ = ApplicationErrorType(number)
        at = scan.skip_value(data, wire_type, at)
    return ThriftApplicationError(type_, message)


_field_id_at = struct.Struct(">h").unpack_from
