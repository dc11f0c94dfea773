"""Parts of a log, also of one that was compressed when it was turned over.

Offsets and lengths are of the text as a reader sees it: of a `.gz`, uncompressed. Reading a part of
a compressed file means to uncompress all before it, so that is bounded.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO

PAGE_BYTES = 51_200  # Storm's default for a page
PAGE_BYTES_MAX = 2 * 1024 * 1024
# A rotated log has 100 MiB; what claims to be far more is not read to its end.
UNCOMPRESSED_BYTES_MAX = 1 << 30
_CHUNK = 262_144


class TooLargeError(Exception):
    """A compressed file that becomes larger than the limit."""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of a file from an offset on. `size` is the file's; for a compressed file it is known
    only after its end was read, and counted so far otherwise."""

    data: bytes
    offset: int
    size: int
    # Of the file, whatever its name becomes.
    identity: str = field(default="", compare=False)

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    @property
    def text(self) -> str:
        """As text; what is not UTF-8 is shown by replacement characters."""
        return self.data.decode(errors="replace")


def is_compressed(name: str) -> bool:
    return name.endswith(".gz")


def size_of(fd: int, *, compressed: bool) -> int:
    """Raises TooLargeError."""
    if not compressed:
        return os.fstat(fd).st_size
    total = 0
    for chunk in chunks(fd, compressed=True):
        total += len(chunk)
    return total


def read_part(fd: int, start: int | None, length: int, *, compressed: bool) -> Part:
    """`length` bytes from `start` on; the last ones if it is None. A start behind the end gives no
    bytes. Raises TooLargeError, and OSError for a file that is damaged."""
    size = size_of(fd, compressed=compressed)
    found = os.fstat(fd)
    identity = f"{found.st_dev}-{found.st_ino}"
    begin = max(0, size - length) if start is None else min(start, size)
    if not compressed:
        return Part(os.pread(fd, length, begin), begin, size, identity)
    data = bytearray()
    at = 0
    for chunk in chunks(fd, compressed=True):
        if at + len(chunk) > begin:
            data += chunk[max(0, begin - at) :]
        at += len(chunk)
        if len(data) >= length:
            break
    return Part(bytes(data[:length]), begin, size, identity)


def whole_lines(part: Part) -> Part:
    """A part that began in the middle of a line, from the next line on; and never half a character
    at its beginning."""
    if part.offset == 0:
        return part
    cut = part.data.find(b"\n") + 1
    if not 0 < cut < len(part.data):
        return part
    return replace(part, data=part.data[cut:], offset=part.offset + cut)


def ended_lines(part: Part) -> Part:
    """A part without the line at its end that is still being written. A line that is longer than
    the part is left as it is, so that a reader gets past it."""
    cut = part.data.rfind(b"\n") + 1
    if cut == 0 and part.end < part.size:
        return part
    return replace(part, data=part.data[:cut])


def chunks(fd: int, *, compressed: bool, start: int = 0) -> Iterator[bytes]:
    """The file from an offset on, chunk by chunk. Raises TooLargeError, OSError."""
    if not compressed:
        at = start
        while chunk := os.pread(fd, _CHUNK, at):
            at += len(chunk)
            yield chunk
        return
    at = 0
    with os.fdopen(os.dup(fd), "rb") as raw:
        raw.seek(0)
        for chunk in _uncompressed(raw):
            if at + len(chunk) > start:
                yield chunk[max(0, start - at) :]
            at += len(chunk)
            if at > UNCOMPRESSED_BYTES_MAX:
                raise TooLargeError(
                    f"uncompressed it has more than {UNCOMPRESSED_BYTES_MAX >> 20} MiB"
                )


def _uncompressed(raw: BinaryIO) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=raw) as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except (EOFError, zlib.error) as error:
        raise OSError(0, f"it is not a whole gzip file: {error}") from error
