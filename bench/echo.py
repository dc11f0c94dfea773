"""A bare echo over TCP between two processes: what a round trip costs on this machine right now,
with nothing of Squall in it.

    python -m bench.echo        the echoing end: says its port, ends with its stdin
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import uvloop

from bench.runs import ROOT

_MESSAGE_BYTES = 64


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)  # type: ignore[attr-defined]


class _Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.latencies: list[float] = []
        self.sent_at: list[float] = []
        self._received = 0

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._received += len(data)
        while len(self.latencies) < self._received // _MESSAGE_BYTES:
            self.latencies.append(now - self.sent_at[len(self.latencies)])


def measure(rate: float, secs: float) -> list[float]:
    """Round trips in seconds, `rate` a second for `secs`."""
    child = subprocess.Popen(
        [sys.executable, "-m", "bench.echo"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert child.stdout is not None
    assert child.stdin is not None
    try:
        port = int(child.stdout.readline())
        return uvloop.run(_ask(port, rate, secs))
    finally:
        child.stdin.close()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        child.stdout.close()


async def _ask(port: int, rate: float, secs: float) -> list[float]:
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(_Client, "127.0.0.1", port)
    end = time.perf_counter() + secs
    while time.perf_counter() < end:
        client.sent_at.append(time.perf_counter())
        transport.write(b"x" * _MESSAGE_BYTES)
        await asyncio.sleep(1.0 / rate)
    deadline = time.perf_counter() + 5.0
    while len(client.latencies) < len(client.sent_at):
        if time.perf_counter() > deadline:
            break
        await asyncio.sleep(0.01)
    transport.close()
    return client.latencies


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve())
