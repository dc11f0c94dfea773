"""A real NATS server with JetStream for tests, Debian's."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers import Server, free_port
from tests.support.thirdparty import command


class NatsServer(Server):
    """A server whose streams are files."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.port = free_port()
        self.url = f"nats://127.0.0.1:{self.port}"
        self._folder, self._settings = folder, settings
        self._program = command("nats-server")
        super().__init__(folder / "nats.log")

    def command(self) -> list[str]:
        where = ("-a", "127.0.0.1", "-p", str(self.port))
        return [self._program, "-js", "-sd", str(self._folder / "data"), *where, *self._settings]

    def is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                return connection.recv(4) == b"INFO"
        except OSError:
            return False

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path, *settings: str) -> Iterator[NatsServer]:
        server = cls(folder, *settings)
        with server.running():
            yield server
