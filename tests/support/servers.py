"""Servers of other systems, started by the tests that need them, and killed in the middle.

A `Server` is one process on a free port with its data in a folder of the test: `kill`, `stop`,
`resume` and `restart` treat it as a fault does. It ends with its block.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.devcluster import wait_for


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One server process."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The command line that starts it."""
        raise NotImplementedError

    def is_up(self) -> bool:
        """Whether it answers."""
        raise NotImplementedError

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self.restart()
        try:
            yield
        finally:
            self.kill()

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
                raise AssertionError(f"it ended:\n{self._log.read_text()[-3000:]}")
            return self.is_up()

        wait_for(f"{type(self).__name__} to answer", up, 60.0)

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
