"""CurveZMQ for one worker's sockets: only connections that have the topology's key are let in.

All workers of a topology have the same pair of keys. The port is a CURVE server with it, and what
connects is a client that must know the public key beforehand and prove the secret one; ZeroMQ does
that in its own thread before a frame is read, and closes a connection that has not got that far
within HANDSHAKE_IVL. Its authentication handler (ZAP, one per context) then lets in only the client
key of this topology. The handler answers on the event loop: a worker that is stuck accepts no new
connections, which would be of no use to it.

Refused connections are counted, and logged once a minute, with who it was and what it spoke. ZeroMQ
reports them without the peer's address. But it reports each connection with its file descriptor
when it is accepted and when it ends, and right before the end that it was refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from squall_common.daemon.logs import get_logger
from squall_common.security.curve import CurveKey

log = get_logger(__name__)

_ZAP_ENDPOINT = "inproc://zeromq.zap.01"  # rfc.zeromq.org/spec/27
_ZAP_VERSION = b"1.0"
_ZAP_PARTS = 7  # of a request with CURVE: version, id, domain, address, identity, mechanism, key
_DOMAIN = b"squall"

_FAILED = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_WATCHED = _FAILED | zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
_CAME = {
    int(zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH): "a ZeroMQ socket that does not encrypt, or "
    "not with CURVE: a worker whose topology has storm.messaging.curve: false, or another program",
    int(zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC): "a ZeroMQ socket that encrypts for another key: a "
    "worker of another topology whose peer had this port before, or was given it by mistake",
}
_STRANGER = "a ZeroMQ socket that knows this topology's public key and not its secret one"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_CLOSING = frozenset({4, 5, 6, 11})  # FIN_WAIT1, FIN_WAIT2, TIME_WAIT, CLOSING: this end was first
_EVENTS_MAX = 100  # read in one go before other callbacks of the loop have their turn


@dataclass(frozen=True, slots=True)
class Refusal:
    """A connection that was not let in."""

    came: str | None
    """What it was; None: it ended, or was cut off after HANDSHAKE_IVL, before that was known."""
    peer: str | None
    """Its address, with the port or without; None: it was gone before it could be asked."""
    port: int
    """Ours, which it connected to."""


class Guard:
    """Sets up the sockets of one context. `on_refused` is called on the loop for every connection
    that was not let in."""

    def __init__(
        self,
        key: CurveKey,
        context: zmq.Context[zmq.Socket[bytes]],
        on_refused: Callable[[Refusal], None],
    ) -> None:
        self._key = key
        self._context = context
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._client_key = z85.decode(key.public)
        self._zap: zmq.Socket[bytes] | None = None
        self._monitored: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None
        self._accepted: dict[int, str | None] = {}  # peers of the connections that stand
        self._failed: str | None = None  # what came, of the connection whose end is reported next
        self._stranger: str | None = None  # the address of the last one that proved another key

    def serve(self, pull: zmq.Socket[bytes]) -> None:
        """Make the worker's port, before it is bound, a CURVE server."""
        zap = self._zap = self._context.socket(zmq.REP)
        zap.setsockopt(zmq.LINGER, 0)
        zap.bind(_ZAP_ENDPOINT)
        self._loop.add_reader(zap.fileno(), self._on_zap)
        self._loop.call_soon(self._on_zap)
        pull.setsockopt(zmq.CURVE_SERVER, 1)
        pull.setsockopt(zmq.CURVE_PUBLICKEY, self._key.public)
        pull.setsockopt(zmq.CURVE_SECRETKEY, self._key.secret)
        pull.setsockopt(zmq.ZAP_DOMAIN, _DOMAIN)
        # Without a handler that answers, ZeroMQ would let in anyone who knows the public key.
        pull.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        self._watch(pull)

    def connect(self, push: zmq.Socket[bytes]) -> None:
        """Make a socket that will connect to a peer's port a CURVE client."""
        push.setsockopt(zmq.CURVE_SERVERKEY, self._key.public)
        push.setsockopt(zmq.CURVE_PUBLICKEY, self._key.public)
        push.setsockopt(zmq.CURVE_SECRETKEY, self._key.secret)

    def close(self) -> None:
        """Call this before the sockets' context is terminated."""
        if self._monitored is not None and self._monitor is not None:
            # In this order: ZeroMQ's thread waits forever on a monitor that is not read.
            self._monitored.disable_monitor()
            self._loop.remove_reader(self._monitor.fileno())
            self._monitor.close(0)
            self._monitored = self._monitor = None
        if self._zap is not None:
            self._loop.remove_reader(self._zap.fileno())
            self._zap.close(0)
            self._zap = None

    # -- who may come in ----------------------------------------------------------------------

    def _on_zap(self) -> None:
        """The handler's FD became readable: answer all requests (edge-triggered, like all FDs of
        ZeroMQ)."""
        zap = self._zap
        while zap is not None and int(zap.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            request = zap.recv_multipart(zmq.NOBLOCK)
            admitted = self._admits(request)
            request_id = request[1] if len(request) > 1 else b""
            status, text = (b"200", b"OK") if admitted else (b"400", b"not this topology's key")
            with contextlib.suppress(zmq.Again):
                zap.send_multipart(
                    [_ZAP_VERSION, request_id, status, text, b"worker" if admitted else b"", b""],
                    zmq.NOBLOCK,
                )

    def _admits(self, request: list[bytes]) -> bool:
        if len(request) != _ZAP_PARTS:
            return False
        version, _, domain, address, _, mechanism, key = request
        admitted = (version, domain, mechanism) == (_ZAP_VERSION, _DOMAIN, b"CURVE") and (
            hmac.compare_digest(key, self._client_key)
        )
        if not admitted:
            self._stranger = address.decode(errors="replace")
        return admitted

    # -- who did not --------------------------------------------------------------------------

    def _watch(self, pull: zmq.Socket[bytes]) -> None:
        address = f"inproc://refused-{id(self)}"
        pull.monitor(address, _WATCHED)
        monitor = self._context.socket(zmq.PAIR)
        monitor.setsockopt(zmq.LINGER, 0)
        # No bound: on a full queue ZeroMQ's thread, which serves all connections, would wait.
        monitor.setsockopt(zmq.RCVHWM, 0)
        monitor.connect(address)
        self._monitored, self._monitor = pull, monitor
        self._loop.add_reader(monitor.fileno(), self._on_monitor)
        self._loop.call_soon(self._on_monitor)

    def _on_monitor(self) -> None:
        for _ in range(_EVENTS_MAX):
            monitor = self._monitor
            if monitor is None:
                return
            try:
                parts = monitor.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._note(dict(parse_monitor_message(parts)))
        self._loop.call_soon(self._on_monitor)

    def _note(self, event: dict[str, Any]) -> None:
        value = int(event["value"])
        port = int(event["endpoint"].rpartition(b":")[2])
        peer = None
        if event["event"] == zmq.EVENT_DISCONNECTED:
            peer = self._accepted.pop(value, None)
        if (came := self._failed) is not None:
            self._failed = None
            self._on_refused(Refusal(came, peer, port))
        match int(event["event"]):
            case zmq.EVENT_ACCEPTED:
                self._accepted[value] = _peer_of(value, port)
            case zmq.EVENT_DISCONNECTED:
                pass
            case zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
                self._failed = _CAME.get(value, f"something that breaks CURVE (error {value:#x})")
            case zmq.EVENT_HANDSHAKE_FAILED_AUTH:  # its end comes later, when it has heard of this
                self._on_refused(Refusal(_STRANGER, self._stranger, port))
            case _:
                self._on_refused(Refusal(None, None, port))


def _peer_of(fd: int, port: int) -> str | None:
    """Who is at the other end of a connection to `port`. It is ZeroMQ's, which may have closed it,
    and opened something else with its number, meanwhile."""
    try:
        with socket.socket(fileno=os.dup(fd)) as connection:
            host, number = connection.getpeername()[:2]
            return f"{host}:{number}" if connection.getsockname()[1] == port else None
    except (OSError, ValueError, TypeError):
        return None


def lately_closed(port: int) -> list[str]:
    """Who was at the other end of connections to `port` that this host has closed in the last
    minute, if the system says so."""
    found = []
    for table in _TABLES:
        with contextlib.suppress(OSError, ValueError):
            for line in table.read_text().splitlines()[1:]:
                _, local, remote, state = line.split()[:4]
                if int(local.rpartition(":")[2], 16) == port and int(state, 16) in _CLOSING:
                    found.append(_readable(remote))
    return found


def _readable(address: str) -> str:
    """An address of the system's table, which has words of four bytes in the host's order."""
    host, _, port = address.partition(":")
    words = [int(host[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(host), 8)]
    return f"{ipaddress.ip_address(b''.join(words))}:{int(port, 16)}"
