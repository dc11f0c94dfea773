"""Links that follow the assignment, with a transport that only takes notes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import cast

import pytest

from squall_common.daemon.clock import ManualClock
from squall_common.topology.model import WorkerSlot
from squall_worker.cluster.peers import Addresses, Peers
from squall_worker.cluster.placement import Placement
from squall_worker.transport.frames import Session
from squall_worker.transport.link_table import Greeted, Left, Replaced
from squall_worker.transport.push import Address
from squall_worker.transport.zmq import ZmqTransport

ME, A, B = WorkerSlot("me", 1), WorkerSlot("a", 6700), WorkerSlot("b", 6701)
OLD, NEW = Session(1, 1, 1), Session(1, 2, 1)


class Notes:
    """The part of a transport that `Peers` uses."""

    def __init__(self) -> None:
        self.peers: dict[WorkerSlot, Address] = {}
        self.standing: set[WorkerSlot] = set()
        self.silent_ones: set[WorkerSlot] = set()

    def set_peers(self, peers: Mapping[WorkerSlot, Address], zxid_max: int | None = None) -> None:
        self.peers = dict(peers)
        self.zxid_max = zxid_max

    def greeted(self) -> frozenset[WorkerSlot]:
        return frozenset(self.standing)

    def silent(self) -> dict[WorkerSlot, Address]:
        return {slot: self.peers[slot] for slot in self.silent_ones}

    def backlog_bytes(self, peer: WorkerSlot) -> int:
        return 0


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lost: list[frozenset[int]] = []
        self.changes = 0
        self.refusing: set[Address] = set()
        self.transport = Notes()
        self.peers = Peers(
            grace_secs=4,
            clock=self.clock,
            on_lost=self.lost.append,
            on_change=self.change,
            refuses=self.refuses,
        )
        self.peers.attach(cast(ZmqTransport, self.transport))

    async def refuses(self, address: Address, secs: float) -> bool:
        return address in self.refusing

    def change(self) -> None:
        self.changes += 1


def placement(*slots: WorkerSlot, host: str = "127.0.0.1") -> Placement:
    routes = dict(enumerate(slots, start=1))
    return Placement((), routes, dict.fromkeys(slots, host))


async def test_links_follow_the_assignment_and_linger_for_a_goodbye() -> None:
    scene = Scene()
    await scene.peers.follow(placement(A, B))
    assert scene.transport.peers == {A: ("127.0.0.1", 6700), B: ("127.0.0.1", 6701)}
    await scene.peers.follow(placement(B))
    assert set(scene.transport.peers) == {A, B}
    scene.peers.happened(Left(A, OLD, drained=True))
    assert scene.changes == 1
    scene.peers.update()
    assert set(scene.transport.peers) == {B}
    await asyncio.sleep(0)
    assert scene.lost == []


async def test_a_silent_peer_whose_machine_refuses_is_lost_once() -> None:
    """One that does not answer may be alive; one that said goodbye has lost nothing."""
    scene = Scene()
    await scene.peers.follow(placement(A, B))
    scene.transport.silent_ones = {A, B}
    scene.refusing = {scene.transport.peers[B]}
    for _ in range(3):
        await scene.peers.look_for_ended()
    await asyncio.sleep(0)
    assert scene.lost == [frozenset({2})]
    scene.peers.happened(Replaced(B, OLD, NEW, left=False, dropped_frames=3))
    await asyncio.sleep(0)
    assert scene.lost == [frozenset({2})] * 2, "what was sent meanwhile"


async def test_losses_are_reported_on_the_loop() -> None:
    """Not from within the transport's call: the engine may send at once."""
    scene = Scene()
    await scene.peers.follow(placement(A, B))
    scene.peers.happened(Replaced(B, OLD, NEW, left=False, dropped_frames=3))
    assert scene.lost == []
    await asyncio.sleep(0)
    assert scene.lost == [frozenset({2})]


async def test_waits_until_all_have_greeted() -> None:
    scene = Scene()
    await scene.peers.follow(placement(A, B))
    waiting = asyncio.create_task(scene.peers.wait_linked())
    scene.transport.standing = {A}
    scene.peers.happened(Greeted(A, OLD))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    scene.transport.standing = {A, B}
    scene.peers.happened(Greeted(B, OLD))
    assert await asyncio.wait_for(waiting, 5)


async def test_a_peer_that_leaves_the_assignment_is_not_waited_for() -> None:
    scene = Scene()
    await scene.peers.follow(placement(A, B))
    waiting = asyncio.create_task(scene.peers.wait_linked())
    scene.transport.standing = {A}
    await asyncio.sleep(0.01)
    await scene.peers.follow(placement(A))
    assert await asyncio.wait_for(waiting, 5)


async def test_a_dead_peer_is_not_waited_for_forever(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("squall_worker.cluster.peers._READY_SECS_MAX", 0.0)
    scene = Scene()
    await scene.peers.follow(placement(A))
    assert not await scene.peers.wait_linked()
    assert "peers_missing" in caplog.text


async def test_strangers_cause_ever_fewer_readings_of_the_assignment() -> None:
    scene = Scene()
    for _ in range(600):  # ten minutes of a greeting each second
        scene.peers.met_stranger(B)
        scene.clock.advance(1)
    assert 8 <= scene.changes <= 20
    before = scene.changes
    await scene.peers.follow(placement(A))
    scene.clock.advance(60)
    scene.peers.met_stranger(B)
    scene.clock.advance(1)
    scene.peers.met_stranger(B)
    assert scene.changes == before + 2


async def test_names_are_resolved_and_the_last_address_is_kept(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    addresses = Addresses()
    await addresses.resolve({A: "localhost", B: "::1"})
    assert addresses.of([A, B]) == {A: ("127.0.0.1", 6700), B: ("::1", 6701)}

    async def nowhere(*_: object, **__: object) -> None:
        raise OSError("no such host")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", nowhere)
    await addresses.resolve({A: "localhost"})
    assert "host_not_resolved host=localhost" in caplog.text
    assert addresses.of([A]) == {A: ("127.0.0.1", 6700)}
    assert addresses.of([]) == {}
    assert addresses.of([A]) == {}
    addresses.close()


async def test_a_host_whose_name_server_is_silent_is_looked_up_once_not_at_each_reading(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An abandoned look-up keeps its thread; those of ten readings would take all of them."""
    asked: list[str] = []
    answered = asyncio.Event()

    async def silent(host: str, *_: object, **__: object) -> list[object]:
        asked.append(host)
        # As the thread of the real one: it does not end because its caller stopped waiting.
        await asyncio.shield(asyncio.create_task(answered.wait()))
        return [(socket.AF_INET, 0, 0, "", ("10.0.0.7", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", silent)
    monkeypatch.setattr("squall_worker.cluster.peers._RESOLVE_SECS", 0.01)
    scene = Scene()
    for _ in range(10):
        await scene.peers.follow(placement(A, host="silent"))
    assert asked == ["silent"]
    assert scene.transport.peers == {}
    answered.set()
    await asyncio.sleep(0.01)
    await scene.peers.follow(placement(A, host="silent"))
    assert scene.transport.peers == {A: ("10.0.0.7", 6700)}, "the late answer counts"
    scene.peers.close()
