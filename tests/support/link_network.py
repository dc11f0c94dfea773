"""Engines over real links (`transport.link`), on a channel in memory that loses, repeats and swaps
frames, and whose workers die and come back as a new incarnation."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.support.engine_cluster import Network

from squall_common.daemon.clock import ManualClock
from squall_common.topology.model import WorkerSlot
from squall_engine.transport import Arrival, Grant, Listener
from squall_worker.transport.frames import Frame, Session
from squall_worker.transport.link import Link
from squall_worker.transport.link_table import Began, Delivered, Granted, Replaced

_TOPOLOGY = b"topology"
_TICK_SECS = 0.02
# As the frames that ZeroMQ and TCP hold for a peer: what is not yet read is no one's.
_ON_THE_WAY_MAX = 32


class LinkTransport:
    """`ZmqTransport` without ZeroMQ."""

    def __init__(self, network: LinkNetwork, slot: WorkerSlot, launch: int, clock: ManualClock):
        self.network = network
        self.slot = slot
        self.alive = True
        self.engine: Any = None
        self.links: dict[WorkerSlot, Link] = {}
        self.dropped = 0  # sections
        self._launch = launch
        self._clock = clock
        self._inbox: deque[tuple[Link, Delivered]] = deque()
        self._wakeup: Callable[[], None] = lambda: None
        self._listener: Listener | None = None

    def _link(self, peer: WorkerSlot) -> Link:
        if peer not in self.links:
            session = Session(1, self._launch, 1)
            self.links[peer] = Link(
                _TOPOLOGY, self.slot, session, peer,
                now=self._clock.monotonic(), backlog_bytes_max=self.network.backlog_bytes_max,
            )  # fmt: skip
        return self.links[peer]

    # -- Transport --

    def send(self, peer: WorkerSlot, sections: Sequence[bytes], credited: int = 0) -> None:
        if not self._link(peer).queue(sections, credited):
            self._drop(sections[credited:])
        self.pump(peer)

    def drain(self, limit_bytes: int) -> list[Arrival]:
        found = []
        while self._inbox and limit_bytes > 0:
            link, delivered = self._inbox.popleft()
            limit_bytes -= delivered.size_bytes
            sessions = (link.session, delivered.session)
            found.append(Arrival(delivered.peer, sessions, delivered.sections))
            link.take(delivered, self._clock.monotonic())
            link.validate()
        if self._inbox:
            asyncio.get_running_loop().call_soon(self._wakeup)
        return found

    def grant(self, peer: WorkerSlot, grants: Iterable[Grant], *, soon: bool) -> None:
        self._link(peer).grant(grants, soon=soon)
        if soon:
            self.pump(peer)

    def set_wakeup(self, wakeup: Callable[[], None], listener: Listener) -> None:
        self._wakeup, self._listener = wakeup, listener
        for peer in self.network.ends:
            if peer != self.slot:
                link = self._link(peer)
                if link.peer_session is not None:
                    listener.session_began(peer, link.sessions, link.queued())
                    listener.granted(peer, tuple(link.granted.values()))
        self._tick()

    def _drop(self, sections: Sequence[bytes]) -> None:
        self.dropped += len(sections)
        engine: Any = self._listener
        asyncio.get_running_loop().call_soon(engine.sections_dropped, sections)

    # -- the channel --

    def pump(self, peer: WorkerSlot) -> None:
        link, now = self._link(peer), self._clock.monotonic()
        while self.alive and self.network.takes(self.slot, peer):
            frame = link.next_frame(now)
            if frame is None:
                return
            self.network.frame(self.slot, peer, frame.serialize())
            link.sent(frame, now)
            link.validate()

    def _tick(self) -> None:
        if self.alive:
            for peer, link in self.links.items():
                link.tick(self._clock.monotonic())
                link.validate()
                self.pump(peer)
            asyncio.get_running_loop().call_later(_TICK_SECS, self._tick)

    def arrive(self, data: bytes) -> None:
        frame = Frame.parse(data)
        link = self._link(frame.slot)
        events = link.receive(frame, self._clock.monotonic())
        link.validate()
        for event in events:
            if isinstance(event, Delivered):
                self._inbox.append((link, event))
            elif self._listener is None:
                continue
            elif isinstance(event, Began):
                self._listener.session_began(event.peer, event.sessions, event.waiting)
            elif isinstance(event, Granted):
                self._listener.granted(event.peer, event.grants)
            elif isinstance(event, Replaced) and event.dropped:
                self._drop(event.dropped)
        self._wakeup()
        self.pump(frame.slot)


class LinkNetwork(Network):
    """`lose` and `repeat` are shares of the frames; with `delay_secs` one in twenty comes late."""

    def __init__(self, seed: int = 0, **shares: float) -> None:
        super().__init__(seed, **shares)
        self.backlog_bytes_max = 10**9
        self.launches: dict[WorkerSlot, int] = {}
        self._on_the_way: dict[tuple[WorkerSlot, WorkerSlot], int] = {}
        self._arrives_at: dict[tuple[WorkerSlot, WorkerSlot], float] = {}

    def end(self, slot: WorkerSlot, clock: ManualClock) -> LinkTransport:
        self.launches[slot] = self.launches.get(slot, 0) + 1
        return LinkTransport(self, slot, self.launches[slot], clock)

    def begin(self) -> None:
        """Nothing: links greet each other."""

    def kill(self, slot: WorkerSlot) -> None:
        self.ends[slot].alive = False

    def takes(self, slot: WorkerSlot, peer: WorkerSlot) -> bool:
        return self._on_the_way.get((slot, peer), 0) < _ON_THE_WAY_MAX

    def frame(self, slot: WorkerSlot, peer: WorkerSlot, data: bytes) -> None:
        """Carry a frame."""
        if self.rng.random() < self.lose:
            return
        way = (slot, peer)

        def arrive(first: bool) -> None:
            if first:
                self._on_the_way[way] -= 1
            end = self.ends.get(peer)
            if end is not None and end.alive:
                end.arrive(data)
            if self.ends[slot].alive:
                self.ends[slot].pump(peer)

        self._on_the_way[way] = self._on_the_way.get(way, 0) + 1
        loop = asyncio.get_running_loop()
        # In order, as TCP has it, but for those that are overtaken. (Links take frames in order
        # only, and have what is missing sent again with all that follows.)
        at = self._arrives_at[way] = max(
            self._arrives_at.get(way, 0.0) + 1e-6,
            loop.time() + self.rng.random() * self.delay_secs,
        )
        if self.rng.random() < 0.05:
            at += self.delay_secs
        loop.call_at(at, arrive, True)
        if self.rng.random() < self.repeat:
            loop.call_later(self.rng.random() * self.delay_secs, arrive, False)
