"""Calls in bare frames, passed on over TLS.

    old client ──bare frames──▶ 127.0.0.1 ──TLS, SASL, frames──▶ the leading Nimbus, a DRPC server

Each connection of a client has one of its own to the server. Calls go on as they are, and so do
answers, but for who leads: a client that asks is to come back here. If the server cannot be
reached, or hangs up, the call that waits gets an error, and the next one a new connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from squall_cli.proxy.owner import is_own
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_thrift import codec, storm
from squall_thrift.client import ThriftTransportError
from squall_thrift.protocol import frames, messages
from squall_thrift.protocol.messages import (
    ApplicationErrorType,
    MessageType,
    ThriftApplicationError,
)
from squall_thrift.wire import ProtocolError

log = get_logger(__name__)

_FRAME_SECS = 60.0
_CONNECTIONS_MAX = 500
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
# Opens a connection to the server that has accepted our proof. Raises SquallError,
# ThriftTransportError.
Open = Callable[[], Awaitable[Streams]]


class ThriftProxy:
    """One port. `what` names the server in messages."""

    def __init__(self, what: str, port: int, open_server: Open) -> None:
        self.what = what
        self.port = port
        self._open = open_server
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen. Raises SquallError."""
        try:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        except OSError as error:
            raise SquallError(
                f"cannot listen on port {self.port}: {error.strerror or error}",
                hint="Choose another port, or 0 for any free one.",
            ) from error
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close everything."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            peer = writer.get_extra_info("peername")[:2]
            local = writer.get_extra_info("sockname")[:2]
            if len(self._tasks) > _CONNECTIONS_MAX:
                log.warning("proxy_connections_full", most=_CONNECTIONS_MAX)
            elif await asyncio.to_thread(is_own, peer, local):
                writer.transport.set_write_buffer_limits(high=0)
                await self._serve(reader, writer)
            else:
                log.warning("proxy_stranger_refused", to=self.what, peer=f"{peer[0]}:{peer[1]}")
        except (OSError, asyncio.IncompleteReadError, frames.FrameError, ProtocolError) as error:
            log.info("proxy_client_dropped", to=self.what, error=error)
        except asyncio.CancelledError:  # by `stop`; StreamReaderProtocol would log it
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server: Streams | None = None
        try:
            while True:
                call = await frames.read_frame(
                    reader, frames.FRAME_BYTES_MAX, first_byte_secs=None, frame_secs=_FRAME_SECS
                )
                if call is None:
                    return
                head = messages.parse(call)
                try:
                    if server is None or server[1].is_closing() or server[0].at_eof():
                        _close(server)
                        server = None  # if the next line raises, there is none
                        server = await self._open()
                    answer = await self._ask(server, call, reader)
                except (SquallError, ThriftTransportError, OSError, EOFError) as error:
                    _close(server)
                    server = None
                    why = f"{self.what}: {error or 'it has closed the connection'}"
                    log.warning("proxy_call_failed", operation=head.name, error=why)
                    answer = _error(head, why)
                await frames.write_frame(
                    writer, [self._answer(head, answer)], timeout_secs=_FRAME_SECS
                )
        finally:
            _close(server)

    async def _ask(self, server: Streams, call: bytes, client: asyncio.StreamReader) -> bytes:
        await frames.write_frame(server[1], [call], timeout_secs=_FRAME_SECS)
        answering = asyncio.ensure_future(
            frames.read_frame(
                server[0], frames.FRAME_BYTES_MAX, first_byte_secs=None, frame_secs=_FRAME_SECS
            )
        )
        try:
            # A client that hangs up withdraws its call, as it does without a proxy.
            while not answering.done():
                await asyncio.wait([answering], timeout=1.0)
                if client.at_eof() and not answering.done():
                    raise asyncio.IncompleteReadError(b"", None)
        finally:
            answering.cancel()
        answer = answering.result()
        if answer is None:
            raise ConnectionResetError("it has closed the connection")
        return answer

    def _answer(self, call: messages.Message, answer: bytes) -> bytes:
        """What the client gets: the answer, but with our address for the leader's."""
        if call.name != "getLeader":
            return answer
        head = messages.parse(answer)
        if head.type is not MessageType.REPLY:
            return answer
        method = storm.Nimbus.methods["getLeader"]
        result, _ = codec.read_struct(method.result.cls, answer, head.body)
        if result.success is not None:
            result.success.host, result.success.port = "127.0.0.1", self.port
        return messages.serialize(
            MessageType.REPLY, head.name, head.sequence_id, codec.to_bytes(result)
        )


def _error(call: messages.Message, why: str) -> bytes:
    error = ThriftApplicationError(ApplicationErrorType.INTERNAL_ERROR, f"storm proxy: {why}")
    body = messages.serialize_application_error(error)
    return messages.serialize(MessageType.EXCEPTION, call.name, call.sequence_id, body)


def _close(streams: Streams | None) -> None:
    if streams is not None:
        streams[1].transport.abort()
