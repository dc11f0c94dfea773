"""The tuples that a worker has in hand, recorded in a file that outlives it.

A worker that is killed by a message (a segfault in a C extension, `os._exit`, the OOM killer)
cannot report which message it was. So it records the tree of each tuple in execution, by a store to
a mapped page, which survives the process. Its supervisor passes the file on, unread, to the worker
that replaces it, and says whether the exit was unexpected.

    word 0        magic
    1             1: the spouts here note what they emit
    2             how many emits were noted
    3             1: a message of a spout here may have been in hand at an end before, unknown which
    LOOP          root, task, and the other roots of a tuple with several: what the loop executes
    LAST          the same: what a bolt raised for, when the worker ends since a bolt has raised
    CELLS         root, task: one for each tuple on a thread or in a coroutine, and for those of a
                  batch; root UNRECORDED: some batch, not known of which tuples
    UNREPORTED    root, task: in hand at the end before, and perhaps not reported to the spouts yet
    KILLS         key, kills + task << 16: the suspects of the spouts here, and where they were in
                  hand last; a key is a message's (see `key_of`)
    EMITS         root, key: a ring of what the spouts here emitted

All are 64-bit words in the order of the machine. See docs/decisions/0029-messages-that-kill.md.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import pickle
from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.component.groupings import NoStableHashError, canonical_encoding
from squall_common.topology.serialization import Registry
from squall_engine.core.values import MANY

MAGIC = int.from_bytes(b"SQINHND1", "little")
UNRECORDED = 2  # never a root: below the bits that name an acker

_CAREFUL, _EMITTED, _UNKNOWN = 1, 2, 3
_LANE = 16
_LOOP, _LAST, _CELLS = 16, 32, 48
_CELLS_MAX, _UNREPORTED_MAX, _KILLS_MAX, _EMITS_MAX = 1024, 256, 1024, 8192
_UNREPORTED = _CELLS + 2 * _CELLS_MAX
_KILLS = _UNREPORTED + 2 * _UNREPORTED_MAX
_EMITS = _KILLS + 2 * _KILLS_MAX
WORDS = _EMITS + 2 * _EMITS_MAX
SIZE = 8 * WORDS
_TASK_SHIFT = 16
_KILLS_MASK = (1 << _TASK_SHIFT) - 1
_HEAD_BYTES_MAX = 4096


class InHand:
    """The record of one worker, in any writable buffer. Call `put` and `clear` on any thread, the
    other methods on the loop's."""

    def __init__(self, buffer: Any) -> None:
        self._words = memoryview(buffer).cast("B").cast("Q")
        self.loop = self._words[_LOOP : _LOOP + _LANE]
        self._cells = deque(range(_CELLS_MAX))
        self._kill_places: dict[int, int] = {}
        self._free_places = list(range(_KILLS_MAX))
        self._emitted = 0
        self.careful = False  # note what is in each batch
        self._kept = False
        self._words[0] = MAGIC

    @classmethod
    def at(cls, path: Path) -> InHand:
        """A record in a file whose disk space is allocated, so that a store can never fail. Raises
        OSError."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.posix_fallocate(fd, 0, SIZE)
            return cls(mmap.mmap(fd, SIZE))
        finally:
            os.close(fd)

    # -- what is executed --

    def put(self, root: int, task: int) -> int:
        """Record that a tuple of this tree is in hand. Returns the cell to give to `clear`."""
        try:
            cell = self._cells.pop()
        except IndexError:
            return -1
        words = self._words
        at = _CELLS + 2 * cell
        words[at + 1] = task
        words[at] = root
        return cell

    def clear(self, cell: int) -> None:
        if cell >= 0 and not self._kept:
            self._words[_CELLS + 2 * cell] = 0
            self._cells.append(cell)

    def put_batch(self, roots: Iterable[Sequence[int]], task: int) -> list[int]:
        """Record that tuples of these trees are in hand; unless `careful`, only that some are."""
        if self.careful:
            return [self.put(root, task) for some in roots for root in some]
        return [self.put(UNRECORDED, task)]

    def clear_batch(self, cells: Iterable[int]) -> None:
        for cell in cells:
            self.clear(cell)

    def keep_last(self) -> None:
        """Keep the record as it is, because the worker ends over what is in hand now."""
        if not self._kept:
            self._kept = True
            self._words[_LAST : _LAST + _LANE] = self.loop

    # -- what the next worker must know --

    def note_emit(self, root: int, key: int) -> None:
        words = self._words
        at = _EMITS + 2 * (self._emitted % _EMITS_MAX)
        words[at] = 0
        words[at + 1] = key
        words[at] = root
        self._emitted += 1
        words[_EMITTED] = self._emitted

    def note_careful(self, careful: bool) -> None:
        self.careful = careful
        self._words[_CAREFUL] = int(careful)

    def note_unknown(self, unknown: bool) -> None:
        self._words[_UNKNOWN] = int(unknown)

    def note_kills(self, key: int, kills: int, task: int = 0) -> None:
        """Record the kills of a suspect; 0: it is not a suspect any more."""
        place = self._kill_places.get(key)
        if kills == 0:
            if place is not None:
                self._words[_KILLS + 2 * place + 1] = 0
                del self._kill_places[key]
                self._free_places.append(place)
            return
        if place is None:
            if not self._free_places:
                return
            place = self._kill_places[key] = self._free_places.pop()
            self._words[_KILLS + 2 * place] = key
        self._words[_KILLS + 2 * place + 1] = min(kills, _KILLS_MASK) | max(task, 0) << _TASK_SHIFT

    def note_unreported(self, held: Sequence[tuple[int, int]]) -> None:
        flat = [word for pair in held[:_UNREPORTED_MAX] for word in pair]
        flat += [0] * (2 * _UNREPORTED_MAX - len(flat))
        self._words[_UNREPORTED:_KILLS] = memoryview(array("Q", flat))


@dataclass(frozen=True, slots=True)
class Before:
    """The record that the previous worker has left, and how it exited. `counts`: unexpectedly."""

    counts: bool = False
    why: str = ""
    worker: str = ""
    held: tuple[tuple[int, int], ...] = ()  # (root, task) in hand at the end
    unreported: tuple[tuple[int, int], ...] = ()
    unrecorded: bool = False  # more was in hand
    careful: bool = False  # `emits` is whole, but for what the ring has forgotten
    unknown: bool = False
    kills: Mapping[int, tuple[int, int]] | None = None  # key -> kills, task
    emits: Mapping[int, int] | None = None  # root -> key

    @classmethod
    def read(cls, path: Path) -> Before | None:
        """Read the record of the previous worker; None when there was none. Raises OSError or
        ValueError."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        head, _, body = data.partition(b"\n")
        if len(head) > _HEAD_BYTES_MAX:
            raise ValueError("its first line is too long")
        said = json.loads(head)
        return cls.parse(body, bool(said["counts"]), str(said["why"]), str(said["worker"]))

    @classmethod
    def parse(cls, data: bytes, counts: bool, why: str, worker: str) -> Before:
        """Parse a record. Raises ValueError for data that no worker has written."""
        if len(data) != SIZE:
            raise ValueError(f"{len(data)} bytes, not {SIZE}")
        words = memoryview(data).cast("Q")
        if words[0] != MAGIC:
            raise ValueError("it does not begin with the magic number")
        cells = _pairs(words[_CELLS:_UNREPORTED])
        held = [*_lane(words[_LOOP:]), *_lane(words[_LAST:]), *cells]
        return cls(
            counts=counts,
            why=why,
            worker=worker,
            held=tuple(dict.fromkeys(one for one in held if one[0] != UNRECORDED)),
            unreported=tuple(_pairs(words[_UNREPORTED:_KILLS])),
            unrecorded=any(root == UNRECORDED for root, _ in cells),
            careful=words[_CAREFUL] == 1,
            unknown=words[_UNKNOWN] == 1,
            kills={
                key: (word & _KILLS_MASK, word >> _TASK_SHIFT)
                for key, word in _raw(words[_KILLS:_EMITS])
                if word
            },
            emits=dict(_pairs(words[_EMITS:WORDS])),
        )


def _lane(words: memoryview) -> list[tuple[int, int]]:
    root, task = words[0], words[1]
    if root == 0:
        return []
    if root != MANY:
        return [(root, task)]
    return [(one, task) for one in words[2:_LANE] if one]


def _raw(words: memoryview) -> Iterable[tuple[int, int]]:
    return zip(words[::2], words[1::2], strict=True)


def _pairs(words: memoryview) -> list[tuple[int, int]]:
    return [(first, second) for first, second in _raw(words) if first]


def key_of(component: str, message_id: Any, registry: Registry) -> int:
    """A 64-bit key that names a message of a spout in every process. Ids that a fields grouping
    treats as equal have the same key; for other ids it is made from their pickle, or their text."""
    try:
        encoded = b"c" + canonical_encoding(message_id, registry)
    except NoStableHashError:
        try:
            encoded = b"p" + pickle.dumps(message_id, protocol=4)
        except Exception:
            encoded = b"r" + repr(message_id).encode(errors="replace")
    digest = hashlib.blake2b(encoded, digest_size=8, person=b"squall-message")
    digest.update(b"\0" + component.encode())
    return int.from_bytes(digest.digest(), "little") or 1
