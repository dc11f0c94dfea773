"""The programs that say whether a node is healthy (`storm.health.check.dir`).

A program fails if it prints a line that begins with ERROR, or ends with a status other than 0. It
and what it started are killed when its time is over.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from squall_common.errors import SquallError

_OUTPUT_BYTES_MAX = 64 * 1024  # of a program's output, which are searched
_DETAIL_CHARS_MAX = 200


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
    """Run the programs of a folder, one after the other. Blocks. Raises SquallError for a folder
    that cannot be read."""
    return [run_check(program, timeout_secs) for program in programs(folder)]


def programs(folder: Path) -> list[Path]:
    """The executable files of a folder; none if it does not exist. Raises SquallError."""
    try:
        found = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SquallError(f"cannot read {folder}: {error.strerror or error}") from error
    return [one for one in found if one.is_file() and os.access(one, os.X_OK)]


def run_check(program: Path, timeout_secs: float) -> Check:
    """Run one program; it and what it started are killed when the time is over."""
    with tempfile.TemporaryFile() as output:  # a pipe would fill up, or outlive the program
        try:
            child = subprocess.Popen(
                [str(program)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return Check(program.name, "failed", f"it cannot be run: {error.strerror or error}")
        try:
            status = child.wait(timeout_secs)
        except subprocess.TimeoutExpired:
            return Check(program.name, "timeout", f"it took longer than {timeout_secs:g} s")
        finally:
            _end(child)
        output.seek(0)
        lines = output.read(_OUTPUT_BYTES_MAX).decode("utf-8", "replace").splitlines()
    error_line = next((line for line in lines if line.startswith("ERROR")), None)
    if error_line is not None:
        return Check(program.name, "failed", error_line[:_DETAIL_CHARS_MAX])
    if status != 0:
        return Check(program.name, "failed", f"it ended with status {status}")
    return Check(program.name, "ok")


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill a program's process group, of which its leader may have ended."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    child.wait()
