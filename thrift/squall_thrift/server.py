"""An asyncio Thrift server: framed transport, binary protocol.

Each connection is a task. It waits for a frame, makes the call, writes the reply, and waits again:
the calls of one connection come one after the other, and a connection that is slow, silent or
hostile keeps nobody else waiting. What peers can hold is bounded:

- memory: a frame is refused by its length before it is read. While a peer does not read its reply,
  nothing more is read from it. Frames on their way in and replies on their way out may together
  hold `held_bytes_max`; beyond, the connection that has taken the longest over its own is closed;
- time: the first frame must begin within `first_byte_timeout_secs`, one that began must be whole
  within `frame_timeout_secs`, a reply be taken within `write_timeout_secs`;
- connections: at `connections_max` the one that has waited longest for a call makes room, and when
  all are in a call the new one is closed. (Idle ones are not closed otherwise: clients keep them.)

`stop` closes the listener and idle connections at once; calls in flight finish and are answered.
"""

import asyncio
import contextlib
import ipaddress
import logging
import socket

from squall_thrift import frames, idl
from squall_thrift.authorization import Authorizer, OpenAuthorizer
from squall_thrift.processor import Processor
from squall_thrift.wire import ProtocolError

log = logging.getLogger(__name__)


class InsecureListenerError(Exception):
    """A server without authentication was to listen elsewhere than on loopback."""


class _Connection:
    """One peer: its streams and the task that serves it."""

    __slots__ = ("peer", "reader", "task", "writer")

    task: asyncio.Task[None]

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        host, port = (writer.get_extra_info("peername") or ("unknown", 0))[:2]
        self.peer = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ThriftServer:
    """Serves one service. Construction raises TypeError for a handler that is not complete (see
    `processor.Processor`); `start` raises InsecureListenerError or OSError."""

    def __init__(
        self,
        service: idl.Service,
        handler: object,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        frame_bytes_max: int = 1_048_576,
        reply_bytes_max: int = frames.FRAME_BYTES_MAX,
        held_bytes_max: int = 268_435_456,
        authorizer: Authorizer | None = None,
        insecure: bool = False,
        first_byte_timeout_secs: float = 30.0,
        frame_timeout_secs: float = 30.0,
        write_timeout_secs: float = 30.0,
        connections_max: int = 1024,
    ) -> None:
        self._authorizer = OpenAuthorizer() if authorizer is None else authorizer
        self._processor = Processor(service, handler, self._authorizer, reply_bytes_max)
        self._name = service.name
        self._host = host
        self._port = port
        self._insecure = insecure
        self._frame_bytes_max = frame_bytes_max
        self._held_bytes_max = held_bytes_max
        self._first_byte_timeout_secs = first_byte_timeout_secs
        self._frame_timeout_secs = frame_timeout_secs
        self._write_timeout_secs = write_timeout_secs
        self._connections_max = connections_max
        self._server: asyncio.Server | None = None
        self._stopping = False
        self._connections: set[_Connection] = set()
        # Those without a call: they wait for a frame, or for the rest of one. Longest first.
        self._waiting: dict[_Connection, None] = {}
        # Bytes of frames on their way in or out, by connection. Longest first.
        self._held: dict[_Connection, int] = {}

    @property
    def port(self) -> int:
        """The port that is listened on; before `start`, the one that was asked for."""
        return self._port

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def start(self) -> None:
        """Listen on the host's address (IPv4 if it has one) and the port (0: any free one)."""
        address = await self._address()
        self._server = await asyncio.start_server(self._accept, address, self._port, backlog=512)
        self._port = self._server.sockets[0].getsockname()[1]
        log.info(
            "thrift_server_started service=%s address=%s port=%d", self._name, address, self._port
        )

    async def _address(self) -> str:
        found = await asyncio.get_running_loop().getaddrinfo(
            self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        found.sort(key=lambda info: info[0] != socket.AF_INET)
        address = str(found[0][4][0])
        protected = self._authorizer.authenticates or self._insecure
        if not protected and not ipaddress.ip_address(address).is_loopback:
            raise InsecureListenerError(
                f"{self._name} would listen on {address} without authentication: "
                "listen on 127.0.0.1, or set storm.security.insecure to true "
                "if everyone in that network may do everything"
            )
        return address

    async def stop(self, grace_secs: float = 10.0) -> None:
        """Accept nothing more, finish the calls in flight, then close. Calls that have not ended
        after `grace_secs` are cancelled. May be called again, and before `start`."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        for connection in list(self._waiting):
            connection.task.cancel()
        connections = list(self._connections)
        tasks = [connection.task for connection in connections]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=grace_secs)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            with contextlib.suppress(OSError):
                await connection.writer.wait_closed()
        if self._server is not None:
            await self._server.wait_closed()
        log.info("thrift_server_stopped service=%s port=%d", self._name, self._port)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._stopping or not self._make_room():
            writer.transport.abort()
            return
        connection = _Connection(reader, writer)
        self._connections.add(connection)
        self._waiting[connection] = None
        connection.task = asyncio.create_task(
            self._serve(connection), name=f"thrift {self._name} {connection.peer}"
        )
        connection.task.add_done_callback(lambda _: self._ended(connection))

    def _make_room(self) -> bool:
        """Whether one more connection may come, after the longest waiting one went if need be."""
        if len(self._connections) < self._connections_max:
            return True
        oldest = next(iter(self._waiting), None)
        log.warning(
            "thrift_connections_full service=%s connections=%d closed=%s",
            self._name,
            len(self._connections),
            "new" if oldest is None else oldest.peer,
        )
        if oldest is None:
            return False
        self._forget(oldest)
        oldest.task.cancel()
        return True

    def _forget(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._waiting.pop(connection, None)
        self._held.pop(connection, None)

    def _ended(self, connection: _Connection) -> None:
        # Here, because a task that is cancelled before it began runs no `finally`; and not `close`,
        # which would keep trying to send what is left of a reply.
        self._forget(connection)
        connection.writer.transport.abort()
        if not connection.task.cancelled() and (error := connection.task.exception()):
            log.error("thrift_connection_crashed peer=%s", connection.peer, exc_info=error)

    def _hold(self, connection: _Connection, length: int) -> None:
        """Count a frame that is under way; close the slowest when all hold too much together."""
        self._held[connection] = length
        while sum(self._held.values()) > self._held_bytes_max:
            slowest = next(iter(self._held))
            log.warning(
                "thrift_held_bytes_full service=%s closed=%s bytes=%d",
                self._name,
                slowest.peer,
                self._held.pop(slowest),
            )
            slowest.task.cancel()

    async def _serve(self, connection: _Connection) -> None:
        writer = connection.writer
        writer.transport.set_write_buffer_limits(high=0)
        _keep_alive(writer)
        first_byte_secs: float | None = self._first_byte_timeout_secs
        try:
            while not self._stopping and await self._serve_call(connection, first_byte_secs):
                first_byte_secs = None
        except (frames.FrameError, ProtocolError) as error:
            log.warning(
                "thrift_peer_dropped service=%s peer=%s reason=%r",
                self._name,
                connection.peer,
                str(error),
            )
        except (OSError, asyncio.IncompleteReadError):
            pass  # the peer went away

    async def _serve_call(self, connection: _Connection, first_byte_secs: float | None) -> bool:
        """Serve the next call; False when the peer has closed the connection."""
        message = await frames.read_frame(
            connection.reader,
            self._frame_bytes_max,
            first_byte_secs=first_byte_secs,
            frame_secs=self._frame_timeout_secs,
            expect=lambda length: self._hold(connection, length),
        )
        if message is None:
            return False
        self._held.pop(connection, None)
        del self._waiting[connection]
        reply = await self._processor.process(message, connection.peer)
        self._hold(connection, len(reply))
        await frames.write_frame(connection.writer, reply, timeout_secs=self._write_timeout_secs)
        self._held.pop(connection, None)
        self._waiting[connection] = None
        return True


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Have the kernel notice that a peer's machine is gone."""
    connected = writer.get_extra_info("socket")
    if connected is not None:
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
