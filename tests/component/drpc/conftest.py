"""A DRPC server on free ports, in the test's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from squall_common.config.options.typed import DrpcOptions
from squall_drpc.server.daemon import DrpcServer

Serve = Callable[..., AbstractAsyncContextManager[DrpcServer]]


@pytest.fixture
def serve() -> Serve:
    @asynccontextmanager
    async def serving(**changes: Any) -> AsyncIterator[DrpcServer]:
        ports = dict.fromkeys(("drpc.port", "drpc.invocations.port", "drpc.http.port"), 0)
        server = DrpcServer(DrpcOptions.read({**ports, **changes}))
        await server.start()
        try:
            yield server
        finally:
            await server.stop(1)

    return serving


async def until(condition: Callable[[], Any]) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - nothing tells when it comes true
            await asyncio.sleep(0.005)
