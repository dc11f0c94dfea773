"""HTTP requests: what whoever reaches a daemon's page may send before it has proved anything.

A connection gets answers that are HTTP and no 500, or is closed; no handler raises; and after it a
good client is served.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

from aiohttp import web

from squall_common.daemon.web import Route, WebServer
from squall_common.security.actions import ACTIONS

GROWTH_BYTES_MAX = 16 * 1024 * 1024
_GOOD = b"GET /good HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_SILENT_SECS = 0.01  # an answer takes a hundredth of that
_ANSWER = re.compile(rb"HTTP/\d\.\d (\d\d\d) ")


class _Site:
    """A daemon's web server on a loop of its own, for all inputs."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.raised: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.raised.append(context))
        permission = "getClusterInfo"
        assert permission in ACTIONS
        self.server = WebServer(
            [
                Route("GET", "/good", self._good, permission),
                Route("POST", "/echo/{name}", self._echo, permission),
            ],
            name="fuzzed",
            body_bytes_max=4_096,
            idle_timeout_secs=0.5,
            body_timeout_secs=0.5,
        )
        self.loop.run_until_complete(self.server.start())

    async def _good(self, request: web.Request) -> web.Response:
        return web.Response(text="good")

    async def _echo(self, request: web.Request) -> web.Response:
        body = await request.read()
        return web.Response(body=body, content_type="application/octet-stream")

    async def send(self, data: bytes, silent_secs: float) -> bytes:
        """What is answered to these bytes, until nothing more comes for so long."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        answer = b""
        try:
            writer.write(data)
            while True:
                async with asyncio.timeout(silent_secs):
                    piece = await reader.read(65_536)
                if not piece:
                    return answer
                answer += piece
        except (ConnectionError, TimeoutError):
            return answer
        finally:
            writer.close()

    def check(self, data: bytes) -> str:
        answer = self.loop.run_until_complete(self.send(data, _SILENT_SECS))
        good = self.loop.run_until_complete(self.send(_GOOD, 60))
        assert good.endswith(b"good"), good
        assert not self.raised, self.raised
        statuses = _ANSWER.findall(answer)
        assert not answer or statuses, answer
        assert not any(status.startswith(b"5") and status != b"501" for status in statuses), answer
        return b" ".join(statuses[:2]).decode()


_site: _Site | None = None


def check(data: bytes) -> str:
    global _site
    if _site is None:
        _site = _Site()
    return _site.check(data)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Requests, well and badly made."""
    host = b"Host: localhost\r\n"
    yield "good", _GOOD
    yield "two", b"GET /good HTTP/1.1\r\n" + host + b"\r\n" + _GOOD
    yield "unknown", b"GET /none?a=%00&b=%zz HTTP/1.1\r\n" + host + b"\r\n"
    yield "post", b"POST /echo/x HTTP/1.1\r\n" + host + b"Content-Length: 5\r\n\r\nhello"
    chunks = b"5\r\nhello\r\n0\r\n\r\n"
    yield (
        "chunked",
        b"POST /echo/x HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
    )
    both = b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
    yield "smuggled", b"POST /echo/x HTTP/1.1\r\n" + host + both + chunks
    yield "large", b"POST /echo/x HTTP/1.1\r\n" + host + b"Content-Length: 99999999999\r\n\r\n"
    yield "negative", b"POST /echo/x HTTP/1.1\r\n" + host + b"Content-Length: -1\r\n\r\n"
    yield (
        "gzip",
        b"POST /echo/x HTTP/1.1\r\n"
        + host
        + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08",
    )
    yield "foreign-host", b"GET /good HTTP/1.1\r\nHost: evil.example\r\n\r\n"
    yield (
        "foreign-origin",
        b"POST /echo/x HTTP/1.1\r\n"
        + host
        + b"Origin: https://evil.example\r\nContent-Length: 0\r\n\r\n",
    )
    yield "no-host", b"GET /good HTTP/1.1\r\n\r\n"
    yield (
        "upgrade",
        b"GET /good HTTP/1.1\r\n" + host + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    )
    yield (
        "expect",
        b"POST /echo/x HTTP/1.1\r\n"
        + host
        + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nab",
    )
    yield "old", b"GET /good HTTP/1.0\r\n\r\n"
    yield "absolute", b"GET http://localhost/good HTTP/1.1\r\n" + host + b"\r\n"
    yield "dots", b"GET /../../etc/passwd HTTP/1.1\r\n" + host + b"\r\n"
    yield "thrift", b"\x00\x00\x00\x15\x80\x01\x00\x01\x00\x00\x00\x09getLeader"
    yield "tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
