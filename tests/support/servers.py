"""Servers of other systems, started by the tests that need them, and killed in the middle.

A `Server` is one process on a free port with its data in a folder of the test: `kill`, `stop`,
`resume` and `restart` treat it as a fault does. It ends with its block. A test that fails shows the
end of the log of each one that is in use (`tests/connectors/conftest.py`).
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from tests.support.devcluster import wait_for

_FIRST_PORT = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_port() -> int:
    """A port that is not in use, below those that the kernel gives to outgoing connections. One of
    those could be taken while its server is down: clients that connect again and again get it as
    their own, and then even reach themselves."""
    end = int(_RANGE.read_text().split()[0])
    chance = random.SystemRandom()
    for port in (chance.randrange(_FIRST_PORT, end) for _ in range(100)):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError(f"100 ports from {_FIRST_PORT} to {end} were all in use")


class Server:
    """One server process."""

    #: Those that are in use, whether they run or not.
    in_use: ClassVar[list[Server]] = []

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __str__(self) -> str:
        """Its name, and whether it runs."""
        status = None if self._process is None else self._process.poll()
        state = "not running" if self._process is None else "running"
        return f"{type(self).__name__}, {state if status is None else f'ended with {status}'}"

    def log_tail(self) -> str:
        """The last lines of what it has written."""
        return self._log.read_text(errors="replace")[-5_000:] if self._log.exists() else ""

    def command(self) -> list[str]:
        """The command line that starts it."""
        raise NotImplementedError

    def is_up(self) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        Server.in_use.append(self)
        try:
            self.restart()
            yield
        finally:
            self.kill()
            Server.in_use.remove(self)

    def restart(self) -> None:
        """Start it, with the data that are there, and wait until it answers."""
        assert self._process is None, "it runs"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self.options(),
            )

        def up() -> bool:
            assert self._process is not None
            if self._process.poll() is not None:
                raise AssertionError(f"{self}:\n{self.log_tail()}")
            return self.is_up()

        wait_for(f"{type(self).__name__} to answer", up, 60.0)

    def require_up(self) -> None:
        """Start it again if an earlier test left it broken: it has ended by itself, or it does not
        answer for 10 s."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(AssertionError):
                wait_for(f"{self} to answer", self.is_up, 10.0)
                return
        print(f"{self}; starting it again. The end of its log:\n{self.log_tail()}")
        self.kill()
        self.restart()

    def options(self) -> dict[str, object]:
        """Further arguments of Popen."""
        return {}

    def kill(self) -> None:
        """SIGKILL to all its processes; nothing if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        """SIGSTOP: it keeps its connections and does not answer."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """The end of `stop`."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)
