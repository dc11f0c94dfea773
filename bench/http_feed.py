"""The HTTP server of `bench.connectors`, in a process of its own, so that its CPU is not counted.

    python -m bench.http_feed

Prints its port. It serves the same records without end: as pages (`/pages`), as server-sent events
(`/events`), over a web socket (`/socket`), and as answers about a number (`/answer`).
"""

from __future__ import annotations

import asyncio
import contextlib

import orjson
import uvloop
from aiohttp import web

from bench.connected import VALUE

_PAGE = 1_000
_BATCH = 100


async def _pages(request: web.Request) -> web.Response:
    start = int(request.query.get("after", "-1")) + 1
    page = [{"id": n, "value": VALUE.decode()} for n in range(start, start + _PAGE)]
    return web.json_response(body=orjson.dumps(page))


async def _events(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    number = int(request.headers.get("Last-Event-ID", "-1")) + 1
    with contextlib.suppress(ConnectionError):  # the client has gone
        while True:
            events = (b"id: %d\ndata: %b\n\n" % (n, VALUE) for n in range(number, number + _BATCH))
            await response.write(b"".join(events))
            number += _BATCH
    return response


async def _socket(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    with contextlib.suppress(ConnectionError):
        while True:
            await socket.send_bytes(VALUE)
    return socket


async def _answer(request: web.Request) -> web.Response:
    return web.json_response({"number": request.query["number"], "value": VALUE.decode()})


async def _serve() -> None:
    app = web.Application()
    for path, handler in (
        ("/pages", _pages),
        ("/events", _events),
        ("/socket", _socket),
        ("/answer", _answer),
    ):
        app.router.add_get(path, handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve())
