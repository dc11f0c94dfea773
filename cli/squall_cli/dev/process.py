"""One child process that is kept alive.

STOPPED --start--> RUNNING --dies--> WAITING --after the back-off--> RUNNING
any     --stop---> STOPPED
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from squall_common.daemon.parent import end_with_parent

BACKOFF_FIRST_SECS = 0.2
BACKOFF_MAX_SECS = 5.0
# A process that ran for this long has started: its next exit is a new failure, not the same one.
STEADY_SECS = 10.0


def open_output(path: Path) -> IO[bytes]:
    """Open a file for a process's output, or /dev/null when that fails (full disk, missing folder):
    the process matters more than its output."""
    try:
        return open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600))
    except OSError:
        return open(os.devnull, "wb")


def restart_delay_secs(ends: int) -> float:
    """Seconds to wait before the next start, after this many exits in a row (1 or more)."""
    return float(min(BACKOFF_MAX_SECS, BACKOFF_FIRST_SECS * 2 ** (ends - 1)))


class KeptProcess:
    """A program that is restarted whenever it exits by itself.

    It runs in its own session, so that Ctrl-C at the terminal reaches only the keeper, and gets
    SIGTERM from the kernel when the keeper dies. Its output is appended to `output`, or lost when
    that cannot be opened. `on_change` is called on the event loop after each start and each exit;
    its exceptions are reported and change nothing here.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        output: Path,
        on_change: Callable[[KeptProcess], None],
    ) -> None:
        self.name = name
        self.output = output
        self.restarts = 0
        self.last_status: int | None = None  # of the last exit, as subprocess gives it
        self._argv = list(argv)
        self._environment = dict(environment)
        self._on_change = on_change
        self._process: subprocess.Popen[bytes] | None = None
        self._pidfd = -1
        self._started_secs = 0.0
        self._ends_in_a_row = 0
        self._stopping = False
        self._ended = asyncio.Event()
        self._restart: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None while it does not run."""
        return self._process.pid if self._process is not None else None

    def start(self) -> None:
        """Start the program. Raises OSError when it cannot be started."""
        with open_output(self.output) as output:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                umask=0o077,
                preexec_fn=end_with_parent(),  # the keeper has one thread when it starts children
            )
        try:
            self._pidfd = os.pidfd_open(process.pid)
        except OSError:  # no descriptor left: unwatched, it would never be stopped
            process.kill()
            process.wait()
            raise
        self._process = process
        self._started_secs = time.monotonic()
        self._ended.clear()
        asyncio.get_running_loop().add_reader(self._pidfd, self._on_end)
        self._announce()

    def _announce(self) -> None:
        try:
            self._on_change(self)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"a change of {self.name} could not be announced", "exception": error}
            )

    def _on_end(self) -> None:
        assert self._process is not None
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._pidfd = -1
        self.last_status = self._process.wait()
        self._process = None
        self._ended.set()
        if self._stopping:
            return
        steady = time.monotonic() - self._started_secs >= STEADY_SECS
        self._ends_in_a_row = 1 if steady else self._ends_in_a_row + 1
        self._restart = loop.call_later(restart_delay_secs(self._ends_in_a_row), self._start_again)
        self._announce()

    def _start_again(self) -> None:
        self._restart = None
        self.restarts += 1
        try:
            self.start()
        except OSError:  # no descriptor or no process left: later
            self._ends_in_a_row += 1
            delay_secs = restart_delay_secs(self._ends_in_a_row)
            self._restart = asyncio.get_running_loop().call_later(delay_secs, self._start_again)

    async def stop(self, grace_secs: float) -> None:
        """Stop it for good: SIGTERM, and SIGKILL to its process group after `grace_secs`."""
        self._stopping = True
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._ended.wait(), grace_secs)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await self._ended.wait()


def describe_status(status: int | None) -> str:
    """`exited with status 1`, `was killed by SIGKILL`."""
    if status is None:
        return "has not exited"
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"exited with status {status}"
