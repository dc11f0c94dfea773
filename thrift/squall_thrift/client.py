"""An asyncio Thrift client: one connection, one call at a time, a deadline for each. Large replies
are decoded beside the loop, as a server does with large calls.

async with ThriftClient(storm.Nimbus, "127.0.0.1", 6627) as nimbus:
    leader = await nimbus.call("getLeader")
"""

import asyncio
import contextlib
import ssl
import time
from types import TracebackType
from typing import Any, Self

from squall_thrift import codec, idl
from squall_thrift.protocol import frames, messages
from squall_thrift.protocol.messages import (
    ApplicationErrorType,
    MessageType,
    ThriftApplicationError,
)
from squall_thrift.serving.authentication import Credentials, RefusedError, prove_client
from squall_thrift.serving.off_loop import LARGE_BYTES, off_loop_if
from squall_thrift.wire import ProtocolError

__all__ = ["ThriftApplicationError", "ThriftClient", "ThriftTransportError"]


# How often a client looks at what its credentials go by.
_LOOK_SECS = 2.0


class ThriftTransportError(Exception):
    """The peer cannot be reached, the connection ended, or a call timed out.

    `sent` is whether the call may have been carried out: a call that was never sent may be
    repeated anywhere, any other only if repeating it does no harm.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


async def open_proved(
    host: str,
    port: int,
    credentials: Credentials | None,
    *,
    name: str = "the server",
    timeout_secs: float = 5.0,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection for frames. With `credentials` it speaks TLS, and the server has accepted them.
    Raises ThriftTransportError, which says why there is none; `name` is the server's, for that."""

    def failed(what: str) -> ThriftTransportError:
        return ThriftTransportError(f"{name} at {host}:{port}: {what}", sent=False)

    try:
        async with asyncio.timeout(timeout_secs):
            streams = await _open(host, port, credentials)
    except RefusedError as error:
        raise failed(str(error)) from error
    except (asyncio.IncompleteReadError, ConnectionResetError, ssl.SSLError) as error:
        raise failed(_why(error, credentials)) from error
    except frames.FrameError as error:
        raise failed(str(error)) from error
    except TimeoutError:
        raise failed(f"no connection within {timeout_secs:g} s") from None
    except OSError as error:
        raise failed(f"cannot connect: {error}") from error
    streams[1].transport.set_write_buffer_limits(high=0)
    return streams


async def _open(
    host: str, port: int, credentials: Credentials | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if credentials is None:
        return await asyncio.open_connection(host, port)
    reader, writer = await asyncio.open_connection(host, port, ssl=credentials.context)
    try:
        await prove_client(reader, writer, credentials)
    except BaseException:
        writer.transport.abort()
        raise
    return reader, writer


def _why(error: Exception, credentials: Credentials | None) -> str:
    """Why a connection was not opened, for the person who wants one."""
    if credentials is None:
        return f"cannot connect: {error}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", None):
        return "it does not speak TLS: is that cluster secured?"
    return (
        "it closed the connection before it had accepted the certificate or the token: "
        "its log says why"
    )


class ThriftClient:
    """A client of one service. After a ThriftTransportError the connection is closed, and later
    calls raise the same error: connect again with a new client.

    When its `credentials` have changed (another CA, another certificate or token of its own), it
    connects again by itself before its next call, which is sent once: neither side goes by what it
    believed before."""

    def __init__(
        self,
        service: idl.Service,
        host: str,
        port: int,
        *,
        timeout_secs: float = 30.0,
        frame_bytes_max: int = frames.FRAME_BYTES_MAX,
        connect_timeout_secs: float = 5.0,
        credentials: Credentials | None = None,
    ) -> None:
        """With `credentials`, speak TLS and prove who calls; they are never sent in the clear."""
        self._service = service
        self._host = host
        self._port = port
        self._timeout_secs = timeout_secs
        self._frame_bytes_max = frame_bytes_max
        self._connect_timeout_secs = connect_timeout_secs
        self._credentials = credentials
        # What it connected with; None if that could not be said.
        self._shown: tuple[ssl.SSLContext, str, bytes] | None = None
        self._look_at = 0.0  # monotonic
        self._closes = 0  # how often it was closed
        self._sequence_id = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._lock = asyncio.Lock()

    @property
    def address(self) -> str:
        """HOST:PORT of the peer."""
        return f"{self._host}:{self._port}"

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Open the connection, in place of an open one. Raises ThriftTransportError, also if it is
        closed meanwhile."""
        await self.close()
        closes = self._closes
        self._shown = self._to_show()
        streams = await open_proved(
            self._host,
            self._port,
            self._credentials,
            name=self._service.name,
            timeout_secs=self._connect_timeout_secs,
        )
        if self._closes != closes:
            streams[1].transport.abort()
            raise self._error("the connection is closed", sent=False)
        self._streams = streams
        self._sequence_id = 0

    def _to_show(self) -> tuple[ssl.SSLContext, str, bytes] | None:
        """What a connection would be opened with now; None if that cannot be said."""
        self._look_at = time.monotonic() + _LOOK_SECS
        if self._credentials is None:
            return None
        try:
            return (self._credentials.context, *self._credentials.initial())
        except RefusedError:
            return None

    async def _follow(self) -> None:
        """Connect again if the credentials are others than when it connected. Raises
        ThriftTransportError."""
        if self._credentials is None or time.monotonic() < self._look_at:
            return
        now = self._to_show()
        if now is not None and now != self._shown:
            await self.connect()

    async def close(self) -> None:
        """Close the connection; a call in progress fails."""
        self._closes += 1
        if self._streams is None:
            return
        _, writer = self._streams
        self._streams = None
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def call(self, operation: str, *args: Any, timeout_secs: float | None = None) -> Any:
        """Call a method and return its result; arguments that are left out, or None, are not sent.

        Calls made at the same time take turns, and the timeout includes the wait. Raises the
        exceptions that the interface declares, ThriftTransportError, and ThriftApplicationError if
        the peer cannot make the call or answers out of turn; for the caller's own mistakes
        TypeError (no such method, too many arguments) and EncodeError.
        """
        method = self._method(operation, args)
        body = codec.to_bytes(method.args.cls(*args))
        secs = self._timeout_secs if timeout_secs is None else timeout_secs
        sent = False
        try:
            async with asyncio.timeout(secs), self._lock:
                if self._streams is None:
                    raise self._error("the connection is closed", sent=False)
                reader, writer = self._streams
                if reader.at_eof() or writer.is_closing():
                    await self.close()
                    raise self._error("the peer has closed the connection", sent=False)
                await self._follow()
                reader, writer = self._streams
                self._sequence_id = self._sequence_id % 0x7FFFFFFF + 1
                message = messages.serialize(MessageType.CALL, operation, self._sequence_id, body)
                sent = True
                try:
                    await frames.write_frame(writer, [message], timeout_secs=None)
                    reply = await frames.read_frame(
                        reader, self._frame_bytes_max, first_byte_secs=None, frame_secs=None
                    )
                    if reply is None:
                        raise self._error(f"closed the connection during {operation}", sent=True)
                    large = len(reply) >= LARGE_BYTES and not isinstance(method.returns, idl.Binary)
                    return await off_loop_if(large, self._result, method, reply)
                except BaseException as error:
                    # A late answer could not be told from the answer to the next call.
                    if not _answered(error, method):
                        await self.close()
                    raise
        except TimeoutError:
            raise self._error(f"did not answer {operation} within {secs:g} s", sent=sent) from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise self._error(f"the connection ended during {operation}", sent=sent) from error
        except (frames.FrameError, ProtocolError) as error:
            raise self._error(f"sent a bad answer to {operation}: {error}", sent=sent) from error

    def size_of(self, operation: str, *args: Any) -> int:
        """Return how many bytes the arguments of a call take on the wire."""
        return len(codec.to_bytes(self._method(operation, args).args.cls(*args)))

    def _method(self, operation: str, args: tuple[Any, ...]) -> idl.Method:
        method = self._service.methods.get(operation)
        if method is None:
            raise TypeError(f"{self._service.name} has no method {operation!r}")
        if len(args) > len(method.args.fields):
            raise TypeError(
                f"{operation} takes {len(method.args.fields)} arguments, not {len(args)}"
            )
        return method

    def _result(self, method: idl.Method, data: bytes) -> Any:
        reply = messages.parse(data)
        if reply.sequence_id != self._sequence_id:
            raise _Unexpected(
                ApplicationErrorType.BAD_SEQUENCE_ID,
                f"call {self._sequence_id} was answered as call {reply.sequence_id}",
            )
        if reply.type is MessageType.EXCEPTION:
            raise messages.parse_application_error(data, reply.body)
        if reply.type is not MessageType.REPLY:
            raise _Unexpected(
                ApplicationErrorType.INVALID_MESSAGE_TYPE, f"{reply} is not an answer"
            )
        if reply.name != method.name:
            raise _Unexpected(
                ApplicationErrorType.WRONG_METHOD_NAME,
                f"{method.name} was answered as {reply.name}",
            )
        result, end = codec.read_struct(method.result.cls, data, reply.body)
        if end != len(data):
            raise ProtocolError(f"{len(data) - end} bytes follow the result", end)
        for name in method.throws:
            error: Exception | None = getattr(result, name)
            if error is not None:
                raise error
        if method.returns is None:
            return None
        if result.success is None:
            raise ThriftApplicationError(
                ApplicationErrorType.MISSING_RESULT, f"{method.name} returned nothing"
            )
        return result.success

    def _error(self, what: str, *, sent: bool) -> ThriftTransportError:
        return ThriftTransportError(f"{self._service.name} at {self.address}: {what}", sent=sent)


class _Unexpected(ThriftApplicationError):
    """An answer to a different call."""


def _answered(error: BaseException, method: idl.Method) -> bool:
    """Whether an error is the peer's complete answer, after which the connection stays usable."""
    if isinstance(error, _Unexpected):
        return False
    return isinstance(error, (ThriftApplicationError, *method.throws.values()))
