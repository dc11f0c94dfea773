"""What pages follow: states of the cluster and of topologies, as JSON and server-sent events.

A page reads a state once, compressed, and then follows the changes after its version. It reads
them by `fetch`, so that its requests carry the header that no other site's page can send. A browser
keeps six connections to a server, so only some of its pages keep a stream open: the others ask for
the changes until now (`wait=no`).
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from squall_common.daemon import fast_json
from squall_common.daemon.web import HttpError, Route
from squall_thrift import storm
from squall_ui.live.hub import Feed
from squall_ui.viewers import Viewer, Viewers

_FIRST_SECS = 10.0  # for the first state of a topology that nobody has looked at yet
_SECS_MAX = 86_400
_NAMES_MAX = 64


class Streams:
    """Handlers over the hub of who asks."""

    def __init__(self, viewers: Viewers) -> None:
        self._viewers = viewers

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/live/cluster/state", self._cluster_state, "getClusterInfo"),
            Route("GET", "/live/cluster", self._cluster, "getClusterInfo"),
            Route("GET", "/live/topology/{id}/state", self._topology_state, "getTopologyInfo"),
            Route("GET", "/live/topology/{id}/series", self._series, "getTopologyInfo"),
            Route("GET", "/live/topology/{id}", self._topology, "getTopologyInfo"),
        ]

    async def _cluster_state(self, request: web.Request) -> web.Response:
        return await _state(self._viewers.of(request).hub.cluster)

    async def _cluster(self, request: web.Request) -> web.StreamResponse:
        viewer = self._viewers.of(request)
        return await _follow(request, viewer, viewer.hub.cluster)

    async def _topology_state(self, request: web.Request) -> web.Response:
        return await _state(await _feed(request, self._viewers.of(request)))

    async def _topology(self, request: web.Request) -> web.StreamResponse:
        viewer = self._viewers.of(request)
        return await _follow(request, viewer, await _feed(request, viewer))

    async def _series(self, request: web.Request) -> web.Response:
        series = self._viewers.of(request).hub.series(request.match_info["id"])
        try:
            secs = min(_SECS_MAX, max(1, int(request.query.get("secs", "600"))))
        except ValueError:
            raise HttpError(400, "400 Bad Request", "secs is not a whole number") from None
        names = request.query.getall("name", [])[:_NAMES_MAX]
        found = {}
        for name in names:
            times, values = series.read(name, secs) if series is not None else ([], [])
            found[name] = {"times": times, "values": values}
        return _json({"series": found})


async def _feed(request: web.Request, viewer: Viewer) -> Feed:
    """The feed of a topology that there is for who asks. Raises HttpError."""
    wanted = request.match_info["id"]
    if viewer.hub.series(wanted) is None:
        try:
            cluster: storm.ClusterSummary = await viewer.nimbus.read("getClusterInfo")
        except Exception as error:
            raise HttpError(503, "503 Service Unavailable", str(error)) from error
        if wanted not in {one.id for one in cluster.topologies}:
            raise HttpError(404, "404 Not Found", f"{wanted} is not alive")
    return viewer.hub.topology(wanted)


async def _state(feed: Feed) -> web.Response:
    """Waits for the first state, for a while. Raises HttpError."""
    if feed.state is None:
        events = feed.events(None)
        try:
            async with asyncio.timeout(_FIRST_SECS):
                await anext(events)
        except TimeoutError:
            raise HttpError(503, "503 Service Unavailable", "Nimbus has not answered yet") from None
        finally:
            await events.aclose()  # type: ignore[attr-defined]
    return _json_bytes(feed.whole())


async def _follow(request: web.Request, viewer: Viewer, feed: Feed) -> web.StreamResponse:
    text = request.query.get("since", "")
    since = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
    if request.query.get("wait") == "no":
        answer = web.Response(
            body=b"".join(_event(one) for one in feed.ask(since)),
            content_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )
        answer.enable_compression()
        return answer
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
    )
    await response.prepare(request)
    async for event in feed.events(since):
        if viewer.closed:
            break
        viewer.touch()
        await response.write(b": \n\n" if event is None else _event(event))
    return response


def _event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def _json(value: object) -> web.Response:
    return _json_bytes(fast_json.dumps(value))


def _json_bytes(body: bytes) -> web.Response:
    response = web.Response(body=body, content_type="application/json", charset="utf-8")
    response.enable_compression()
    return response
