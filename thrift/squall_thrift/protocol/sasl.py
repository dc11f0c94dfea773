"""Thrift's SASL framing: what a client and a server say to each other before the first call.

    client  START     name of the mechanism        each message: its status (a byte), the length of
            OK        initial response             its payload (four bytes), and the payload
    server  COMPLETE  (empty)                      or BAD, and the end

After that, each message has only its length: `frames`. Mechanisms that take several turns send OK
in between. (Apache Thrift: TSaslTransport.)
"""

from __future__ import annotations

import asyncio
import enum
import struct
from typing import Final

from squall_thrift.protocol.frames import FrameError, describe_head

_HEAD = struct.Struct(">bi")

# Of one message. A token has some 2 KB.
PAYLOAD_BYTES_MAX: Final = 16_384
MECHANISM_BYTES_MAX: Final = 20  # RFC 4422


class Status(enum.IntEnum):
    """What a message means."""

    START = 1
    OK = 2
    BAD = 3
    ERROR = 4
    COMPLETE = 5


class SaslError(FrameError):
    """The peer did not prove who it is, or does not speak SASL. The connection ends."""


def serialize(status: Status, payload: bytes) -> bytes:
    """One message.

    >>> serialize(Status.START, b"EXTERNAL").hex()
    '010000000845585445524e414c'
    """
    return _HEAD.pack(status, len(payload)) + payload


async def read_message(
    reader: asyncio.StreamReader, bytes_max: int = PAYLOAD_BYTES_MAX
) -> tuple[Status, bytes]:
    """Read one message. Raises SaslError for what is none, before its payload is read, and
    IncompleteReadError when the peer closes."""
    head = await reader.readexactly(_HEAD.size)
    number, length = _HEAD.unpack(head)
    try:
        status = Status(number)
    except ValueError:
        why = describe_head(head[:4], 0) if head[0] in (0x16, 0x80) else "it sent a bare frame"
        raise SaslError(f"the peer does not speak SASL: {why}") from None
    if not 0 <= length <= bytes_max:
        raise SaslError(f"a SASL message of {length} bytes is not within the limit of {bytes_max}")
    return status, await reader.readexactly(length)
