"""The end of a connection to a NATS server that fails in ways of which a real one is hard to
persuade: nothing of it may be left, and no error of the client's own tasks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from nats.errors import ConnectionClosedError

from squall_connectors.nats import connection as connections

INFO = {"server_id": "fake", "version": "2.9.0", "max_payload": 100_000_000, "headers": True}
STALLED_BYTES = 30_000_000  # more than the buffers of two sockets

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def connected(serve: Serve) -> AsyncIterator[Any]:
    """A connection to a server that answers the first ping, and then does as `serve` says."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO " + json.dumps(INFO).encode() + b"\r\n")
        while not (await reader.readline()).startswith(b"PING"):
            pass
        writer.write(b"PONG\r\n")
        try:
            await serve(reader, writer)
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield await connections.connect("X", f"nats://127.0.0.1:{port}", {}, {}, None)


def reset(writer: asyncio.StreamWriter) -> None:
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


def leave(writer: asyncio.StreamWriter) -> None:
    writer.close()


def complain(writer: asyncio.StreamWriter) -> None:
    writer.write(b"-ERR 'Unknown Protocol Operation'\r\n")
    writer.close()


@pytest.mark.parametrize("fail", [reset, leave, complain])
async def test_a_server_that_goes_leaves_no_error_of_a_task(
    fail: Callable[[asyncio.StreamWriter], None],
) -> None:
    left: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: left.append(context))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await goes.wait()
        fail(writer)
        while await reader.read(1_000_000):
            pass

    # Which of the client's tasks notices it, and with what left to send, depends on the turn.
    for turns in range(12):
        goes = asyncio.Event()
        async with connected(serve) as connection:
            await connection.publish("a", b"x" * 100_000)
            goes.set()
            for _ in range(turns):
                await asyncio.sleep(0)
            with contextlib.suppress(Exception):
                await connection.publish("a", b"x" * 100_000)
                await connection.flush(0.1)
            await connections.end(connection)
            assert not [task for task in asyncio.all_tasks() if "Client." in repr(task)]
        del connection
        gc.collect()
    assert [str(context) for context in left] == []


async def test_a_server_that_goes_ends_what_waits_for_it() -> None:
    """A request, a publication of more than the client keeps, and a flush: the client waits for the
    answer to the first as long as it may take, and for the second, after the end, without limit."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await goes.wait()
        reset(writer)

    goes = asyncio.Event()
    async with connected(serve) as connection:
        calls = [
            asyncio.create_task(call)
            for call in (
                *(connection.request("a", b"", timeout=60) for _ in range(3)),
                *(connection.request("a", b"x" * 900_000, timeout=60) for _ in range(8)),
                connection.flush(60),
            )
        ]
        await asyncio.wait(calls, timeout=0.1)
        goes.set()
        done, left = await asyncio.wait(calls, timeout=10)
        await connections.end(connection)
        assert not left
        assert {type(call.exception()) for call in done} == {ConnectionClosedError}


async def test_what_is_flushed_to_a_server_that_stands_still_can_be_cancelled() -> None:
    goes_on = asyncio.Event()

    async def stand_still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await goes_on.wait()

    async with connected(stand_still) as connection:
        for _ in range(2):  # the second is kept until the first is gone
            publishing = asyncio.create_task(connection.request("a", b"x" * STALLED_BYTES, 60))
            await asyncio.wait([publishing], timeout=0.2)
            publishing.cancel()
            await asyncio.wait([publishing], timeout=10)
            assert publishing.cancelled()
        await connections.end(connection)
        goes_on.set()


async def test_the_socket_to_a_server_that_stands_still_is_closed() -> None:
    goes_on = asyncio.Event()
    received = asyncio.get_running_loop().create_future()

    async def stand_still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transport: Any = writer.transport
        transport.pause_reading()
        await goes_on.wait()
        transport.resume_reading()
        total = 0
        with contextlib.suppress(ConnectionResetError):
            while data := await reader.read(1_000_000):
                total += len(data)
        received.set_result(total)

    async with connected(stand_still) as connection:
        publishing = asyncio.create_task(connection.publish("a", b"x" * STALLED_BYTES))
        await asyncio.wait([publishing], timeout=0.2)
        await connections.end(connection)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        goes_on.set()
        assert await asyncio.wait_for(received, 20) < STALLED_BYTES
