"""Requests over HTTP, passed on to the UI over TLS with the user's token.

What a browser may send for a page of another site is refused, as the UI itself does: here the
listener's user is known without a cookie, so that any page could use it.
"""

from __future__ import annotations

import asyncio

import aiohttp
from aiohttp import web

from squall_cli.proxy.owner import is_own
from squall_common.authentication.credentials import ClientCredentials
from squall_common.daemon.logs import get_logger
from squall_common.daemon.web import HttpError, Route, WebServer, body_in_time
from squall_thrift.serving.authentication import RefusedError
from squall_thrift.serving.authorization import PUBLIC

log = get_logger(__name__)

_BODY_BYTES_MAX = 16 * 1024 * 1024
_CONNECT_SECS = 10.0
# Of a request and of an answer: what belongs to one connection, says who asks, or was undone.
_NOT_PASSED = frozenset(
    {
        "authorization",
        "connection",
        "content-encoding",
        "content-length",
        "cookie",
        "doasuser",
        "host",
        "keep-alive",
        "origin",
        "proxy-authorization",
        "referer",
        "server",
        "set-cookie",
        "strict-transport-security",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "www-authenticate",
    }
)


class WebProxy:
    """One port, for the UI at `base` (`https://ui.example.org:8080`)."""

    def __init__(self, base: str, port: int, credentials: ClientCredentials) -> None:
        self._base = base
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None
        self._server = WebServer(
            [
                # The UI decides about each of its routes.
                Route(method, "/{path:.*}", self._pass_on, PUBLIC)
                for method in ("GET", "POST", "PUT", "DELETE")
            ],
            name="proxy",
            host="127.0.0.1",
            port=port,
            body_bytes_max=_BODY_BYTES_MAX,
            stop_grace_secs=1.0,
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    @property
    def routes(self) -> tuple[Route, ...]:
        """What it passes on."""
        return self._server.routes

    async def start(self) -> None:
        """Listen. Raises SquallError."""
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECS),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        try:
            await self._server.start()
        except BaseException:
            await self._session.close()
            raise

    async def stop(self) -> None:
        """Close everything."""
        await self._server.stop()
        if self._session is not None:
            await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has hung up")
        peer, local = (transport.get_extra_info(one)[:2] for one in ("peername", "sockname"))
        if not await asyncio.to_thread(is_own, peer, local):
            log.warning("proxy_stranger_refused", to=self._base, peer=f"{peer[0]}:{peer[1]}")
            raise HttpError(403, "Forbidden", "this proxy is for the user who has started it")
        async with body_in_time():
            body = await request.read()
        assert self._session is not None
        try:
            headers = {
                name: value
                for name, value in request.headers.items()
                if name.lower() not in _NOT_PASSED and not name.lower().startswith("sec-")
            }
            headers |= self._credentials.http_headers()
            async with self._session.request(
                request.method,
                self._base + request.raw_path,
                data=body or None,
                headers=headers,
                allow_redirects=False,
                ssl=self._credentials.checked_context,
            ) as answer:
                return await _passed_back(request, answer)
        except RefusedError as error:
            raise HttpError(401, "Unauthorized", str(error)) from error
        except aiohttp.ClientError as error:
            raise HttpError(502, "Bad Gateway", f"the UI at {self._base}: {error}") from error


async def _passed_back(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """The answer, piece by piece: a stream of events does not end by itself."""
    response = web.StreamResponse(status=answer.status, reason=answer.reason)
    for name, value in answer.headers.items():
        if name.lower() not in _NOT_PASSED:
            response.headers[name] = value
    await response.prepare(request)
    async for piece in answer.content.iter_any():
        await response.write(piece)
    await response.write_eof()
    return response
