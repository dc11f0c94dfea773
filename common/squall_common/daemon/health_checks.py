"""The programs that say whether a node is healthy (`storm.health.check.dir`).

A program fails if it prints a line that begins with ERROR, or ends with a status other than 0. When
it has ended or its time is over, its process group is killed. Its output needs no file: what it
reports may be that the disk is full.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from squall_common.errors import SquallError

_OUTPUT_BYTES_MAX = 64 * 1024  # of a program's output, which are searched
_DETAIL_CHARS_MAX = 200
_KILLED_SECS = 1.0  # how long to wait for the end of a program that was killed


@dataclass(frozen=True, slots=True)
class Check:
    """One program and its result: ok, failed or timeout."""

    program: str
    result: str
    detail: str = ""


def is_healthy(checks: Sequence[Check], *, fail_on_timeouts: bool) -> bool:
    """Whether all programs found the node well; those that took too long count only if wanted."""
    bad = {"failed", "timeout"} if fail_on_timeouts else {"failed"}
    return not any(one.result in bad for one in checks)


def run_checks(folder: Path, timeout_secs: float) -> list[Check]:
    """Run the programs of a folder, one after the other; one that is removed meanwhile fails no
    node. Blocks. Raises SquallError for a folder that cannot be read."""
    checks = [(program, run_check(program, timeout_secs)) for program in programs(folder)]
    return [check for program, check in checks if check.result == "ok" or program.exists()]


def programs(folder: Path) -> list[Path]:
    """The executable files of a folder; none if it does not exist. Raises SquallError."""
    try:
        found = sorted(folder.iterdir())
        return [one for one in found if one.is_file() and os.access(one, os.X_OK)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SquallError(f"cannot read {folder}: {error.strerror or error}") from error


def run_check(program: Path, timeout_secs: float) -> Check:
    """Run one program, and kill its process group afterwards."""
    try:
        child = subprocess.Popen(
            [str(program)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        printed = _printed(child, timeout_secs)
    except OSError as error:
        return Check(program.name, "failed", f"it cannot be run: {error.strerror or error}")
    if printed is None:
        return Check(program.name, "timeout", f"it took longer than {timeout_secs:g} s")
    lines = printed.decode("utf-8", "replace").splitlines()
    error_line = next((line for line in lines if line.startswith("ERROR")), None)
    if error_line is not None:
        return Check(program.name, "failed", error_line[:_DETAIL_CHARS_MAX])
    if child.returncode != 0:
        return Check(program.name, "failed", f"it ended with status {child.returncode}")
    return Check(program.name, "ok")


def _printed(child: subprocess.Popen[bytes], timeout_secs: float) -> bytes | None:
    """Wait for the end of a program, and return the beginning of its output; None if it takes too
    long. What it started may hold the pipe open after its end."""
    deadline = time.monotonic() + timeout_secs
    kept = bytearray()
    assert child.stdout is not None
    with child.stdout:
        pipe, pidfd = child.stdout.fileno(), -1
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        try:
            pidfd = os.pidfd_open(child.pid)
            poll.register(pidfd, select.POLLIN)
            ready: dict[int, int] = {}
            while pidfd not in ready:
                left_secs = deadline - time.monotonic()
                if left_secs <= 0:
                    return None
                ready = dict(poll.poll(1000 * left_secs))
                if pipe in ready:  # whatever is not kept is read as well: a full pipe would stop it
                    data = os.read(pipe, _OUTPUT_BYTES_MAX)
                    kept += data[: _OUTPUT_BYTES_MAX - len(kept)]
                    if not data:
                        poll.unregister(pipe)
            poll.unregister(pidfd)
        finally:
            _end(child)
            if pidfd >= 0:
                os.close(pidfd)
        while len(kept) < _OUTPUT_BYTES_MAX and poll.poll(0):
            data = os.read(pipe, _OUTPUT_BYTES_MAX - len(kept))
            if not data:
                break
            kept += data
    return bytes(kept)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a program's process group, of which its leader may have ended, but was not waited for.
    One that cannot be killed, since the kernel waits for a dead disk for it, or it has another
    user's rights, is left alone."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    try:
        child.wait(_KILLED_SECS)
    except subprocess.TimeoutExpired:
        pass
