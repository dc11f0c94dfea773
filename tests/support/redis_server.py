"""A real Redis server for tests, Debian's; each write is synced before it is confirmed."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from tests.support.certificates import Certificates
from tests.support.servers import Server, free_port
from tests.support.thirdparty import command


class RedisServer(Server):
    """A server whose append-only file keeps everything that it has confirmed."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        # The same server with TLS, for the user `app`.
        self._tls_port = free_port()
        self.secure_url = f"rediss://app@127.0.0.1:{self._tls_port}"
        self.password = secrets.token_hex()
        self.certificates = Certificates.make(folder)
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
            *("--tls-port", str(self._tls_port)),
            *("--tls-cert-file", str(self.certificates.certificate)),
            *("--tls-key-file", str(self.certificates.key)),
            *("--tls-ca-cert-file", str(self.certificates.ca)),
            *("--tls-auth-clients", "no"),
            *("--user", "app", "on", f">{self.password}", "~*", "&*", "+@all"),
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
