"""An HTTP listener for daemons: aiohttp, with what every one of ours needs around it.

    routes = [Route("GET", "/drpc/{function}", handler, permission="execute")]
    server = WebServer(routes, host="127.0.0.1", port=3774, name="drpc")
    await server.start()

- Every route declares its permission, or construction fails; the authorizer that the Thrift servers
  use is asked before a handler runs.
- It listens on loopback unless there is authentication or the configuration says that everyone in
  the network may do everything.
- A request's head and body are bounded in bytes and in time, connections in number: a peer that is
  slow, silent or hostile is hung up on.
- Every answer, errors too, carries headers that keep browsers from guessing types, framing and
  caching.
- A request that may come from a web page elsewhere is refused, on loopback and off it, over http
  and https (`web_origin`): a foreign `Host` with 421, a foreign `Origin` and the like with 403.

An error is `{"error": ..., "errorMessage": ...}`, as in Storm's REST API.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from aiohttp import web

from squall_common.daemon import fast_json
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.security.actions import require_declared
from squall_common.security.web_origin import host_error, page_error
from squall_thrift import storm
from squall_thrift.serving.authorization import Authorizer, Call, OpenAuthorizer

log = get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Server": "squall",
}


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a path of aiohttp's (`/drpc/{function}`), its handler, and the permission that it
    needs. A browser may come to it from another site's page only if `cross_site`."""

    method: str
    path: str
    handler: Handler
    permission: str
    cross_site: bool = False


class HttpError(Exception):
    """An answer that is an error: a status, Storm's short word for it, and a text for people."""

    def __init__(self, status: int, error: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.message = message


def error_response(status: int, error: str, message: str) -> web.Response:
    """An error as JSON."""
    body = fast_json.dumps({"error": error, "errorMessage": message})
    return web.Response(status=status, text=body.decode(), content_type="application/json")


class WebServer:
    """Serves some routes. Construction raises TypeError for a route without a permission that
    `squall_common.security.actions` knows; `start`
    raises SquallError when it cannot or must not listen there."""

    def __init__(
        self,
        routes: Sequence[Route],
        *,
        name: str,
        host: str = "127.0.0.1",
        port: int = 0,
        body_bytes_max: int = 1_048_576,
        idle_timeout_secs: float = 30.0,
        body_timeout_secs: float = 30.0,
        stop_grace_secs: float = 5.0,
        connections_max: int = 1024,
        authorizer: Authorizer | None = None,
        insecure: bool = False,
        hosts: Collection[str] = (),
    ) -> None:
        """`idle_timeout_secs` is how long a connection may be without a whole request's head."""
        undeclared = [f"{route.method} {route.path}" for route in routes if not route.permission]
        if undeclared:
            raise TypeError(f"{name}: no permission is declared for {', '.join(undeclared)}")
        require_declared(route.permission for route in routes)
        self._name = name
        self._host = host
        self._port = port
        self._authorizer = OpenAuthorizer() if authorizer is None else authorizer
        self._insecure = insecure
        self._hosts = {known.lower() for known in hosts}
        self._body_timeout_secs = body_timeout_secs
        self._body_bytes_max = body_bytes_max
        self._connections_max = connections_max
        app = web.Application(middlewares=[self._answer], client_max_size=body_bytes_max)
        app.on_response_prepare.append(_add_headers)
        for route in routes:
            app.router.add_route(route.method, route.path, self._guarded(route))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            # A caller that has hung up needs no answer.
            handler_cancellation=True,
            # Counts from the connection on, and ends one that sends its head too slowly, too.
            keepalive_timeout=idle_timeout_secs,
            shutdown_timeout=stop_grace_secs,
        )
        self._listener: asyncio.Server | None = None

    @property
    def host(self) -> str:
        """The address or name that it listens on."""
        return self._host

    @property
    def port(self) -> int:
        """The port that is listened on; before `start`, the one that was asked for."""
        return self._port

    async def start(self) -> None:
        """Listen on the host's address and the port (0: any free one)."""
        loop = asyncio.get_running_loop()
        address = await self._address()
        await self._runner.setup()
        try:
            self._listener = await loop.create_server(
                self._connect, address, self._port, backlog=512
            )
        except OSError as error:
            await self._runner.cleanup()
            raise SquallError(
                f"{self._name}: cannot listen on {address}:{self._port}: {error.strerror or error}"
            ) from error
        self._port = int(self._listener.sockets[0].getsockname()[1])
        log.info("http_server_started", server=self._name, address=address, port=self._port)

    async def stop(self) -> None:
        """Accept nothing more; requests under way finish within the grace. Idempotent."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            await self._runner.cleanup()

    async def read_text(self, request: web.Request) -> str:
        """The body as text. Raises HttpError: too large, too slow, not UTF-8."""
        # Not by request.read(), which keeps the bytes as long as the request is under way.
        body = bytearray()
        try:
            async with asyncio.timeout(self._body_timeout_secs):
                async for piece in request.content.iter_any():
                    body += piece
                    if len(body) > self._body_bytes_max:
                        raise HttpError(
                            413,
                            "Request Entity Too Large",
                            f"the body has more than {self._body_bytes_max} bytes",
                        )
        except TimeoutError:
            raise HttpError(408, "Request Timeout", "the body took too long") from None
        try:
            return body.decode()
        except UnicodeDecodeError:
            raise HttpError(400, "Bad Request", "the body is not valid UTF-8") from None

    async def _address(self) -> str:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except OSError as error:
            raise SquallError(f"{self._name}: no such host {self._host!r}: {error}") from error
        found.sort(key=lambda info: info[0] != socket.AF_INET)
        address = str(found[0][4][0])
        loopback = ipaddress.ip_address(address).is_loopback
        if not (loopback or self._authorizer.authenticates or self._insecure):
            raise SquallError(
                f"{self._name} would serve HTTP on {address} without authentication",
                hint="Listen on 127.0.0.1, or set storm.security.insecure to true if everyone in "
                "that network may do everything.",
            )
        return address

    def _connect(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None or len(server.connections) >= self._connections_max:
            log.warning("http_connections_full", server=self._name, most=self._connections_max)
            return _Refusal()
        return server()

    def _guarded(self, route: Route) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            why = None if route.cross_site else page_error(request.method, request.headers)
            if why is not None:
                raise HttpError(403, "Forbidden", why)
            peer = request.transport.get_extra_info("peername") if request.transport else None
            where = f"{peer[0]}:{peer[1]}" if peer else "unknown"
            try:
                self._authorizer.authorize(
                    Call(f"{route.method} {route.path}", where), route.permission
                )
            except storm.AuthorizationException as error:
                raise HttpError(403, "Forbidden", str(error.msg)) from error
            return await route.handler(request)

        return handle

    @web.middleware
    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        local = request.transport.get_extra_info("sockname") if request.transport else None
        why = host_error(request.host, self._hosts, str(local[0]) if local else "")
        if why is not None:
            return error_response(421, "Misdirected Request", why)
        try:
            return await handler(request)
        except HttpError as error:
            return error_response(error.status, error.error, error.message)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            response = error_response(error.status, error.reason, error.text or error.reason)
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response
        except ConnectionError:
            raise
        except Exception as error:
            log.error("http_request_failed", server=self._name, path=request.path, exc_info=error)
            return error_response(
                500, "Internal Server Error", f"internal error: {type(error).__name__}"
            )


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Just before the head is sent: of a streamed answer that is before its handler has ended."""
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)


class _Refusal(asyncio.Protocol):
    """For a connection too many: hang up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
