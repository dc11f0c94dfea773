"""Blocks of segments, put together to one of a base, without their entries becoming objects.

Two rows have the same key if their packed keys are the same bytes. That holds of text, bytes and
whole numbers; a number with a fraction, say, may be equal to a whole one. Blocks with other keys
are left to whoever has the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from squall_common.state.keyed import LENGTH

_rows = msgspec.msgpack.Decoder(list[list[msgspec.Raw]]).decode
_encode = msgspec.msgpack.Encoder().encode
_NUMBERS = (range(0x80), range(0xE0, 0x100), range(0xCC, 0xD4))
_TEXT_AND_BYTES = (range(0xA0, 0xC0), range(0xD9, 0xDC), range(0xC4, 0xC7))
_PLAIN = frozenset(chain(*_NUMBERS, *_TEXT_AND_BYTES))
"""First bytes of packed text, bytes and whole numbers."""


def merge_blocks(blocks: list[bytes]) -> tuple[bytes, int] | None:
    """The block that has what all these leave together, the oldest first, which are of one key
    group; and the number of its rows. Without any rows b"". None: they cannot be merged."""
    found: dict[bytes, list[msgspec.Raw]] = {}
    try:
        for block in blocks:
            for number, frame in enumerate(_whole_frames(block)):
                for row in _rows(frame) if frame else ():
                    if not 1 <= len(row) <= 4 or (key := bytes(row[0]))[0] not in _PLAIN:
                        return None
                    if number:
                        found[key] = row
                    else:
                        found.pop(key, None)
    except ValueError:  # also msgspec's
        return None
    if not found:
        return b"", 0
    frame = _encode(list(found.values()))
    return b"".join((LENGTH.pack(0), LENGTH.pack(len(frame)), frame)), len(found)


def _whole_frames(block: bytes) -> Iterator[bytes]:
    """Raises ValueError if the end of a frame is missing."""
    at, end = 0, len(block)
    while at < end:
        begin = at + LENGTH.size
        at = begin + int.from_bytes(block[at:begin], "little")
        if at > end or begin > end:
            raise ValueError
        yield block[begin:at]
