"""py-spy: a sampling profiler that looks into a running Python process from outside.

It needs the right to trace the worker (ptrace): the same user is enough where the kernel's Yama
allows it, else the supervisor needs CAP_SYS_PTRACE.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from squall_common.errors import SquallError

# It reads the worker's binaries before it samples, and writes the file afterwards.
_SLACK_SECS = 30.0
_STDERR_BYTES_MAX = 4096


class ProfileError(SquallError):
    """A worker could not be profiled; the message is for the user who asked for it."""


def find_py_spy(command: str) -> str:
    """The path of the program: a path as it is, a name next to our Python, where pip put it, or in
    PATH. Raises ProfileError."""
    if os.sep in command:
        if os.access(command, os.X_OK):
            return command
        raise ProfileError(f"worker.profiler.command is {command}, which is not a program")
    candidates = [Path(sys.executable).parent / command]
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        files = importlib.metadata.distribution("py-spy").files or ()
        candidates += [Path(str(f.locate())) for f in files if f.name == command]
    for candidate in candidates:
        if os.access(candidate, os.X_OK):
            return str(candidate)
    found = shutil.which(command)
    if found is None:
        raise ProfileError(
            f"{command} is not installed on this node",
            hint=f"pip install py-spy where the supervisor's Python is ({sys.executable}), or set "
            "worker.profiler.command to its path",
        )
    return found


class Sampling:
    """One run of `py-spy record` on a process. `stop` ends it early and keeps its samples."""

    def __init__(
        self,
        program: str,
        pid: int,
        file: Path,
        options: Sequence[str] = ("--format", "flamegraph"),
    ) -> None:
        """`options` of py-spy are about what is written."""
        self._program = program
        self._options = options
        self._pid = pid
        self._file = file
        self._process: asyncio.subprocess.Process | None = None
        self._stopped = False

    def stop(self) -> None:
        """Write the samples so far and end."""
        self._stopped = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    async def run(self, secs: float) -> None:
        """Sample for `secs` seconds, or until `stop`. Raises ProfileError with the reason; the
        py-spy process is gone in any case."""
        argv = [
            self._program, "record", "--pid", str(self._pid), *self._options,
            "--duration", str(max(1, round(secs))), "--output", str(self._file),
        ]  # fmt: skip
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", ""), "LANG": "C.UTF-8"},
                start_new_session=True,
            )
        except OSError as error:
            raise ProfileError(f"{self._program} cannot be started: {error}") from error
        self._process = process
        try:
            if self._stopped:
                self.stop()
            async with asyncio.timeout(secs + _SLACK_SECS):
                said, _ = await process.communicate()
        except TimeoutError:
            raise ProfileError(f"py-spy did not end within {secs + _SLACK_SECS:.0f} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        if not await asyncio.to_thread(self._file.exists):
            raise reason(said[-_STDERR_BYTES_MAX:].decode(errors="replace"), process.returncode)


def reason(said: str, status: int | None) -> ProfileError:
    """Turns py-spy's last words into a message for people."""
    lowered = said.lower()
    if "permission denied" in lowered or "operation not permitted" in lowered:
        return ProfileError(
            "py-spy may not look into the worker: the kernel refuses ptrace",
            hint="give the supervisor CAP_SYS_PTRACE (systemd: AmbientCapabilities=CAP_SYS_PTRACE; "
            "containers: --cap-add SYS_PTRACE) or set the sysctl kernel.yama.ptrace_scope to 0; "
            "'storm profile --stack' needs neither",
        )
    if "no stack counts found" in lowered or "samples: 0" in lowered:
        return ProfileError(
            "nothing to show: the worker was idle all the time",
            hint="'storm profile --stack' shows what it waits for",
        )
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("Error:")] or lines[-1:]
    return ProfileError(
        f"py-spy wrote nothing (exit status {status}): " + " ".join(errors or ["no message"])
    )
