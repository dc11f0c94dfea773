"""The file in which a worker lays its heartbeat for Nimbus, for its supervisor to pass on.

It works as a mailbox: the worker replaces the file, and the supervisor removes it once it has been
delivered. So a worker that finds its last report still there knows that nothing was delivered, be
its supervisor dead, stopped or cut off.

    magic "SQRP" | time of the heartbeat, seconds since 1970 | codec.encode_heartbeat
"""

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from squall_common.daemon.files import open_untrusted

REPORT_FILE = "heartbeat-report"
_HEAD = struct.Struct("<4sq")
_MAGIC = b"SQRP"
# A heartbeat is at most as large as a node of ZooKeeper.
REPORT_BYTES_MAX = 1_000_000 + _HEAD.size


@dataclass(frozen=True, slots=True)
class FoundReport:
    """A report, and which file it was read from."""

    time_secs: int
    heartbeat: bytes
    inode: int


def write_report(folder: Path, time_secs: int, heartbeat: bytes) -> None:
    """Replace the report in a worker's folder, without waiting for the disk. Raises OSError."""
    path = folder / REPORT_FILE
    new = path.with_name(REPORT_FILE + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(new, flags, 0o644), "wb") as file:
        file.write(_HEAD.pack(_MAGIC, time_secs) + heartbeat)
    os.replace(new, path)


def has_report(folder: Path) -> bool:
    """Whether the last report is still there."""
    return os.path.lexists(folder / REPORT_FILE)


def read_report(folder: Path) -> FoundReport | None:
    """The report in a worker's folder, or None. Raises ValueError for what no worker of ours
    writes, and OSError."""
    try:
        with open_untrusted(folder / REPORT_FILE) as file:
            inode = os.fstat(file.fileno()).st_ino
            data = file.read(REPORT_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    if len(data) > REPORT_BYTES_MAX:
        raise ValueError(f"it has more than {REPORT_BYTES_MAX} bytes")
    if len(data) < _HEAD.size or not data.startswith(_MAGIC):
        raise ValueError("it does not begin as a report")
    return FoundReport(_HEAD.unpack_from(data)[1], data[_HEAD.size :], inode)


def remove_report(folder: Path, inode: int) -> None:
    """Remove a report that was delivered, unless a newer one has taken its place. Raises
    OSError."""
    path = folder / REPORT_FILE
    try:
        if os.lstat(path).st_ino == inode:
            os.unlink(path)
    except FileNotFoundError:
        pass  # the worker's folder is gone
