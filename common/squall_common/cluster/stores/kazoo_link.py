"""The one place that reaches into kazoo: a client that reports what kazoo keeps to itself.

Three things are needed that kazoo does not offer. When the last answered request was sent, pings
included (a leader may only act for so long after it). The session timeout as the server granted
it. And callbacks in the order of the wire: kazoo hands completions and watch events to two threads
of its own, so that a read's result may overtake the event that came before it; here both run at
once on the connection's thread, which is the only one.

Callbacks must therefore be short and may not wait. They must not send requests from a completion
that reports a lost connection either: kazoo would find the new one in the queue it is emptying.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import weakref
from collections.abc import Callable, Collection
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.retry import KazooRetry

from squall_common.daemon.logs import get_logger

log = get_logger(__name__)

# How long a polite goodbye may take before the connection is cut.
_CLOSE_SECS = 1.5

# We log changes of state ourselves; kazoo's line for each refused connection would drown them.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)


class LinkListener(Protocol):
    """The events that the connection's thread reports. Times are monotonic seconds."""

    def link_up(self, session_id: int, session_timeout_secs: float, sent: float) -> None:
        """A connection stands; `sent` is when it was asked for."""
        ...

    def link_down(self, *, session_ended: bool, link_dead: bool) -> None:
        """The connection is gone, or the session too; when `link_dead`, kazoo has given up."""
        ...

    def answered(self, sent: float) -> None:
        """A ping that went out at `sent` was answered."""
        ...


class KazooLink:
    """One KazooClient, from `start` to `stop`."""

    def __init__(
        self,
        hosts: str,
        listener: LinkListener,
        *,
        session_timeout_secs: float,
        connection_timeout_secs: float,
        payloads: Collection[str] = (),
    ) -> None:
        """`payloads` (USER:PASSWORD) are shown to the server in each connection."""
        self._listener = listener
        self.refused = False  # whether the server has refused what was shown
        servers = len(hosts.split(","))
        # kazoo lets one server that swallows packets use up the whole session timeout.
        self._handler = _Handler(min(connection_timeout_secs, session_timeout_secs / 3 / servers))
        retry = KazooRetry(
            max_tries=-1,
            delay=0.05,
            backoff=1.5,
            # The default (a minute) comes back long after the session has expired. Jitter adds up
            # to 40 %.
            max_delay=session_timeout_secs / 10 / 1.4,
            sleep_func=self._handler.sleep_func,
        )
        self.client: Any = _Client(  # kazoo has no types
            hosts=hosts,
            timeout=session_timeout_secs,
            handler=self._handler,
            connection_retry=retry,
            logger=_kazoo_log,
            auth_data={("digest", payload) for payload in payloads},
        )
        self.client._connection = _Connection(self.client, retry.copy(), listener)
        self.client.add_listener(self._state_changed)

    def start(self) -> None:
        """Begin to connect, for as long as it takes."""
        self.client.start_async()

    def stop(self) -> None:
        """End the session. Blocks up to a few seconds: call it from a thread."""
        cut = threading.Timer(_CLOSE_SECS, self.cut)
        cut.start()
        try:
            self.client.stop()
        finally:
            cut.cancel()
            cut.join()
            self.client.close()

    def begin(self, request: Callable[[], Any]) -> tuple[Any, Any]:
        """Make a `*_async` call; its result, and what `withdraw` takes (some calls wrap the result
        that lies in the queue in another)."""
        queued = self.client.queued
        queued.result = None
        return request(), queued.result

    def authenticate(self, payload: str) -> None:
        """Show another payload (USER:PASSWORD), in this connection and those that follow."""
        self.client.add_auth_async("digest", payload)

    def withdraw(self, queued: Any) -> None:
        """Do not send a request any more, if it was not sent yet. Safe from any thread."""
        if queued is not None:
            self.client._connection.withdrawn.add(queued)

    def cut(self) -> None:
        """Break the connection, so that kazoo looks for another server. Safe from any thread."""
        self._handler.cut()

    def _state_changed(self, state: str) -> None:
        if state == KazooState.SUSPENDED:
            self._listener.link_down(session_ended=False, link_dead=False)
        elif state == KazooState.LOST:
            self.refused |= self.client.client_state == KeeperState.AUTH_FAILED
            dead = self.client.client_state != KeeperState.EXPIRED_SESSION
            self._listener.link_down(session_ended=True, link_dead=dead)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Runs callbacks where they arise; has no threads but the connection's."""

    def __init__(self, connect_timeout_secs: float) -> None:
        super().__init__()
        self._connect_timeout_secs = connect_timeout_secs
        self._socket: socket.socket | None = None

    # `running` stays false: kazoo then calls completions at once instead of queueing them.
    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def dispatch_callback(self, callback: Any) -> None:
        try:
            callback.func(*callback.args)
        except Exception as error:
            log.error("watch_callback_failed", error=error, exc_info=error)

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        thread = threading.Thread(
            target=func, args=args, kwargs=kwargs, name="zookeeper", daemon=True
        )
        thread.start()
        return thread

    def create_connection(self, *args: Any, timeout: float, **kwargs: Any) -> socket.socket:
        timeout = min(timeout, self._connect_timeout_secs)
        connection: socket.socket = super().create_connection(*args, timeout=timeout, **kwargs)
        self._socket = connection
        return connection

    def cut(self) -> None:
        connection = self._socket
        if connection is not None:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed already


class _Client(KazooClient):  # type: ignore[misc]  # kazoo has no types
    """Remembers, for each thread, what it put into the queue last."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.queued = threading.local()

    def _call(self, request: Any, async_object: Any) -> Any:
        self.queued.result = async_object
        return super()._call(request, async_object)


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """Reports when requests were sent that the server has answered; drops those that were withdrawn
    before they were sent.

    kazoo queues a request that comes while it is connecting, and sends it once it is connected,
    however late that is. Only this thread may take it out: it looks at the head of the queue,
    sends it, and then removes whatever is the head.
    """

    def __init__(self, client: Any, retry: KazooRetry, listener: LinkListener) -> None:
        super().__init__(client, retry, logger=_kazoo_log)
        self._listener = listener
        self._ping_sent = 0.0
        # Results of kazoo's. Weak: those that were sent after all go with their answers.
        self.withdrawn: weakref.WeakSet[Any] = weakref.WeakSet()

    def _connect(self, host: Any, hostip: Any, port: Any) -> tuple[float, float]:
        sent = time.monotonic()
        read_timeout_ms, connect_timeout_ms = super()._connect(host, hostip, port)
        # kazoo keeps only two thirds of what the server granted.
        granted_secs = round(read_timeout_ms * 1.5) / 1000
        self._listener.link_up(self.client._session_id, granted_secs, sent)
        return read_timeout_ms, connect_timeout_ms

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        queue = self.client._queue
        if queue and queue[0][1] is not None and queue[0][1] in self.withdrawn:
            queue.popleft()
            self._read_sock.recv(1)  # the byte that announced it
            return
        super()._send_request(read_timeout, connect_timeout)

    def _send_ping(self, connect_timeout: float) -> None:
        self._ping_sent = time.monotonic()
        super()._send_ping(connect_timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        waiting = self.ping_outstanding.is_set()
        response = super()._read_socket(read_timeout)
        if waiting and not self.ping_outstanding.is_set():
            self._listener.answered(self._ping_sent)
        return response
