"""What carries a link's frames to its peer: a PUSH socket, with its last known state, and on the
same host perhaps a ring."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, TypeAlias

import zmq

from squall_common.daemon.logs import get_logger
from squall_worker.transport.frames import FRAME_BYTES_MAX
from squall_worker.transport.link import Link

if TYPE_CHECKING:
    from squall_worker.transport.curve import Guard
    from squall_worker.transport.ring.connections import Outgoing

log = get_logger(__name__)

# Frames in a PUSH socket's queue. Few: what waits in the link is gathered into full frames.
_SEND_FRAMES_MAX = 32
# A connection attempt that got no answer is given up and made again.
_CONNECT_MS = 5_000
HANDSHAKE_MS = 5_000
_RECONNECT_MS = 100
# A link that does not stand and has no connection for this long gets another socket.
_RENEW_SECS = 3.0
# The ring takes over between two frames: it waits at most this long until none is under way through
# the socket, for what comes out of order has to be sent again.
_TAKE_OVER_SECS = 0.25
# ZMTP heartbeats find dead hosts. Long, since a receiver whose queue is full answers none.
_HEARTBEAT_MS = 5_000
_HEARTBEAT_TIMEOUT_MS = 30_000

Address = tuple[str, int]
# What makes sockets: ZeroMQ's context, or a simulation's.
Sockets: TypeAlias = zmq.Context[zmq.Socket[bytes]]


class Connection(enum.Enum):
    """What is true of a peer's socket. A full queue looks like a lost connection."""

    NONE = "There is no socket: no address is known, or the peer is no longer wanted."
    BLOCKED = "The last look or frame found no connection, or no room."
    WRITABLE = "There was room for another frame."


class Peer:
    """A link, and the PUSH socket that serves it once its address is known. A ring to the peer's
    session takes its place, while there is one."""

    __slots__ = ("_renew_at", "_take_over_at", "address", "connection", "link", "ring", "socket")

    def __init__(self, link: Link) -> None:
        self.link = link
        self.connection = Connection.NONE
        self.address: Address | None = None  # None exactly in NONE
        self.socket: zmq.Socket[bytes] | None = None  # None exactly in NONE
        self.ring: Outgoing | None = None
        self._take_over_at = float("inf")  # of the ring; -inf when it has
        self._renew_at = 0.0  # from then on a socket that never connected is taken for dead

    def connect(
        self, sockets: Sockets, address: Address, guard: Guard | None, now: float
    ) -> zmq.Socket[bytes]:
        """Open a socket to an address. The connection comes later: `look` when the FD speaks."""
        assert self.connection is Connection.NONE
        socket = sockets.socket(zmq.PUSH)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IMMEDIATE, 1)
        socket.setsockopt(zmq.SNDHWM, _SEND_FRAMES_MAX)
        socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        socket.setsockopt(zmq.CONNECT_TIMEOUT, _CONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
        socket.setsockopt(zmq.IPV6, int(":" in address[0]))
        if guard is not None:
            guard.connect(socket)
        self.address, self.socket = address, socket
        self.connection = Connection.BLOCKED
        self._renew_at = now + _RENEW_SECS
        try:
            socket.connect(endpoint(*address))
        except zmq.ZMQError as error:
            log.error("peer_address_refused", peer=self.link.peer, address=address, error=error)
        return socket

    def disconnect(self, linger_ms: int) -> None:
        """Close the socket, if there is one; frames in its queue get `linger_ms` to be sent."""
        socket, self.socket, self.address = self.socket, None, None
        self.connection = Connection.NONE
        if socket is not None:
            socket.close(linger_ms)

    def set_ring(self, ring: Outgoing | None, now: float) -> None:
        """Use a ring from the next moment on at which no frame is under way; None: the socket
        again."""
        self.ring = ring
        self._take_over_at = now + _TAKE_OVER_SECS

    def ring_for(self, now: float) -> Outgoing | None:
        """The ring, if the next frame goes through it."""
        if self.ring is not None and now < self._take_over_at:
            if self.link.in_flight:
                return None
            self._take_over_at = float("-inf")
        return self.ring

    def look(self) -> bool:
        """Ask the socket, when its FD became readable, whether it has room; True if it had none
        before. (Asking clears the FD.)"""
        assert self.socket is not None
        before = self.connection
        has_room = int(self.socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT
        self.connection = Connection.WRITABLE if has_room else Connection.BLOCKED
        return self.connection is Connection.WRITABLE is not before

    def push(self, data: bytes) -> bool:
        """Give a frame to the socket; returns False, and sets BLOCKED, if the socket did not take
        it."""
        assert self.socket is not None
        try:
            self.socket.send(data, zmq.NOBLOCK)
        except zmq.Again:
            self.connection = Connection.BLOCKED
            return False
        return True

    def is_dead(self, now: float) -> bool:
        """Whether the socket had its time to connect and the link still does not stand: after a
        handshake that broke the protocol, ZeroMQ does not connect again."""
        return (
            self.connection is Connection.BLOCKED
            and not self.link.greeted
            and now >= self._renew_at
        )

    def __str__(self) -> str:
        return f"{self.link} over {self.address or 'nothing'}, {self.connection.name}"

    def validate(self) -> None:
        """Assert what must be true between two events."""
        none = self.connection is Connection.NONE
        assert (self.socket is None) == none, f"{self}: socket {self.socket}"
        assert (self.address is None) == none, str(self)
        self.link.validate()


def endpoint(host: str, port: int | str) -> str:
    """How ZeroMQ spells an address."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
