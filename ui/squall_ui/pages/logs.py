"""Logs of all nodes, fetched from their logviewers: a page asks only its own server.

Only hosts that belong to the cluster are asked, at the port of the logviewers, and only for the
routes below: this is no way into other services.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode

import aiohttp
from aiohttp import web

from squall_common.authentication.credentials import ClientCredentials
from squall_common.daemon.web import HttpError, Route
from squall_thrift import storm
from squall_ui.viewers import Viewer, Viewers

_ROUTES = frozenset({"files", "part", "search", "deepSearch"})
_QUERY = frozenset(
    {
        "file", "start", "length", "topoId", "port", "is-daemon", "search-string", "num-matches",
        "start-byte-offset", "search-archived", "lines",
    }
)  # fmt: skip
_SECS = 30.0
_BYTES_MAX = 16 * 1024 * 1024


class Logs:
    """`/logs/{host}/{route}` asks the logviewer of a host."""

    def __init__(
        self, viewers: Viewers, port: int, credentials: ClientCredentials | None = None
    ) -> None:
        """`credentials`: the UI's own, for logviewers of a secured cluster; who asks is named
        beside them, and the logviewer decides what it may read."""
        self._viewers = viewers
        self._port = port
        self._credentials = credentials
        self._session: aiohttp.ClientSession | None = None

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/logs/of/{host}/{route}", self._ask, "readLogs"),
            Route("GET", "/logs/of/{host}/{route}/{topology}", self._ask, "readLogs"),
        ]

    async def close(self) -> None:
        """Close the connections to logviewers."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _ask(self, request: web.Request) -> web.Response:
        host, route = request.match_info["host"], request.match_info["route"]
        topology = request.match_info.get("topology")
        if route not in _ROUTES or (topology is None) == (route == "deepSearch"):
            raise HttpError(404, "404 Not Found", f"logviewers have no {route}")
        viewer = self._viewers.of(request)
        await _check(viewer, host)
        query = [(name, value) for name, value in request.query.items() if name in _QUERY]
        name = f"[{host}]" if ":" in host else host
        path = f"/api/v1/{route}" + (f"/{quote(topology, safe='')}" if topology is not None else "")
        scheme = "http" if self._credentials is None else "https"
        url = f"{scheme}://{name}:{self._port}{path}?{urlencode(query)}"
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_SECS, connect=5.0),
                auto_decompress=True,
            )
        try:
            async with self._session.get(
                url,
                allow_redirects=False,
                headers=self._who(viewer),
                ssl=True if self._credentials is None else self._credentials.checked_context,
            ) as answer:
                body = await answer.content.read(_BYTES_MAX)
                while len(body) < _BYTES_MAX and (more := await answer.content.read(65_536)):
                    body += more
                response = web.Response(
                    status=answer.status, body=body, content_type="application/json"
                )
                response.enable_compression()
                return response
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise HttpError(
                502,
                "502 Bad Gateway",
                f"the logviewer of {host} does not answer at port {self._port}: "
                f"{error or type(error).__name__}. Start one there with `storm logviewer`.",
            ) from error

    def _who(self, viewer: Viewer) -> dict[str, str]:
        """The headers that name who asks."""
        visitor = viewer.visitor
        if visitor is None or self._credentials is None:
            return {}
        return self._credentials.for_user(visitor.token, visitor.principal).http_headers()


async def _check(viewer: Viewer, host: str) -> None:
    """Raises HttpError for a host that is not of the cluster."""
    try:
        cluster: storm.ClusterSummary = await viewer.nimbus.read("getClusterInfo")
    except storm.AuthorizationException:
        raise
    except Exception as error:
        raise HttpError(503, "503 Service Unavailable", str(error)) from error
    known = {one.host for one in cluster.supervisors} | {one.host for one in cluster.nimbuses}
    if host not in known:
        raise HttpError(404, "404 Not Found", f"{host} is not a host of this cluster")
