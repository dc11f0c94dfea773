"""A file of state: entries in the order of their hashes, in blocks, and an index at the end.

    block ...       msgpack: [[hash, owner, put at, key, value or nil], ...]
    footer          msgpack: `Footer`
    trailer         CRC-32 and length of the footer, then MAGIC

`hash` is the stable hash of the key (`stable_hash`: the one of a fields grouping), so that a key's
group is `hash % max_parallelism` and groups can be told from the index. Blocks carry a CRC-32 in
the index. A reader keeps the blocks that it has decoded, up to a number of bytes.
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import msgspec

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError

MAGIC = b"SQSTATE1"
_BLOCK_BYTES = 4 * 1024
_TAIL_BYTES = 64 * 1024
_TRAILER = struct.Struct("<II8s")
_HASH = itemgetter(0)
_HASH_AND_RANK = itemgetter(0, 1)


class StateDamagedError(SquallError):
    """A file of the state is missing or cannot be read; the message names it."""


class Entry(NamedTuple):
    """One key. `value` None: it was deleted."""

    hash: int
    owner: int  # see `owner`
    at_secs: int  # when it was last put, since the epoch
    key: bytes
    value: bytes | None


class Older(msgspec.Struct, frozen=True, array_like=True):
    """A file that another one builds on."""

    name: str
    entries: int
    size: int


class Block(msgspec.Struct, frozen=True, array_like=True):
    first: int  # the least hash in it
    offset: int
    length: int
    crc: int


class Footer(msgspec.Struct, frozen=True, array_like=True):
    """What a file says of itself and of the state that it completes."""

    batch: int
    task: int
    tasks: int
    blocks: list[Block]
    entries: int
    older: list[Older]  # newest first
    keys: int  # of the whole state
    bound: int  # keys of the whole state that belong to their task (see `owner`)
    size: int  # bytes of this file before its footer


_encode = msgspec.msgpack.Encoder().encode
_decode_block = msgspec.msgpack.Decoder(list[Entry]).decode
_decode_footer = msgspec.msgpack.Decoder(Footer).decode


class BlockCache:
    """Decoded blocks, least recently used first; at most about `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        self._blocks: OrderedDict[tuple[str, int], tuple[list[Entry], int]] = OrderedDict()

    def get(self, place: tuple[str, int]) -> list[Entry] | None:
        found = self._blocks.get(place)
        if found is None:
            return None
        self._blocks.move_to_end(place)
        return found[0]

    def put(self, place: tuple[str, int], entries: list[Entry], size: int) -> None:
        self._blocks[place] = entries, size
        self._size += size
        while self._size > self._limit and len(self._blocks) > 1:
            _, (_, freed) = self._blocks.popitem(last=False)
            self._size -= freed


class Segment:
    """An open file. Raises StateDamagedError where it cannot be read."""

    def __init__(self, folder: Folder, name: str, footer: Footer, cache: BlockCache) -> None:
        self.folder = folder
        self.name = name
        self.footer = footer
        self._firsts = [block.first for block in footer.blocks]
        self._cache = cache

    @classmethod
    def open(cls, folder: Folder, name: str, cache: BlockCache) -> Segment:
        return cls(folder, name, read_footer(folder, name), cache)

    def with_hash(self, hash_: int) -> list[Entry]:
        """The entries with this hash."""
        at = max(0, bisect_left(self._firsts, hash_) - 1)
        found: list[Entry] = []
        while at < len(self._firsts) and self._firsts[at] <= hash_:
            entries = self._block(at)
            first = bisect_left(entries, hash_, key=_HASH)
            while first < len(entries) and entries[first].hash == hash_:
                found.append(entries[first])
                first += 1
            at += 1
        return found

    def __iter__(self) -> Iterator[Entry]:
        for at in range(len(self._firsts)):
            yield from self._block(at, keep=False)

    def _block(self, at: int, *, keep: bool = True) -> list[Entry]:
        entries = self._cache.get((self.name, at))
        if entries is not None:
            return entries
        block = self.footer.blocks[at]
        data = _read(self.folder, self.name, block.offset, block.length)
        if zlib.crc32(data) != block.crc:
            raise _damaged(self.folder, self.name, "a block does not match its checksum")
        entries = _decode_block(data)
        if keep:
            self._cache.put((self.name, at), entries, block.length)
        return entries


def read_footer(folder: Folder, name: str) -> Footer:
    """Raises StateDamagedError, FileNotFoundError."""
    tail = _read(folder, name, -_TAIL_BYTES, _TAIL_BYTES)
    if len(tail) < _TRAILER.size:
        raise _damaged(folder, name, "it is too short")
    crc, length, magic = _TRAILER.unpack(tail[-_TRAILER.size :])
    if magic != MAGIC:
        raise _damaged(folder, name, "its end is missing, or another version of squall wrote it")
    if length + _TRAILER.size > len(tail):
        tail = _read(folder, name, -(length + _TRAILER.size), length + _TRAILER.size)
    data = tail[-_TRAILER.size - length : -_TRAILER.size]
    if len(data) != length or zlib.crc32(data) != crc:
        raise _damaged(folder, name, "its index does not match its checksum")
    return _decode_footer(data)


def _read(folder: Folder, name: str, start: int, length: int) -> bytes:
    try:
        return folder.read_part(name, start, length)
    except FileNotFoundError:
        raise
    except Exception as error:  # what the URL's file system raises
        raise _damaged(folder, name, str(error)) from error


def _damaged(folder: Folder, name: str, why: str) -> StateDamagedError:
    return StateDamagedError(
        f"the state file {folder.url}/{name} cannot be read: {why}",
        hint="restore the checkpoint from a copy, or start with a new --checkpoint",
    )


class Writer:
    """Writes a file on this machine: entries in the order of their hashes, then `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries = 0
        self.size = 0
        self._file = path.open("wb")
        self._waiting: list[Entry] = []
        self._waiting_bytes = 0
        self._blocks: list[Block] = []

    def add(self, entry: Entry) -> None:
        self._waiting.append(entry)
        self._waiting_bytes += 24 + len(entry.key) + len(entry.value or b"")
        self.entries += 1
        if self._waiting_bytes >= _BLOCK_BYTES:
            self._write_block()

    def _write_block(self) -> None:
        data = _encode(self._waiting)
        self._file.write(data)
        self._blocks.append(Block(self._waiting[0].hash, self.size, len(data), zlib.crc32(data)))
        self.size += len(data)
        self._waiting, self._waiting_bytes = [], 0

    def close(
        self, batch: int, task: int, tasks: int, older: list[Older], keys: int, bound: int
    ) -> Footer:
        if self._waiting:
            self._write_block()
        footer = Footer(
            batch, task, tasks, self._blocks, self.entries, older, keys, bound, self.size
        )
        data = _encode(footer)
        self._file.write(data)
        self._file.write(_TRAILER.pack(zlib.crc32(data), len(data), MAGIC))
        self._file.close()
        return footer

    def abandon(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)


def merged(newest_first: Iterable[Iterable[Entry]]) -> Iterator[Entry]:
    """The entries of several files in the order of their hashes; of those with the same key only
    the newest, which may be a deletion."""
    ranked = [_ranked(rank, entries) for rank, entries in enumerate(newest_first)]
    seen: set[bytes] = set()
    current = -1
    for hash_, _, entry in merge(*ranked, key=_HASH_AND_RANK):
        if hash_ != current:
            current = hash_
            seen.clear()
        if entry.key not in seen:
            seen.add(entry.key)
            yield entry


def _ranked(rank: int, entries: Iterable[Entry]) -> Iterator[tuple[int, int, Entry]]:
    for entry in entries:
        yield entry.hash, rank, entry
