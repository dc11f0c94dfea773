"""All endpoints of the REST API, as routes of the HTTP listener."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

from aiohttp import web

from squall_common.daemon import fast_json
from squall_common.daemon.logs import get_logger
from squall_common.daemon.web import Handler, HttpError, Route, body_in_time, call_of
from squall_ui.rest import actions, cluster, component, graph, topology
from squall_ui.rest.endpoints import PREFIX, Ask, Endpoint, RequestError, Site, problem
from squall_ui.rest.openapi import document
from squall_ui.rest.shapes import ANY, map_of

log = get_logger(__name__)

_BODY_BYTES_MAX = 262_144
# Smaller answers are not worth the time.
_COMPRESSED_BYTES_MIN = 1_400


async def _document(ask: Ask) -> Any:
    return document(ENDPOINTS, version=importlib.metadata.version("squall"))


ENDPOINTS: tuple[Endpoint, ...] = (
    *cluster.ENDPOINTS,
    *topology.ENDPOINTS,
    *component.ENDPOINTS,
    *graph.ENDPOINTS,
    *actions.ENDPOINTS,
    Endpoint(
        "GET", "/openapi.json", "This document.", map_of(ANY), _document, "getClusterInfo"
    ),
)  # fmt: skip


def routes(site_of: Callable[[web.Request], Site]) -> list[Route]:
    """One for each endpoint. `site_of` gives the site as who asks sees it, or raises HttpError."""
    return [
        Route(one.method, PREFIX + _pattern(one), _handler(site_of, one), one.permission)
        for one in ENDPOINTS
    ]


def _pattern(one: Endpoint) -> str:
    """aiohttp's names of parts have no dashes."""
    parts = one.path.split("/")
    return "/".join(part.replace("-", "_") if part.startswith("{") else part for part in parts)


def _handler(site_of: Callable[[web.Request], Site], one: Endpoint) -> Handler:
    names = [param.name for param in one.params if param.in_path]

    async def handle(request: web.Request) -> web.StreamResponse:
        # JSONP would hand the answer to any page in the browser.
        if "callback" in request.query:
            raise HttpError(400, "400 Bad Request", "callback (JSONP) is not supported")
        ask = Ask(
            site_of(request),
            {name: request.match_info[name.replace("-", "_")] for name in names},
            request.query,
            await _body(request) if one.method == "POST" else None,
        )
        if one.method == "POST":
            call = call_of(request)
            log.info("ui_action", path=request.path, peer=call.peer, user=call.principal)
        return json_response(request, await answered(one, ask))

    return handle


async def answered(one: Endpoint, ask: Ask) -> Any:
    """The answer of an endpoint. Raises HttpError."""
    try:
        return await one.handler(ask)
    except Exception as error:
        found = problem(error)
        if found is None:
            raise
        raise HttpError(*found) from error


async def _body(request: web.Request) -> Any:
    raw = bytearray()
    async with body_in_time():
        async for piece in request.content.iter_any():
            raw += piece
            if len(raw) > _BODY_BYTES_MAX:
                raise HttpError(413, "413 Request Entity Too Large", "the body is too large")
    if not raw.strip():
        return None
    try:
        return fast_json.loads(bytes(raw))
    except (ValueError, RequestError) as error:
        raise HttpError(400, "400 Bad Request", f"the body is not JSON: {error}") from error


def json_response(request: web.Request, value: Any) -> web.Response:
    """As JSON, compressed if that pays."""
    body = fast_json.dumps(value)
    response = web.Response(body=body, content_type="application/json", charset="utf-8")
    if len(body) >= _COMPRESSED_BYTES_MIN:
        response.enable_compression()
    return response
