"""DRPC over HTTP, with Storm's paths and errors: the result is the body."""

from __future__ import annotations

from collections.abc import Collection

from aiohttp import web

from squall_common.daemon.web import HttpError, Route, WebAuthenticator, WebServer, call_of
from squall_drpc.server.broker import BusyError, CallRefusedError, RequestBroker
from squall_drpc.server.services import Functions, limited_as
from squall_thrift import storm

# Storm's DRPCExceptionMapper: the status of each kind of failure.
_STATUS = {
    storm.DRPCExceptionType.FAILED_REQUEST: (400, "FAILED_REQUEST"),
    storm.DRPCExceptionType.SERVER_SHUTDOWN: (503, "SERVER_SHUTDOWN"),
    storm.DRPCExceptionType.SERVER_TIMEOUT: (504, "SERVER_TIMEOUT"),
    storm.DRPCExceptionType.INTERNAL_ERROR: (500, "INTERNAL_ERROR"),
}


class DrpcHttp:
    """The routes of `drpc.http.port`."""

    def __init__(
        self, broker: RequestBroker, *more: Route, functions: Functions | None = None
    ) -> None:
        """`more` are routes that are served beside those of the functions."""
        self._broker = broker
        self._functions = functions or Functions()
        self._more = more
        self._server: WebServer | None = None

    def server(
        self,
        *,
        host: str,
        port: int,
        body_bytes_max: int,
        insecure: bool,
        hosts: Collection[str] = (),
        authenticator: WebAuthenticator | None = None,
    ) -> WebServer:
        """A listener with these routes, not started. `hosts`: see `web_origin.known_hosts`."""
        self._server = WebServer(
            [
                Route("POST", "/drpc/{function}", self._post, permission="execute"),
                # Arguments may contain slashes; without any they are empty.
                Route("GET", "/drpc/{function}", self._get, permission="execute"),
                Route("GET", "/drpc/{function}/{args:.*}", self._get, permission="execute"),
                *self._more,
            ],
            name="drpc",
            host=host,
            port=port,
            body_bytes_max=body_bytes_max,
            insecure=insecure,
            hosts=hosts,
            authorizer=self._functions.access,
            authenticator=authenticator,
        )
        return self._server

    async def _post(self, request: web.Request) -> web.Response:
        assert self._server is not None
        return await self._execute(request, await self._server.read_text(request))

    async def _get(self, request: web.Request) -> web.Response:
        return await self._execute(request, request.match_info.get("args", ""))

    async def _execute(self, request: web.Request, args: str) -> web.Response:
        call, function = call_of(request), request.match_info["function"]
        self._functions.require(call, "execute", function)
        try:
            result = await self._broker.execute(function, args, limited_as(call))
        except storm.DRPCExecutionException as error:
            status, name = _STATUS.get(
                error.type or storm.DRPCExceptionType.INTERNAL_ERROR, (500, "INTERNAL_ERROR")
            )
            raise HttpError(status, name, error.msg) from error
        except BusyError as error:
            raise HttpError(503, "BUSY", str(error)) from error
        except CallRefusedError as error:
            raise HttpError(400, "Bad Request", str(error)) from error
        return web.Response(text=result, content_type="text/plain")
