"""A Nimbus for tests of clients: a real Thrift server that records the calls and keeps uploads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from squall_thrift import storm
from squall_thrift.serving.authorization import PUBLIC, permission
from squall_thrift.serving.server import ThriftServer


class FakeNimbus:
    """`calls` holds (method, arguments) in order; `answers` maps a method to its result, to an
    exception to raise, or to a function of the arguments. Uploaded packages are in `uploads` by
    handle."""

    def __init__(self) -> None:
        self.host = "127.0.0.1"
        self.port = 0
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.uploads: dict[str, bytes] = {}
        self.finished: set[str] = set()
        self.answers: dict[str, Any] = {"isTopologyNameAllowed": True}
        self.delays: dict[str, float] = {}  # seconds before a method answers

    @property
    def conf(self) -> dict[str, Any]:
        """What a client's configuration must hold to reach it."""
        return {"nimbus.seeds": [self.host], "nimbus.thrift.port": self.port}

    def called(self, method: str) -> list[tuple[Any, ...]]:
        """The arguments of each call of a method."""
        return [arguments for name, arguments in self.calls if name == method]

    def answer(self, method: str, arguments: tuple[Any, ...]) -> Any:
        self.calls.append((method, arguments))
        if method in self.answers:
            result = self.answers[method]
            if isinstance(result, BaseException):
                raise result
            return result(*arguments) if callable(result) else result
        if method == "getLeader":
            return storm.NimbusSummary(
                host=self.host, port=self.port, uptime_secs=1, isLeader=True, version="0.1.0"
            )
        if method == "getClusterInfo":
            node = storm.SupervisorSummary(
                host="h", uptime_secs=1, num_workers=100, num_used_workers=0, supervisor_id="h"
            )
            return storm.ClusterSummary(supervisors=[node], topologies=[], nimbuses=[])
        if method == "beginFileUpload":
            location = f"stormjar-{len(self.uploads)}.jar"
            self.uploads[location] = b""
            return location
        if method == "uploadChunk":
            self.uploads[arguments[0]] += arguments[1]
        if method == "finishFileUpload":
            self.finished.add(arguments[0])
        return None


def handler_for(fake: FakeNimbus) -> object:
    """An object with every method of the service."""

    def make(name: str) -> Any:
        async def method(self: object, call: object, *arguments: Any) -> Any:
            await asyncio.sleep(fake.delays.get(name, 0.0))
            return fake.answer(name, arguments)

        return permission(PUBLIC)(method)

    methods = {name: make(name) for name in storm.Nimbus.methods}
    return type("Handler", (), methods)()


@contextmanager
def fake_nimbus() -> Iterator[FakeNimbus]:
    """Serve on a free port of the loopback, from a thread of its own: clients may block."""
    fake = FakeNimbus()
    ready = threading.Event()
    stop: list[Any] = []

    async def serve() -> None:
        server = ThriftServer(storm.Nimbus, handler_for(fake), host="127.0.0.1", port=0)
        await server.start()
        fake.port = server.port
        ended = asyncio.Event()
        stop.extend((asyncio.get_running_loop(), ended))
        ready.set()
        await ended.wait()
        await server.stop(0.2)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="fake-nimbus")
    thread.start()
    try:
        assert ready.wait(10), "the fake Nimbus did not start"
        yield fake
    finally:
        if stop:
            stop[0].call_soon_threadsafe(stop[1].set)
        thread.join(10)
