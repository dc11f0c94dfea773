"""The server and the client over real sockets on loopback."""

import asyncio
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from squall_thrift import codec, storm
from squall_thrift.client import (
    ThriftApplicationError,
    ThriftClient,
    ThriftTransportError,
    open_proved,
)
from squall_thrift.protocol import messages
from squall_thrift.protocol.messages import ApplicationErrorType, MessageType
from squall_thrift.serving.authorization import PUBLIC, Call, permission
from squall_thrift.serving.server import FrameLimits, InsecureListenerError, ThriftServer

SERVICE = storm.DistributedRPC
GUARD_SECS = 10.0  # a test that hangs fails after this


class Rpc:
    """DRPC's one method, `execute(functionName, funcArgs)`, with behaviours by function name."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.began = asyncio.Event()
        self.release = asyncio.Event()
        self.cancelled = False

    @permission("execute")
    async def execute(self, call: Call, name: str | None, args: str | None) -> Any:
        self.calls.append(call)
        match name:
            case "wait":
                self.began.set()
                try:
                    await self.release.wait()
                except asyncio.CancelledError:
                    self.cancelled = True
                    raise
            case "declared":
                raise storm.DRPCExecutionException(
                    msg="no such function", type=storm.DRPCExceptionType.FAILED_REQUEST
                )
            case "undeclared":
                raise RuntimeError("secret detail")
            case "incomplete exception":
                raise storm.AuthorizationException()  # type: ignore[call-arg]
            case "nothing":
                return None
            case "wrong type":
                return 17
            case "given up":
                raise asyncio.CancelledError
            case "big":
                return "x" * int(args or 0)
        return args if args is not None else "no args"


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[tuple[ThriftServer, Rpc]]:
    handler = Rpc()
    server = ThriftServer(SERVICE, handler, **options)
    await server.start()
    try:
        yield server, handler
    finally:
        handler.release.set()
        await server.stop(grace_secs=1.0)
        assert server.connections == 0


def client_of(server: ThriftServer, **options: Any) -> ThriftClient:
    return ThriftClient(SERVICE, "127.0.0.1", server.port, **options)


@asynccontextmanager
async def raw(
    server: ThriftServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        try:
            await writer.wait_closed()
        except OSError:
            pass


def call_frame(name: str, args: str, *, sequence_id: int = 1) -> bytes:
    body = codec.to_bytes(SERVICE.methods["execute"].args.cls(name, args))
    message = messages.serialize(MessageType.CALL, "execute", sequence_id, body)
    return struct.pack(">i", len(message)) + message


async def closed_by_peer(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(GUARD_SECS):
        try:
            return await reader.read() == b""
        except ConnectionResetError:
            return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(GUARD_SECS):
        while not condition():  # noqa: ASYNC110 - the code under test signals nothing
            await asyncio.sleep(0.005)


async def test_call_reaches_handler_with_operation_and_peer() -> None:
    async with serving() as (server, handler), client_of(server) as client:
        assert await client.call("execute", "echo", "grüße") == "grüße"
        [call] = handler.calls
        assert call.operation == "execute"
        assert call.principal is None
        assert call.peer.startswith("127.0.0.1:")


async def test_an_omitted_argument_is_none() -> None:
    async with serving() as (server, _), client_of(server) as client:
        assert await client.call("execute", "echo") == "no args"
        assert await client.call("execute", "echo", None) == "no args"


async def test_a_large_reply_is_decoded_beside_the_callers_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That of a topology of 2,000 executors held the UI's loop for 0.24 s."""
    threads: list[int] = []
    result = ThriftClient._result

    def noted(self: ThriftClient, *args: Any) -> Any:
        threads.append(threading.get_ident())
        return result(self, *args)

    monkeypatch.setattr(ThriftClient, "_result", noted)
    async with serving() as (server, _), client_of(server) as client:
        assert await client.call("execute", "big", "10") == "x" * 10
        assert await client.call("execute", "big", "20000") == "x" * 20_000
    here = threading.get_ident()
    assert [one == here for one in threads] == [True, False]


async def test_declared_exception_travels_typed() -> None:
    async with serving() as (server, _), client_of(server) as client:
        with pytest.raises(storm.DRPCExecutionException) as info:
            await client.call("execute", "declared")
        assert info.value.msg == "no such function"
        assert info.value.type is storm.DRPCExceptionType.FAILED_REQUEST
        assert str(info.value) == "no such function"
        assert await client.call("execute", "echo", "again") == "again"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("undeclared", "internal error in execute: RuntimeError"),
        ("nothing", "execute returned nothing"),
        ("wrong type", "the result cannot be sent"),
        ("incomplete exception", "the result cannot be sent"),
        ("given up", "execute was cancelled"),
    ],
)
async def test_other_failures_are_internal_errors_without_details(name: str, message: str) -> None:
    async with serving() as (server, _), client_of(server) as client:
        with pytest.raises(ThriftApplicationError) as info:
            await client.call("execute", name)
        assert info.value.type is ApplicationErrorType.INTERNAL_ERROR
        assert str(info.value) == message
        assert await client.call("execute", "echo", "again") == "again"


async def test_an_unknown_method_is_answered_with_an_error() -> None:
    async with (
        serving() as (server, _),
        ThriftClient(storm.Nimbus, "127.0.0.1", server.port) as client,
    ):
        with pytest.raises(ThriftApplicationError) as info:
            await client.call("getLeader")
        assert info.value.type is ApplicationErrorType.UNKNOWN_METHOD
        assert "getLeader" in str(info.value)


async def test_result_above_the_limit_is_an_error_not_a_frame() -> None:
    async with serving(reply_bytes_max=1000) as (server, _), client_of(server) as client:
        with pytest.raises(ThriftApplicationError, match="the limit is 1000"):
            await client.call("execute", "big", "2000")
        assert len(await client.call("execute", "big", "900")) == 900


async def test_reply_echoes_the_sequence_id_and_comes_in_order() -> None:
    async with serving() as (server, _), raw(server) as (reader, writer):
        writer.write(call_frame("a", "1", sequence_id=71) + call_frame("b", "2", sequence_id=-5))
        for sequence_id, value in ((71, "1"), (-5, "2")):
            length = struct.unpack(">i", await reader.readexactly(4))[0]
            data = await reader.readexactly(length)
            reply = messages.parse(data)
            assert (reply.type, reply.name) == (MessageType.REPLY, "execute")
            assert reply.sequence_id == sequence_id
            result, _ = codec.read_struct(SERVICE.methods["execute"].result.cls, data, reply.body)
            assert result.success == value


async def test_call_message_in_literal_bytes() -> None:
    """The bytes that Storm's own client would send and read."""
    call = (
        b"\x00\x00\x00\x26\x80\x01\x00\x01\x00\x00\x00\x07execute\x00\x00\x00\x01"
        b"\x0b\x00\x01\x00\x00\x00\x01f\x0b\x00\x02\x00\x00\x00\x02ab\x00"
    )
    call = struct.pack(">i", len(call) - 4) + call[4:]
    reply = (
        b"\x80\x01\x00\x02\x00\x00\x00\x07execute\x00\x00\x00\x01\x0b\x00\x00\x00\x00\x00\x02ab\x00"
    )
    assert call == call_frame("f", "ab")
    async with serving() as (server, _), raw(server) as (reader, writer):
        for byte in call:  # one at a time
            writer.write(bytes([byte]))
            await writer.drain()
        async with asyncio.timeout(GUARD_SECS):
            assert await reader.readexactly(4 + len(reply)) == struct.pack(">i", 29) + reply


@pytest.mark.parametrize(
    "sent",
    [
        b"\x7f\xff\xff\xff",  # a frame of 2 GB
        b"\xff\xff\xff\xff",  # a negative one
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00",  # TLS
        b"\x80\x01\x00\x01\x00\x00\x00\x07execute",  # not framed
        b"\x00\x00\x00\x02ab",  # a frame without a message
        b"\x00\x00\x00\x10\x00\x00\x00\x07execute\x01\x00\x00\x00\x01",  # the older message form
        b"\x00\x00\x00\x0c\x80\x01\x00\x01\x7f\xff\xff\xff\x00\x00\x00\x01",  # a 2 GB name
        b"\x00\x00\x00\x0c\x80\x01\x00\x04\x00\x00\x00\x00\x00\x00\x00\x01",  # oneway
        b"\x00\x00\x00\x0c\x80\x01\x00\x02\x00\x00\x00\x00\x00\x00\x00\x01",  # a reply
        b"\x00\x00\x00\x0c\x80\x01\x00\x63\x00\x00\x00\x00\x00\x00\x00\x01",  # no such type
    ],
)
async def test_a_connection_with_another_protocol_is_closed(sent: bytes) -> None:
    async with serving() as (server, handler), raw(server) as (reader, writer):
        writer.write(sent)
        assert await closed_by_peer(reader)
        await until(lambda: server.connections == 0)
        assert handler.calls == []


async def test_frame_of_the_limit_is_served_and_one_byte_more_is_refused() -> None:
    frame = call_frame("echo", "x" * 1000)
    length = len(frame) - 4
    async with serving(frame_bytes_max=length) as (server, _), raw(server) as (reader, writer):
        writer.write(frame)
        async with asyncio.timeout(GUARD_SECS):
            assert await reader.readexactly(4)
    async with serving(frame_bytes_max=length - 1) as (server, handler):
        async with raw(server) as (reader, writer):
            writer.write(frame[:4])  # its length alone is enough
            assert await closed_by_peer(reader)
        assert handler.calls == []


async def test_a_bomb_is_refused_and_the_connection_stays_open() -> None:
    bomb = messages.serialize(MessageType.CALL, "execute", 9, b"\x0b\x00\x01\x7f\xff\xff\xffabc")
    async with serving() as (server, handler), raw(server) as (reader, writer):
        writer.write(struct.pack(">i", len(bomb)) + bomb + call_frame("echo", "fine"))
        async with asyncio.timeout(GUARD_SECS):
            length = struct.unpack(">i", await reader.readexactly(4))[0]
            data = await reader.readexactly(length)
            envelope = messages.parse(data)
            assert (envelope.type, envelope.sequence_id) == (MessageType.EXCEPTION, 9)
            error = messages.parse_application_error(data, envelope.body)
            assert error.type is ApplicationErrorType.PROTOCOL_ERROR
            assert "2147483647 bytes is claimed where 3 are left" in error.message
            assert await reader.readexactly(4)
        await until(lambda: len(handler.calls) == 1)


async def test_silent_connection_is_closed_after_the_first_byte_timeout() -> None:
    async with serving(first_byte_timeout_secs=0.05) as (server, _), raw(server) as (reader, _w):
        assert await closed_by_peer(reader)


async def test_connection_that_has_called_may_stay_silent() -> None:
    async with serving(first_byte_timeout_secs=0.05) as (server, _), client_of(server) as client:
        await client.call("execute", "echo", "1")
        async with raw(server) as (reader, _):
            assert await closed_by_peer(reader)  # a silent one beside it went
        assert await client.call("execute", "echo", "2") == "2"


async def test_slowloris_is_closed_although_it_keeps_sending() -> None:
    """The timeout is for the whole frame: a byte now and then does not extend it."""
    async with (
        serving(frame_timeout_secs=0.2) as (server, handler),
        raw(server) as (reader, writer),
    ):
        frame = iter(call_frame("echo", "x" * 10_000))
        closed = asyncio.create_task(closed_by_peer(reader))
        started = time.monotonic()
        while not closed.done():
            writer.write(bytes([next(frame)]))
            await asyncio.wait([closed], timeout=0.02)
        assert await closed
        assert 0.15 < time.monotonic() - started < GUARD_SECS
        assert handler.calls == []


async def test_many_idle_and_half_open_connections_do_not_delay_others() -> None:
    async with serving() as (server, _):
        streams = []
        try:
            for index in range(200):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                streams.append(writer)
                if index % 2:
                    writer.write(b"\x00\x00\x10")
            await until(lambda: server.connections == 200)
            async with client_of(server, timeout_secs=2.0) as client:
                for index in range(50):
                    assert await client.call("execute", "echo", str(index)) == str(index)
        finally:
            for writer in streams:
                writer.transport.abort()
            await asyncio.gather(*(w.wait_closed() for w in streams), return_exceptions=True)


async def test_call_that_takes_long_delays_no_other_connection() -> None:
    async with serving() as (server, handler), client_of(server) as one, client_of(server) as two:
        waiting = asyncio.create_task(one.call("execute", "wait", "late"))
        await handler.began.wait()
        assert await two.call("execute", "echo", "early") == "early"
        handler.release.set()
        assert await waiting == "late"


async def test_full_server_closes_the_connection_that_waited_longest() -> None:
    async with (
        serving(connections_max=3) as (server, handler),
        client_of(server) as busy,
        client_of(server) as idle,
        client_of(server) as used,
    ):
        waiting = asyncio.create_task(busy.call("execute", "wait", "done"))
        await handler.began.wait()
        await used.call("execute", "echo", "1")
        async with client_of(server) as newcomer:
            assert await newcomer.call("execute", "echo", "new") == "new"
            with pytest.raises(ThriftTransportError):
                await idle.call("execute", "echo", "x")
            assert await used.call("execute", "echo", "2") == "2"
        handler.release.set()
        assert await waiting == "done"


async def test_server_full_of_calls_closes_the_newcomer() -> None:
    async with serving(connections_max=1) as (server, handler), client_of(server) as busy:
        waiting = asyncio.create_task(busy.call("execute", "wait", "done"))
        await handler.began.wait()
        with pytest.raises(ThriftTransportError):
            async with client_of(server) as newcomer:
                await newcomer.call("execute", "echo", "x")
        handler.release.set()
        assert await waiting == "done"


async def test_peer_that_does_not_read_is_dropped() -> None:
    """Its reply is held no longer than the write timeout."""
    async with serving(write_timeout_secs=0.2) as (server, handler), raw(server) as (_, writer):
        writer.write(call_frame("big", "15000000"))
        await until(lambda: len(handler.calls) == 1)
        await until(lambda: server.connections == 0)


async def test_peer_that_does_not_read_is_not_read_from() -> None:
    async with serving() as (server, handler), raw(server) as (_, writer):
        writer.write(call_frame("big", "15000000") + call_frame("echo", "second"))
        await until(lambda: len(handler.calls) == 1)
        async with client_of(server) as other:  # turns of the loop for the second call to come
            for _ in range(20):
                await other.call("execute", "echo", "x")
        assert sum(call.operation == "execute" for call in handler.calls) == 21


async def test_unread_replies_share_one_bound() -> None:
    async with (
        serving(held_bytes_max=20_000_000) as (server, handler),
        raw(server) as (_, one),
        raw(server) as (_, two),
    ):
        one.write(call_frame("big", "15000000"))
        await until(lambda: len(handler.calls) == 1)
        two.write(call_frame("big", "15000000"))
        await until(lambda: server.connections == 1)
        async with client_of(server) as client:
            assert await client.call("execute", "echo", "fine") == "fine"


def abort_with_reset(writer: asyncio.StreamWriter) -> None:
    """Close with a TCP reset, as a peer that crashed might."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("reset", [False, True])
async def test_a_peer_that_disconnects_during_a_call_does_not_affect_others(
    reset: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as (server, handler):
        async with raw(server) as (_, writer):
            writer.write(call_frame("wait", "x"))
            await handler.began.wait()
            if reset:
                abort_with_reset(writer)
        [connection] = server._connections
        if reset:
            await until(connection.writer.is_closing)
        handler.release.set()
        await until(lambda: server.connections == 0)
        assert "crashed" not in caplog.text
        async with client_of(server) as client:
            assert await client.call("execute", "echo", "fine") == "fine"


async def test_stop_finishes_the_call_in_flight_and_closes_idle_connections() -> None:
    async with (
        serving() as (server, handler),
        client_of(server) as busy,
        client_of(server) as idle,
        raw(server) as (half, w),
    ):
        w.write(b"\x00\x00")
        await idle.call("execute", "echo", "1")
        waiting = asyncio.create_task(busy.call("execute", "wait", "answered"))
        await handler.began.wait()
        stopping = asyncio.create_task(server.stop(grace_secs=GUARD_SECS))
        assert await closed_by_peer(half)
        with pytest.raises(ThriftTransportError):
            await idle.call("execute", "echo", "2")
        with pytest.raises(ThriftTransportError):
            await client_of(server).connect()
        assert not stopping.done()
        handler.release.set()
        assert await waiting == "answered"
        await stopping
        with pytest.raises(ThriftTransportError):
            await busy.call("execute", "echo", "3")


async def test_stop_cancels_calls_after_the_grace() -> None:
    async with serving() as (server, handler), client_of(server) as client:
        waiting = asyncio.create_task(client.call("execute", "wait"))
        await handler.began.wait()
        await server.stop(grace_secs=0.05)
        assert handler.cancelled
        with pytest.raises(ThriftTransportError) as info:
            await waiting
        assert info.value.sent


async def test_stop_during_a_new_connection_leaks_nothing() -> None:
    server = ThriftServer(SERVICE, Rpc())
    await server.start()
    opening = [asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
    streams = await asyncio.gather(*opening)
    await server.stop()
    for reader, writer in streams:
        assert await closed_by_peer(reader)
        writer.transport.abort()
        try:
            await writer.wait_closed()
        except OSError:
            pass


async def test_stop_before_start_and_twice_does_nothing() -> None:
    server = ThriftServer(SERVICE, Rpc())
    await server.stop()
    async with serving() as (server, _):
        await server.stop()
        await server.stop()


async def test_method_without_permission_fails_construction() -> None:
    class Undeclared:
        async def execute(self, call: Call, name: str, args: str) -> str:
            return ""

    with pytest.raises(TypeError, match="execute declares no permission"):
        ThriftServer(SERVICE, Undeclared())


def test_all_faults_of_a_handler_are_listed() -> None:
    class Faulty:
        @permission(PUBLIC)
        async def result(self, call: Call, id: str) -> None: ...

        @permission(PUBLIC)
        def fetchRequest(self, call: Call, functionName: str) -> None: ...

        async def failRequest(self, call: Call, id: str) -> None: ...

    with pytest.raises(TypeError) as info:
        ThriftServer(storm.DistributedRPCInvocations, Faulty())
    assert str(info.value) == (
        "Faulty does not serve DistributedRPCInvocations: "
        "result does not take (call, id, result); fetchRequest is not an async method; "
        "failRequest declares no permission; failRequestV2 is missing"
    )


class Strict:
    """Claims to authenticate; refuses one permission."""

    authenticates = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def authorize(self, call: Call, needed: str) -> None:
        self.asked.append((call.operation, needed))
        raise storm.AuthorizationException(msg=f"{needed} is not for you")


async def test_authorizer_decides_before_the_handler_runs() -> None:
    authorizer = Strict()
    async with serving(authorizer=authorizer) as (server, handler), client_of(server) as client:
        with pytest.raises(storm.AuthorizationException, match="execute is not for you"):
            await client.call("execute", "echo", "x")
        assert authorizer.asked == [("execute", "execute")]
        assert handler.calls == []


async def test_refusal_of_a_method_that_declares_no_such_exception() -> None:
    class Handler:
        def __getattr__(self, name: str) -> Any:
            if name not in storm.Nimbus.methods:
                raise AttributeError(name)

            async def method(*args: Any) -> None:
                raise AssertionError

            return permission(name)(method)

    server = ThriftServer(storm.Nimbus, Handler(), authorizer=Strict())
    await server.start()
    try:
        async with ThriftClient(storm.Nimbus, "127.0.0.1", server.port) as client:
            with pytest.raises(ThriftApplicationError, match="not authorized: getLogConfig is not"):
                await client.call("getLogConfig", "wordcount")
    finally:
        await server.stop()


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::"])
async def test_listening_to_all_without_authentication_is_refused(host: str) -> None:
    server = ThriftServer(SERVICE, Rpc(), host=host)
    with pytest.raises(InsecureListenerError, match=r"storm\.security\.insecure"):
        await server.start()


async def test_loopback_by_name_is_loopback() -> None:
    async with serving(host="localhost") as (server, _), client_of(server) as client:
        assert await client.call("execute", "echo", "x") == "x"


@pytest.mark.parametrize("options", [{"insecure": True}, {"authorizer": Strict()}])
async def test_authentication_or_the_insecure_option_allows_other_addresses(
    options: dict[str, Any],
) -> None:
    # 0.0.0.0 resolved but bound for the moment of this test only
    server = ThriftServer(SERVICE, Rpc(), host="0.0.0.0", **options)
    assert await server._address() == "0.0.0.0"


async def test_port_in_use_is_an_oserror() -> None:
    async with serving() as (server, _):
        with pytest.raises(OSError, match="address already in use"):
            await ThriftServer(SERVICE, Rpc(), port=server.port).start()


# The client


@asynccontextmanager
async def answering(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await server.wait_closed()


def reply_frame(
    *,
    type_: MessageType = MessageType.REPLY,
    name: str = "execute",
    sequence_id: int = 1,
    body: bytes = b"\x0b\x00\x00\x00\x00\x00\x02ok\x00",
) -> bytes:
    message = messages.serialize(type_, name, sequence_id, body)
    return struct.pack(">i", len(message)) + message


@pytest.mark.parametrize(
    ("frame", "type_"),
    [
        (reply_frame(sequence_id=2), ApplicationErrorType.BAD_SEQUENCE_ID),
        (reply_frame(name="other"), ApplicationErrorType.WRONG_METHOD_NAME),
        (reply_frame(type_=MessageType.CALL), ApplicationErrorType.INVALID_MESSAGE_TYPE),
    ],
)
async def test_an_answer_to_another_call_ends_the_connection(
    frame: bytes, type_: ApplicationErrorType
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(frame)
        await writer.drain()
        await reader.read()

    async with answering(answer) as port, ThriftClient(SERVICE, "127.0.0.1", port) as client:
        with pytest.raises(ThriftApplicationError) as info:
            await client.call("execute", "f", "x")
        assert info.value.type is type_
        with pytest.raises(ThriftTransportError, match="the connection is closed") as closed:
            await client.call("execute", "f", "x")
        assert not closed.value.sent


async def test_missing_result_is_an_application_error() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(reply_frame(body=b"\x00"))
        await writer.drain()
        await reader.read()

    async with answering(answer) as port, ThriftClient(SERVICE, "127.0.0.1", port) as client:
        with pytest.raises(ThriftApplicationError) as info:
            await client.call("execute", "f", "x")
        assert info.value.type is ApplicationErrorType.MISSING_RESULT


@pytest.mark.parametrize(
    "frame",
    [
        b"\x7f\xff\xff\xff",
        b"\x00\x00\x00\x04abcd",
        reply_frame(body=b"\x0b\x00\x00\x7f\xff\xff\xff"),
        reply_frame(body=b"\x00\x00"),
        reply_frame()[:-2],
        b"",
    ],
)
async def test_broken_answer_is_a_transport_error(frame: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(frame)
        await writer.drain()
        writer.write_eof()
        await reader.read()

    async with answering(answer) as port, ThriftClient(SERVICE, "127.0.0.1", port) as client:
        with pytest.raises(ThriftTransportError) as info:
            await client.call("execute", "f", "x")
        assert info.value.sent


async def test_a_call_has_its_own_timeout() -> None:
    async with serving() as (server, handler), client_of(server, timeout_secs=0.05) as client:
        with pytest.raises(ThriftTransportError, match=r"did not answer execute within 0\.05 s"):
            await client.call("execute", "wait")
        with pytest.raises(ThriftTransportError, match="closed"):
            await client.call("execute", "echo", "x")
        handler.release.set()
        async with client_of(server, timeout_secs=0.05) as patient:
            handler.release.clear()
            call = asyncio.create_task(
                patient.call("execute", "wait", "long", timeout_secs=GUARD_SECS)
            )
            await asyncio.sleep(0.1)  # longer than the client's own timeout
            handler.release.set()
            assert await call == "long"


async def test_cancelled_call_ends_the_connection() -> None:
    """Otherwise its answer would be taken for that of the next call."""
    async with serving() as (server, handler), client_of(server) as client:
        call = asyncio.create_task(client.call("execute", "wait"))
        await handler.began.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        with pytest.raises(ThriftTransportError, match="closed"):
            await client.call("execute", "echo", "x")


async def test_calls_at_the_same_time_take_turns() -> None:
    async with serving() as (server, _), client_of(server) as client:
        values = [str(i) for i in range(20)]
        calls = (client.call("execute", "echo", value) for value in values)
        assert await asyncio.gather(*calls) == values


async def test_call_that_times_out_in_the_queue_was_not_sent_and_leaves_the_connection() -> None:
    async with serving() as (server, handler), client_of(server) as client:
        first = asyncio.create_task(client.call("execute", "wait", "first"))
        await handler.began.wait()
        with pytest.raises(ThriftTransportError) as info:
            await client.call("execute", "echo", "second", timeout_secs=0.02)
        assert not info.value.sent
        handler.release.set()
        assert await first == "first"
        assert await client.call("execute", "echo", "third") == "third"


async def test_call_after_the_peer_closed_was_not_sent() -> None:
    """So the caller may repeat it elsewhere."""
    async with serving() as (server, _):
        client = client_of(server)
        await client.connect()
        await client.call("execute", "echo", "x")
        await server.stop()
        assert client._streams is not None
        await until(client._streams[0].at_eof)
        with pytest.raises(ThriftTransportError, match="the peer has closed") as info:
            await client.call("execute", "echo", "x")
        assert not info.value.sent


async def test_a_client_that_is_closed_while_it_connects_stays_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It also connects in the middle of a call, when its credentials have changed."""
    opened, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any, **options: Any) -> Any:
        streams = await open_proved(*args, **options)
        opened.set()
        await go_on.wait()
        return streams

    monkeypatch.setattr("squall_thrift.client.open_proved", slowly)
    async with serving() as (server, _):
        client = client_of(server)
        connecting = asyncio.create_task(client.connect())
        await opened.wait()
        await client.close()
        go_on.set()
        with pytest.raises(ThriftTransportError, match="the connection is closed"):
            await connecting
        await until(lambda: server.connections == 0)
        with pytest.raises(ThriftTransportError, match="the connection is closed"):
            await client.call("execute", "echo", "x")


async def test_a_port_without_a_listener_is_a_transport_error() -> None:
    async with serving() as (server, _):
        port = server.port
    with pytest.raises(ThriftTransportError, match=f"127.0.0.1:{port}: cannot connect") as info:
        async with ThriftClient(SERVICE, "127.0.0.1", port):
            pass
    assert not info.value.sent


async def test_mistakes_of_the_caller_are_type_errors() -> None:
    async with serving() as (server, _), client_of(server) as client:
        with pytest.raises(TypeError, match="DistributedRPC has no method 'getLeader'"):
            await client.call("getLeader")
        with pytest.raises(TypeError, match="execute takes 2 arguments, not 3"):
            await client.call("execute", "a", "b", "c")
        with pytest.raises(
            codec.EncodeError, match=r"execute_args\.funcArgs: 17 \(int\) should be str"
        ):
            await client.call("execute", "a", 17)
        assert await client.call("execute", "echo", "still open") == "still open"


# Fairness and limits


async def test_a_method_has_its_own_limit_and_the_connection_stays_open() -> None:
    limits = FrameLimits(otherwise=1_000, by_method={"other": 100_000})
    async with serving(limits=limits) as (server, handler), client_of(server) as client:
        with pytest.raises(ThriftApplicationError) as info:
            await client.call("execute", "echo", "x" * 50_000)
        assert "a call of execute has at most 1000 bytes; this one has 50" in str(info.value)
        assert handler.calls == []
        assert await client.call("execute", "echo", "x") == "x"
    limits = FrameLimits(otherwise=1_000, by_method={"execute": 100_000})
    async with serving(limits=limits) as (server, _), client_of(server) as client:
        assert await client.call("execute", "echo", "x" * 50_000) == "x" * 50_000


@pytest.mark.parametrize("length", [70_000, 1_000_000])
async def test_a_caller_that_hangs_up_ends_its_call(length: int) -> None:
    async with serving(cancelled_on_hang_up={"execute"}) as (server, handler):
        async with raw(server) as (_, writer):
            writer.write(call_frame("wait", "x" * length))
            async with asyncio.timeout(GUARD_SECS):
                await handler.began.wait()
        await until(lambda: handler.cancelled)
        await until(lambda: server.connections == 0)


async def test_a_call_with_effects_is_carried_out_even_if_its_caller_is_gone() -> None:
    async with serving() as (server, handler):
        async with raw(server) as (_, writer):
            writer.write(call_frame("wait", "x"))
            await handler.began.wait()
        await asyncio.sleep(0.02)  # for a cancellation that must not come
        handler.release.set()
        await until(lambda: server.connections == 0)
        assert not handler.cancelled


async def test_calls_sent_ahead_are_served_after_a_long_one() -> None:
    async with serving(cancelled_on_hang_up={"execute"}) as (server, handler):
        async with raw(server) as (reader, writer):
            writer.write(call_frame("wait", "1"))
            await handler.began.wait()
            for number in range(40):  # more than a stream takes in ahead
                writer.write(call_frame("echo", "x" * 10_000, sequence_id=number))
            handler.release.set()
            async with asyncio.timeout(GUARD_SECS):
                for _ in range(41):
                    length = struct.unpack(">i", await reader.readexactly(4))[0]
                    await reader.readexactly(length)
        await until(lambda: len(handler.calls) == 41)


async def test_bytes_sent_ahead_of_a_reply_count_as_held() -> None:
    async with (
        serving(held_bytes_max=50_000) as (server, handler),
        raw(server) as (reader, writer),
    ):
        writer.write(call_frame("wait", "1"))
        await handler.began.wait()
        writer.write(call_frame("echo", "x" * 60_000))
        assert await closed_by_peer(reader)


async def test_a_good_client_is_answered_despite_many_that_send_large_frames() -> None:
    """They are served in turns; the good client's small call waits for none of theirs."""
    async with serving() as (server, handler):
        stop = asyncio.Event()

        async def greedy() -> None:
            async with client_of(server) as client:
                while not stop.is_set():
                    await client.call("execute", "echo", "x" * 200_000)

        others = [asyncio.create_task(greedy()) for _ in range(16)]
        await until(lambda: len(handler.calls) > 16)
        async with client_of(server) as client:
            for _ in range(10):
                before = len(handler.calls)
                await client.call("execute", "echo", "x")
                # Those that were read already may come first, and each connection once more.
                assert len(handler.calls) - before <= 2 * len(others) + 1
        stop.set()
        await asyncio.gather(*others)
