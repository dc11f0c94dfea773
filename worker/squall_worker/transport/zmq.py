"""The transport over ZeroMQ: one PULL socket, the worker's virtual port, and a PUSH for each peer.

Everything that must be right about delivery is in `link`; this is its shell on the event loop.
Acknowledgements for a peer travel on our PUSH to it: PUSH/PULL is one-way.

What is particular to ZeroMQ here:
- A socket's FD says only "look at EVENTS", once: a socket is read until it has nothing, and one
  that refused a frame is tried again when its FD speaks and EVENTS shows POLLOUT.
- PUSH sockets are IMMEDIATE: a frame goes into a socket only while a connection stands, so nothing
  waits there for a process that has been replaced meanwhile, and POLLOUT shows the connection.
- MAXMSGSIZE caps one part of a message only: messages of several parts are refused.
- A socket connects again by itself, but not after a handshake that broke the protocol: something
  else had the peer's port, or a worker that encrypts met one that does not. Then it is dead, and
  ZeroMQ does not report it.

With the topology's key all connections are encrypted, and strangers are kept out (`curve`).

Once a link stands, its frames go through a ring in shared memory if the peer is on this host and
takes one (`squall_worker.transport.ring`). The socket stays connected: when the ring ends, frames
go there again, and the link finds out what was lost. While rings have something they are read once
in each iteration of the loop, and their writers wake no one; when they are empty they are put to
sleep.

With busy polling the loop does not sleep for a while after sections were exchanged: rings are read
in each iteration, empty or not, and a socket's FD is seen at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import zmq

from squall_common.daemon.clock import Clock, SystemClock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.output.story import Story
from squall_common.errors import SquallError
from squall_common.security.curve import CurveKey, require_curve
from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.launch_spec import Incarnation
from squall_engine.transport import Arrival, Grant, Listener
from squall_worker.transport.frames import (
    FRAME_BYTES_MAX,
    DataParts,
    Frame,
    FrameError,
    FrameParts,
    Kind,
    Session,
    topology_hash,
)
from squall_worker.transport.link import IDLE_SECS, Link
from squall_worker.transport.link_counts import LinkCounts
from squall_worker.transport.link_table import (
    Began,
    Delivered,
    Event,
    Granted,
    Greeted,
    Left,
    Replaced,
    Unconfirmed,
)
from squall_worker.transport.push import (
    HANDSHAKE_MS,
    Address,
    Connection,
    Peer,
    Sockets,
    endpoint,
)
from squall_worker.transport.zmq_table import (
    TABLE,
    Change,
    CloseRequested,
    PortBound,
    Reading,
    SocketsClosed,
    State,
)

if TYPE_CHECKING:
    from squall_worker.transport.curve import Guard, Refusal
    from squall_worker.transport.ring.connections import Incoming, Rings
    from squall_worker.transport.ring.hello import Hello

log = get_logger(__name__)

# Frames in the PULL socket's queue, per peer. Above it TCP holds the peer back.
_RECEIVE_FRAMES_MAX = 1000
# Received and not yet drained by the engine. Above it the socket is not read.
_INBOX_BYTES_MAX = 64 * 1024 * 1024
# Read in one go before other callbacks of the loop have their turn.
_READ_BYTES = 4 * 1024 * 1024
_WARN_SECS = 60.0
# A peer that was silent for this long is not waited for when this worker ends.
_SILENCE_SECS = 2.5 * IDLE_SECS


def new_sockets() -> Sockets:
    """The sockets of one worker: one thread of ZeroMQ's serves them all."""
    return zmq.Context(io_threads=1)


class PortInUseError(SquallError):
    """The worker's virtual port is taken by another process, or cannot be bound."""


@dataclass(slots=True)
class DropCounts:
    """Messages that arrived at the port and were not frames of a peer."""

    malformed: int = 0
    multipart: int = 0
    foreign: int = 0  # of another topology
    unknown: int = 0  # of a slot that is not a peer (yet)
    refused: int = 0  # connections that did not prove the topology's key; no message came of them

    @property
    def total(self) -> int:
        return self.malformed + self.multipart + self.foreign + self.unknown


class ZmqTransport:
    """Implements `transport.Transport`; all methods are called on the event loop's thread.

    `on_event` gets each `Greeted`, `Left` and `Replaced`; `on_stranger` is called for a frame of
    this topology from a slot or a session that is not in the assignment as it was last read;
    `on_dropped` gets sections that will never arrive: their peer was replaced or removed, or the
    backlog was full. None of them may call back in.
    """

    def __init__(
        self,
        topology_id: str,
        slot: WorkerSlot,
        incarnation: Incarnation,
        *,
        backlog_bytes_max: int,
        on_event: Callable[[Event], None] | None = None,
        on_stranger: Callable[[WorkerSlot], None] | None = None,
        on_dropped: Callable[[Sequence[bytes]], None] | None = None,
        clock: Clock | None = None,
        sockets: Sockets | None = None,
        key: CurveKey | None = None,
        ring_bytes: int = 0,
        busy_poll_secs: float = 0.0,
        links_opened: int = 0,
    ) -> None:
        """With a `key` everything on sockets is encrypted with it; raises SquallError if that is
        not possible. `ring_bytes`: the capacity of the rings to peers on this host; 0: none.
        `busy_poll_secs`: how long the loop does not sleep after sections came or went.
        `links_opened`: by this incarnation, before."""
        if key is not None:
            require_curve()
        self.slot = slot
        self.drops = DropCounts()
        self._topology = topology_hash(topology_id)
        self._incarnation = incarnation
        self._backlog_bytes_max = backlog_bytes_max
        self._on_event = on_event
        self._on_stranger = on_stranger
        self._on_dropped = on_dropped
        self._clock = clock or SystemClock()
        self._loop = asyncio.get_running_loop()
        self._context = sockets or new_sockets()
        self._guard: Guard | None = None
        if key is not None:
            from squall_worker.transport.curve import Guard

            self._guard = Guard(key, self._context, self._refused)
        self._rings = self._make_rings(ring_bytes, key) if ring_bytes else None
        self._polled = False  # a callback that reads the rings is on its way
        self._polling_held = False  # the inbox is full: `drain` goes on with it
        self._busy_poll_secs = busy_poll_secs
        self._busy_until = float("-inf")  # until then there is always such a callback
        self._pull: zmq.Socket[bytes] | None = None
        self._peers: dict[WorkerSlot, Peer] = {}
        self._zxid_max: int | None = None
        self._gone_counts = LinkCounts()
        self._links_opened = links_opened
        self._inbox: deque[tuple[Link, Delivered]] = deque()
        self._inbox_bytes = 0
        self._wakeup: Callable[[], None] | None = None
        self._listener: Listener | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._flush_due = False
        self._reading = Reading.WATCHED
        self._warn_at = 0.0
        self._warn_refused_at = self._say_unfinished_at = 0.0
        self._settled: asyncio.Event | None = None
        self._state = State.UNBOUND
        self._story = Story()

    def _change(self, event: Change) -> None:
        following = TABLE.get((self._state, type(event)))
        self._state = self._story.step(self._state, event, following, self._clock.monotonic())

    def bind(self, host: str, port: int) -> int:
        """Open the virtual port (0: any free one) and return its number. Raises PortInUseError."""
        pull = self._context.socket(zmq.PULL)
        pull.setsockopt(zmq.LINGER, 0)
        pull.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        pull.setsockopt(zmq.RCVHWM, _RECEIVE_FRAMES_MAX)
        pull.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        pull.setsockopt(zmq.IPV6, int(":" in host))
        if self._guard is not None:
            self._guard.serve(pull)
        try:
            pull.bind(endpoint(host, port or "*"))
        except zmq.ZMQError as error:
            if self._guard is not None:
                self._guard.close()
            pull.close()
            raise PortInUseError(
                f"cannot bind the worker's port {host}:{port}: {error.strerror}",
                hint=f"See who has it with: ss -ltnp 'sport = :{port}'",
            ) from error
        self._pull = pull
        self._change(PortBound())
        if self._rings is not None:
            self._rings.listen()
        self._loop.add_reader(pull.fileno(), self._on_readable)
        self._loop.call_soon(self._on_readable)
        return int(pull.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])

    # -- peers --------------------------------------------------------------------------------

    def set_peers(self, peers: Mapping[WorkerSlot, Address], zxid_max: int | None = None) -> None:
        """The other workers of the topology and where they listen (numeric addresses: ZeroMQ would
        look names up in the thread that serves every connection). Links to others are closed and
        what they had queued is dropped; links that stay keep everything. `zxid_max` is the zxid of
        the assignment that says so (`Link.confirm`)."""
        self._zxid_max = zxid_max
        now = self._clock.monotonic()
        for slot in [slot for slot in self._peers if slot not in peers]:
            self._remove(slot)
        for slot, address in peers.items():
            if slot == self.slot:
                continue
            peer = self._peers.get(slot) or self._add(slot)
            if peer.address != address:
                self._disconnect(peer)
                self._connect(peer, address)
            self._happened(peer.link, peer.link.confirm(zxid_max, now))
        self._reschedule()

    def _add(self, slot: WorkerSlot) -> Peer:
        self._links_opened += 1
        link = Link(
            self._topology,
            self.slot,
            Session.of(self._incarnation, self._links_opened),
            slot,
            now=self._clock.monotonic(),
            backlog_bytes_max=self._backlog_bytes_max,
            zxid_max=self._zxid_max,
        )
        peer = self._peers[slot] = Peer(link)
        return peer

    def _remove(self, slot: WorkerSlot) -> None:
        peer = self._peers.pop(slot)
        self._disconnect(peer)
        if self._rings is not None:
            self._drop_ring(peer)
            self._rings.drop_incoming(slot)
        self._gone_counts.add(peer.link.counts)
        log.info("peer_removed", peer=slot, dropped_bytes=peer.link.backlog_bytes)
        self._report_dropped(peer.link.queued())

    def _connect(self, peer: Peer, address: Address) -> None:
        now = self._clock.monotonic()
        socket = peer.connect(self._context, address, self._guard, now)
        self._loop.add_reader(socket.fileno(), self._on_push_ready, peer)
        self._loop.call_soon(self._on_push_ready, peer)

    def _disconnect(self, peer: Peer, linger_ms: int = 0) -> None:
        if peer.socket is not None:
            self._loop.remove_reader(peer.socket.fileno())
        peer.disconnect(linger_ms)

    def _renew_if_dead(self, peer: Peer, now: float) -> None:
        address = peer.address
        if address is not None and peer.is_dead(now):
            self._disconnect(peer)
            self._connect(peer, address)

    @property
    def peers(self) -> frozenset[WorkerSlot]:
        return frozenset(self._peers)

    def greeted(self) -> frozenset[WorkerSlot]:
        """The peers whose links stand in both directions."""
        return frozenset(slot for slot, peer in self._peers.items() if peer.link.greeted)

    def silent(self) -> dict[WorkerSlot, Address]:
        """The peers whose links stood, that said no goodbye, and that were not heard for some
        seconds; an idle one speaks once a second."""
        since = self._clock.monotonic() - _SILENCE_SECS
        return {
            slot: peer.address
            for slot, peer in self._peers.items()
            if peer.address is not None and peer.link.fell_silent(since)
        }

    # -- the engine's side --------------------------------------------------------------------

    def send(self, peer: WorkerSlot, sections: Sequence[bytes], credited: int = 0) -> None:
        """See `Transport.send`. Raises ValueError for a section above SECTION_BYTES_MAX."""
        to = self._peers.get(peer) or self._add(peer)
        if not to.link.queue(sections, credited):
            self._report_dropped(sections[credited:])
        self._pump(to)
        if self._busy_poll_secs:
            self._stay_awake(self._clock.monotonic())

    def drain(self, limit_bytes: int) -> list[Arrival]:
        """See `Transport.drain`. The returned sections count as taken, and are acknowledged."""
        inbox = self._inbox
        if not inbox:
            return []  # the PULL socket's FD signals whatever has come meanwhile
        arrivals: list[Arrival] = []
        size = 0
        now = self._clock.monotonic()
        while inbox and size < limit_bytes:
            link, delivered = inbox.popleft()
            size += delivered.size_bytes
            sessions = link.sessions
            if delivered.session is not sessions[1]:
                sessions = (link.session, delivered.session)
            arrivals.append(Arrival(delivered.peer, sessions, delivered.sections))
            # (No effect on a link that was closed meanwhile.)
            if link.take(delivered, now):
                self._watch_deadline(link)
                if link.has_more:
                    self._flush_soon()
        self._inbox_bytes -= size
        if self._busy_poll_secs:
            self._stay_awake(now)
        if self._reading is Reading.HELD:
            self._read_soon()
        if self._polling_held:
            self._poll_soon()
        if inbox and self._wakeup is not None:
            self._loop.call_soon(self._wakeup)
        return arrivals

    def grant(self, peer: WorkerSlot, grants: Iterable[Grant], *, soon: bool) -> None:
        """See `Transport.grant`."""
        known = self._peers.get(peer)
        if known is not None:
            known.link.grant(grants, soon=soon)
            if soon:
                self._flush_soon()

    def backlog_bytes(self, peer: WorkerSlot) -> int:
        """Bytes queued for a peer that it has not acknowledged."""
        known = self._peers.get(peer)
        return 0 if known is None else known.link.backlog_bytes

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way: the peers have acknowledged everything that was sent, and
        the engine has taken everything that arrived."""
        return not self._inbox and all(peer.link.settled for peer in self._peers.values())

    def set_wakeup(self, wakeup: Callable[[], None], listener: Listener | None = None) -> None:
        """See `Transport.set_wakeup`."""
        self._wakeup = wakeup
        self._listener = listener
        if listener is not None:
            for slot, peer in self._peers.items():
                if peer.link.peer_session is not None:
                    sections = peer.link.queued()
                    listener.session_began(slot, peer.link.sessions, sections)
                    listener.granted(slot, tuple(peer.link.granted.values()))
        if self._inbox:
            self._loop.call_soon(wakeup)

    # -- in -----------------------------------------------------------------------------------

    def _on_readable(self) -> None:
        """The PULL socket's FD became readable, or reading had stopped early."""
        if self._pull is None:
            return
        granted = self._read(_READ_BYTES)
        if self._wakeup is not None and (self._inbox or granted):
            self._wakeup()

    def _read(self, limit_bytes: int) -> bool:
        """Read the socket until it is empty or `limit_bytes` were read; returns whether grants
        came."""
        pull = self._pull
        if pull is None:
            return False
        granted = False
        now = self._clock.monotonic()
        read_bytes = 0
        while True:
            if read_bytes >= limit_bytes or self._inbox_bytes >= _INBOX_BYTES_MAX:
                self._reading = Reading.HELD
                self._read_soon()
                break
            try:
                data = pull.recv(zmq.NOBLOCK)
            except zmq.Again:
                self._reading = Reading.WATCHED
                break
            read_bytes += len(data) + 1
            if pull.getsockopt(zmq.RCVMORE):
                self._skip_parts(pull)
            else:
                granted |= self._receive((data, (), len(data)), now)
            # Half of what a refused recv costs.
            if not int(pull.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
                self._reading = Reading.WATCHED
                break
        return granted

    def _skip_parts(self, pull: zmq.Socket[bytes]) -> None:
        self.drops.multipart += 1
        while pull.getsockopt(zmq.RCVMORE):
            pull.recv(zmq.NOBLOCK)
        self._warn("message of several parts")

    def _receive(self, parts: FrameParts, now: float, ring_of: WorkerSlot | None = None) -> bool:
        try:
            frame = Frame.of_parts(*parts)
        except FrameError as error:
            self.drops.malformed += 1
            self._warn(str(error))
            return False
        if frame.topology != self._topology:
            self.drops.foreign += 1
            self._warn(f"frame of another topology from {frame.slot}")
            return False
        if ring_of is not None and frame.slot != ring_of:
            self.drops.foreign += 1
            self._warn(f"frame of {frame.slot} in the ring of {ring_of}")
            return False
        return self._take(frame, now)

    def _take(self, frame: Frame, now: float) -> bool:
        peer = self._peers.get(frame.slot)
        if peer is None:
            self.drops.unknown += 1
            if self._on_stranger is not None:
                self._on_stranger(frame.slot)
            return False
        return self._happened(peer.link, peer.link.receive(frame, now))

    def _happened(self, link: Link, events: Sequence[Event]) -> bool:
        """Handle the events of a frame or of a reading; returns whether the engine has something to
        do."""
        woke = False
        for event in events:
            if isinstance(event, Delivered):
                self._inbox.append((link, event))
                self._inbox_bytes += event.size_bytes
            elif isinstance(event, Granted):
                if self._listener is not None:
                    self._listener.granted(event.peer, event.grants)
                    woke = True
            elif isinstance(event, Began):
                if self._listener is not None:
                    self._listener.session_began(event.peer, event.sessions, event.waiting)
                    woke = True
            elif isinstance(event, Unconfirmed):
                if self._on_stranger is not None:
                    self._on_stranger(event.peer)
            else:
                log.info("link_event", link=event)
                if isinstance(event, Replaced):
                    self._report_dropped(event.dropped)
                if self._rings is not None:
                    self._follow_with_ring(event)
                if self._on_event is not None:
                    self._on_event(event)
        self._watch_deadline(link)
        if link.has_more:
            self._flush_soon()
        if self._settled is not None:
            self._settled.set()
        return woke

    def _report_dropped(self, sections: Sequence[bytes]) -> None:
        if sections and self._on_dropped is not None:
            self._on_dropped(sections)

    def _warn(self, reason: str) -> None:
        now = self._clock.monotonic()
        if now >= self._warn_at:
            self._warn_at = now + _WARN_SECS
            log.warning("message_dropped", reason=reason, dropped=self.drops)

    def _refused(self, refusal: Refusal) -> None:
        self.drops.refused += 1
        now = self._clock.monotonic()
        if refusal.came is None:
            if now >= self._say_unfinished_at:
                self._say_unfinished_at = now + _WARN_SECS
                log.info(
                    "connection_not_finished",
                    refused=self.drops.refused,
                    why="it was closed, or a call held this worker for 5 s (component_holds_loop). "
                    "Workers connect again by themselves; a scan of ports ends like this, too.",
                )
        elif now >= self._warn_refused_at:
            from squall_worker.transport.curve import lately_closed  # it is loaded: its guard calls

            self._warn_refused_at = now + _WARN_SECS
            peer = refusal.peer
            if peer is None:  # this loop was busy
                peer = "one of " + (", ".join(lately_closed(refusal.port)[:5]) or "unknown")
            log.warning(
                "connection_refused",
                peer=peer,
                came=refusal.came,
                expected="a worker of this topology, with its key",
                refused=self.drops.refused,
                what_to_do="If workers of this topology do not find each other, check that all "
                "supervisors have the same storm.bind.host and run the same release. Otherwise "
                "something that should not reach this port is trying to.",
            )

    def _read_soon(self) -> None:
        """Go on reading after the other callbacks; when the inbox is full, once it is not."""
        if self._inbox_bytes < _INBOX_BYTES_MAX:
            self._reading = Reading.DUE
            self._loop.call_soon(self._on_readable)

    # -- out ----------------------------------------------------------------------------------

    def _on_push_ready(self, peer: Peer) -> None:
        """A PUSH socket's FD became readable: the connection came or went, or there is
        room again."""
        if peer.socket is None:
            return
        if peer.look():
            # Or its queue was full: then one frame too many asks for what is missing.
            peer.link.connected(self._clock.monotonic())
        self._pump(peer)

    def _pump(self, peer: Peer) -> None:
        """Send what the link has, as long as the socket takes it."""
        link = peer.link
        if peer.ring is not None and self._pump_ring(peer):
            pass
        elif peer.connection is Connection.WRITABLE:
            now = self._clock.monotonic()
            while (frame := link.next_frame(now)) is not None:
                if not peer.push(frame.serialize()):
                    # The send may have eaten the FD's signal: look once more.
                    self._loop.call_soon(self._on_push_ready, peer)
                    break
                link.sent(frame, now)
        self._watch_deadline(link)
        if self._settled is not None:
            self._settled.set()

    def _flush_soon(self) -> None:
        """Send acknowledgements at the end of this turn, unless data carries them before."""
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        if self._state is not State.CLOSED:
            for peer in self._peers.values():
                self._pump(peer)

    # -- rings --------------------------------------------------------------------------------

    def _make_rings(self, capacity: int, key: CurveKey | None) -> Rings | None:
        from squall_worker.transport.ring.connections import Rings, load_memory

        memory = load_memory()
        if memory is None:
            return None
        return Rings(
            self._topology,
            self.slot,
            self._incarnation,
            memory=memory,
            capacity=capacity,
            secret=b"" if key is None else key.secret,
            expects=self._expects_ring,
            on_open=self._on_ring_open,
            on_room=self._on_ring_room,
            on_lost=self._on_ring_lost,
            on_data=self._on_ring_data,
        )

    def over_rings(self) -> frozenset[WorkerSlot]:
        """The peers to which frames go through a ring."""
        return frozenset(slot for slot, peer in self._peers.items() if peer.ring is not None)

    def _expects_ring(self, hello: Hello) -> bool:
        peer = self._peers.get(hello.slot)
        return peer is not None and (hello.reader, hello.writer) == peer.link.sessions

    def _follow_with_ring(self, event: Greeted | Left | Replaced) -> None:
        """Offer a ring to a session that has greeted; one that has left reads none."""
        assert self._rings is not None
        peer = self._peers[event.peer]
        if isinstance(event, Greeted):
            self._rings.offer(event.peer, *peer.link.sessions)
        else:
            self._drop_ring(peer)

    def _drop_ring(self, peer: Peer) -> None:
        assert self._rings is not None
        peer.set_ring(None, 0.0)
        self._rings.drop_outgoing(peer.link.peer)

    def _on_ring_open(self, slot: WorkerSlot) -> None:
        assert self._rings is not None
        peer, now = self._peers[slot], self._clock.monotonic()
        peer.set_ring(self._rings.outgoing(slot), now)
        log.info("ring_open", peer=slot)
        self._pump(peer)

    def _on_ring_room(self, slot: WorkerSlot) -> None:
        self._pump(self._peers[slot])

    def _on_ring_lost(self, slot: WorkerSlot) -> None:
        """The peer has ended, or has closed the ring: what was in it may be lost."""
        peer, now = self._peers[slot], self._clock.monotonic()
        peer.set_ring(None, now)
        log.info("ring_lost", peer=slot)
        peer.link.connected(now)
        self._pump(peer)

    def _pump_ring(self, peer: Peer) -> bool:
        """Send what the link has through the ring; returns False if it is the socket's turn."""
        assert self._rings is not None
        link, now = peer.link, self._clock.monotonic()
        ring = peer.ring_for(now)
        if ring is None:
            return False
        try:
            sent = False
            while link.has_more:
                data = link.next_data(now)
                if data is not None:
                    sequence, acknowledged, sections = data
                    if not ring.push_data(sequence, acknowledged, sections):
                        break
                    link.sent_data(now)
                else:
                    frame = link.next_frame(now)
                    if frame is None or not ring.push(frame):
                        break
                    link.sent(frame, now)
                sent = True
            if sent:
                ring.wake()
        except self._rings.error as error:
            log.error("ring_broken", peer=link.peer, why=error)
            self._drop_ring(peer)
            link.connected(now)
            return False
        return True

    def _push_last(self, peer: Peer, frame: Frame) -> bool:
        """Write a frame that no other follows; returns whether it went into the ring."""
        assert self._rings is not None
        ring = peer.ring_for(self._clock.monotonic())
        try:
            if ring is not None and ring.push(frame):
                ring.wake()
                return True
        except self._rings.error as error:
            log.error("ring_broken", peer=peer.link.peer, why=error)
        return False

    def _on_ring_data(self) -> None:
        """A writer has woken us. It may do that while others are being read, when its own ring was
        empty for a moment: they are all read in the next round, and a second one beside it would
        find nothing, and put them to sleep. So there is always another round after this."""
        if not self._polled:
            self._read_rings()
            self._poll_soon()

    def _poll_soon(self) -> None:
        self._polling_held = self._inbox_bytes >= _INBOX_BYTES_MAX
        if not (self._polled or self._polling_held):
            self._polled = True
            self._loop.call_soon(self._poll)

    def _poll(self) -> None:
        """Read the rings, now and once in each iteration of the loop until they are empty, and with
        busy polling for a while after that."""
        self._polled = False
        if self._state is State.CLOSED:
            return
        rings = self._rings
        read = rings is not None and self._read_rings()
        full = self._inbox_bytes >= _INBOX_BYTES_MAX
        if read or full:
            self._poll_soon()
        elif self._busy_poll_secs and self._clock.monotonic() < self._busy_until:
            # With more such workers than cores, the one that has something waits milliseconds
            # for its turn otherwise.
            os.sched_yield()
            self._poll_soon()
        elif rings is not None and not rings.sleep():
            self._poll_soon()

    def _stay_awake(self, now: float) -> None:
        self._busy_until = now + self._busy_poll_secs
        self._poll_soon()

    def _read_rings(self) -> bool:
        """Take what has come, and call the engine; returns whether anything had."""
        assert self._rings is not None
        read = granted = False
        now = self._clock.monotonic()
        if self._inbox_bytes < _INBOX_BYTES_MAX:
            for ring, parts in self._rings.read(_READ_BYTES):
                read = True
                if len(parts) == 4:
                    granted |= self._receive_data(ring, parts, now)
                else:
                    assert ring.hello is not None
                    granted |= self._receive(parts, now, ring.hello.slot)
        if self._wakeup is not None and (self._inbox or granted):
            self._wakeup()
        return read

    def _receive_data(self, ring: Incoming, parts: DataParts, now: float) -> bool:
        """Likewise a plain data frame of a ring: nearly all are such."""
        hello, link = ring.hello, ring.link
        sequence, acknowledged, sections, size = parts
        assert hello is not None
        if link is None:
            peer = self._peers.get(hello.slot)
            if peer is not None and peer.link.sessions == (hello.reader, hello.writer):
                link = ring.link = peer.link  # a link that is closed takes its ring with it
        # (A link has other sessions from the moment on at which its peer is replaced.)
        if link is not None and link.sessions[1] == hello.writer:
            delivered = link.receive_data(sequence, acknowledged, sections, size, now)
            if delivered is not None:
                self._inbox.append((link, delivered))
                self._inbox_bytes += delivered.size_bytes
                self._watch_deadline(link)  # an acknowledgement has the next probe come sooner
                if self._settled is not None:
                    self._settled.set()
                return False
        frame = Frame(
            Kind.DATA, self._topology, hello.slot, hello.writer, hello.reader,
            sequence, acknowledged, sections=sections,
        )  # fmt: skip
        return self._take(frame, now)

    # -- time ---------------------------------------------------------------------------------

    def _watch_deadline(self, link: Link) -> None:
        deadline = link.deadline()
        if deadline < self._timer_at:
            self._set_timer(deadline)

    def _set_timer(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline != float("inf") and self._state is not State.CLOSED:
            # Whole milliseconds: uvloop turns less into a busy loop.
            delay = max(0.001, deadline - self._clock.monotonic())
            self._timer = self._loop.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        now = self._clock.monotonic()
        self._timer_at = float("-inf")  # nothing else sets it meanwhile
        for peer in self._peers.values():
            peer.link.tick(now)
            self._pump(peer)
            self._renew_if_dead(peer, now)
        if self._rings is not None:
            self._poll_soon()  # whatever a peer did to the flags
        self._reschedule()

    def _reschedule(self) -> None:
        deadlines = [peer.link.deadline() for peer in self._peers.values()]
        self._set_timer(min(deadlines, default=float("inf")))

    # -- end ----------------------------------------------------------------------------------

    def counts(self) -> LinkCounts:
        """What happened on all links, closed ones included."""
        total = LinkCounts()
        for counts in (self._gone_counts, *(peer.link.counts for peer in self._peers.values())):
            total.add(counts)
        return total

    async def close(self, drain_secs: float = 0.0) -> bool:
        """Wait at most `drain_secs` until the peers whose links stand have acknowledged everything,
        say goodbye to them (only if `drain_secs` > 0) and close. Call it after the engine stopped.
        Returns whether everything was acknowledged."""
        if self._state is State.CLOSED:
            return True
        self._change(CloseRequested())
        self._wakeup = None
        graceful = drain_secs > 0
        settled = await self._wait_settled(drain_secs) if graceful else self._is_settled()
        if graceful:
            self._send_goodbye()
        self._change(SocketsClosed())
        self._set_timer(float("inf"))
        for peer in self._peers.values():
            self._disconnect(peer, 1000 if graceful else 0)
        if self._rings is not None:
            self._rings.close()
        if self._guard is not None:
            self._guard.close()
        if self._pull is not None:
            self._loop.remove_reader(self._pull.fileno())
            self._pull.close(0)
            self._pull = None
        # Waits for what lingers, in ZeroMQ's own thread: at most a second.
        await self._loop.run_in_executor(None, self._context.term)
        return settled

    def _standing(self) -> Iterable[Peer]:
        since = self._clock.monotonic() - _SILENCE_SECS
        return (peer for peer in self._peers.values() if peer.link.stands(since))

    def _is_settled(self) -> bool:
        return all(peer.link.settled for peer in self._standing())

    async def _wait_settled(self, secs: float) -> bool:
        deadline = self._clock.monotonic() + secs
        self._settled = asyncio.Event()
        while not self._is_settled():
            left = deadline - self._clock.monotonic()
            if left <= 0:
                return False
            self._settled.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._settled.wait(), left)
        return True

    def _send_goodbye(self) -> None:
        for peer in self._standing():
            frame = peer.link.goodbye()
            if frame is not None and peer.ring is not None and self._push_last(peer, frame):
                continue
            if frame is not None and peer.connection is not Connection.NONE:
                peer.push(frame.serialize())  # a full queue takes none: the peer finds out itself

    def __str__(self) -> str:
        return (
            f"{self.slot} {self._state.name}, {self._reading.name}, "
            f"inbox={self._inbox_bytes} in {len(self._inbox)}, timer at {self._timer_at:.3f}"
        )

    def validate(self) -> None:
        """Assert what must be true between two callbacks; tests call it. Raises ContradictionError,
        with what led there."""
        state, peers = self._state, self._peers.values()
        with self._story.checking(self):
            assert state is not State.BOUND or self._pull is not None, "bound without a socket"
            assert state in (State.BOUND, State.CLOSING) or self._pull is None, "a socket too many"
            size = sum(delivered.size_bytes for _, delivered in self._inbox)
            assert self._inbox_bytes == size, f"{size} bytes are in the inbox"
            if self._reading is Reading.HELD:
                assert size >= _INBOX_BYTES_MAX, "nothing will read the socket again"
            if state is State.CLOSED:
                assert self._timer is None, "a timer after the end"
                assert all(peer.connection is Connection.NONE for peer in peers), "an open socket"
            else:
                due = min((peer.link.deadline() for peer in peers), default=float("inf"))
                assert self._timer_at <= due, f"a link is due at {due:.3f}"
        for peer in peers:
            peer.validate()
