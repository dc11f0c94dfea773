"""Accepts TLS connections for an asyncio protocol, and counts them before TLS begins.

asyncio's own TLS servers hand over a connection only after its handshake: a peer that never begins
one would count nowhere.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable

from squall_common.daemon.logs import get_logger
from squall_thrift.serving.first_byte import has_begun
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

HANDSHAKE_SECS = 10.0
_ACCEPT_PAUSE_SECS = 0.1


class TlsListener:
    """`context` is called for each connection. `admit` says for a peer's address and the number of
    its handshakes under way whether one more connection may come; `refused` hears of failed
    handshakes. `start` raises OSError."""

    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        make_protocol: Callable[[], asyncio.BaseProtocol],
        *,
        admit: Callable[[str, int], bool],
        refused: Callable[[str, str], None],
    ) -> None:
        self._context = context
        self._make_protocol = make_protocol
        self._admit = admit
        self._refused = refused
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._handshakes: dict[asyncio.Task[None], str] = {}
        self._silent: dict[asyncio.Task[None], None] = {}  # of these, those that have sent nothing
        self._by_host: Counter[str] = Counter()
        self._throttle = Throttle()

    @property
    def handshakes(self) -> int:
        """How many connections do not speak TLS yet."""
        return len(self._handshakes)

    def start(self, address: str, port: int) -> int:
        """Listen; returns the port."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listener = socket.create_server((address, port), family=family, backlog=512)
        listener.setblocking(False)
        self._socket = listener
        self._accepting = asyncio.create_task(self._accept(listener), name="tls accept")
        return int(listener.getsockname()[1])

    async def close(self) -> None:
        """Accept nothing more; connections that speak TLS stay. Idempotent."""
        if self._accepting is None or self._socket is None:
            return
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)
        self._socket.close()
        for task in list(self._handshakes):
            task.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
        self._accepting = self._socket = None

    @property
    def silent(self) -> int:
        """How many of these have sent nothing."""
        return len(self._silent)

    def drop(self, *, silent: bool) -> None:
        """End the oldest connection that has sent nothing, or that has and does not speak TLS yet,
        if there is one."""
        oldest = next((one for one in self._handshakes if (one in self._silent) == silent), None)
        if oldest is not None:
            oldest.cancel()
            self._forget(oldest)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, address = await loop.sock_accept(listener)
            except OSError as error:  # it was gone at once, or there are too many open files
                if (left_out := self._throttle.left_out("accept")) is not None:
                    log.warning("tls_accept_failed", error=error, left_out=left_out)
                await asyncio.sleep(_ACCEPT_PAUSE_SECS)
                continue
            host = str(address[0])
            if not self._admit(host, self._by_host[host]):
                connected.close()
                continue
            peer = f"{host}:{address[1]}"
            task = asyncio.create_task(self._shake_hands(connected, peer), name=f"tls {host}")
            self._handshakes[task] = host
            self._silent[task] = None
            self._by_host[host] += 1
            task.add_done_callback(self._forget)

    async def _shake_hands(self, connected: socket.socket, peer: str) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_SECS):
                begun = await has_begun(connected)
                self._silent.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
                if not begun:
                    connected.close()
                    return
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._make_protocol, connected, ssl=self._context()
                )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            connected.close()
            self._refused(peer, f"TLS: {str(error) or type(error).__name__}")
        except BaseException:
            connected.close()
            raise

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._silent.pop(task, None)
        host = self._handshakes.pop(task, None)
        if host is not None:
            self._by_host[host] -= 1
            if self._by_host[host] <= 0:
                del self._by_host[host]
