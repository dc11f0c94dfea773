"""CurveZMQ for one worker's sockets: only connections that have the topology's key are let in.

All workers of a topology have the same pair of keys. The port is a CURVE server with it, and what
connects is a client that must know the public key beforehand and prove the secret one; ZeroMQ does
that in its own thread before a frame is read, and closes a connection that has not got that far
within HANDSHAKE_IVL. Its authentication handler (ZAP, one per context) then lets in only the client
key of this topology. The handler answers on the event loop: a worker that is stuck accepts no new
connections, which would be of no use to it.

Refused connections are counted, and logged once a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable
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
UNFINISHED = "the handshake was not finished"
_REASONS = {
    int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL): UNFINISHED,
    int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL): "not encrypted, or with another key",
    int(zmq.EVENT_HANDSHAKE_FAILED_AUTH): "not this topology's key",
}
_EVENTS_MAX = 100  # read in one go before other callbacks of the loop have their turn


class Guard:
    """Sets up the sockets of one context. `on_refused(reason)` is called on the loop for every
    connection that was not let in."""

    def __init__(
        self,
        key: CurveKey,
        context: zmq.Context[zmq.Socket[bytes]],
        on_refused: Callable[[str], None],
    ) -> None:
        self._key = key
        self._context = context
        self._on_refused = on_refused
        self._loop = asyncio.get_running_loop()
        self._client_key = z85.decode(key.public)
        self._zap: zmq.Socket[bytes] | None = None
        self._monitored: zmq.Socket[bytes] | None = None
        self._monitor: zmq.Socket[bytes] | None = None

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
        version, _, domain, _, _, mechanism, key = request
        return (version, domain, mechanism) == (_ZAP_VERSION, _DOMAIN, b"CURVE") and (
            hmac.compare_digest(key, self._client_key)
        )

    # -- who did not --------------------------------------------------------------------------

    def _watch(self, pull: zmq.Socket[bytes]) -> None:
        address = f"inproc://refused-{id(self)}"
        pull.monitor(address, _FAILED)
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
            event: dict[str, Any] = dict(parse_monitor_message(parts))
            self._on_refused(_REASONS.get(int(event["event"]), "refused"))
        self._loop.call_soon(self._on_monitor)
