"""The file of a task and an epoch: the entries that have changed, by key group.

    MAGIC           8 bytes; the last one is the version of the format
    block ...       of one key group, with a CRC-32 in the footer
    footer          msgpack: `Footer`
    trailer         CRC-32 and length of the footer, then MAGIC again

A block has frames, each behind its length (4 bytes, the lowest first): first one of deleted keys,
which may be empty, then those of entries. A frame has rows, encoded as tuples are. A row is one of

    [key]                         was deleted
    [key, value]
    [key, value, put at]          put at: milliseconds since the epoch, or nil
    [key, value, put at, owner]   the key of the tuples under which it is used, if not `key` itself

and a later row replaces an earlier one of the same key. A reader that needs some groups reads the
footer and the blocks of these groups.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from squall_common.state.errors import AFTER_A_LOSS, StateDamagedError, StateVersionError

VERSION = 1
MAGIC = b"SQSTSEG" + bytes([VERSION])
_TRAILER = struct.Struct("<II8s")
_TAIL_BYTES = 16 * 1024
_STRETCH_BYTES = 64 * 1024 * 1024  # read at once


class SegmentRef(msgspec.Struct, frozen=True, array_like=True):
    """A segment, as manifests and later segments name it."""

    name: str  # in the store
    size: int  # bytes
    checksum: int  # of its footer, which has those of the blocks
    entries: int
    epoch: int
    groups: tuple[int, int]  # the first and the last key group of the task that has written it
    is_base: bool


class Block(msgspec.Struct, frozen=True, array_like=True):
    """The entries of one group."""

    group: int
    offset: int
    length: int
    checksum: int


class Footer(msgspec.Struct, frozen=True, array_like=True):
    """What a segment says of itself, and of the state that it completes."""

    topology: str
    component: str
    task: int  # its index among the component's tasks
    tasks: int
    max_parallelism: int
    generation: int
    epoch: int
    entries: int
    keys: int  # of the whole state
    bound: int  # of these, how many belong to their task
    is_base: bool
    blocks: tuple[Block, ...]
    older: tuple[SegmentRef, ...]  # that are needed with it, the oldest first; none with a base


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Footer).decode

ReadPart = Callable[[int, int], bytes]
"""(start, length): bytes of a file; a negative start counts from its end."""


def encode_segment(
    footer: Footer, blocks: Mapping[int, bytes], name: str, groups: range
) -> tuple[list[bytes], SegmentRef]:
    """The parts of the file to write, one after the other, and its reference. `footer` comes
    without blocks."""
    parts, places, offset = [MAGIC], [], len(MAGIC)
    for group in sorted(blocks):
        data = blocks[group]
        places.append(Block(group, offset, len(data), zlib.crc32(data)))
        parts.append(data)
        offset += len(data)
    end, ref = _end(footer, places, offset, name, groups)
    return [*parts, *end], ref


def _end(
    footer: Footer, places: Iterable[Block], offset: int, name: str, groups: range
) -> tuple[list[bytes], SegmentRef]:
    """What comes after the blocks, which end at `offset`."""
    tail = _encode(msgspec.structs.replace(footer, blocks=tuple(places)))
    checksum = zlib.crc32(tail)
    size = offset + len(tail) + _TRAILER.size
    ref = SegmentRef(
        name=name,
        size=size,
        checksum=checksum,
        entries=footer.entries,
        epoch=footer.epoch,
        groups=(groups.start, groups.stop - 1),
        is_base=footer.is_base,
    )
    return [tail, _TRAILER.pack(checksum, len(tail), MAGIC)], ref


class SegmentParts:
    """The parts of a file whose blocks do not all fit into memory. It may be iterated over again,
    if a write has failed."""

    def __init__(
        self,
        footer: Footer,
        blocks: Iterable[tuple[int, bytes]],
        name: str,
        groups: range,
    ) -> None:
        """`footer` comes without blocks."""
        self._footer, self._blocks, self._name, self._groups = footer, blocks, name, groups
        self.ref: SegmentRef | None = None  # after the last part

    def __iter__(self) -> Iterator[bytes]:
        places, offset = [], len(MAGIC)
        yield MAGIC
        for group, data in self._blocks:
            places.append(Block(group, offset, len(data), zlib.crc32(data)))
            offset += len(data)
            yield data
        end, self.ref = _end(self._footer, places, offset, self._name, self._groups)
        yield from end


class Segment:
    """An open segment."""

    def __init__(self, name: str, footer: Footer, read_part: ReadPart, ref: SegmentRef) -> None:
        self.name = name
        self.footer = footer
        self.ref = ref
        self._read_part = read_part

    @classmethod
    def open(cls, name: str, read_part: ReadPart, expected: SegmentRef | None = None) -> Segment:
        """Read the footer. Raises StateDamagedError if it is damaged, or is not the one that
        `expected` names."""
        tail = read_part(-_TAIL_BYTES, _TAIL_BYTES)
        if len(tail) < _TRAILER.size:
            raise damaged(name, "it is too short")
        checksum, length, magic = _TRAILER.unpack(tail[-_TRAILER.size :])
        if magic[:-1] != MAGIC[:-1] or not magic[-1]:
            raise damaged(name, "it is not a segment, or its end is missing")
        if magic != MAGIC:
            raise StateVersionError(f"the segment {name}", magic[-1], VERSION)
        whole = length + _TRAILER.size
        if whole > len(tail):
            tail = read_part(-whole, whole)
        data = tail[-whole : -_TRAILER.size]
        if len(data) != length or zlib.crc32(data) != checksum:
            raise damaged(name, "the checksum of its footer differs")
        if expected is not None and expected.checksum != checksum:
            raise damaged(name, "it is not the segment that was written (its checksum differs)")
        try:
            footer = _decode(data)
        except msgspec.MsgspecError as error:
            raise damaged(name, f"its footer cannot be read: {error}") from error
        size = whole + (
            max((block.offset + block.length for block in footer.blocks), default=len(MAGIC))
        )
        found = [block.group for block in footer.blocks if block.group >= 0]
        groups = (min(found, default=0), max(found, default=-1))
        ref = expected or SegmentRef(
            name, size, checksum, footer.entries, footer.epoch, groups, footer.is_base
        )
        return cls(name, footer, read_part, ref)

    @property
    def is_base(self) -> bool:
        """Whether nothing in it replaces or deletes what is in another."""
        return self.footer.is_base

    def blocks(self, groups: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """The encoded rows of these groups, those that it has. Raises StateDamagedError."""
        wanted = set(groups)
        found = [block for block in self.footer.blocks if block.group in wanted]
        if not found:
            return
        for near in _stretches(found):
            start = near[0].offset
            length = near[-1].offset + near[-1].length - start
            data = memoryview(self._read_part(start, length))
            for block in near:
                yield self._checked(block, data[block.offset - start :][: block.length])

    def _checked(self, block: Block, data: memoryview) -> tuple[int, bytes]:
        if len(data) != block.length or zlib.crc32(data) != block.checksum:
            raise damaged(self.name, f"the checksum of key group {block.group} differs")
        return block.group, bytes(data)


def _stretches(blocks: Iterable[Block]) -> Iterator[list[Block]]:
    """Blocks to be read at once: near each other, and not too much. (Blocks lie in the order of
    their groups, or several times so: what a task wants is few stretches.)"""
    near: list[Block] = []
    wanted = 0
    for block in blocks:
        if near:
            length = block.offset + block.length - near[0].offset
            if length > 2 * (wanted + block.length) or length > _STRETCH_BYTES:
                yield near
                near, wanted = [], 0
        near.append(block)
        wanted += block.length
    if near:
        yield near


def damaged(name: str, why: str) -> StateDamagedError:
    """The error for a file that cannot be used."""
    return StateDamagedError(
        f"the state in {name} is damaged: {why}",
        hint=AFTER_A_LOSS,
    )
