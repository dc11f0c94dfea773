"""The heartbeat file, by which a worker shows its supervisor that it is alive.

One fixed record, written in place by the worker's heartbeat thread once a second. In place, and in
a file whose block is allocated when the worker starts, so that a full disk is never taken for a
dead worker. Times are CLOCK_MONOTONIC, which every process of one boot shares, so that a jump of
the wall clock is never taken for one either.

    magic "SQHB" | crc32 of the rest | monotonic ns | turn age ms | pid | phase | padding
"""

import enum
import os
import stat
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

_RECORD = struct.Struct("<QQQQ")  # monotonic_ns, turn_age_ms, pid, phase
_HEAD = struct.Struct("<4sI")
_MAGIC = b"SQHB"
_SIZE = 4096
_USED = _HEAD.size + _RECORD.size


class Phase(enum.IntEnum):
    """How far the worker has come."""

    STARTING = 0  # the process runs, tasks are not launched yet
    RUNNING = 1  # every task is launched and the virtual port is bound
    STOPPING = 2  # draining


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat. `turn_age_ms` is how long the run loop has been in its present turn."""

    monotonic_ns: int
    turn_age_ms: int
    pid: int
    phase: Phase


class HeartbeatWriter:
    """The worker's end; `write` may be called from any one thread. Raises OSError when the disk has
    no room for the record's block."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # Behind the record: the worker's first heartbeats (squall_worker.report.first_beat)
            # stay.
            os.pwrite(self._fd, b"\0" * (_SIZE - _USED), _USED)
            os.fsync(self._fd)
        except OSError:
            os.close(self._fd)
            raise

    def write(self, beat: Beat) -> None:
        """Write the record in place."""
        body = _RECORD.pack(beat.monotonic_ns, beat.turn_age_ms, beat.pid, beat.phase)
        os.pwrite(self._fd, _HEAD.pack(_MAGIC, zlib.crc32(body)) + body, 0)

    def close(self) -> None:
        os.close(self._fd)


def read_heartbeat(path: Path) -> Beat | None:
    """The last heartbeat, or None when there is none (no file, not written yet, or torn). Raises
    OSError, or ValueError for what cannot be one: the file is the worker's, which may be anybody's
    code, so a link is not followed and a pipe not waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError(f"{path} is not a file")
        data = os.pread(fd, _USED, 0)
    finally:
        os.close(fd)
    if len(data) < _USED:
        return None
    magic, crc = _HEAD.unpack_from(data)
    body = data[_HEAD.size :]
    if magic != _MAGIC or zlib.crc32(body) != crc:
        return None
    monotonic_ns, turn_age_ms, pid, phase = _RECORD.unpack(body)
    return Beat(monotonic_ns, turn_age_ms, pid, Phase(phase))
