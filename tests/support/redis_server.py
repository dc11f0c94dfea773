"""A real Redis server for tests, Debian's; each write is synced before it is confirmed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tests.support.servers import Server, free_port
from tests.support.thirdparty import command


class RedisServer(Server):
    """A server whose append-only file keeps everything that it has confirmed."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._folder = folder
        self._program = command("redis-server")
        super().__init__(folder / "redis.log")

    def command(self) -> list[str]:
        return [
            self._program,
            *("--port", str(self.port)),
            *("--bind", "127.0.0.1"),
            *("--dir", str(self._folder)),
            *("--appendonly", "yes"),
            *("--appendfsync", "always"),
            *("--save", ""),
        ]

    def is_up(self) -> bool:
        import redis

        client = redis.Redis.from_url(self.url)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path) -> Iterator[RedisServer]:
        server = cls(folder)
        with server.running():
            yield server
