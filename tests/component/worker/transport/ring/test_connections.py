"""Transports whose frames go through rings: order, bounds, ends, and bad neighbours."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support import transports
from tests.support.transports import TransportEnd
from tests.support.validated import validated_transports
from tests.support.validated_engine import replaces_methods

from squall_common.security.curve import CurveKey
from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.launch_spec import Incarnation
from squall_worker.transport.frames import SECTION_BYTES_MAX, topology_hash
from squall_worker.transport.link_table import Left
from squall_worker.transport.ring import connections
from squall_worker.transport.ring.hello import Hello, listening_name

pytest.importorskip("squall_worker.transport.ring.memory")

A = WorkerSlot("a", 1)
B = WorkerSlot("b", 2)
TOPOLOGY = f"rings-1-{os.getpid()}"
KEY = CurveKey.make(TOPOLOGY)
RING = 512 * 1024
LAUNCHES = 5
ROOT = Path(__file__).resolve().parents[5]
wait_until = partial(transports.wait_until, secs=30.0)


@pytest.fixture(autouse=True)
def _validated() -> Iterator[None]:
    with validated_transports() as contradictions:
        yield
    assert not contradictions


class Worker(TransportEnd):
    """One that has opened its port, and takes rings."""

    def __init__(
        self,
        slot: WorkerSlot,
        *,
        launch: int = 1,
        ring_bytes: int = RING,
        key: CurveKey | None = None,
    ) -> None:
        super().__init__(TOPOLOGY, slot, launch=launch, key=key, ring_bytes=ring_bytes)
        self.start()


def link(a: Worker, b: Worker) -> None:
    a.transport.set_peers({B: ("127.0.0.1", b.port)})
    b.transport.set_peers({A: ("127.0.0.1", a.port)})


async def linked(a: Worker, b: Worker, *, over_rings: bool) -> None:
    link(a, b)
    await wait_until(lambda: a.transport.greeted() and b.transport.greeted())
    if over_rings:
        await wait_until(lambda: a.transport.over_rings() and b.transport.over_rings())


Pair = tuple[Worker, Worker]


@pytest.fixture(params=[None, KEY], ids=["plain", "curve"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    a, b = Worker(A, key=request.param), Worker(B, key=request.param)
    await linked(a, b, over_rings=True)
    yield a, b
    await a.transport.close()
    await b.transport.close()


async def test_sections_of_every_size_arrive_in_order_both_ways(pair: Pair) -> None:
    """Many times the ring's size, so around its circle, and sections that are cut."""
    a, b = pair
    sizes = [0, 1, 100, 10_000, 262_140, 262_144, 300_000, 5_000_000, SECTION_BYTES_MAX, 7] * 2
    sections = [os.urandom(min(size, 1000)).ljust(size, b"\0")[:size] for size in sizes]
    for section in sections:
        a.transport.send(B, [section])
        b.transport.send(A, [section])
    await wait_until(lambda: len(b.received) == len(a.received) == len(sections))
    assert a.received == b.received == sections
    await wait_until(lambda: a.transport.is_idle and b.transport.is_idle)
    assert a.transport.counts().frames_resent == 0


async def test_a_peer_that_takes_nothing_is_held_within_its_bounds(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_worker.transport.zmq._INBOX_BYTES_MAX", 1_000_000)
    a, b = pair
    b.reading = False
    sections = [b"%d " % i + b"x" * 50_000 for i in range(200)]
    for section in sections:
        a.transport.send(B, [section])
    await wait_until(lambda: b.transport._inbox_bytes >= 1_000_000)
    await asyncio.sleep(0.1)
    assert b.transport._inbox_bytes < 1_000_000 + 300_000
    assert a.transport.backlog_bytes(B) > 8_000_000
    b.reading = True
    b.drain()
    await wait_until(lambda: len(b.received) == len(sections))
    assert b.received == sections
    await wait_until(lambda: a.transport.is_idle)


async def test_what_was_sent_before_the_ring_is_not_overtaken() -> None:
    a, b = Worker(A), Worker(B)
    sections = [b"%d" % i for i in range(3_000)]
    for section in sections[:1_000]:
        a.transport.send(B, [section])
    link(a, b)
    for section in sections[1_000:]:
        a.transport.send(B, [section])
        if section.endswith(b"00"):
            await asyncio.sleep(0.001)
    await wait_until(lambda: a.transport.over_rings() and len(b.received) == len(sections))
    assert b.received == sections
    await a.transport.close()
    await b.transport.close()


async def test_a_goodbye_goes_through_the_ring(pair: Pair) -> None:
    a, b = pair
    a.transport.send(B, [b"last"])
    assert await a.transport.close(2.0)
    await wait_until(lambda: any(isinstance(event, Left) for event in b.events))
    assert b.received == [b"last"]
    (left,) = [event for event in b.events if isinstance(event, Left)]
    assert left.drained
    assert not b.transport.over_rings()


async def test_a_worker_that_is_replaced_gets_a_new_ring(pair: Pair) -> None:
    a, b = pair
    await b.transport.close()
    await wait_until(lambda: not a.transport.over_rings())
    a.transport.send(B, [b"lost or not"])
    again = Worker(B, launch=2, key=a.transport._guard and KEY)
    await linked(a, again, over_rings=True)
    a.transport.send(B, [b"for the new one"])
    await wait_until(lambda: b"for the new one" in again.received)
    await again.transport.close()


@pytest.mark.parametrize("without", [A, B])
async def test_a_peer_without_rings_is_sent_frames_over_the_socket(without: WorkerSlot) -> None:
    """An earlier release: it does not listen, and offers none."""
    a, b = (Worker(slot, ring_bytes=0 if slot == without else RING) for slot in (A, B))
    await linked(a, b, over_rings=False)
    a.transport.send(B, [b"there"])
    b.transport.send(A, [b"back"])
    await wait_until(lambda: b.received == [b"there"] and a.received == [b"back"])
    assert not a.transport.over_rings()
    assert not b.transport.over_rings()
    await a.transport.close()
    await b.transport.close()


async def test_a_broken_ring_is_replaced_by_the_socket_and_nothing_is_lost(pair: Pair) -> None:
    a, b = pair
    sent = [b"%d" % i for i in range(100)]
    a.transport.send(B, sent[:50])
    await wait_until(lambda: b.received == sent[:50])
    ring = a.transport._peers[B].ring
    assert ring is not None
    ring._writer.write([b"this is not a frame"])  # type: ignore[list-item]
    assert b.transport._rings is not None
    b.transport._rings.refuse(A, "a test")
    a.transport.send(B, sent[50:])
    await wait_until(lambda: b.received == sent)
    await wait_until(lambda: not a.transport.over_rings())
    assert b.transport.over_rings() == {A}, "the other direction goes on"


async def test_a_frame_of_someone_else_in_a_ring_is_dropped(pair: Pair) -> None:
    from squall_worker.transport.frames import Frame, Kind, Session

    a, b = pair
    forged = Frame(
        Kind.DATA, topology_hash(TOPOLOGY), WorkerSlot("c", 3), Session(9, 9, 9),
        b.transport._peers[A].link.session, 1, 0, False, (b"forged",),
    )  # fmt: skip
    ring = a.transport._peers[B].ring
    assert ring is not None
    assert ring.push(forged)
    ring.wake()
    await wait_until(lambda: b.transport.drops.foreign == 1)
    a.transport.send(B, [b"real"])
    await wait_until(lambda: b.received == [b"real"])


async def test_strangers_are_offered_nothing_and_refused() -> None:
    """Another topology's key, noise, a ring of someone who is not a peer, and silence."""
    b = Worker(B, key=KEY)
    b.transport.set_peers({A: ("127.0.0.1", 1)})
    name = listening_name(topology_hash(TOPOLOGY), B, Incarnation(1, 1))
    session = b.transport._peers[A].link.session
    hello = Hello(topology_hash(TOPOLOGY), session, session, RING, bytes(16), A)
    fd = os.memfd_create("not-a-ring")
    other = CurveKey.make("other").secret
    for data in (b"", b"noise", b"x" * 10_000, hello.serialize(other), hello.serialize(KEY.secret)):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(name)
            stranger.setblocking(False)
            if data:
                socket.send_fds(stranger, [data], [fd, fd, fd])
            else:
                stranger.shutdown(socket.SHUT_WR)
            loop = asyncio.get_running_loop()
            try:
                answer = await asyncio.wait_for(loop.sock_recv(stranger, 100), 10)
            except ConnectionResetError:
                answer = b""
            assert answer == b""
    os.close(fd)
    assert b.transport._rings is not None
    assert not b.transport._rings._incoming
    await b.transport.close()


async def test_an_idle_ring_costs_nothing_and_is_woken_at_once(pair: Pair) -> None:
    a, b = pair
    await wait_until(lambda: a.transport.is_idle and not a.transport._polled)
    before = time.process_time()
    await asyncio.sleep(1.0)
    assert time.process_time() - before < 0.1, "two workers and this test"
    took = []
    for number in range(20):
        await asyncio.sleep(0.01)
        start = time.monotonic()
        a.transport.send(B, [b"%d" % number])
        while len(b.received) <= number:  # noqa: ASYNC110
            await asyncio.sleep(0)
        took.append(time.monotonic() - start)
    assert sorted(took)[10] < 0.02, "well below the time of a probe"


async def test_a_byte_that_comes_while_rings_are_read_starts_no_second_round(pair: Pair) -> None:
    a, b = pair
    await wait_until(lambda: a.transport.is_idle and not b.transport._polled)
    rings = b.transport._rings
    assert rings is not None
    (ring,) = rings._incoming
    reader, rounds = ring.reader, 0

    class Counted:
        """A round that finds nothing asks once."""

        def read_data(self, head: bytes) -> Any:
            nonlocal rounds
            rounds += 1
            return reader.read_data(head)

        def __getattr__(self, name: str) -> Any:
            return getattr(reader, name)

    ring.reader = cast(Any, Counted())
    b.transport._poll_soon()
    for _ in range(5):
        rings._on_data()
    assert rounds == 0, "it is on its way"
    while b.transport._polled:  # noqa: ASYNC110 (before a timer has them read again)
        await asyncio.sleep(0)
    assert rounds == 1


@replaces_methods
async def test_a_frame_that_comes_before_a_late_byte_is_taken_is_not_overlooked(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own byte is taken together with the late one."""
    a, b = pair
    await wait_until(lambda: a.transport.is_idle and not b.transport._polled)
    taken = connections._receive
    late: list[bytes | None] = []

    def receive(sock: socket.socket, size: int) -> bytes | None:
        if not late:
            a.transport.send(B, [b"second"])
        late.append(taken(sock, size))
        return late[-1]

    a.transport.send(B, [b"first"])
    b.transport._poll()
    b.transport._poll()
    assert b.received == [b"first"], "and its byte is still there"
    monkeypatch.setattr(connections, "_receive", receive)
    for _ in range(20):
        await asyncio.sleep(0)
    assert late[0] == b"\1\1"
    assert b.received == [b"first", b"second"]


async def test_an_acknowledgement_on_a_plain_frame_has_the_next_probe_come_sooner(
    pair: Pair,
) -> None:
    """It does so where the engine does not take the frame, too."""
    a, b = pair
    await wait_until(lambda: a.transport.is_idle and b.transport.is_idle)
    a.reading = b.reading = False
    a.transport.send(B, [b"wakes the ring"])
    b.transport.send(A, [b"first"])
    await wait_until(lambda: a.transport._inbox)
    b.transport.send(A, [b"second"])
    await wait_until(lambda: len(a.transport._inbox) == 2)
    link = b.transport._peers[A].link
    await wait_until(lambda: link._probe_secs > 0.5)
    a.transport.drain(1)
    a.transport.send(B, [b"carries the acknowledgement of the first"])
    await wait_until(lambda: link._acked == link._last - 1)
    b.transport.validate()
    a.reading = b.reading = True
    a.drain()
    b.drain()


async def test_a_worker_without_a_descriptor_to_spare_does_not_spin_and_takes_rings_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full:
        """A listener of a process that has all the descriptors it may have."""

        def __init__(self, inner: socket.socket) -> None:
            self.inner = inner
            self.tries = 0

        def fileno(self) -> int:
            return self.inner.fileno()

        def accept(self) -> tuple[socket.socket, object]:
            self.tries += 1
            if self.tries < 3:
                raise OSError(errno.EMFILE, "Too many open files")
            return self.inner.accept()

        def close(self) -> None:
            self.inner.close()

    monkeypatch.setattr("squall_worker.transport.ring.connections._ACCEPT_AGAIN_SECS", 0.2)
    a, b = Worker(A), Worker(B)
    rings = b.transport._rings
    assert rings is not None
    assert rings._listener is not None
    full = Full(rings._listener)
    monkeypatch.setattr(rings, "_listener", full)
    began = time.monotonic()
    await linked(a, b, over_rings=True)
    assert full.tries == 3
    assert time.monotonic() - began >= 0.4
    await a.transport.close()
    await b.transport.close()


def start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


async def test_a_worker_that_is_killed_leaves_nothing_behind() -> None:
    """Under load, at any point, again and again; its successor goes on."""
    a = Worker(A)
    fds = len(os.listdir("/proc/self/fd"))
    for launch in range(1, LAUNCHES + 1):
        program = [sys.executable, "-m", "tests.support.ring_echo", TOPOLOGY, str(launch)]
        child = start([*program, str(a.port)])
        assert child.stdout is not None
        line = await asyncio.get_running_loop().run_in_executor(None, child.stdout.readline)
        a.transport.set_peers({B: ("127.0.0.1", int(line))})
        await wait_until(a.transport.over_rings)
        a.received.clear()
        a.transport.send(B, [b"x" * 1_000] * 2_000)
        wanted = 10 * launch
        await wait_until(lambda wanted=wanted: len(a.received) > wanted)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        await wait_until(lambda: not a.transport.over_rings())
        rings = a.transport._rings
        assert rings is not None
        await wait_until(lambda rings=rings: not rings._incoming)
        a.transport.set_peers({})
        assert "squall-ring" not in Path("/proc/self/maps").read_text()
        # ZeroMQ closes its own in its own time.
        await wait_until(lambda: len(os.listdir("/proc/self/fd")) <= fds)
    await a.transport.close()
    for slot, last in ((A, 1), (B, LAUNCHES)):
        for launch in range(1, last + 1):
            name = listening_name(topology_hash(TOPOLOGY), slot, Incarnation(1, launch))
            assert name[1:].decode() not in Path("/proc/net/unix").read_text()
