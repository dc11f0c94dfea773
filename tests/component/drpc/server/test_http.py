"""DRPC over HTTP, spoken to in bytes."""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.component.drpc.conftest import Serve, until

from squall_common.daemon.web import Route, WebServer
from squall_common.errors import SquallError
from squall_drpc.server.daemon import DrpcServer

LONG_SECS = 30.0


async def ask(
    server: DrpcServer, line: str, body: bytes = b"", *headers: str, host: str = "127.0.0.1"
) -> tuple[int, dict[str, str], str]:
    """One request on a connection of its own: status, headers, body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.http.port)
    lines = [f"{line} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        async with asyncio.timeout(LONG_SECS):
            answer = (await reader.read()).decode()
    finally:
        writer.close()
    head, _, text = answer.partition("\r\n\r\n")
    status, *rest = head.split("\r\n")
    found = dict(h.split(": ", 1) for h in rest)
    return int(status.split()[1]), found, text


async def answer_with(server: DrpcServer, function: str) -> str:
    """Answer one request of a function with its arguments, in brackets; return these."""
    async with asyncio.timeout(LONG_SECS):
        while not (batch := await server.broker.fetch(function, 1, 1.0)).requests:
            pass
    [request] = batch.requests
    server.broker.settle(request.id, f"<{request.args}>")
    return request.args


async def test_a_body_that_cannot_be_decoded_is_the_clients_fault(serve: Serve) -> None:
    async with serve() as server:
        status, _, text = await ask(
            server, "POST /drpc/f", b"\xff\x00no gzip", "Content-Encoding: gzip"
        )
    assert status == 400
    assert "body" in json.loads(text)["errorMessage"]


async def test_an_unknown_expectation_is_refused_on_every_path(serve: Serve) -> None:
    """aiohttp repeats it in its answer, and fails when its bytes are not text."""
    async with serve() as server:
        for path in ("/drpc/f", "/nothing/here"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.http.port)
            writer.write(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode())
            writer.write(b"Expect: 100\x96\xd5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
            async with asyncio.timeout(LONG_SECS):
                answer = await reader.read()
            writer.close()
            assert answer.startswith(b"HTTP/1.1 417 "), answer
            assert b"frame-ancestors 'none'" in answer


@pytest.mark.parametrize(
    ("line", "body", "args"),
    [
        ("POST /drpc/f", "größer".encode(), "größer"),
        ("GET /drpc/f/a%20b", b"", "a b"),
        ("GET /drpc/f/http://x/y", b"", "http://x/y"),
        ("GET /drpc/f", b"", ""),
        ("GET /drpc/f/", b"", ""),
    ],
)
async def test_storms_paths(serve: Serve, line: str, body: bytes, args: str) -> None:
    async with serve() as server:
        (status, headers, text), seen = await asyncio.gather(
            ask(server, line, body), answer_with(server, "f")
        )
        assert (status, text, seen) == (200, f"<{args}>", args)
        # A result that looks like a page is none.
        assert headers["Content-Type"].startswith("text/plain")
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_failures_have_storms_status(serve: Serve) -> None:
    async with serve(**{"drpc.request.timeout.secs": 0.1}) as server:
        status, headers, text = await ask(server, "GET /drpc/nobody/x")
        assert status == 504
        assert json.loads(text)["error"] == "SERVER_TIMEOUT"
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_full_queue_is_503(serve: Serve) -> None:
    async with serve(**{"drpc.requests.max": 1}) as server:
        first = asyncio.create_task(ask(server, "GET /drpc/f/1"))
        await until(lambda: server.broker.under_way)
        status, _, text = await ask(server, "GET /drpc/f/2")
        assert (status, json.loads(text)["error"]) == (503, "BUSY")
        await answer_with(server, "f")
        assert (await first)[0] == 200


@pytest.mark.parametrize(
    ("line", "body", "headers", "status"),
    [
        ("POST /drpc/f", b"x" * 2048, (), 413),
        ("POST /drpc/f", b"\xff\xfe", (), 400),
        ("DELETE /drpc/f", b"", (), 405),
        ("GET /nothing", b"", (), 404),
        ("GET /drpc/f/x", b"", ("Sec-Fetch-Site: cross-site",), 403),
        ("GET /drpc/" + "f" * 600, b"", (), 400),
    ],
)
async def test_bad_requests_are_refused(
    serve: Serve, line: str, body: bytes, headers: tuple[str, ...], status: int
) -> None:
    async with serve(**{"drpc.max_buffer_size": 1024}) as server:
        answer = await ask(server, line, body, *headers)
        assert answer[0] == status
        assert json.loads(answer[2]).keys() == {"error", "errorMessage"}
        assert server.broker.under_way == 0


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 421),
        ("evil.example:3774", 421),
        ("1.2.3.4", 421),
        ("localhost:3774", 404),
        ("127.0.0.1:3774", 404),
        ("[::1]", 404),
        ("drpc1:3774", 404),
        ("DRPC1", 404),
    ],
)
async def test_a_host_that_is_not_ours_is_refused(serve: Serve, host: str, status: int) -> None:
    async with serve(**{"drpc.servers": ["drpc1"]}) as server:
        assert (await ask(server, "GET /x", host=host))[0] == status
    async with serve(**{"storm.http.hosts": ["*"]}) as server:
        assert (await ask(server, "GET /x", host=host))[0] == 404


@pytest.mark.parametrize(
    "headers",
    [
        ("Origin: https://evil.example",),
        ("Origin: http://127.0.0.1:8080",),  # another port is another site's page
        ("Origin: null",),
        ("Origin: https://evil.example", "Sec-Fetch-Site: none"),
        ("Sec-Fetch-Site: same-site",),
    ],
)
@pytest.mark.parametrize("line", ["POST /drpc/f", "GET /drpc/f/x"])
async def test_a_page_of_another_site_cannot_call_a_function(
    serve: Serve, line: str, headers: tuple[str, ...]
) -> None:
    async with serve() as server:
        status, _, text = await ask(server, line, b"", *headers)
        assert (status, json.loads(text)["error"]) == (403, "Forbidden")
        assert server.broker.under_way == 0


async def test_an_image_of_a_page_cannot_call_a_function(serve: Serve) -> None:
    """Browsers send neither Origin nor Sec-Fetch-Site for it, over plain http off loopback."""
    async with serve() as server:
        answer = await ask(server, "GET /drpc/f/x", b"", "User-Agent: Mozilla/5.0 (X11) Firefox")
        assert answer[0] == 403
        assert "use POST" in answer[2]


@pytest.mark.parametrize(
    "headers",
    [
        ("User-Agent: curl/8.5.0",),
        ("User-Agent: Mozilla/5.0 (X11) Firefox", "Sec-Fetch-Site: none"),  # typed in
        ("Origin: http://127.0.0.1",),  # a page of ours
    ],
)
async def test_programs_and_our_own_pages_can_call_functions(
    serve: Serve, headers: tuple[str, ...]
) -> None:
    async with serve() as server:
        (status, _, text), _ = await asyncio.gather(
            ask(server, "GET /drpc/f/x", b"", *headers), answer_with(server, "f")
        )
        assert (status, text) == (200, "<x>")


async def test_a_caller_that_hangs_up_is_not_answered(serve: Serve) -> None:
    async with serve() as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.http.port)
        writer.write(b"GET /drpc/f/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(LONG_SECS):
            await until(lambda: server.broker.under_way)
            writer.close()
            await until(lambda: not server.broker.under_way)


async def test_a_connection_with_an_incomplete_head_is_closed() -> None:
    server = WebServer([], name="test", idle_timeout_secs=0.2)
    await server.start()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\nHost: ")
        async with asyncio.timeout(LONG_SECS):
            await reader.read()
        writer.close()
    finally:
        await server.stop()


async def test_connections_are_bounded() -> None:
    server = WebServer([], name="test", connections_max=2)
    await server.start()
    held = []
    try:
        for _ in range(2):
            held.append(await asyncio.open_connection("127.0.0.1", server.port))
            await until(lambda: len(server._runner.server.connections) == len(held))  # type: ignore[union-attr]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        async with asyncio.timeout(LONG_SECS):
            try:
                assert await reader.read() == b""
            except ConnectionResetError:
                pass
        writer.close()
    finally:
        for _, writer in held:
            writer.close()
        await server.stop()


async def test_a_listener_elsewhere_without_authentication_does_not_start() -> None:
    with pytest.raises(SquallError, match="without authentication"):
        await WebServer([], name="test", host="0.0.0.0").start()


def test_a_route_without_a_permission_is_refused() -> None:
    async def handle(request: object) -> object: ...

    with pytest.raises(TypeError, match="no permission is declared for GET /x"):
        WebServer([Route("GET", "/x", handle, permission="")], name="test")  # type: ignore[arg-type]
