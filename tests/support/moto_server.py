"""A server of S3 for tests: moto's, which keeps everything in its memory. So `kill` does not end
it: it cuts all connections and refuses new ones, until `restart`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

from tests.support.servers import Server, free_port
from tests.support.tcp_proxy import TcpProxy


class MotoServer(Server):
    """Reached through a proxy, at `url`; `storage_options` are what fsspec needs."""

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self._loop = asyncio.new_event_loop()
        self._proxy = TcpProxy(self._port)
        super().__init__(folder / "moto.log")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]

    def is_up(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._proxy.port}"

    @property
    def storage_options(self) -> dict[str, Any]:
        return {
            "key": "test",
            "secret": "p4ssw0rd",
            "client_kwargs": {"endpoint_url": self.url, "region_name": "eu-west-1"},
            "config_kwargs": {"retries": {"max_attempts": 0}, "connect_timeout": 2},
        }

    def kill(self) -> None:
        async def cut() -> None:
            self._proxy.refuse = True
            self._proxy.reset()

        self._on_loop(cut())

    def restart(self) -> None:
        self._proxy.refuse = False

    def _on_loop(self, call: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result(10)

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path) -> Iterator[MotoServer]:
        server = cls(folder)
        thread = threading.Thread(target=server._loop.run_forever, daemon=True)
        Server.restart(server)
        thread.start()
        try:
            server._on_loop(server._proxy.start())
            yield server
        finally:
            server._on_loop(server._proxy.close())
            server._loop.call_soon_threadsafe(server._loop.stop)
            thread.join(10)
            server._loop.close()
            Server.kill(server)
