"""A struct to its bytes and back: what lies in blobs, in ZooKeeper and in messages."""

from typing import Any, TypeVar

from squall_thrift import decode, encode, scan
from squall_thrift.wire import EncodeError, ProtocolError

__all__ = ["EncodeError", "ProtocolError", "from_bytes", "read_struct", "to_bytes"]

T = TypeVar("T")


def to_bytes(value: object) -> bytes:
    """A struct in Thrift's binary protocol. Raises EncodeError that names the field."""
    out: list[bytes] = []
    try:
        encode.struct_writer(type(value))(out, value)
    except EncodeError as error:
        raise EncodeError(error.reason, type(value).__name__ + error.path) from None
    return b"".join(out)


def from_bytes(cls: type[T], data: bytes) -> T:
    """The struct of class `cls` that `data` holds, all of it. Raises ProtocolError."""
    value, end = read_struct(cls, data, 0)
    if end != len(data):
        raise ProtocolError(f"{len(data) - end} bytes follow the struct", end)
    return value


def read_struct(cls: type[T], data: bytes, offset: int) -> tuple[T, int]:
    """The struct that begins at `offset`, and where it ends. Raises ProtocolError."""
    end = scan.scan_struct(data, offset)
    value: Any
    value, read_to = decode.struct_reader(cls)(data, offset)
    if read_to != end:  # never, unless one of the two passes is wrong: then trust neither
        raise ProtocolError(f"the struct ends at {end} and was read to {read_to}", offset)
    return value, end
