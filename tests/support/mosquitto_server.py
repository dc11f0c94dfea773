"""A real MQTT broker for tests, Debian's mosquitto."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.support.devcluster import wait_for
from tests.support.servers import Server, free_port
from tests.support.thirdparty import command


class MosquittoServer(Server):
    """A broker whose sessions survive `kill`. It writes its state only now and then, so `kill`
    makes it do so first; what it confirms between that and the signal is lost."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.port = free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self._program = command("mosquitto")
        self._store = folder / "mosquitto.db"
        self._conf = folder / "mosquitto.conf"
        lines = [
            f"listener {self.port} 127.0.0.1",
            "persistence true",
            f"persistence_location {folder}/",
            "max_queued_messages 0",
            "log_type error",
            "log_type warning",
            "max_packet_size 1000000",
        ]
        if os.geteuid() == 0:
            lines.append("user root")
        defaults = ("allow_anonymous true", "max_inflight_messages 0")
        lines += [one for one in defaults if not any(one.split()[0] in s for s in settings)]
        lines += settings
        self._conf.write_text("\n".join(lines) + "\n")
        super().__init__(folder / "mosquitto.log")

    def command(self) -> list[str]:
        return [self._program, "-c", str(self._conf)]

    def is_up(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def kill(self) -> None:
        if self._process is not None:
            self._store.unlink(missing_ok=True)
            os.kill(self._process.pid, signal.SIGUSR1)  # "write the state"
            with contextlib.suppress(AssertionError):  # it is stopped, or ended by itself
                wait_for("the state", self._store.exists, 2.0)
        super().kill()

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path, *settings: str) -> Iterator[MosquittoServer]:
        server = cls(folder, *settings)
        with server.running():
            yield server
