"""The file by which a supervisor lets a worker know that somebody watches its topology.

While it is valid the worker reports to Nimbus more often. The folder is the worker's, whose user
the supervisor need not trust: the file is made anew each time, and no link is followed.

    seconds between two reports, seconds between two sums by component, until when
    (CLOCK_MONOTONIC, which a machine shares); spaces between them

Without sums by component it is the two others, as workers of earlier versions read it, too.
"""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from pathlib import Path

from squall_common.daemon.files import open_untrusted

WATCH_FILE = "watched"
_BYTES_MAX = 96

# Reports of this many executors a second cost Nimbus about half a per cent of a core.
EXECUTORS_A_SECOND = 600
# Sums by component are small, however many executors they are of; but each is a report of its own.
_WORKERS_A_SECOND = 200
_SUMS_SECS_MIN = 0.25


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a worker reports while its topology is watched."""

    report_secs: float
    sums_secs: float | None = None  # None: its reports come as often


def pace_of(report_secs: float, executors: int) -> Pace:
    """The pace of a worker with this many executors, all of which Nimbus wants to hear once in
    `report_secs`. That period grows with the number of executors that are watched, so it says how
    many workers of this size there are, and how often each of them may report its sums.

    >>> pace_of(0.25, 4)      # few executors: all statistics, several times a second
    Pace(report_secs=0.25, sums_secs=None)
    >>> pace_of(8.0, 1_250)   # 5,000 of them in four workers
    Pace(report_secs=8.0, sums_secs=0.25)
    >>> pace_of(8.0, 8)       # 5,000 of them in 600 workers
    Pace(report_secs=8.0, sums_secs=3.0)
    """
    workers = report_secs * EXECUTORS_A_SECOND / max(1, executors)
    sums_secs = max(_SUMS_SECS_MIN, workers / _WORKERS_A_SECOND)
    return Pace(report_secs, sums_secs if sums_secs < report_secs else None)


def write_watch(folder: Path, pace: Pace, until: float) -> None:
    """Replace the file in a worker's folder, without waiting for the disk. Raises OSError."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(WATCH_FILE, dir_fd=at)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(WATCH_FILE, flags, 0o644, dir_fd=at), "wb") as file:
            sums = () if pace.sums_secs is None else (pace.sums_secs,)
            file.write(" ".join(map(str, (pace.report_secs, *sums, until))).encode())
    finally:
        os.close(at)


def read_watch(folder: Path, now: float) -> Pace | None:
    """How often to report while the topology is watched; None if it is not. What is no such file,
    or a part of one, counts as none."""
    try:
        with open_untrusted(folder / WATCH_FILE) as file:
            report, *sums, until = map(float, file.read(_BYTES_MAX).split())
    except (OSError, ValueError):
        return None
    paces = (report, *sums)
    if len(sums) > 1 or not all(math.isfinite(secs) and secs > 0 for secs in paces):
        return None
    # `until` is at most some seconds away, unless another boot wrote it.
    return Pace(*paces) if now < until < now + 60 else None
