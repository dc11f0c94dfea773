"""An asyncio Thrift server: framed transport, binary protocol.

Each connection is a task. It waits for a frame, makes the call, writes the reply, and waits again:
the calls of one connection run one after the other, and a connection that is slow, silent or
hostile does not delay the others. The resources that peers can hold are bounded:

- memory: a frame is refused by its length before it is read. While a peer does not read its reply,
  nothing more is read from it. Frames on their way in and replies on their way out may together
  hold `held_bytes_max`; above that, the connection whose frame has taken the longest is closed;
- time: the first frame must begin within `first_byte_timeout_secs`, a frame that has begun must be
  complete within `frame_timeout_secs`, and a reply must be read within `write_timeout_secs`;
- connections: at `connections_max` the one that has waited longest for a call makes room; if all
  are in a call, the new one is closed. (Otherwise idle ones stay open: clients keep them.)
- the loop: calls begin in turns (`turns`), each peer's address in turn and then each of its
  connections. A large frame is decoded off the loop, in the same order; `limits` gives the most
  bytes that a method's frame may have.

With an `authenticator` the port speaks TLS (unless that has no context for it), and a peer proves
who it is before its first call (`authentication`). Until then it has ten seconds in all, and one
address may have a quarter of the connections.

If a caller hangs up, its call ends if the method is one of `cancelled_on_hang_up`: those that wait
for others, and change nothing while they wait. All others run to their end. A peer that closes only
its half of the connection counts as one that hung up.

`stop` closes the listener and idle connections at once; calls in flight finish and are answered.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from squall_thrift import idl
from squall_thrift.logs import EventLogger
from squall_thrift.protocol import frames, messages
from squall_thrift.protocol.messages import ApplicationErrorType, ThriftApplicationError
from squall_thrift.protocol.sasl import SaslError
from squall_thrift.serving.authentication import (
    AUTHENTICATION_SECS,
    Authenticator,
    Identity,
    prove_server,
)
from squall_thrift.serving.authorization import Authorizer, Call, OpenAuthorizer
from squall_thrift.serving.first_byte import has_begun
from squall_thrift.serving.off_loop import CALLER
from squall_thrift.serving.processor import Observe, Processor, refusal
from squall_thrift.serving.throttle import Throttle
from squall_thrift.serving.turns import Turns
from squall_thrift.wire import ProtocolError

log = EventLogger(__name__)

# Of the connections, the part that one address may have before it has proved who it is.
_STRANGERS_SHARE = 4
_ACCEPT_PAUSE_SECS = 0.1


class InsecureListenerError(Exception):
    """A server without authentication was asked to listen on an address other than loopback."""


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """How many bytes a call may have: by its method, and for all methods that are not named. The
    server's `frame_bytes_max` limits them all."""

    otherwise: int = frames.FRAME_BYTES_MAX
    by_method: Mapping[str, int] = field(default_factory=dict)

    def of(self, head: bytes) -> int:
        """Return the limit for a message that begins with `head`. Raises ProtocolError if that is
        not a message."""
        return self.by_method.get(messages.parse(head).name, self.otherwise)


class _Connection:
    """One peer: its streams and the task that serves it."""

    key: tuple[str, int]

    __slots__ = ("identity", "key", "peer", "protocol", "reader", "task", "writer")

    task: asyncio.Task[None]

    def __init__(
        self,
        protocol: "_Protocol",
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.protocol = protocol
        self.reader = reader
        self.writer = writer
        self.identity: Identity | None = None  # None: not authenticated (yet)
        host, port = (writer.get_extra_info("peername") or ("unknown", 0))[:2]
        self.peer = _peer(host, port)
        self.key = (host, port)


class _Protocol(asyncio.StreamReaderProtocol):
    """The stream's protocol, which also reports two things that StreamReader does not: that the
    peer has hung up, at once, and how much it sends during a call."""

    def __init__(
        self, accept: Callable[["_Protocol", asyncio.StreamReader, asyncio.StreamWriter], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(
            asyncio.StreamReader(loop=loop),
            lambda reader, writer: accept(self, reader, writer),
            loop=loop,
        )
        self.hung_up = False
        self.on_hang_up: Callable[[], object] | None = None
        self.on_bytes: Callable[[int], None] | None = None  # not None during a call

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.on_bytes is not None:
            self.on_bytes(len(data))

    def eof_received(self) -> bool | None:
        keep_open = super().eof_received()
        self._hang_up()
        return keep_open

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._hang_up()

    def _hang_up(self) -> None:
        self.hung_up = True
        if self.on_hang_up is not None:
            self.on_hang_up()


class ThriftServer:
    """Serves one service. Construction raises TypeError for an incomplete handler (see
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
        authenticator: Authenticator | None = None,
        insecure: bool = False,
        first_byte_timeout_secs: float = 30.0,
        frame_timeout_secs: float = 30.0,
        write_timeout_secs: float = 30.0,
        connections_max: int = 1024,
        limits: FrameLimits | None = None,
        cancelled_on_hang_up: Collection[str] = (),
        observe: Observe | None = None,
    ) -> None:
        self._authorizer = OpenAuthorizer() if authorizer is None else authorizer
        self._authenticator = authenticator
        self._processor = Processor(service, handler, self._authorizer, reply_bytes_max, observe)
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
        self._limits = limits or FrameLimits()
        # At least the bytes that are needed to look up a frame's limit.
        self._small_bytes = max(
            frames.ENVELOPE_BYTES_MAX,
            min(self._limits.otherwise, *self._limits.by_method.values(), frame_bytes_max),
        )
        self._cancelled_on_hang_up = frozenset(cancelled_on_hang_up)
        self._turns = Turns()
        self._throttle = Throttle()
        self._server: asyncio.Server | None = None
        # With an authenticator, in place of the server.
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._stopping = False
        self._connections: set[_Connection] = set()
        # Of peers that have not proved who they are: how many connections, by address; and the
        # tasks of those that do not speak TLS yet, the oldest first.
        self._strangers: Counter[str] = Counter()
        self._upgrades: dict[asyncio.Task[None], None] = {}
        self._silent: dict[asyncio.Task[None], None] = {}  # of these, those that have sent nothing
        # Connections without a call: they wait for a frame, or the rest of one. Longest wait first.
        self._waiting: dict[_Connection, None] = {}
        # Bytes of frames on their way in or out, by connection. Longest wait first.
        self._held: dict[_Connection, int] = {}
        self._held_bytes = 0

    @property
    def port(self) -> int:
        """The port that the server listens on; before `start`, the configured one."""
        return self._port

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    async def start(self) -> None:
        """Listen on the host's address (IPv4 if it has one) and the port (0: any free one)."""
        address = await self._address()
        if self._authenticator is None:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: _Protocol(self._accept), address, self._port, backlog=512
            )
            self._port = self._server.sockets[0].getsockname()[1]
        else:
            self._listener = _listen(address, self._port)
            self._port = self._listener.getsockname()[1]
            self._accepting = asyncio.create_task(
                self._take_in(self._listener), name=f"thrift {self._name} accept"
            )
        log.info("thrift_server_started", service=self._name, address=address, port=self._port)

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

    def end_stale(self, ended: Callable[[Any], str | None], *, calls: bool = True) -> None:
        """Hang up on peers whose proof counts no longer, also during a call; without `calls`, one
        that is in a call gets its answer. `ended` says why a proof does not count, or None."""
        for connection in list(self._connections if calls else self._waiting):
            why = None if connection.identity is None else ended(connection.identity)
            if why is not None:
                log.info("thrift_peer_ended", service=self._name, peer=connection.peer, reason=why)
                connection.task.cancel()

    async def stop(self, grace_secs: float = 10.0) -> None:
        """Accept nothing more, finish the calls in flight, then close. Calls that have not ended
        after `grace_secs` are cancelled. May be called twice, and before `start`."""
        self._stopping = True
        if self._server is not None:
            self._server.close()
        if self._accepting is not None and self._listener is not None:
            self._accepting.cancel()
            await asyncio.gather(self._accepting, return_exceptions=True)
            self._listener.close()
        for upgrade in list(self._upgrades):
            upgrade.cancel()
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
        log.info("thrift_server_stopped", service=self._name, port=self._port)

    async def _take_in(self, listener: socket.socket) -> None:
        """Accept connections, which speak TLS next: each is counted before it does."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connected, address = await loop.sock_accept(listener)
            except OSError as error:  # it was gone at once, or there are too many open files
                log.warning("thrift_accept_failed", service=self._name, error=error)
                await asyncio.sleep(_ACCEPT_PAUSE_SECS)
                continue
            self._admit(connected, str(address[0]), int(address[1]))

    def _admit(self, connected: socket.socket, host: str, port: int) -> None:
        """Begin TLS with a connection, unless there is no room for a stranger's."""
        share = max(1, self._connections_max // _STRANGERS_SHARE)
        if self._stopping or self._strangers[host] >= share or not self._make_room():
            connected.close()
            return
        self._strangers[host] += 1
        upgrade = asyncio.create_task(
            self._upgrade(connected, _peer(host, port)), name=f"thrift {self._name} tls {host}"
        )
        self._upgrades[upgrade] = self._silent[upgrade] = None
        upgrade.add_done_callback(lambda task: self._upgraded(task, connected, host))

    async def _upgrade(self, connected: socket.socket, peer: str) -> None:
        assert self._authenticator is not None
        try:
            async with asyncio.timeout(AUTHENTICATION_SECS):
                begun = await has_begun(connected)
                self._silent.pop(asyncio.current_task(), None)  # type: ignore[arg-type]
                if not begun:
                    connected.close()
                    return
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: _Protocol(self._accept), connected, ssl=self._authenticator.context
                )
        except (OSError, TimeoutError, ssl.SSLError) as error:
            connected.close()
            what = "connecting" if self._authenticator.context is None else "TLS"
            self._refuse(peer, f"{what}: {_described(error)}")

    def _upgraded(self, task: asyncio.Task[None], connected: socket.socket, host: str) -> None:
        self._upgrades.pop(task, None)
        self._silent.pop(task, None)
        if task.cancelled() or task.exception() is not None:
            connected.close()
            if not task.cancelled():
                log.error("thrift_upgrade_crashed", host=host, exc_info=task.exception())
        self._leave_strangers(host)

    def _leave_strangers(self, host: str) -> None:
        self._strangers[host] -= 1
        if self._strangers[host] <= 0:
            del self._strangers[host]

    def _refuse(self, peer: str, reason: str) -> None:
        assert self._authenticator is not None
        self._authenticator.refused(peer, reason)
        left_out = self._throttle.left_out(("refused", peer.rpartition(":")[0]))
        if left_out is not None:
            log.warning(
                "thrift_peer_refused",
                service=self._name,
                peer=peer,
                reason=reason,
                left_out=left_out,
            )

    async def _prove(self, connection: _Connection) -> bool:
        """Whether the peer of a connection has proved who it is."""
        assert self._authenticator is not None
        host = connection.key[0]
        self._strangers[host] += 1
        try:
            async with asyncio.timeout(AUTHENTICATION_SECS):
                connection.identity = await prove_server(
                    connection.reader, connection.writer, self._authenticator, connection.peer
                )
        except SaslError as error:
            self._refuse(connection.peer, str(error))
        except TimeoutError:
            self._refuse(connection.peer, f"no proof within {AUTHENTICATION_SECS:g} s")
        finally:
            self._leave_strangers(host)
        return connection.identity is not None

    def _accept(
        self,
        protocol: _Protocol,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        # With an authenticator, room was made before TLS began (`_admit`).
        room = self._authenticator is not None or self._make_room()
        if self._stopping or not room:
            writer.transport.abort()
            return
        connection = _Connection(protocol, reader, writer)
        self._connections.add(connection)
        self._waiting[connection] = None
        connection.task = asyncio.create_task(
            self._serve(connection), name=f"thrift {self._name} {connection.peer}"
        )
        connection.task.add_done_callback(lambda _: self._ended(connection))

    def _make_room(self) -> bool:
        """Return whether one more connection may open, after closing the one that has waited
        longest if necessary."""
        if len(self._connections) + len(self._upgrades) < self._connections_max:
            return True
        if self._drop_stranger():
            return True
        oldest = next(iter(self._waiting), None)
        self._log_full("new" if oldest is None else oldest.peer)
        if oldest is None:
            return False
        self._forget(oldest)
        oldest.task.cancel()
        return True

    def _drop_stranger(self) -> bool:
        """Close one that has not proved who it is, if there is one: strangers do not drive out
        others. They have sent nothing, or begun TLS, or speak it; of these kinds the one with the
        most gives its oldest, so that a crowd of one kind does not drive out those who only pass
        through it on their way to a proof."""
        proving = [one for one in self._waiting if one.identity is None]
        begun = len(self._upgrades) - len(self._silent)
        most = max(len(self._silent), begun, len(proving))
        if not most:
            return False
        if most in (len(self._silent), begun):
            silent = most == len(self._silent)
            upgrade = next(one for one in self._upgrades if (one in self._silent) == silent)
            del self._upgrades[upgrade]
            self._silent.pop(upgrade, None)
            upgrade.cancel()
            self._log_full("one that has sent nothing" if silent else "one that begins TLS")
            return True
        self._log_full(proving[0].peer)
        self._forget(proving[0])
        proving[0].task.cancel()
        return True

    def _log_full(self, closed: str) -> None:
        if (left_out := self._throttle.left_out("full")) is not None:
            log.warning(
                "thrift_connections_full",
                service=self._name,
                connections=len(self._connections),
                closed=closed,
                left_out=left_out,
            )

    def _forget(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self._waiting.pop(connection, None)
        self._release(connection)

    def _ended(self, connection: _Connection) -> None:
        # Here, because a task that is cancelled before it began runs no `finally`; and not `close`,
        # which would keep trying to send the rest of a reply.
        self._forget(connection)
        connection.writer.transport.abort()
        if not connection.task.cancelled() and (error := connection.task.exception()):
            log.error("thrift_connection_crashed", peer=connection.peer, exc_info=error)

    def _hold(self, connection: _Connection, length: int) -> None:
        """Count a frame in transit; close the slowest if all together hold too much."""
        self._release(connection)
        self._held[connection] = length
        self._held_bytes += length
        while self._held_bytes > self._held_bytes_max:
            slowest = next(iter(self._held))
            log.warning(
                "thrift_held_bytes_full",
                service=self._name,
                closed=slowest.peer,
                bytes=self._release(slowest),
            )
            slowest.task.cancel()

    def _release(self, connection: _Connection) -> int:
        held = self._held.pop(connection, 0)
        self._held_bytes -= held
        return held

    async def _serve(self, connection: _Connection) -> None:
        writer = connection.writer
        writer.transport.set_write_buffer_limits(high=0)
        _keep_alive(writer)
        CALLER.set(connection.key)
        first_byte_secs: float | None = self._first_byte_timeout_secs
        try:
            if self._authenticator is not None and not await self._prove(connection):
                return
            while not self._stopping and await self._serve_call(connection, first_byte_secs):
                first_byte_secs = None
        except (frames.FrameError, ProtocolError) as error:
            left_out = self._throttle.left_out(connection.key[0])
            if left_out is not None:
                log.warning(
                    "thrift_peer_dropped",
                    service=self._name,
                    peer=connection.peer,
                    reason=str(error),
                    left_out=left_out,
                )
        except (OSError, asyncio.IncompleteReadError):
            pass  # the peer went away

    async def _serve_call(self, connection: _Connection, first_byte_secs: float | None) -> bool:
        """Serve the next call; return False if the peer has closed the connection."""
        try:
            message = await frames.read_frame(
                connection.reader,
                self._frame_bytes_max,
                first_byte_secs=first_byte_secs,
                frame_secs=self._frame_timeout_secs,
                expect=lambda length: self._hold(connection, length),
                small_bytes=self._small_bytes,
                limit_of=self._limits.of,
            )
        except frames.FrameTooLargeError as error:
            reply = [_too_large(connection, error)]
        else:
            if message is None:
                return False
            del self._waiting[connection]
            frame, message = [message], b""  # so that the bytes are freed once they are read
            reply = await self._reply(connection, frame)
        self._hold(connection, sum(map(len, reply)))
        await frames.write_frame(connection.writer, reply, timeout_secs=self._write_timeout_secs)
        self._release(connection)
        self._waiting[connection] = None
        return True

    async def _reply(self, connection: _Connection, frame: list[bytes]) -> list[bytes]:
        """Carry out the call in `frame`, which is left empty."""
        await self._turns.take(connection.key)
        request = await self._processor.read(frame.pop(), connection.peer, connection.identity)
        self._release(connection)
        protocol = connection.protocol
        if request.message.name in self._cancelled_on_hang_up:
            if protocol.hung_up:
                raise ConnectionResetError("the caller has hung up")
            protocol.on_hang_up = connection.task.cancel
        protocol.on_bytes = lambda count: self._hold(
            connection, self._held.get(connection, 0) + count
        )
        try:
            return await self._processor.answer(request)
        except asyncio.CancelledError as error:
            # Without the handler's frames: the task keeps the error, the frames keep the call's
            # arguments, and both would stay until a garbage collection, which may be much later.
            raise error.with_traceback(None) from None
        finally:
            protocol.on_hang_up = protocol.on_bytes = None


def _too_large(connection: _Connection, error: frames.FrameTooLargeError) -> bytes:
    message = messages.parse(error.head)
    why = f"a call of {message.name} has at most {error.limit} bytes; this one has {error.length}"
    return refusal(
        Call(message.name, connection.peer),
        message,
        ThriftApplicationError(ApplicationErrorType.PROTOCOL_ERROR, why),
    )


def _listen(address: str, port: int) -> socket.socket:
    """A socket that listens. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(512)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _peer(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _described(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no handshake within {AUTHENTICATION_SECS:g} s"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate was not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return str(error) or type(error).__name__


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Have the kernel notice that a peer's machine is gone."""
    connected = writer.get_extra_info("socket")
    if connected is not None:
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
