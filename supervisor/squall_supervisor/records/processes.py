"""Processes by identity, not by number.

A pid is reused after its process has ended, so a signal to a remembered pid may hit another
process. A process is identified by its pid together with its start time and the boot that it
belongs to (`/proc/PID/stat`, field 22, counts clock ticks since boot). A pidfd, once opened and
checked, stays with the process whatever happens to its pid; signals are sent only through pidfds
here.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process of one boot of this machine."""

    pid: int
    start_ticks: int  # since boot
    boot_id: str


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The content of `/proc/PID/stat`."""

    pid: int
    state: str  # one letter: R, S, D, T, Z ...
    parent: int
    session: int
    start_ticks: int

    @property
    def ended(self) -> bool:
        """Whether only its exit status is left (a zombie, or one being removed)."""
        return self.state in "ZX"


def boot_id() -> str:
    """The kernel's id of this boot."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def parse_stat(data: bytes) -> ProcessStat:
    """Parse `/proc/PID/stat` (proc(5)). The name, in parentheses, may contain anything, even spaces
    and parentheses: the fields are counted from the last one. Raises ValueError."""
    head, found, tail = data.rpartition(b")")
    fields = tail.split()
    if not found or len(fields) < 20:
        raise ValueError(f"not a process status: {data[:80]!r}")
    return ProcessStat(
        pid=int(head.split(b" ", 1)[0]),
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        start_ticks=int(fields[19]),
    )


def read_stat(pid: int) -> ProcessStat | None:
    """The status of a process, or None if it does not exist."""
    try:
        return parse_stat((_PROC / str(pid) / "stat").read_bytes())
    except (FileNotFoundError, ProcessLookupError):
        return None


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has a pid now, or None if it is not alive."""
    stat = read_stat(pid)
    return None if stat is None or stat.ended else ProcessIdentity(pid, stat.start_ticks, boot_id())


def open_process(identity: ProcessIdentity) -> int | None:
    """A pidfd of exactly this process, or None if it has ended. The caller closes it."""
    if identity.boot_id != boot_id():
        return None
    return _open_if(
        identity.pid, lambda stat: stat.start_ticks == identity.start_ticks and not stat.ended
    )


def _open_if(pid: int, check: Callable[[ProcessStat], bool]) -> int | None:
    """A pidfd of a process that passes a check made after it was opened. If the pid changed hands
    in between, the check sees the newcomer, whose start time differs."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    stat = read_stat(pid)
    if stat is None or not check(stat):
        os.close(fd)
        return None
    return fd


def send_signal(pidfd: int, number: signal.Signals) -> bool:
    """Signal a process; returns False if it has already ended."""
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True


def all_stats() -> Iterator[ProcessStat]:
    """The status of every process that can be seen."""
    for name in os.listdir(_PROC):
        if name.isdecimal() and (stat := read_stat(int(name))) is not None:
            yield stat


def find_worker(argument: str, mark: str) -> list[ProcessIdentity]:
    """The living session leaders that have exactly `argument` among their arguments, and `mark`, a
    `NAME=value`, in their environment. All three are needed, since children inherit the environment
    and any process may name a file."""
    wanted = os.fsencode(argument)
    found = []
    for stat in all_stats():
        if (
            stat.session == stat.pid
            and not stat.ended
            and wanted in _read_strings(stat.pid, "cmdline")
            and has_environment(stat.pid, mark)
        ):
            identity = identify(stat.pid)
            if identity is not None and identity.start_ticks == stat.start_ticks:
                found.append(identity)
    return found


def user_of(pid: int) -> int | None:
    """The uid that a process runs as, or None if it does not exist."""
    try:
        return (_PROC / str(pid)).stat().st_uid
    except (FileNotFoundError, ProcessLookupError):
        return None


def has_environment(pid: int, assignment: str) -> bool:
    """Whether a process was started with a `NAME=value` in its environment."""
    return os.fsencode(assignment) in _read_strings(pid, "environ")


def _read_strings(pid: int, name: str) -> list[bytes]:
    try:
        return (_PROC / str(pid) / name).read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


@contextmanager
def opened(pid: int, check: Callable[[ProcessStat], bool]) -> Iterator[int | None]:
    """A pidfd of the process that has a pid now, if it passes the check."""
    fd = _open_if(pid, check)
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def kill_leftovers(
    leader: ProcessIdentity, pids: list[int], mark: str, *, long_ended: bool = False
) -> int:
    """SIGKILL the processes that an ended worker left: those of the session that it led, and those
    of `pids` (which it noted) that carry `mark`, a `NAME=value`, in their environment. Returns how
    many were signalled.

    A session's number stays reserved while a process is in it. If the leader's pid belongs to
    another process by now, the session has therefore long been empty and its number means something
    else. `long_ended`: the leader ended at an unknown time, and other sessions may have had the
    number since, so only the session's processes that carry the mark are signalled.
    """
    if leader.boot_id != boot_id():
        return 0
    killed = 0
    for _ in range(
        10
    ):  # a process may fork while we look; ten rounds are enough for all but a bomb
        present = read_stat(leader.pid)
        recycled = present is not None and present.start_ticks != leader.start_ticks
        found = [] if recycled else [s for s in all_stats() if s.session == leader.pid]
        if long_ended:
            found = [s for s in found if has_environment(s.pid, mark)]
        found += [s for pid in pids if (s := read_stat(pid)) and has_environment(pid, mark)]
        found = [s for s in found if not s.ended and s.pid not in (leader.pid, os.getpid())]
        if not found:
            break
        for stat in found:
            with opened(stat.pid, lambda now, seen=stat: now.start_ticks == seen.start_ticks) as fd:  # type: ignore[misc]
                if fd is not None and send_signal(fd, signal.SIGKILL):
                    killed += 1
    return killed
