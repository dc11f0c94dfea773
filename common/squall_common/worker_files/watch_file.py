"""The file by which a supervisor lets a worker know that somebody watches its topology.

While it is valid the worker reports to Nimbus more often. The folder is the worker's, whose user
the supervisor need not trust: the file is made anew each time, and no link is followed.

    seconds between two reports, a space, until when (CLOCK_MONOTONIC, which a machine shares)
"""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

from squall_common.daemon.files import open_untrusted

WATCH_FILE = "watched"
_BYTES_MAX = 64


def write_watch(folder: Path, period_secs: float, until: float) -> None:
    """Replace the file in a worker's folder, without waiting for the disk. Raises OSError."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(WATCH_FILE, dir_fd=at)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(WATCH_FILE, flags, 0o644, dir_fd=at), "wb") as file:
            file.write(f"{period_secs} {until}".encode())
    finally:
        os.close(at)


def read_watch(folder: Path, now: float) -> float | None:
    """The seconds between two reports while the topology is watched; None if it is not. What is no
    such file, or a part of one, counts as none."""
    try:
        with open_untrusted(folder / WATCH_FILE) as file:
            period, until = map(float, file.read(_BYTES_MAX).split())
    except (OSError, ValueError):
        return None
    # `until` is at most some seconds away, unless another boot wrote it.
    return period if math.isfinite(period) and period > 0 and now < until < now + 60 else None
