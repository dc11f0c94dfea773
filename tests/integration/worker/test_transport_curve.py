"""Encrypted connections between workers, as those see them who are not to get in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import psutil
import pytest
import zmq
from tests.integration.worker.test_zmq_transport import (
    KEY,
    TOPOLOGY,
    A,
    B,
    Pair,
    Worker,
    wait_until,
)
from tests.support.tcp_proxy import TcpProxy

from squall_common.errors import SquallError
from squall_common.security.curve import CurveKey
from squall_worker.transport.frames import FRAME_BYTES_MAX, Frame, Kind, Session, topology_hash

pytestmark = pytest.mark.integration

MIB = 1024 * 1024
# A frame that worker b would take from worker a, were it let in.
FORGED = Frame(
    Kind.DATA, topology_hash(TOPOLOGY), A, Session(1, 1, 1), Session(1, 1, 1), 1, 0, False,
    (b"forged",),
).serialize()  # fmt: skip


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair(KEY)
    await pair.start()
    await pair.wait_greeted()
    yield pair
    await pair.close()


@contextmanager
def pushing(port: int, **options: bytes) -> Iterator[zmq.Socket[bytes]]:
    """A PUSH socket of a stranger that sends everything it can."""
    context = zmq.Context()
    sock = context.socket(zmq.PUSH)
    sock.setsockopt(zmq.LINGER, 0)
    for name, value in options.items():
        sock.setsockopt(getattr(zmq, name), value)
    sock.connect(f"tcp://127.0.0.1:{port}")
    try:
        yield sock
    finally:
        sock.close(0)
        context.term()


async def still_works(pair: Pair) -> None:
    pair.a.transport.send(B, [b"still here"])
    await wait_until(lambda: pair.b.received[-1:] == [b"still here"])
    assert pair.b.received == [b"still here"]
    assert pair.b.transport.drops.total == 0, "a stranger's bytes were looked at as a frame"


def stranger(how: str) -> dict[str, bytes]:
    """Options of a socket that does not have the topology's key pair."""
    public, secret = zmq.curve_keypair()
    other = CurveKey.make("other-1-1")
    return {
        "plain": {},
        "another topology's key": {
            "CURVE_SERVERKEY": other.public,
            "CURVE_PUBLICKEY": other.public,
            "CURVE_SECRETKEY": other.secret,
        },
        # Only the handler's list of keys stands between this one and the port.
        "knows the public key": {
            "CURVE_SERVERKEY": KEY.public,
            "CURVE_PUBLICKEY": public,
            "CURVE_SECRETKEY": secret,
        },
        "pretends to be a worker": {
            "CURVE_SERVERKEY": KEY.public,
            "CURVE_PUBLICKEY": KEY.public,
            "CURVE_SECRETKEY": secret,
        },
        "user and password": {"PLAIN_USERNAME": b"admin", "PLAIN_PASSWORD": b"admin"},
    }[how]


@pytest.mark.parametrize(
    "how",
    [
        "plain",
        "another topology's key",
        "knows the public key",
        "pretends to be a worker",
        "user and password",
    ],
)
async def test_a_stranger_delivers_nothing(
    pair: Pair, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pushing(pair.b.port, **stranger(how)) as sock:
        for _ in range(100):
            sock.send(FORGED, zmq.NOBLOCK)
        await wait_until(lambda: pair.b.transport.drops.refused > 0)
        await still_works(pair)


async def test_a_peer_with_the_key_gets_in(pair: Pair) -> None:
    """The same socket and frames with the key: it is the key that keeps the others out."""
    with pushing(
        pair.b.port,
        CURVE_SERVERKEY=KEY.public,
        CURVE_PUBLICKEY=KEY.public,
        CURVE_SECRETKEY=KEY.secret,
    ) as sock:
        sock.send(b"no frame", zmq.NOBLOCK)
        await wait_until(lambda: pair.b.transport.drops.malformed == 1)
    assert pair.b.transport.drops.refused == 0


async def test_refusals_are_logged_at_intervals(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[dict[str, object]] = []
    monkeypatch.setattr(
        "squall_worker.transport.zmq.log.warning",
        lambda event, **keys: reported.append({"event": event, **keys}),
    )
    for _ in range(3):  # one may be all that a socket tries
        refused = pair.b.transport.drops.refused
        with pushing(pair.b.port):
            await wait_until(lambda before=refused: pair.b.transport.drops.refused > before)
    (one,) = reported
    assert one["event"] == "connection_refused"
    assert "storm.bind.host" in str(one["what_to_do"])


def greeting(mechanism: bytes) -> bytes:
    """Of a client (rfc.zeromq.org/spec/23)."""
    return b"\xff" + b"\0" * 8 + b"\x7f" + b"\x03\x00" + mechanism.ljust(20, b"\0") + b"\0" * 32


@pytest.mark.parametrize(
    ("said", "came"),
    [
        (greeting(b"NULL"), "does not encrypt"),
        (greeting(b"CURVE") + b"\x04\xc8\x05HELLO\x01\x00" + b"\0" * 192, "another key"),
        (greeting(b"CURVE") + b"\x04\x06\x05HALLO", "breaks CURVE"),
    ],
)
async def test_the_log_tells_who_was_refused_and_what_it_spoke(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, said: bytes, came: str
) -> None:
    reported: list[dict[str, object]] = []
    monkeypatch.setattr(
        "squall_worker.transport.zmq.log.warning", lambda event, **keys: reported.append(keys)
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.b.port)
    await reader.read(10)  # it was accepted
    await asyncio.sleep(0)
    host, port = writer.get_extra_info("sockname")
    writer.write(said)
    await wait_until(lambda: reported)
    writer.transport.abort()
    assert reported[0]["peer"] == f"{host}:{port}"
    assert came in str(reported[0]["came"])
    await still_works(pair)


async def test_the_log_tells_who_may_have_been_refused_while_the_loop_was_busy(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a worker starts, which is when others still look for one that had its port."""
    reported: list[dict[str, object]] = []
    monkeypatch.setattr(
        "squall_worker.transport.zmq.log.warning", lambda event, **keys: reported.append(keys)
    )
    with socket.create_connection(("127.0.0.1", pair.b.port), timeout=10) as stranger:
        host, port = stranger.getsockname()
        stranger.sendall(greeting(b"NULL"))
        while stranger.recv(100):  # until it is cut off
            pass
    await wait_until(lambda: reported)
    assert str(reported[0]["peer"]).startswith("one of ")
    assert f"{host}:{port}" in str(reported[0]["peer"])


async def test_the_log_tells_of_one_that_knows_only_the_public_key(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[dict[str, object]] = []
    monkeypatch.setattr(
        "squall_worker.transport.zmq.log.warning", lambda event, **keys: reported.append(keys)
    )
    with pushing(pair.b.port, **stranger("knows the public key")):
        await wait_until(lambda: reported)
    assert reported[0]["peer"] == "127.0.0.1"  # all that is said of it
    assert "not its secret one" in str(reported[0]["came"])


async def test_a_connection_that_says_nothing_is_no_warning(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scan of ports, or a worker whose peer was held."""
    said: list[str] = []
    for level in ("info", "warning"):
        monkeypatch.setattr(
            f"squall_worker.transport.zmq.log.{level}", lambda event, **keys: said.append(event)
        )
    for _ in range(2):
        refused = pair.b.transport.drops.refused
        _, writer = await asyncio.open_connection("127.0.0.1", pair.b.port)
        writer.close()
        await wait_until(lambda before=refused: pair.b.transport.drops.refused > before)
    assert said == ["connection_not_finished"]
    await still_works(pair)


def hello(size: int) -> bytes:
    """The greeting of a CURVE client (rfc.zeromq.org/spec/37), then the head of a command of so
    many bytes."""
    return greeting(b"CURVE") + b"\x06" + struct.pack(">Q", size)


@pytest.mark.parametrize("size", [2_000_000_000, FRAME_BYTES_MAX, 200], ids=str)
async def test_a_raw_peer_grows_no_memory_and_is_cut_off(pair: Pair, size: int) -> None:
    """It claims a command of `size` bytes, and goes on forever."""
    process = psutil.Process()
    before = process.memory_info().rss
    sent = 0
    _, writer = await asyncio.open_connection("127.0.0.1", pair.b.port)
    try:
        writer.write(hello(size))
        while sent < 300 * MIB:
            writer.write(b"\0" * 65536)
            await writer.drain()
            sent += 65536
        raise AssertionError(f"it took {sent} bytes from a stranger")
    except OSError:
        pass  # cut off
    finally:
        writer.transport.abort()
    # What was claimed within MAXMSGSIZE may have been taken, once.
    assert process.memory_info().rss - before < 24 * MIB
    await still_works(pair)


UNFINISHED = 30


@pytest.mark.parametrize("claimed", [FRAME_BYTES_MAX, 16 * MIB])
@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "curve"])
async def test_unfinished_frames_of_many_strangers_cost_little(
    key: CurveKey | None, claimed: int
) -> None:
    """At most 288 KiB each: thirty cost 480 MB once. With a key they are cut off after the five
    seconds of the handshake."""
    pair = Pair(key)
    await pair.start()
    await pair.wait_greeted()
    process = psutil.Process()
    before = process.memory_info().rss
    loop = asyncio.get_running_loop()
    head = hello(claimed)[:-9]
    if key is None:
        # There is no handshake to win: the rest of it, and the head of a message.
        head = head.replace(b"CURVE", b"NULL\0")
        head += b"\x04\x27\x05READY\x0bSocket-Type\0\0\0\x04PUSH\x08Identity\0\0\0\0"
    data = head + b"\x02" + struct.pack(">Q", claimed) + bytes(claimed - 1)
    strangers = []
    for _ in range(UNFINISHED):
        stranger = socket.create_connection(("127.0.0.1", pair.b.port))
        stranger.setblocking(False)
        strangers.append(stranger)
        with contextlib.suppress(OSError, TimeoutError):  # cut off
            await asyncio.wait_for(loop.sock_sendall(stranger, data), 2)
    grown = process.memory_info().rss - before
    for stranger in strangers:
        stranger.close()
    assert grown < 32 * MIB
    await still_works(pair)
    await pair.close()


async def test_a_silent_peer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("squall_worker.transport.zmq.HANDSHAKE_MS", 300)
    worker = Worker(B, key=KEY)
    worker.start()
    with socket.create_connection(("127.0.0.1", worker.port)) as silent:
        silent.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(20):
            while await loop.sock_recv(silent, 1000):
                pass
    await worker.transport.close()


async def test_a_sniffer_sees_no_plain_text() -> None:
    words = [b"squall-secret-%d-%s" % (i, os.urandom(4).hex().encode()) for i in range(500)]

    async def seen(key: CurveKey | None) -> bytes:
        pair = Pair(key)
        await pair.start()
        proxies: list[TcpProxy] = [pair.to_a, pair.to_b]
        for proxy in proxies:
            proxy.record = bytearray()
        await pair.wait_greeted()
        for at in range(0, 500, 50):
            pair.a.transport.send(B, words[at : at + 50])
            pair.b.transport.send(A, words[at : at + 50])
            await asyncio.sleep(0)
        await wait_until(lambda: pair.a.received == pair.b.received == words)
        await pair.close()
        return b"".join(bytes(proxy.record or b"") for proxy in proxies)

    plain, encrypted = await seen(None), await seen(KEY)
    assert all(word in plain for word in words), "the sniffer works"
    assert len(encrypted) > sum(map(len, words))
    assert not any(word in encrypted for word in words)
    for fixed in (b"squall", topology_hash(TOPOLOGY), KEY.secret, KEY.public):
        assert fixed not in encrypted


async def test_workers_with_different_keys_do_not_meet() -> None:
    """Of two topologies, or one of them without."""
    a, b, c = Worker(A, key=KEY), Worker(B, key=CurveKey.make(TOPOLOGY)), Worker(B)
    for worker in (a, b, c):
        worker.start()
    for other in (b, c):
        a.transport.set_peers({B: ("127.0.0.1", other.port)})
        other.transport.set_peers({A: ("127.0.0.1", a.port)})
        refused = a.transport.drops.refused
        await wait_until(lambda refused=refused: a.transport.drops.refused > refused + 2)
        assert not a.transport.greeted()
        assert not other.transport.greeted()
    for worker in (a, b, c):
        assert worker.received == []
        await worker.transport.close()


@pytest.mark.parametrize(("first", "then"), [(None, KEY), (KEY, None)], ids=["on", "off"])
async def test_workers_change_over_one_after_the_other(
    first: CurveKey | None, then: CurveKey | None
) -> None:
    """A rebalance that sets storm.messaging.curve: for a while one encrypts and one does not."""
    pair = Pair(first)
    await pair.start()
    await pair.wait_greeted()
    for launch, slot in ((2, B), (2, A)):
        old = pair.b if slot == B else pair.a
        await old.transport.close(drain_secs=1)
        new = Worker(slot, launch=launch, key=then)
        new.start(old.port)
        if slot == B:
            pair.b = new
        else:
            pair.a = new
        pair.connect()
        if slot == B:  # they meet, and fail to
            with_key = pair.b if first is None else pair.a
            await wait_until(lambda drops=with_key.transport.drops: drops.refused > 0)
            assert not pair.b.transport.greeted()
    await pair.wait_greeted()
    pair.a.transport.send(B, [b"to b"])
    pair.b.transport.send(A, [b"to a"])
    await wait_until(lambda: (pair.b.received, pair.a.received) == ([b"to b"], [b"to a"]))
    await pair.close()


async def test_without_curve_in_zeromq_there_is_no_transport(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zmq.has", lambda feature: False)
    with pytest.raises(SquallError, match="without CURVE"):
        Worker(A, key=KEY)
    await Worker(A).transport.close()


def test_a_key_is_never_shown() -> None:
    assert KEY.secret.decode() not in repr(KEY) + str(KEY) + f"{KEY}"
    assert CurveKey.from_bytes(KEY.to_bytes(), TOPOLOGY) == KEY
    secret = json.loads(KEY.to_bytes())["secret"]
    damaged = [b"", b"{", b"[]", b"{}", KEY.to_bytes().replace(b'"public"', b'"public": 1, "p"')]
    for data in [*damaged, KEY.to_bytes().replace(secret.encode(), b"short")]:
        with pytest.raises(ValueError, match="no pair of keys for") as caught:
            CurveKey.from_bytes(data, TOPOLOGY)
        assert secret not in str(caught.value)
    with pytest.raises(ValueError, match="another topology"):
        CurveKey.from_bytes(KEY.to_bytes(), "other-1-1")
