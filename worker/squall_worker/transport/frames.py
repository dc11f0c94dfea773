"""The frame: the one kind of message that workers send each other. Ours; this file defines it.

A frame is one single-part ZeroMQ message from the PUSH socket of one worker to the PULL socket
(the virtual port) of another, or one record of the ring between two workers of a host
(`squall_worker.transport.ring`). All integers are little-endian.

    offset size
         0    2  magic "SQ"
         2    1  format version, 1
         3    1  kind: 1 greeting, 2 data, 3 idle, 4 goodbye
         4    1  flags: 1 = there is a gap, send again from `acknowledged` + 1;
                 2 = the one section goes on in the next data frame
         5    1  n, length of the sender's node (supervisor) id
         6    2  x, length of the grants
         8    8  topology: BLAKE2b of the topology id, 8 bytes
        16    8  \\
        24    4   > session of the sender: assignment zxid, launch, link
        28    4  /
        32   16  session that this frame is for, likewise; all zero when the sender knows none
        48    8  sequence: of this frame when data, else of the sender's last data frame; from 1
        56    8  acknowledged: sequence of the last frame that the sender took from the receiver
        64    2  the sender's port
        66    2  s, number of sections
        68    4  length of the whole frame in bytes
        72    n  the sender's node id, UTF-8
      72+n    x  grants, each 14 bytes: task, limit (8 bytes), load (2 bytes); see `Grant`
    72+n+x       s sections, each 4 bytes of length and that many bytes

A frame is data exactly when it has sections. A section that is too large for one frame is cut: each
part is the one section of a frame, and the receiver puts them together. So a frame, which is what a
connection can make ZeroMQ hold before anything of it is checked, stays small.

Frames arrive on a port that anyone may reach: `parse` does not trust any length, allocates nothing
before it has checked it, and raises `FrameError` for anything that is not exactly a frame of this
version.
"""

from __future__ import annotations

import enum
import hashlib
import struct
from functools import lru_cache
from typing import NamedTuple

from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.launch_spec import Incarnation
from squall_engine.transport import Grant

MAGIC = b"SQ"
VERSION = 1

# Sections are gathered into frames, or cut into ones, up to this size: larger ones gain nothing
# (64 KiB messages already move at 1.2 GB/s) and hold up the frames behind them.
FRAME_BYTES_TARGET = 256 * 1024
# The receiver's MAXMSGSIZE: a larger message costs its sender the connection. Room for the target,
# a header, a node id and all grants. (16 MiB it was once: 30 unfinished frames cost 480 MB.)
FRAME_BYTES_MAX = FRAME_BYTES_TARGET + 32 * 1024
NODE_BYTES_MAX = 255

_HEADER = struct.Struct("<2sBBBBH8sQIIQIIQQHHI")
_SESSIONS = struct.Struct("<QIIQII")
_SESSIONS_AT, _SESSIONS_END = 16, 48
_LENGTH = struct.Struct("<I")
_GRANT = struct.Struct("<iQH")
GRANTS_MAX = 1024  # in one frame

LENGTH_BYTES = _LENGTH.size  # what a section costs beside its own bytes

# Of a section that is cut.
PART_BYTES = FRAME_BYTES_TARGET - LENGTH_BYTES
# The largest section, however many frames it takes.
SECTION_BYTES_MAX = 16 * 1024 * 1024
SECTIONS_MAX = 0xFFFF


FrameParts = tuple[bytes, tuple[bytes, ...], int]  # what `Frame.of_parts` takes
# Of a data frame whose sessions are known, without grants and flags: sequence, acknowledgement,
# sections, and the bytes of these with their lengths.
DataParts = tuple[int, int, tuple[bytes, ...], int]


class FrameError(ValueError):
    """Bytes that are not a frame of this version; `offset` is where the fault was found."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(f"{reason} at offset {offset}")
        self.offset = offset
        self.reason = reason


class Kind(enum.IntEnum):
    """What a frame is for."""

    GREETING = 1  # "I am here": the sender has not heard yet that the receiver knows it
    DATA = 2  # carries sections
    IDLE = 3  # carries sequence and acknowledgement only
    GOODBYE = 4  # the sender has drained and ends: what it has not acknowledged, it never took


_GAP, _MORE = 1, 2


class Session(NamedTuple):
    """One worker's end of one link: its incarnation, and how often it has opened this link.

    Ordered: of two sessions of one slot the greater has replaced the other. Sequences and
    acknowledgements mean something between one pair of sessions only.
    """

    assignment_zxid: int
    launch: int
    link: int

    @classmethod
    def of(cls, incarnation: Incarnation, link: int) -> Session:
        return cls(incarnation.assignment_zxid, incarnation.launch, link)

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(self.assignment_zxid, self.launch)

    def __str__(self) -> str:
        return f"{self.assignment_zxid:x}.{self.launch}.{self.link}"


NO_SESSION = Session(0, 0, 0)


def topology_hash(topology_id: str) -> bytes:
    """The 8 bytes by which frames of one topology recognize each other."""
    return hashlib.blake2b(topology_id.encode(), digest_size=8).digest()


class Frame(NamedTuple):
    """A parsed frame. `receiver` is `NO_SESSION` when its sender does not know the receiver yet."""

    kind: Kind
    topology: bytes
    slot: WorkerSlot  # the sender's
    sender: Session
    receiver: Session
    sequence: int
    acknowledged: int
    gap: bool = False
    sections: tuple[bytes, ...] = ()
    grants: tuple[Grant, ...] = ()
    more: bool = False  # the one section goes on in the next data frame

    def serialize(self) -> bytes:
        """The frame as bytes. Raises ValueError when a field does not fit."""
        return b"".join(self.parts())

    def parts(self) -> list[bytes]:
        """The frame as bytes to be put together. Raises ValueError when a field does not fit."""
        slot, sections, grants = self.slot, self.sections, self.grants
        node = slot.node.encode()
        extension = _GRANT.size * len(grants)
        size = _HEADER.size + len(node) + extension
        size += sum(map(len, sections)) + _LENGTH.size * len(sections)
        if size > FRAME_BYTES_MAX:
            raise ValueError(f"a frame of {size} bytes exceeds the limit of {FRAME_BYTES_MAX}")
        if (self.kind is Kind.DATA) != bool(sections):
            raise ValueError(f"a {self.kind.name} frame with {len(sections)} sections")
        if self.more and len(sections) != 1:
            raise ValueError(f"a part of a section in a frame of {len(sections)} sections")
        flags = (_GAP if self.gap else 0) | (_MORE if self.more else 0)
        try:
            header = _HEADER.pack(
                MAGIC, VERSION, self.kind, flags, len(node), extension,
                self.topology,
                *self.sender, *self.receiver,
                self.sequence, self.acknowledged, slot.port, len(sections), size,
            )  # fmt: skip
            parts = [header, node]
            if grants:
                parts += [_GRANT.pack(*grant) for grant in grants]
        except struct.error as error:
            raise ValueError(f"a field does not fit into a frame: {error}") from error
        for section in sections:
            parts.append(_LENGTH.pack(len(section)))
            parts.append(section)
        return parts

    @classmethod
    def parse(cls, data: bytes) -> Frame:
        """The inverse of `serialize`. Raises FrameError."""
        return cls._parse(data, len(data), None)

    @classmethod
    def of_parts(cls, head: bytes, sections: tuple[bytes, ...], size: int) -> Frame:
        """A frame of `size` bytes whose reader has taken it apart: into sections, and all that is
        before the first; without sections, `head` is all of it. Raises FrameError."""
        return cls._parse(head, size, sections or None)

    @classmethod
    def _parse(cls, data: bytes, size: int, sections: tuple[bytes, ...] | None) -> Frame:
        """None: the sections are in `data`."""
        if size < _HEADER.size:
            raise FrameError(size, f"{size} bytes are too few for a frame header")
        (
            magic, version, kind_number, flags, node_length, extension_length, topology,
            _, _, _, _, _, _,
            sequence, acknowledged, port, section_count, length,
        ) = _HEADER.unpack_from(data)  # fmt: skip
        if magic != MAGIC:
            raise FrameError(0, f"magic {magic!r}")
        if version != VERSION:
            raise FrameError(2, f"format version {version}, expected {VERSION}")
        kind = _KINDS.get(kind_number)
        if kind is None:
            raise FrameError(3, f"kind {kind_number}")
        if flags & ~(_GAP | _MORE):
            raise FrameError(4, f"flags {flags:#x}")
        if length != size:
            raise FrameError(68, f"length {length} in a frame of {size} bytes")
        position = _HEADER.size + node_length + extension_length
        if position > size:
            raise FrameError(position, "node id or extension beyond the end")
        if (kind is Kind.DATA) != (section_count > 0):
            raise FrameError(66, f"{section_count} sections in a {kind.name} frame")
        if flags & _MORE and section_count != 1:
            raise FrameError(66, f"a part of a section in a frame of {section_count} sections")
        try:
            slot, sender, receiver = _names(
                data[_HEADER.size : _HEADER.size + node_length],
                port,
                data[_SESSIONS_AT:_SESSIONS_END],
            )
        except UnicodeDecodeError:
            raise FrameError(_HEADER.size, "node id is not UTF-8") from None
        if extension_length % _GRANT.size:
            raise FrameError(6, f"{extension_length} bytes of grants")
        grants: tuple[Grant, ...] = ()
        if extension_length:
            extension = data[position - extension_length : position]
            grants = tuple([Grant(*fields) for fields in _GRANT.iter_unpack(extension)])
        if sections is None:
            sections = _sections_in(data, position, section_count)
        return cls(
            kind, topology, slot, sender, receiver,
            sequence, acknowledged, bool(flags & _GAP), sections, grants, bool(flags & _MORE),
        )  # fmt: skip

    def __str__(self) -> str:
        return (
            f"{self.kind.name} {self.slot} {self.sender}->{self.receiver} "
            f"seq={self.sequence} ack={self.acknowledged}"
            + (" gap" if self.gap else "")
            + (" more" if self.more else "")
            + (
                f" sections={len(self.sections)} bytes={sum(map(len, self.sections))}"
                if self.sections
                else ""
            )
        )


def data_head(topology: bytes, slot: WorkerSlot, sender: Session, receiver: Session) -> bytes:
    """What the data frames without grants and flags of a pair of sessions begin with, up to their
    first section. Sequence, acknowledgement, length and number of sections are not filled in."""
    frame = Frame(Kind.DATA, topology, slot, sender, receiver, 0, 0, sections=(b"",))
    header, node, *_ = frame.parts()
    return header + node


def _sections_in(data: bytes, position: int, count: int) -> tuple[bytes, ...]:
    """The sections of a frame, which begin at `position`. Raises FrameError."""
    size = len(data)
    sections: list[bytes] = []
    for _ in range(count):
        start = position + _LENGTH.size
        if start > size:
            raise FrameError(position, "section length beyond the end")
        (section_length,) = _LENGTH.unpack_from(data, position)
        position = start + section_length
        if position > size:
            raise FrameError(start, f"section of {section_length} bytes beyond the end")
        sections.append(data[start:position])
    if position != size:
        raise FrameError(position, f"{size - position} bytes after the last section")
    return tuple(sections)


_KINDS = {int(kind): kind for kind in Kind}


@lru_cache(maxsize=1024)
def _names(node: bytes, port: int, sessions: bytes) -> tuple[WorkerSlot, Session, Session]:
    """Who has sent a frame, and the sessions of sender and receiver: the same in one frame after
    another. Raises UnicodeDecodeError."""
    fields = _SESSIONS.unpack(sessions)
    return WorkerSlot(node.decode(), port), Session(*fields[:3]), Session(*fields[3:])


def check_section(section: bytes) -> None:
    """Raises ValueError for a section that is too large to send."""
    if len(section) > SECTION_BYTES_MAX:
        raise ValueError(
            f"a section of {len(section)} bytes exceeds the limit of {SECTION_BYTES_MAX}"
        )
