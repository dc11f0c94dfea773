"""A service of HTTP in this process, on a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web
from tests.support.certificates import Certificates
from tests.support.servers import free_port


@contextmanager
def service(
    answer: Callable[[web.Request], Any], certificates: Certificates | None = None
) -> Iterator[str]:
    """A service on a thread; its URL."""
    tls = None if certificates is None else certificates.for_server()
    loop = asyncio.new_event_loop()
    port = free_port()

    async def start() -> web.AppRunner:
        async def handle(request: web.Request) -> web.Response:
            result = answer(request)
            if asyncio.iscoroutine(result):
                result = await result
            return result

        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        return runner

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    try:
        yield f"http{'' if tls is None else 's'}://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
