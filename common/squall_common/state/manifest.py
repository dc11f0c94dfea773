"""The manifest of an epoch: everything that is needed to go back to it.

MAGIC       8 bytes; the last one is the version of the format, the first that says all of it
CRC-32      of the rest
msgpack     `Manifest`
"""

from __future__ import annotations

import struct
import zlib

import msgspec

from squall_common.state.errors import AFTER_A_LOSS, StateDamagedError, StateVersionError
from squall_common.state.segment import SegmentRef

# 2: there is `progress`, without which a reader of version 1 would begin with no windows.
VERSION = 2
MAGIC = b"SQSTMAN"
_HEAD = struct.Struct("<8sI")


class TaskPart(msgspec.Struct, frozen=True, array_like=True):
    """What one task has reported for an epoch."""

    segments: tuple[SegmentRef, ...] = ()  # the oldest first
    keys: int = 0
    bound: int = 0  # keys that belong to the task: with any, the number of tasks cannot change
    positions: bytes = b""  # of a source: opaque
    batches: tuple[bytes, ...] = ()  # of a sink, not yet confirmed: opaque
    progress: bytes = b""  # of windows that move with their key groups, how far they are: opaque


class ComponentPart(msgspec.Struct, frozen=True, array_like=True):
    """What the tasks of a component have reported, by their index."""

    max_parallelism: int
    tasks: tuple[TaskPart, ...]


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """An epoch that can be restored."""

    topology: str
    generation: int
    epoch: int
    components: dict[str, ComponentPart]
    time_ms: int = 0  # when it was taken, since 1970

    @property
    def version(self) -> int:
        """The first version of the format that says all of it."""
        parts = (task for component in self.components.values() for task in component.tasks)
        return 2 if any(task.progress for task in parts) else 1

    @property
    def segments(self) -> list[SegmentRef]:
        """All segments that it needs."""
        return [
            ref
            for component in self.components.values()
            for task in component.tasks
            for ref in task.segments
        ]

    @property
    def size(self) -> int:
        """Bytes of all segments that it needs."""
        return sum(ref.size for ref in self.segments)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Manifest).decode


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes to store."""
    body = _encode(manifest)
    return _HEAD.pack(MAGIC + bytes([manifest.version]), zlib.crc32(body)) + body


def decode_manifest(data: bytes, name: str) -> Manifest:
    """The inverse; `name` is for the error. Raises StateDamagedError."""
    if len(data) < _HEAD.size:
        raise _damaged(name, "it is too short")
    magic, checksum = _HEAD.unpack(data[: _HEAD.size])
    if magic[:-1] != MAGIC or not magic[-1]:
        raise _damaged(name, "it is not a manifest")
    if magic[-1] > VERSION:
        raise StateVersionError(f"the manifest {name}", magic[-1], VERSION)
    body = data[_HEAD.size :]
    if zlib.crc32(body) != checksum:
        raise _damaged(name, "its checksum differs")
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        raise _damaged(name, str(error)) from error


def _damaged(name: str, why: str) -> StateDamagedError:
    return StateDamagedError(
        f"the manifest {name} is damaged: {why}",
        hint=AFTER_A_LOSS,
    )
