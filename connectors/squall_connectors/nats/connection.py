"""Connections to NATS.

A server says in its first message, which is in the clear, whether it wants TLS, and the client does
what it says: with a server that does not, or somebody between who changed the message, it would
send the password in the clear. So where TLS is asked for, it is checked before the client's first
message, which has the password.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client
from nats.errors import ConnectionClosedError, NoServersError

from squall_connectors.base.address import tls_context, with_secrets

_END_SECS = 2.0
# Of the client.
_TASKS = ("_reading_task", "_flusher_task", "_ping_interval_task")


async def connect(
    connector: str,
    servers: str,
    options: Mapping[str, Any],
    secrets: Mapping[str, str],
    ca_file: str | None,
) -> Any:
    """Connect, or raise. `secrets` are options whose values are in environment variables. The
    connection does not come back by itself when it is lost: its user connects again, and knows then
    what has to be repeated. With `ca_file`, or a server given as tls://, all of it is encrypted:
    raises ConnectionError for a server that does not want that. Each server is tried twice: the
    client itself would try for minutes, and say nothing meanwhile."""
    urls = servers.split(",")
    secure = ca_file is not None or any(url.strip().startswith("tls://") for url in urls)
    client = _EncryptedClient() if secure else _Client()
    tls: dict[str, Any] = {} if ca_file is None else {"tls": tls_context(ca_file)}
    tries = {"max_reconnect_attempts": 1, "reconnect_time_wait": 0.1}
    failures: list[Exception] = []

    async def note(error: Exception) -> None:
        """While it connects. What fails later is raised where it matters."""
        failures[:] = [error]

    try:
        await client.connect(
            urls,
            allow_reconnect=False,
            connect_timeout=5,
            ping_interval=5,
            max_outstanding_pings=2,
            flusher_queue_size=0,  # its bound is that of what is published at a time
            error_cb=note,
            **tls,
            **{**tries, **with_secrets(connector, options, secrets)},
        )
        if isinstance(client, _EncryptedClient) and not client.is_checked:
            raise RuntimeError("this version of nats-py does not let the connector check its TLS")
    except NoServersError:
        await end(client)
        if failures:  # the client says only that there is no server
            raise failures[0] from None
        raise
    except BaseException:
        await end(client)
        raise
    return client


class _Client(Client):
    """Ends without an error if the server is gone, and ends what waits for the server's answer."""

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # The answers will not come: without this, each request waits for the whole of its timeout.
        for waiting in (*self._resp_map.values(), *self._pongs):
            if not waiting.done():
                waiting.set_exception(ConnectionClosedError())
                waiting.exception()  # its request may have ended already
        # Nor will anything be flushed, which a large publication waits for, without a timeout.
        while self._flush_queue is not None and not self._flush_queue.empty():
            flushed = self._flush_queue.get_nowait()
            if not flushed.done():
                flushed.set_result(None)
        # It first sends what it has left. Mostly its own tasks call it, and their errors are seen
        # by no one.
        with contextlib.suppress(OSError, RuntimeError):
            await super()._close(status, do_cbs)

    async def _flush_pending(self, force_flush: bool = False) -> Any:
        # It ignores a cancellation, and what was to end would then wait for an answer.
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        flushed = await super()._flush_pending(force_flush)
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError
        return flushed


class _EncryptedClient(_Client):
    """Sends nothing before there is TLS."""

    is_checked = False

    def _connect_command(self) -> bytes:
        """The client's first message."""
        # Of a WebSocket (wss) the client sees to that itself, before the server's first message.
        server = self._current_server
        if server is None or server.uri.scheme != "wss":
            # (A WebSocket without TLS has no such writer.)
            writer: Any = getattr(self._transport, "_io_writer", None)
            if writer is None or writer.get_extra_info("ssl_object") is None:
                at = "" if server is None else f" at {server.uri.hostname}:{server.uri.port}"
                raise ConnectionError(
                    f"the NATS server{at} does not ask for TLS, so nothing was sent to it; give it "
                    "a certificate (tls in its configuration), or leave out ca_file and tls://"
                )
        self.is_checked = True
        return super()._connect_command()


async def end(connection: Any) -> None:
    """Close a connection, which may be broken. Its client closes the socket only when all that it
    has left is sent, which a server that stands still never takes, and not at all once it has begun
    to close by itself; and the errors of its tasks are seen by no one."""
    if connection is None:
        return
    try:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_END_SECS):
                await connection.close()
    finally:
        transport = getattr(connection, "_transport", None)
        for name in ("_io_writer", "_bare_io_writer"):  # with TLS there are two
            writer = getattr(transport, name, None)
            if writer is not None:
                writer.transport.abort()
        tasks = [getattr(connection, name, None) for name in _TASKS]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_END_SECS)
        for task in running:
            if task.done() and not task.cancelled():
                task.exception()
        await asyncio.sleep(0)  # the last calls of `connection_lost`
