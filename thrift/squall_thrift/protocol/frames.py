"""Framed transport: each message follows its length, which takes four bytes."""

import asyncio
import struct
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

# Apache Thrift's own limit for a frame (TFramedTransport.DEFAULT_MAX_LENGTH): a peer reads up to
# this unless it has set another.
FRAME_BYTES_MAX: Final = 16_384_000

_HEAD = struct.Struct(">i")

# Some releases of asyncio do not notice in writelines that the buffer is over its limit, and drain
# would not wait (CVE-2024-12254).
_MICRO_THAT_PAUSES = {(3, 12): 9, (3, 13): 2}
_WRITELINES_DOES_NOT_PAUSE: Final = sys.version_info.micro < _MICRO_THAT_PAUSES.get(
    sys.version_info[:2], 0
)

# Bytes of a frame's message that hold the envelope, even with the longest method name.
ENVELOPE_BYTES_MAX: Final = 272


class FrameError(Exception):
    """Bytes that are not a frame, or a frame that is too long or moves too slowly. The connection
    cannot be used any more."""


class FrameTooLargeError(Exception):
    """A frame that is longer than its method allows. It was skipped: the next may follow."""

    def __init__(self, head: bytes, length: int, limit: int) -> None:
        super().__init__(f"a frame of {length} bytes is not within the limit of {limit}")
        self.head = head  # the message's envelope, and some bytes after it
        self.length = length
        self.limit = limit


def no_limit(head: bytes) -> int:
    """Allow any message to be as long as any frame."""
    return FRAME_BYTES_MAX


async def read_frame(
    reader: asyncio.StreamReader,
    bytes_max: int,
    *,
    first_byte_secs: float | None,
    frame_secs: float | None,
    expect: Callable[[int], None] = lambda length: None,
    small_bytes: int = FRAME_BYTES_MAX,
    limit_of: Callable[[bytes], int] = no_limit,
) -> bytes | None:
    """Wait for a frame and return its message, or None when the peer closes before one begins.

    `first_byte_secs` bounds the wait for its first byte, `frame_secs` the time from there to its
    last (None: no bound). `expect` gets its length as soon as that is known. A frame of more than
    `small_bytes` (ENVELOPE_BYTES_MAX or more) may be as long as `limit_of` returns for its
    envelope.

    Raises FrameError (for a length above `bytes_max` before anything is read or allocated),
    FrameTooLargeError, IncompleteReadError when the peer closes within the frame, or OSError.
    """
    async with deadline(first_byte_secs, "nothing was sent"):
        first = await reader.read(1)
    if not first:
        return None
    async with deadline(frame_secs, "a frame was not complete"):
        head = first + await reader.readexactly(_HEAD.size - 1)
        [length] = _HEAD.unpack(head)
        if not 0 <= length <= bytes_max:
            raise FrameError(describe_head(head, bytes_max))
        if length <= small_bytes:
            expect(length)
            return await reader.readexactly(length)
        head = await reader.readexactly(ENVELOPE_BYTES_MAX)
        limit = limit_of(head)
        if length > limit:
            await _pass_over(reader, length - len(head))
            raise FrameTooLargeError(head, length, limit)
        expect(length)
        return head + await reader.readexactly(length - len(head))


async def _pass_over(reader: asyncio.StreamReader, count: int) -> None:
    while count > 0:
        passed = await reader.read(min(count, 65_536))
        if not passed:
            raise asyncio.IncompleteReadError(b"", count)
        count -= len(passed)


async def write_frame(
    writer: asyncio.StreamWriter, message: Sequence[bytes], *, timeout_secs: float | None
) -> None:
    """Send a message, given in parts, and wait until the kernel has taken all of it. Raises
    FrameError when the peer does not read within `timeout_secs`, or OSError.

    The writer must have been prepared with `set_write_buffer_limits(high=0)`.
    """
    if writer.is_closing():  # uvloop raises RuntimeError for a write after that
        raise ConnectionResetError("the connection is closed")
    frame = (_HEAD.pack(sum(map(len, message))), *message)
    if _WRITELINES_DOES_NOT_PAUSE:
        writer.write(b"".join(frame))
    else:
        writer.writelines(frame)
    async with deadline(timeout_secs, "a frame was not read"):
        await writer.drain()


@asynccontextmanager
async def deadline(secs: float | None, complaint: str) -> AsyncIterator[None]:
    """Raise FrameError when the block takes longer."""
    limit = asyncio.timeout(secs)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():  # the kernel's own, on a connection that is gone
            raise
        raise FrameError(f"{complaint} within {secs:g} s") from error


def describe_head(head: bytes, bytes_max: int) -> str:
    """Return why four bytes are not an acceptable frame length, for logs."""
    if head[0] == 0x16:
        return "the peer speaks TLS"
    if head[:2] == b"\x80\x01":
        return "the peer does not use framed transport"
    if head.strip().isalpha():
        return f"the peer speaks another protocol: its first bytes are {head!r}"
    [length] = _HEAD.unpack(head)
    return f"a frame of {length} bytes is not within the limit of {bytes_max}"
