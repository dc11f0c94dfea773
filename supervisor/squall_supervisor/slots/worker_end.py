"""Why a worker ended, and how that is reported to its topology. Pure, except for the functions that
read its files."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from squall_common.worker_files.heartbeat_file import Beat, Phase
from squall_common.worker_files.launch_spec import IN_HAND_FILE
from squall_supervisor.slots.describe import exit_text
from squall_supervisor.slots.slot import Step
from squall_supervisor.slots.table import (
    GraceOver,
    HeartbeatTimedOut,
    MemoryExceeded,
    MemoryFarExceeded,
    RestartRequested,
    State,
    WorkerExited,
)

_MIB = 1024 * 1024
# Exit status of a worker that was asked to stop, or lost its slot (`squall_worker.process`).
_STATUS_ASKED = frozenset({0, 4})
_ERR_BYTES = 32768
_IN_HAND_BYTES_MAX = 1024 * 1024
_ERR_LINES = 40  # the stack of the thread that crashed is among them
_ERR_LINE_CHARS = 300


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a worker ended. `asked`: it was asked to end, so this is not an error. `reported`:
    its cause has been reported. `why` is empty if it ended by itself."""

    asked: bool
    reported: bool = False
    why: str = ""


_ASKED = Cause(asked=True)
# Why a supervisor ends a worker and starts it again; an event not listed here is an error.
_CAUSES: dict[type, Cause] = {
    RestartRequested: _ASKED,
    HeartbeatTimedOut: Cause(asked=False, why="its supervisor killed it: its heartbeats stopped"),
    MemoryExceeded: Cause(asked=False, reported=True, why="it used more memory than its limit"),
    MemoryFarExceeded: Cause(
        asked=False, reported=True, why="it used far more memory than its limit"
    ),
}


def cause_of(steps: Sequence[Step], beat: Beat | None) -> Cause:
    """Why the worker ended whose exit is the last of its slot's steps; `beat` is its last
    heartbeat."""
    last = steps[-1]
    assert isinstance(last.event, WorkerExited), last
    if last.state in (State.KILL, State.KILL_BLOB_UPDATE):
        return _ASKED
    if last.state is State.KILL_AND_RELAUNCH:
        before = [s for s in steps[:-1] if s.next is State.KILL_AND_RELAUNCH is not s.state]
        event = before[-1].event if before else None
        return _CAUSES.get(type(event), Cause(asked=False, why=f"its supervisor ended it: {event}"))
    # `os._exit(0)` in a component is not a stop: a worker that was asked to stop says so first.
    stopped = beat is not None and beat.phase is Phase.STOPPING
    return Cause(asked=stopped and last.event.status in _STATUS_ASKED)


def is_overdue(steps: Sequence[Step]) -> bool:
    """Whether the worker whose exit is the last of its slot's steps was asked to end, and killed
    because it had not ended in time."""
    for step in reversed(steps[:-1]):
        if isinstance(step.event, GraceOver):
            return True
        if step.next is not step.state:
            return False
    return False


def describe_overdue(worker: str, status: int | None, grace_secs: float) -> str:
    """The report of a worker that did not end in time, for people."""
    return (
        f"worker {worker} was asked to stop and killed ({exit_text(status)}), because it had not "
        f"ended within {grace_secs:g} s (supervisor.worker.shutdown.sleep.secs). The messages that "
        "it had in hand fail; spouts that replay emit them again. If its bolts need longer for "
        "what is in their inboxes, raise that option or lower topology.max.spout.pending"
    )


def reason_of(cause: Cause, status: int | None, oom_kills: int = 0) -> str:
    """Why a worker ended, in one line: `killed by SIGSEGV`."""
    why = cause.why or ("the kernel killed it for using too much memory" if oom_kills else "")
    return f"{exit_text(status)}; {why}" if why else exit_text(status)


def describe_end(
    worker: str,
    cause: Cause,
    status: int | None,
    *,
    pid: int,
    lived_secs: float | None,
    peak_bytes: int | None,
    oom_kills: int,
    lines: Sequence[str],
) -> str:
    """The report of an unexpected end, for people. `worker` is HOST:PORT, `lines` are the last
    lines of its stderr."""
    memory = "" if peak_bytes is None else f", peak memory {peak_bytes / _MIB:.0f} MiB"
    text = f"worker {worker} ended unexpectedly: {exit_text(status)}"
    if cause.why:
        text += f"; {cause.why}"
    elif oom_kills:
        text += "; the kernel killed it because its cgroup ran out of memory"
    elif status == -signal.SIGKILL:
        text += "; not by its supervisor. Unless someone killed it, the machine was out of memory: "
        text += "see the kernel's log"
    lived = "" if lived_secs is None else f", lived {lived_secs:.0f} s"
    text += f" (pid {pid}{lived}{memory})"
    if lines:  # behind the line that names the end, which lists show
        last = "\n".join(f"  {line}" for line in lines)
        text = f"{text}\nlast lines of worker.log.err:\n{last}"
    return text


@dataclass(frozen=True, slots=True)
class CrashRecord:
    """What a worker leaves to its successor: its `in_hand` file, which only a worker reads, below a
    line about its end (see `LaunchSpec.before_file`)."""

    topology_id: str
    data: bytes

    @classmethod
    def take(
        cls, worker_dir: Path, topology_id: str, cause: Cause, status: int | None, worker: str
    ) -> CrashRecord | None:
        """Read it from a dead worker's folder; None if it left nothing."""
        data = _last_bytes(worker_dir / IN_HAND_FILE, 0, _IN_HAND_BYTES_MAX)
        if not data.strip(b"\0"):
            return None
        head = {"counts": not cause.asked, "why": reason_of(cause, status), "worker": worker}
        return cls(topology_id, json.dumps(head).encode() + b"\n" + data)

    def of(self, topology_id: str) -> bytes | None:
        """The bytes for a worker of this topology; None for a worker of another one."""
        return self.data if topology_id == self.topology_id else None


def _last_bytes(path: Path, begin: int, size_max: int) -> bytes:
    """The end of a file, at most `size_max` bytes and nothing of the first `begin`; empty if it
    cannot be read. The file belongs to a worker, which may run any code: a link is not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size == begin:
            return b""
        if found.st_size < begin:  # the worker has cut it meanwhile (squall_worker.report.printed)
            begin = 0
        return os.pread(fd, size_max, max(begin, found.st_size - size_max))
    except OSError:
        return b""
    finally:
        os.close(fd)


def last_lines(path: Path, begin: int) -> list[str]:
    """The last lines that a worker has written to a file after its first `begin` bytes, safe to
    print."""
    data = _last_bytes(path, begin, _ERR_BYTES)
    lines = data.decode(errors="replace").splitlines()
    if len(data) == _ERR_BYTES and len(lines) > 1:
        del lines[0]  # incomplete
    kept = _without_other_threads(line for line in lines if line.strip())
    return [escaped(line)[:_ERR_LINE_CHARS] for line in kept][-_ERR_LINES:]


def headline(lines: Sequence[str]) -> str:
    """The most informative of the last lines: the last one, or the place where faulthandler saw a
    crash."""
    for at, line in enumerate(lines):
        if line.startswith("Fatal Python error: "):
            frames = [one.strip() for one in lines[at:] if one.startswith('  File "')]
            return f"{line}: {frames[0]}" if frames else line
    return lines[-1].strip() if lines else ""


def _without_other_threads(lines: Iterable[str]) -> list[str]:
    """Leaves out the stacks of all threads that faulthandler writes ("Thread 0x..."), except for
    the one that crashed ("Current thread 0x..."): they would push out the last messages of the
    worker."""
    kept = []
    skipping = False
    for line in lines:
        if line.startswith("Thread 0x"):
            skipping = True
        elif not (skipping and line.startswith("  ")):
            skipping = False
            kept.append(line)
    return kept


def escaped(line: str) -> str:
    """A line with the control characters that a terminal obeys escaped."""
    if line.isprintable():
        return line
    return "".join(
        one if one.isprintable() else " " if one == "\t" else one.encode("unicode_escape").decode()
        for one in line
    )


def size_of(path: Path) -> int:
    """The size of a file in bytes; 0 if it does not exist."""
    try:
        return path.lstat().st_size
    except OSError:
        return 0
