"""Busy polling: a transport that does not sleep while sections come and go."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import pytest
from tests.support import transports
from tests.support.transports import TransportEnd
from tests.support.validated import validated_transports
from tests.support.validated_engine import replaces_methods

from squall_common.topology.model import WorkerSlot
from squall_worker.transport.ring import connections

A = WorkerSlot("a", 1)
B = WorkerSlot("b", 2)
TOPOLOGY = f"busy-1-{os.getpid()}"
RING = 512 * 1024
BUSY_SECS = 0.5
wait_until = partial(transports.wait_until, secs=30.0)


@pytest.fixture(autouse=True)
def _validated() -> Iterator[None]:
    with validated_transports() as contradictions:
        yield
    assert not contradictions


Pair = tuple[TransportEnd, TransportEnd]


@pytest.fixture(params=[RING, 0], ids=["rings", "sockets"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    """Two workers, of which B polls busily."""
    rings = request.param
    if rings:
        pytest.importorskip("squall_worker.transport.ring.memory")
    a = TransportEnd(TOPOLOGY, A, ring_bytes=rings)
    b = TransportEnd(TOPOLOGY, B, ring_bytes=rings, busy_poll_secs=BUSY_SECS)
    for end in (a, b):
        end.start()
    a.transport.set_peers({B: ("127.0.0.1", b.port)})
    b.transport.set_peers({A: ("127.0.0.1", a.port)})
    await wait_until(lambda: a.transport.greeted() and b.transport.greeted())
    if rings:
        await wait_until(lambda: a.transport.over_rings() and b.transport.over_rings())
    await wait_until(lambda: a.transport.is_idle and not b.transport._polled)
    yield a, b
    await a.transport.close()
    await b.transport.close()


async def cpu_share(secs: float) -> float:
    """The share of a core that both workers take."""
    wall, cpu = time.monotonic(), time.process_time()
    await asyncio.sleep(secs)
    return (time.process_time() - cpu) / (time.monotonic() - wall)


async def test_a_worker_does_not_sleep_after_it_received_and_does_when_nothing_more_comes(
    pair: Pair,
) -> None:
    a, b = pair
    assert await cpu_share(0.3) < 0.2, "nothing was exchanged yet"
    a.transport.send(B, [b"one"])
    await wait_until(lambda: b.received)
    start = time.monotonic()
    for _ in range(1_000):
        assert b.transport._polled or time.monotonic() - start > BUSY_SECS
        await asyncio.sleep(0)
    await wait_until(lambda: not b.transport._polled)
    assert time.monotonic() - start > BUSY_SECS * 0.9
    assert await cpu_share(0.5) < 0.2


async def test_what_was_sent_keeps_a_worker_awake_too(pair: Pair) -> None:
    a, b = pair
    b.transport.send(A, [b"one"])
    assert b.transport._polled, "its answer will be seen without a wake-up"
    await wait_until(lambda: a.received and not b.transport._polled)


@pytest.mark.parametrize("pair", [RING], ids=["rings"], indirect=True)
@replaces_methods
async def test_no_byte_wakes_a_worker_that_is_awake(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    assert a.transport._rings is not None
    ring = a.transport._rings.outgoing(B)
    assert ring is not None
    send_byte, woken = connections.send_byte, 0

    def counted(sock: socket.socket) -> None:
        nonlocal woken
        woken += sock is ring.sock
        send_byte(sock)

    monkeypatch.setattr(connections, "send_byte", counted)
    for number in range(50):
        a.transport.send(B, [b"%d" % number])
        await wait_until(lambda: len(b.received) == number + 1)  # noqa: B023
    assert woken == 1, "by the first one"
    await wait_until(lambda: not b.transport._polled)
    a.transport.send(B, [b"wake up"])
    assert woken == 2


async def test_an_end_while_polling_leaves_no_callback(pair: Pair) -> None:
    a, b = pair
    a.transport.send(B, [b"one"])
    await wait_until(lambda: b.received)
    await b.transport.close()
    await asyncio.sleep(0)
    assert not b.transport._polled
    assert await cpu_share(0.2) < 0.5
