"""Two real transports over TCP, plain and encrypted: resets, restarts, hostile bytes, idling."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import socket
from collections.abc import AsyncIterator, Iterator

import pytest
import zmq
from tests.support.tcp_proxy import TcpProxy
from tests.support.transports import TransportEnd, wait_until
from tests.support.validated import validated_transports

from squall_common.daemon.output.story import ContradictionError
from squall_common.security.curve import CurveKey
from squall_common.topology.model import WorkerSlot
from squall_worker.transport.frames import FRAME_BYTES_MAX, SECTION_BYTES_MAX, Frame, Kind, Session
from squall_worker.transport.link_table import Left, Replaced
from squall_worker.transport.zmq import PortInUseError
from squall_worker.transport.zmq_table import Reading

pytestmark = pytest.mark.integration

A = WorkerSlot("a", 1)
B = WorkerSlot("b", 2)
TOPOLOGY = "wordcount-1-1700000000"
KEY = CurveKey.make(TOPOLOGY)


@pytest.fixture(autouse=True)
def _validated() -> Iterator[None]:
    """Every transport of these tests, after every call and callback."""
    with validated_transports() as contradictions:
        yield
    assert not contradictions


class Worker(TransportEnd):
    """One of this topology."""

    def __init__(
        self,
        slot: WorkerSlot,
        launch: int = 1,
        backlog: int = 1 << 28,
        key: CurveKey | None = None,
        zxid: int = 1,
    ) -> None:
        super().__init__(TOPOLOGY, slot, launch=launch, zxid=zxid, backlog=backlog, key=key)


class Pair:
    """Workers a and b, each reaching the other through a proxy."""

    a: Worker
    b: Worker
    to_a: TcpProxy
    to_b: TcpProxy

    def __init__(self, key: CurveKey | None) -> None:
        self.key = key

    async def start(self) -> None:
        self.a, self.b = Worker(A, key=self.key), Worker(B, key=self.key)
        self.a.start()
        self.b.start()
        self.to_a, self.to_b = TcpProxy(self.a.port), TcpProxy(self.b.port)
        await self.to_a.start()
        await self.to_b.start()
        self.connect()

    def connect(self) -> None:
        self.a.transport.set_peers({B: ("127.0.0.1", self.to_b.port)})
        self.b.transport.set_peers({A: ("127.0.0.1", self.to_a.port)})

    async def wait_greeted(self) -> None:
        await wait_until(
            lambda: bool(self.a.transport.greeted()) and bool(self.b.transport.greeted())
        )

    async def close(self) -> None:
        await self.a.transport.close()
        await self.b.transport.close()
        await self.to_a.close()
        await self.to_b.close()


@pytest.fixture(params=[None, KEY], ids=["plain", "curve"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    pair = Pair(request.param)
    await pair.start()
    yield pair
    await pair.close()


async def test_sections_arrive_in_order_and_the_backlog_falls(pair: Pair) -> None:
    """Also those that were sent before the peer was known."""
    sent = [b"%d" % i for i in range(1000)]
    for section in sent[:500]:
        pair.a.transport.send(B, [section])
    assert pair.a.transport.backlog_bytes(B) > 0
    await pair.wait_greeted()
    for section in sent[500:]:
        pair.a.transport.send(B, [section])
    await wait_until(lambda: pair.b.received == sent)
    await wait_until(lambda: pair.a.transport.backlog_bytes(B) == 0)


async def test_a_backlog_falls_only_when_the_engine_takes(pair: Pair) -> None:
    await pair.wait_greeted()
    pair.b.reading = False
    pair.a.transport.send(B, [b"x" * 1000])
    woken = asyncio.Event()
    pair.b.transport.set_wakeup(woken.set)
    await asyncio.wait_for(woken.wait(), 10)
    assert pair.a.transport.backlog_bytes(B) > 0
    (arrival,) = pair.b.transport.drain(1)
    assert arrival.sections == (b"x" * 1000,)
    await wait_until(lambda: pair.a.transport.backlog_bytes(B) == 0)


async def test_a_full_inbox_stops_reading_and_goes_on_afterwards(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver whose engine takes nothing holds no more than its bound; the rest waits at the
    sender, and nothing is lost or forgotten when the engine takes again."""
    monkeypatch.setattr("squall_worker.transport.zmq._INBOX_BYTES_MAX", 1_000_000)
    await pair.wait_greeted()
    pair.b.reading = False
    sections = [b"%d " % i + b"x" * 50_000 for i in range(400)]
    for section in sections:
        pair.a.transport.send(B, [section])
    await wait_until(lambda: pair.b.transport._inbox_bytes >= 1_000_000)
    await asyncio.sleep(0.1)
    assert pair.b.transport._inbox_bytes < 2_000_000
    assert pair.b.transport._reading is Reading.HELD
    pair.b.reading = True
    pair.b.drain()
    await wait_until(lambda: pair.b.received == sections)
    await wait_until(lambda: pair.a.transport.backlog_bytes(B) == 0)


async def test_sections_of_every_size(pair: Pair) -> None:
    sizes = [0, 1, 100_000, 262_140, 262_144, 300_000, 5_000_000, SECTION_BYTES_MAX]
    sections = [os.urandom(min(size, 1000)).ljust(size, b"\0")[:size] for size in sizes]
    pair.a.transport.send(B, sections)
    with pytest.raises(ValueError, match="exceeds the limit"):
        pair.a.transport.send(B, [b"x" * (SECTION_BYTES_MAX + 1)])
    await wait_until(lambda: len(pair.b.received) == len(sections))
    assert pair.b.received == sections


async def test_resets_under_load_lose_nothing(pair: Pair) -> None:
    """Both directions busy while the connections are broken again and again, in any moment."""
    source = random.Random(7)
    await pair.wait_greeted()
    sent: dict[WorkerSlot, list[bytes]] = {A: [], B: []}
    number = 0
    resets, rounds = 0, 0
    broken = {pair.to_a: 0, pair.to_b: 0}  # connections so far when it was last reset
    while resets < 12:
        rounds += 1
        for to, sender in ((B, pair.a), (A, pair.b)):
            if sender.transport.backlog_bytes(to) > 4_000_000:
                continue
            sections = []
            for _ in range(source.randint(1, 20)):
                number += 1
                sections.append(b"%d " % number + b"x" * source.choice([10, 500, 20_000]))
            sender.transport.send(to, sections)
            sent[to] += sections
        proxy = source.choice([pair.to_a, pair.to_b])
        if rounds % 10 == 0 and proxy.connections > broken[proxy]:
            broken[proxy] = proxy.connections
            proxy.reset()
            resets += 1
        await asyncio.sleep(source.choice([0, 0, 0.005]))
    await wait_until(lambda: len(pair.b.received) >= len(sent[B]))
    await wait_until(lambda: len(pair.a.received) >= len(sent[A]))
    assert pair.b.received == sent[B]
    assert pair.a.received == sent[A]
    assert pair.a.transport.counts().frames_resent + pair.b.transport.counts().frames_resent > 0
    await wait_until(lambda: pair.a.transport.backlog_bytes(B) == 0)


@pytest.mark.parametrize("ends_by_reset", [False, True])
async def test_a_partition_under_load_loses_nothing(pair: Pair, ends_by_reset: bool) -> None:
    """Nothing passes in either direction while both go on sending; then it heals, or the
    connections turn out to be dead."""
    await pair.wait_greeted()
    sent: dict[WorkerSlot, list[bytes]] = {A: [], B: []}

    async def send(rounds: int) -> None:
        for _ in range(rounds):
            for to, sender in ((B, pair.a), (A, pair.b)):
                section = b"%d " % len(sent[to]) + b"x" * 2_000
                sender.transport.send(to, [section])
                sent[to].append(section)
            await asyncio.sleep(0.002)

    for _ in range(3):
        await send(50)
        pair.to_a.pause()
        pair.to_b.pause()
        await send(250)
        if ends_by_reset:
            pair.to_a.reset()
            pair.to_b.reset()
        pair.to_a.resume()
        pair.to_b.resume()
    await wait_until(lambda: len(pair.b.received) >= len(sent[B]))
    await wait_until(lambda: len(pair.a.received) >= len(sent[A]))
    assert pair.b.received == sent[B]
    assert pair.a.received == sent[A]
    await wait_until(lambda: pair.a.transport.backlog_bytes(B) == 0)


async def test_the_last_frame_before_silence_is_found_missing(pair: Pair) -> None:
    """Nothing follows that would show the gap: the idle repetition does."""
    await pair.wait_greeted()
    pair.to_b.pause()
    pair.a.transport.send(B, [b"last"])
    await asyncio.sleep(0.02)
    pair.to_b.reset()
    pair.to_b.resume()
    await wait_until(lambda: pair.b.received == [b"last"], 5)


async def test_a_new_incarnation_takes_over_and_the_old_frames_are_dropped(pair: Pair) -> None:
    await pair.wait_greeted()
    pair.a.transport.send(B, [b"one"])
    await wait_until(lambda: pair.b.received == [b"one"])
    await wait_until(lambda: pair.a.transport.backlog_bytes(B) == 0)
    await pair.b.transport.close()
    pair.a.transport.send(B, [b"for the dead"])
    port = pair.b.port
    pair.b = Worker(B, launch=2, key=pair.key)
    pair.b.start(port)
    pair.connect()
    await wait_until(lambda: any(isinstance(event, Replaced) for event in pair.a.events))
    replaced = next(event for event in pair.a.events if isinstance(event, Replaced))
    assert (replaced.old.launch, replaced.new.launch, replaced.left) == (1, 2, False)
    assert replaced.dropped_frames == 1
    assert pair.a.dropped == [b"for the dead"]
    await pair.wait_greeted()
    pair.a.transport.send(B, [b"two"])
    await wait_until(lambda: pair.b.received == [b"two"])


async def test_after_a_goodbye_nothing_is_lost(pair: Pair) -> None:
    """What the leaving worker never took goes to its successor."""
    await pair.wait_greeted()
    pair.b.transport.send(A, [b"its last"])
    pair.b.reading = False
    pair.a.transport.send(B, [b"kept"])
    assert await pair.b.transport.close(drain_secs=5)
    await wait_until(lambda: any(isinstance(event, Left) for event in pair.a.events))
    assert next(e for e in pair.a.events if isinstance(e, Left)).drained
    assert pair.a.received == [b"its last"]
    pair.a.transport.send(B, [b"for the next"])
    port = pair.b.port
    pair.b = Worker(B, launch=2, key=pair.key)
    pair.b.start(port)
    pair.connect()
    await wait_until(lambda: pair.b.received == [b"kept", b"for the next"])


async def test_an_old_incarnation_is_not_heard(pair: Pair) -> None:
    """A replaced worker that still runs somewhere: its frames have no effect."""
    pair.b.transport.send(A, [b"now"])
    await pair.wait_greeted()
    await wait_until(lambda: pair.a.received == [b"now"])
    zombie = Worker(B, launch=0, key=pair.key)
    zombie.transport.set_peers({A: ("127.0.0.1", pair.a.port)})
    zombie.transport.send(A, [b"old"])
    await wait_until(lambda: pair.a.transport.counts().dropped_replaced > 0)
    await zombie.transport.close()
    assert pair.a.received == [b"now"]


async def test_a_session_that_the_assignment_cannot_hold_replaces_no_other(pair: Pair) -> None:
    """Whoever reaches the port, or has the key, cannot take a worker's place by a great number."""
    await pair.wait_greeted()
    pair.a.transport.set_peers({B: ("127.0.0.1", pair.to_b.port)}, zxid_max=2**40)
    forger = Worker(B, zxid=2**41, key=pair.key)
    forger.transport.set_peers({A: ("127.0.0.1", pair.a.port)})
    forger.transport.send(A, [b"forged"])
    await wait_until(lambda: pair.a.transport.counts().dropped_unconfirmed > 0)
    assert B in pair.a.strangers, "the assignment is read again"
    pair.b.transport.send(A, [b"real"])
    await wait_until(lambda: pair.a.received == [b"real"])
    assert not any(isinstance(event, Replaced) for event in pair.a.events)
    # Had it been placed there since, the next reading would let it in.
    pair.a.transport.set_peers({B: ("127.0.0.1", pair.to_b.port)}, zxid_max=2**41)
    assert any(isinstance(event, Replaced) for event in pair.a.events)
    await forger.transport.close()


async def test_a_link_recovers_after_another_program_had_the_port(pair: Pair) -> None:
    """ZeroMQ gives a socket up for good that met another protocol."""
    await pair.wait_greeted()
    met = 0

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal met
        met += 1
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + b"x" * 100)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    other = await asyncio.start_server(answer, "127.0.0.1", 0)
    port, pair.to_b.target_port = pair.to_b.target_port, other.sockets[0].getsockname()[1]
    await pair.b.transport.close()
    pair.to_b.reset()
    await wait_until(lambda: met > 0)
    pair.to_b.target_port = port
    other.close()
    pair.b = Worker(B, launch=2, key=pair.key)
    pair.b.start(port)
    pair.b.transport.set_peers({A: ("127.0.0.1", pair.to_a.port)})
    await pair.wait_greeted()
    pair.a.transport.send(B, [b"again"])
    await wait_until(lambda: pair.b.received == [b"again"])


async def test_a_peer_that_moves_is_followed(pair: Pair) -> None:
    await pair.wait_greeted()
    pair.a.transport.set_peers({B: ("127.0.0.1", pair.b.port)})
    pair.a.transport.send(B, [b"direct"])
    await wait_until(lambda: pair.b.received == [b"direct"])
    pair.a.transport.set_peers({})
    assert pair.a.transport.peers == frozenset()
    assert pair.a.transport.backlog_bytes(B) == 0
    pair.connect()
    pair.a.transport.send(B, [b"again"])
    await wait_until(lambda: pair.b.received == [b"direct", b"again"])


async def test_a_port_in_use_is_named(pair: Pair) -> None:
    other = Worker(B, key=pair.key)
    with pytest.raises(PortInUseError, match=str(pair.a.port)):
        other.start(pair.a.port)
    await other.transport.close()


def push(port: int, key: CurveKey | None) -> zmq.Socket[bytes]:
    """A socket that has the topology's key, if there is one."""
    context = zmq.Context()
    sock = context.socket(zmq.PUSH)
    sock.setsockopt(zmq.LINGER, 1000)
    if key is not None:
        sock.setsockopt(zmq.CURVE_SERVERKEY, key.public)
        sock.setsockopt(zmq.CURVE_PUBLICKEY, key.public)
        sock.setsockopt(zmq.CURVE_SECRETKEY, key.secret)
    sock.connect(f"tcp://127.0.0.1:{port}")
    return sock


async def test_hostile_messages_are_dropped_and_counted(pair: Pair) -> None:
    await pair.wait_greeted()
    source = random.Random(3)
    hostile = push(pair.b.port, pair.key)
    good = Frame(
        Kind.DATA, b"another!", A, Session(9, 9, 9), Session(1, 1, 1), 1, 0, False, (b"forged",)
    )
    for _ in range(200):
        hostile.send(source.randbytes(source.randrange(300)))
    hostile.send_multipart([good.serialize(), b"", b"more"])
    hostile.send(good.serialize())
    unknown = Frame(
        Kind.GREETING, pair.b.transport._topology, WorkerSlot("z", 9), Session(9, 9, 9),
        Session(0, 0, 0), 0, 0,
    )  # fmt: skip
    hostile.send(unknown.serialize())
    drops = pair.b.transport.drops
    await wait_until(lambda: drops.total == 203)
    assert (drops.malformed, drops.multipart, drops.foreign, drops.unknown) == (200, 1, 1, 1)
    assert pair.b.strangers == [WorkerSlot("z", 9)]
    hostile.close()
    hostile.context.term()
    pair.a.transport.send(B, [b"still here"])
    await wait_until(lambda: pair.b.received == [b"still here"])


async def test_a_huge_message_costs_its_sender_the_connection(pair: Pair) -> None:
    await pair.wait_greeted()
    hostile = push(pair.b.port, pair.key)
    hostile.setsockopt(zmq.RECONNECT_STOP, zmq.RECONNECT_STOP_CONN_REFUSED)
    monitor = hostile.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    hostile.send(b"x" * (FRAME_BYTES_MAX + 1))
    await wait_until(lambda: monitor.poll(0) != 0)
    hostile.disable_monitor()
    monitor.close()
    hostile.close(0)
    hostile.context.term()
    pair.a.transport.send(B, [b"still here"])
    await wait_until(lambda: pair.b.received == [b"still here"])
    assert pair.b.transport.drops.total == 0


async def test_raw_bytes_on_the_port_are_harmless(pair: Pair) -> None:
    await pair.wait_greeted()
    for payload in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(5000), b"\xff" * 100):
        with socket.create_connection(("127.0.0.1", pair.b.port)) as raw:
            raw.sendall(payload)
    pair.a.transport.send(B, [b"still here"])
    await wait_until(lambda: pair.b.received == [b"still here"])


async def test_a_full_backlog_drops_and_counts() -> None:
    """The hard bound behind the engine's own: memory stays bounded when a peer never comes."""
    worker = Worker(A, backlog=1000)
    for _ in range(10):
        worker.transport.send(B, [b"x" * 296])
    assert worker.transport.backlog_bytes(B) == 900
    assert worker.transport.counts().dropped_overflow == 7
    assert len(worker.dropped) == 7
    worker.transport.set_peers({})
    assert len(worker.dropped) == 10, "what was queued for a peer that is removed"
    await worker.transport.close()


async def test_idle_links_cost_next_to_nothing(pair: Pair) -> None:
    """Both transports idle in this process: far below the 1 % of a CPU that a worker may use."""
    await pair.wait_greeted()
    await asyncio.sleep(0.5)
    sent = pair.a.transport.counts().frames_sent
    before = resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.sleep(3)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert pair.a.transport.counts().frames_sent - sent <= 8
    assert cpu < 0.15


async def test_a_contradiction_reports_what_led_to_it() -> None:
    worker = Worker(A)
    worker.start()
    worker.transport._reading = Reading.HELD  # and its inbox is empty: nothing would read again
    with pytest.raises(ContradictionError) as caught:
        worker.transport.validate()
    assert "nothing will read the socket again" in str(caught.value)
    assert "UNBOUND --PortBound()--> BOUND" in str(caught.value)
    worker.transport._reading = Reading.WATCHED
    await worker.transport.close()
    worker.transport.validate()
    assert "CLOSED" in str(worker.transport)
