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
- With an `authenticator` it speaks TLS, and each request proves who asks. Without a proof it gets
  401, except from routes that are PUBLIC. A request that is under way ends when its proof does.
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
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import web

from squall_common.daemon import fast_json
from squall_common.daemon.logs import get_logger
from squall_common.daemon.tls_listener import TlsListener
from squall_common.errors import SquallError
from squall_common.security.actions import require_declared
from squall_common.security.web_origin import host_error, page_error
from squall_thrift import storm
from squall_thrift.serving.authentication import Identity, RefusedError
from squall_thrift.serving.authorization import PUBLIC, Authorizer, Call, OpenAuthorizer
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
# A request is handled in one task.
_CALL: ContextVar[Call] = ContextVar("call")
_LOOK_SECS = 2.0  # between looks at whether the proofs of requests under way still count
_FIELD_BYTES_MAX = 17_408  # of a header: a token of 16,384, and what it is
# Of the connections, the part that one address may have before it has proved who it is.
_STRANGERS_SHARE = 4
BODY_SECS = 30.0  # for a request's body


class WebAuthenticator(Protocol):
    """Knows who asks."""

    @property
    def context(self) -> ssl.SSLContext:
        """What the server's side of TLS goes by."""
        ...

    async def identify(
        self, request: web.Request, certificate: bytes | None, peer: str
    ) -> Identity | None:
        """Who asks; None if the request has no proof. Raises RefusedError for a proof that does not
        count. `certificate` is the one that the connection showed (DER), which TLS has verified."""
        ...

    def ended(self, identity: Identity) -> str | None:
        """Why a proof counts no longer, or None."""
        ...

    def refused(self, peer: str, reason: str) -> None:
        """Note that a peer was refused."""
        ...


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a path of aiohttp's (`/drpc/{function}`), its handler, and the permission that it
    needs. A browser may come to it from another site's page only if `cross_site`."""

    method: str
    path: str
    handler: Handler
    permission: str
    cross_site: bool = False


def call_of(request: web.Request) -> Call:
    """The call that a request is while its handler runs, with who makes it."""
    return _CALL.get()


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


@asynccontextmanager
async def body_in_time(secs: float | None = None) -> AsyncIterator[None]:
    """For a handler that reads a body by itself. Raises HttpError if that takes longer than `secs`,
    or `BODY_SECS`."""
    try:
        async with asyncio.timeout(BODY_SECS if secs is None else secs):
            yield
    except TimeoutError:
        raise HttpError(408, "Request Timeout", "the body took too long") from None


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
        body_timeout_secs: float = BODY_SECS,
        stop_grace_secs: float = 5.0,
        connections_max: int = 1024,
        authorizer: Authorizer | None = None,
        authenticator: WebAuthenticator | None = None,
        insecure: bool = False,
        hosts: Collection[str] = (),
        observe: Callable[[str, int], None] | None = None,
    ) -> None:
        """`idle_timeout_secs` is how long a connection may be without a whole request's head.
        `observe` is called with the route ("GET /drpc/{function}"; "other" for what has none) and
        the status of each answer, when it begins."""
        undeclared = [f"{route.method} {route.path}" for route in routes if not route.permission]
        if undeclared:
            raise TypeError(f"{name}: no permission is declared for {', '.join(undeclared)}")
        require_declared(route.permission for route in routes)
        self.routes = tuple(routes)  # as they were declared
        self._name = name
        self._host = host
        self._port = port
        self._authorizer = OpenAuthorizer() if authorizer is None else authorizer
        self._authenticator = authenticator
        self._insecure = insecure
        self._hosts = {known.lower() for known in hosts}
        self._body_timeout_secs = body_timeout_secs
        self._body_bytes_max = body_bytes_max
        self._connections_max = connections_max
        app = web.Application(middlewares=[self._answer], client_max_size=body_bytes_max)
        app.on_response_prepare.append(_add_headers)
        if observe is not None:
            app.on_response_prepare.append(_observer(observe))
        for route in routes:
            app.router.add_route(route.method, route.path, self._guarded(route))
        self._runner = web.AppRunner(
            app,
            access_log=None,
            # aiohttp's own limit is half of a token that may be shown; it logs what is longer.
            max_field_size=_FIELD_BYTES_MAX,
            # A caller that has hung up needs no answer.
            handler_cancellation=True,
            # Counts from the connection on, and ends one that sends its head too slowly, too.
            keepalive_timeout=idle_timeout_secs,
            shutdown_timeout=stop_grace_secs,
        )
        self._listener: asyncio.Server | None = None
        self._tls: TlsListener | None = None  # with an authenticator, in place of the listener
        self._looking: asyncio.Task[None] | None = None
        self._throttle = Throttle()
        # Requests under way, with the proof of who made them.
        self._under_way: dict[asyncio.Task[object], tuple[web.Request, Identity]] = {}
        self._known: set[object] = set()  # connections whose peers have proved it

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
        server = self._runner.server
        assert server is not None
        server.request_handler = _checked(server.request_handler)
        authenticator = self._authenticator
        try:
            if authenticator is None:
                self._listener = await loop.create_server(
                    self._connect, address, self._port, backlog=512
                )
                self._port = int(self._listener.sockets[0].getsockname()[1])
            else:
                self._tls = TlsListener(
                    lambda: authenticator.context,
                    self._connect,
                    admit=self._admit,
                    refused=authenticator.refused,
                )
                self._port = self._tls.start(address, self._port)
                self._looking = asyncio.create_task(self._look(), name=f"{self._name} proofs")
        except OSError as error:
            await self._runner.cleanup()
            raise SquallError(
                f"{self._name}: cannot listen on {address}:{self._port}: {error.strerror or error}"
            ) from error
        log.info("http_server_started", server=self._name, address=address, port=self._port)

    async def stop(self) -> None:
        """Accept nothing more; requests under way finish within the grace. Idempotent."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
            self._looking = None
        if self._tls is not None:
            await self._tls.close()
            self._tls = None
            await self._runner.cleanup()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            await self._runner.cleanup()

    def end_stale(self) -> None:
        """Hang up on requests whose proof counts no longer: streams and downloads, too. Not on one
        that calls this: it has ended its own session."""
        if self._authenticator is None:
            return
        own = asyncio.current_task()
        for task, (request, identity) in list(self._under_way.items()):
            if task is own:
                continue
            why = self._authenticator.ended(identity)
            if why is not None and request.transport is not None:
                log.info("http_request_ended", server=self._name, path=request.path, reason=why)
                request.transport.abort()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECS)
            self.end_stale()
            if self._runner.server is not None:
                self._known.intersection_update(self._runner.server.connections)

    async def read_text(self, request: web.Request) -> str:
        """The body as text. Raises HttpError: too large, too slow, not UTF-8."""
        # Not by request.read(), which keeps the bytes as long as the request is under way.
        body = bytearray()
        async with body_in_time(self._body_timeout_secs):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > self._body_bytes_max:
                    raise HttpError(
                        413,
                        "Request Entity Too Large",
                        f"the body has more than {self._body_bytes_max} bytes",
                    )
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
            self._log_full()
            return _Refusal()
        return server()

    def _admit(self, host: str, handshakes: int) -> bool:
        """Whether a stranger's connection may begin TLS; others of strangers make room for it."""
        server, tls = self._runner.server, self._tls
        if server is None or tls is None:
            return False
        strangers = [
            transport
            for one in server.connections
            if (transport := one.transport) is not None and one not in self._known
        ]
        own = sum((one.get_extra_info("peername") or ("",))[0] == host for one in strangers)
        if own + handshakes >= max(1, self._connections_max // _STRANGERS_SHARE):
            return False
        if len(server.connections) + tls.handshakes < self._connections_max:
            return True
        self._log_full()
        # Strangers have sent nothing, or begun TLS, or speak it. The kind with the most gives its
        # oldest, so that a crowd of one kind does not drive out those who only pass through it on
        # their way to a proof.
        begun = tls.handshakes - tls.silent
        most = max(tls.silent, begun, len(strangers))
        if most in (tls.silent, begun):
            tls.drop(silent=most == tls.silent)
        else:
            strangers[0].abort()
        return most > 0

    def _log_full(self) -> None:
        if (left_out := self._throttle.left_out("full")) is not None:
            log.warning(
                "http_connections_full",
                server=self._name,
                most=self._connections_max,
                left_out=left_out,
            )

    async def _identity(self, request: web.Request, route: Route, where: str) -> Identity | None:
        """Who asks. Raises HttpError."""
        assert self._authenticator is not None
        tls = request.transport.get_extra_info("ssl_object") if request.transport else None
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        try:
            found = await self._authenticator.identify(request, certificate, where)
            why = None if found is None else self._authenticator.ended(found)
            if why is not None:
                raise RefusedError(why)
        except RefusedError as error:
            # The reason is in the log alone.
            self._authenticator.refused(where, str(error))
            if route.permission == PUBLIC:
                return None
            raise HttpError(401, "Unauthorized", "the proof of who asks was refused") from error
        if found is None and route.permission != PUBLIC:
            raise HttpError(
                401, "Unauthorized", "who asks? Log in, or send a token: Authorization: Bearer"
            )
        if found is not None:
            self._known.add(request.protocol)
        return found

    def _guarded(self, route: Route) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            secure = self._authenticator is not None
            why = (
                None
                if route.cross_site
                else page_error(request.method, request.headers, secure=secure)
            )
            if why is not None:
                raise HttpError(403, "Forbidden", why)
            peer = request.transport.get_extra_info("peername") if request.transport else None
            where = f"{peer[0]}:{peer[1]}" if peer else "unknown"
            identity = None
            if self._authenticator is not None:
                identity = await self._identity(request, route, where)
            name = None if identity is None else identity.principal
            call = Call(f"{route.method} {route.path}", where, name, identity)
            _CALL.set(call)
            try:
                # A stranger, who got here because the route is PUBLIC, has nothing to decide on.
                if identity is not None or not secure:
                    self._authorizer.authorize(call, route.permission)
                if identity is None:
                    return await route.handler(request)
                task = asyncio.current_task()
                assert task is not None
                self._under_way[task] = (request, identity)
                try:
                    return await route.handler(request)
                finally:
                    self._under_way.pop(task, None)
            except storm.AuthorizationException as error:
                raise HttpError(403, "Forbidden", str(error.msg)) from error

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
            response = error_response(error.status, error.error, error.message)
            if error.status == 401:
                response.headers["WWW-Authenticate"] = 'Bearer realm="squall"'
            return response
        except web.HTTPException as error:
            if error.status < 400:
                raise
            response = error_response(error.status, error.reason, error.text or error.reason)
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response
        except web.RequestPayloadError as error:
            return error_response(400, "Bad Request", f"the body cannot be read: {error}")
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
    response.headers["Server"] = "squall"  # aiohttp has named itself


def _checked(handle: Callable[..., Awaitable[web.StreamResponse]]) -> Any:
    """A handler of all requests that refuses what aiohttp would fail at, before any middleware: it
    repeats an `Expect` that it does not know in its answer, and some bytes cannot be."""

    async def checked(request: web.Request) -> web.StreamResponse:
        expected = request.headers.get("Expect", "100-continue")
        if expected.lower() != "100-continue":
            message = "the only expectation that is met is 100-continue"
            response = error_response(417, "Expectation Failed", message)
            await _add_headers(request, response)
            return response
        return await handle(request)

    return checked


def _observer(
    observe: Callable[[str, int], None],
) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    async def prepared(request: web.Request, response: web.StreamResponse) -> None:
        resource = request.match_info.route.resource
        # (A path or method that a caller makes up does not become a label.)
        name = "other" if resource is None else f"{request.method} {resource.canonical}"
        observe(name, response.status)

    return prepared


class _Refusal(asyncio.Protocol):
    """For a connection too many: hang up."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.abort()
