"""One link: what this worker and one peer owe each other. Pure: no socket, no clock.

ZeroMQ delivers in order while a connection lasts and loses what it had queued when one is reset,
so delivery is made here. Words: a *session* is one worker's end of a link (`frames.Session`). Both
ends number their data frames from 1 within a pair of sessions. The sender keeps a frame until the
peer has acknowledged it; the receiver takes frames in order only, and asks for the rest when it
sees a sequence beyond the next one:

    sender                                   receiver
    DATA 1 ............................>     takes 1
    DATA 2 ...... (connection reset) x
    DATA 3 ............................>     has 1, sees 3: drops it, answers "gap" at once
                <............ IDLE ack=1 gap
    DATA 2, DATA 3 ....................>     takes 2, 3
                <............ IDLE ack=3     (or in a data frame that goes there anyway)

The last frames of a burst leave no later frame to show their loss, so a sender that waits for an
acknowledgement repeats its last sequence in idle frames, soon and then more and more slowly, and
one that waits for nothing still does so once a second. Nothing is sent again on a mere time-out: a
receiver that is stuck or slow gets no second copy of what lies in its socket.

A link begins with greetings: each side sends one until a frame arrives that is addressed to its
own session, which proves both directions. Data needs only that the peer's session is known, since
every frame names the session that it is for and a replaced or restarted receiver drops what is not
for it.

What the peer acknowledges, it has *taken*: its engine has it. So the unacknowledged bytes are a
true backlog, and a goodbye (sent after the engine stopped) says exactly what was never taken:
those frames go to the next session of that slot. When a session ends without one, its
unacknowledged frames may or may not have taken effect: they are dropped and reported, and acking
replays them.

A session counts only if the assignment knows of it: its zxid is at most that of the assignment as
this worker read it last. A greater one may belong to a worker that was placed since, or to a
stranger: it changes nothing until a new reading has confirmed it. The launch number cannot be
checked like that, since a supervisor launches a worker again on its own, with ZooKeeper away too: a
greater one counts. Who may speak at all is the key's business (`curve`).

Turned down: resending whenever the connection is re-established (needs a socket monitor, races
with what is still queued, and is not enough alone); selective acknowledgement (losses are rare).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from typing import NamedTuple

from squall_common.topology.model import WorkerSlot
from squall_engine.transport import Grant
from squall_worker.transport.frames import (
    GRANTS_MAX,
    LENGTH_BYTES,
    NO_SESSION,
    PART_BYTES,
    SECTION_BYTES_MAX,
    Frame,
    Kind,
    Session,
    check_section,
)
from squall_worker.transport.out_frames import OutFrame, cut, whole

# A greeting that was not answered is repeated this soon; each time later, up to GREETING_MAX_SECS.
GREETING_SECS = 0.05
GREETING_MAX_SECS = 1.0
# Likewise while frames are unacknowledged. The first is well above the time that a peer may take
# to acknowledge (ACK_DELAY_SECS and a turn), so that steady traffic needs none.
PROBE_SECS = 0.1
# An idle link repeats its last sequence and acknowledgement this often.
IDLE_SECS = 1.0
# An acknowledgement waits this long for a data frame to ride on, unless this much was taken.
ACK_DELAY_SECS = 0.02
ACK_BYTES = 64 * 1024
# Several signs of one gap arrive together; the same frames are not sent again within this time.
RESEND_SECS = 0.2


class Delivered(NamedTuple):
    """Sections of one data frame, next in order. The owner calls `Link.take` with it once the
    engine has them."""

    peer: WorkerSlot
    session: Session
    sequence: int
    sections: tuple[bytes, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Began:
    """A new pair of sessions: what was counted in the one before means nothing any more.
    `waiting` are the sections that go out first."""

    peer: WorkerSlot
    sessions: tuple[Session, Session]  # ours, the peer's
    waiting: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Granted:
    """The peer tells of its tasks."""

    peer: WorkerSlot
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Greeted:
    """The link stands: the peer knows this session, and its frames arrive here."""

    peer: WorkerSlot
    session: Session


@dataclass(frozen=True, slots=True)
class Left:
    """The peer said goodbye. `drained`: everything that it had sent has arrived here."""

    peer: WorkerSlot
    session: Session
    drained: bool


@dataclass(frozen=True, slots=True)
class Replaced:
    """A newer session of the peer's slot has greeted; unacknowledged frames for the old one are
    dropped. `left`: the old one had said a drained goodbye, so that nothing was lost."""

    peer: WorkerSlot
    old: Session
    new: Session
    left: bool
    dropped_frames: int
    dropped: tuple[bytes, ...] = field(default=(), repr=False)  # their sections


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A session has greeted that the assignment, as it was read last, cannot hold."""

    peer: WorkerSlot
    session: Session


Event = Began | Delivered | Granted | Greeted | Left | Replaced | Unconfirmed


@dataclass(slots=True)
class LinkCounts:
    """What happened on a link, for logs and metrics."""

    frames_sent: int = 0
    frames_resent: int = 0
    frames_received: int = 0
    dropped_replaced: int = 0  # from a session that a newer one has replaced
    dropped_unconfirmed: int = 0  # from a session beyond the assignment that was read last
    dropped_misaddressed: int = 0  # for another session than ours
    dropped_repeat: int = 0
    dropped_gap: int = 0  # beyond the next sequence: asked for again
    dropped_invalid: int = 0  # acknowledges what was never sent
    dropped_overflow: int = 0  # sections refused because the backlog was full

    def add(self, other: LinkCounts) -> None:
        """Add the counts of another link."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


_COUNTS = tuple(field.name for field in fields(LinkCounts))


def _size(section: bytes) -> int:
    return len(section) + LENGTH_BYTES


class Link:
    """This worker's end of the link to one peer.

    The owner feeds it `receive`, `take`, `queue` and `tick`, and after each of them sends what
    `next_frame` gives, calling `sent` for each frame that the socket took. At
    `backlog_bytes_max` unacknowledged bytes, `queue` drops and counts what has no credit (acks, and
    the like): the engine stops the spouts long before.
    """

    def __init__(
        self,
        topology: bytes,
        slot: WorkerSlot,
        session: Session,
        peer: WorkerSlot,
        *,
        now: float,
        backlog_bytes_max: int,
        zxid_max: int | None = None,
    ) -> None:
        """`zxid_max`: see `confirm`."""
        self.peer = peer
        self.session = session
        self.counts = LinkCounts()
        self.backlog_bytes = 0  # queued and not acknowledged
        self._topology = topology
        self._slot = slot
        self._backlog_bytes_max = backlog_bytes_max

        self._zxid_max = zxid_max  # of the peer's session; None while no assignment was read
        self._unconfirmed: Session | None = None  # the newest beyond it that has greeted

        self.peer_session: Session | None = None  # None until the peer was heard of
        self.greeted = False  # a frame for our session has come from `peer_session`
        self.left = False  # `peer_session` has said goodbye
        self._drained = False  # ... and nothing of it was missing

        # Out. `_frames` holds the unacknowledged frames, sequences `_acked` + 1 to `_last`.
        self._frames: dict[int, OutFrame] = {}
        self._waiting: deque[bytes] = deque()  # sections for the next session
        self._acked = 0
        self._last = 0
        self._sent_max = 0  # highest sequence that ever went out
        self._cursor = 1  # next sequence to go out
        self._resent_at = float("-inf")

        # In. `_taken` <= `_received`.
        self._heard_at = now
        self._received = 0
        self._taken = 0
        self._taken_bytes = 0  # taken and not told the peer
        self._parts: list[bytes] = []  # of the section whose end has not come

        # What is told the peer of our tasks, and which of it the next frame carries. All of it is
        # repeated, since a frame that carries it may be lost.
        self._grants: dict[int, Grant] = {}
        self._grants_due: dict[int, Grant] = {}
        self.granted: dict[int, Grant] = {}  # what the peer told of its tasks
        self._repeat_at = now + IDLE_SECS

        self._due = False  # a control frame is to go out now
        self._gap_due = False
        self._ack_at: float | None = None
        self._greeting_at = now
        self._greeting_secs = GREETING_SECS
        self._probe_secs = PROBE_SECS
        self._sent_at = now

    # -- out ----------------------------------------------------------------------------------

    def queue(self, sections: Sequence[bytes], credited: int = 0) -> bool:
        """Queue sections in order; False when there was no room, and all but the first `credited`
        are dropped. Raises ValueError for one that fits into no frame (then none of them is
        queued)."""
        size = 0
        for section in sections:
            check_section(section)
            size += _size(section)
        fits = len(sections) <= credited or self.backlog_bytes + size <= self._backlog_bytes_max
        if not fits:
            self.counts.dropped_overflow += len(sections) - credited
            sections = sections[:credited]
            size = sum(map(_size, sections))
        self.backlog_bytes += size
        if self.peer_session is None or self.left:
            self._waiting.extend(sections)
        else:
            self._number(sections)
        return fits

    def _number(self, sections: Iterable[bytes]) -> None:
        """Put sections into frames. One that has never gone out takes what comes after it, so that
        frames grow while a peer is slow."""
        tail = self._frames[self._last] if self._last > self._sent_max else None
        for section in sections:
            if len(section) > PART_BYTES:
                tail = None
                for out in cut(section):
                    self._new_frame(out)
                continue
            size = _size(section)
            if tail is None or not tail.takes(size):
                tail = self._new_frame(OutFrame())
            tail.sections.append(section)
            tail.size_bytes += size

    def _new_frame(self, out: OutFrame) -> OutFrame:
        self._last += 1
        self._frames[self._last] = out
        return out

    def grant(self, grants: Iterable[Grant], *, soon: bool) -> None:
        """Tell the peer of our tasks with the next frame; `soon`: have one go out now."""
        if self.peer_session is None or self.left:
            return
        for grant in grants:
            self._grants[grant.task] = self._grants_due[grant.task] = grant
            self._due |= soon

    @property
    def has_more(self) -> bool:
        """Whether `next_frame` may have something."""
        return self._due or self._cursor <= self._last

    def next_frame(self, now: float) -> Frame | None:
        """The frame to send now, or None. Gives the same one again until `sent` is called."""
        if self.left:
            return None
        if now >= self._repeat_at:
            self._repeat_at = now + IDLE_SECS
            self._grants_due.update(self._grants)
        if self.peer_session is None:
            return self._frame(Kind.GREETING, 0) if self._due else None
        unsent = self._frames.get(self._cursor)
        if unsent is not None:
            return self._frame(Kind.DATA, self._cursor, tuple(unsent.sections), unsent.more)
        if not self._due:
            return None
        return self._frame(Kind.IDLE if self.greeted else Kind.GREETING, self._sent_max)

    def sent(self, frame: Frame, now: float) -> None:
        """The socket took `frame`."""
        self.counts.frames_sent += 1
        if frame.kind is Kind.DATA:
            if frame.sequence <= self._sent_max:
                self.counts.frames_resent += 1
            else:
                self._sent_max = frame.sequence
                self._probe_secs = PROBE_SECS
            self._cursor = frame.sequence + 1
        if frame.gap:
            self._gap_due = False
        for grant in frame.grants:
            if self._grants_due.get(grant.task) is grant:
                del self._grants_due[grant.task]
        self._due = self._gap_due or (len(frame.grants) == GRANTS_MAX and bool(self._grants_due))
        self._ack_at = None
        self._taken_bytes = 0
        self._sent_at = now

    def goodbye(self) -> Frame | None:
        """The last frame of this session, for after the engine has stopped. None when the peer
        was never heard of or has left."""
        if self.peer_session is None or self.left:
            return None
        return self._frame(Kind.GOODBYE, self._sent_max)

    def _frame(
        self, kind: Kind, sequence: int, sections: tuple[bytes, ...] = (), more: bool = False
    ) -> Frame:
        return Frame(
            kind,
            self._topology,
            self._slot,
            self.session,
            self.peer_session or NO_SESSION,
            sequence,
            self._taken,
            self._gap_due,
            sections,
            tuple(islice(self._grants_due.values(), GRANTS_MAX)) if self._grants_due else (),
            more,
        )

    # -- in -----------------------------------------------------------------------------------

    @property
    def sessions(self) -> tuple[Session, Session]:
        """The present pair: ours and the peer's."""
        return (self.session, self.peer_session or NO_SESSION)

    def receive(self, frame: Frame, now: float) -> list[Event]:
        """Take note of a frame of this peer's slot; what came of it, in order."""
        self.counts.frames_received += 1
        events: list[Event] = []
        if self.peer_session is None or frame.sender > self.peer_session:
            if self._zxid_max is not None and frame.sender.assignment_zxid > self._zxid_max:
                self.counts.dropped_unconfirmed += 1
                self._unconfirmed = max(frame.sender, self._unconfirmed or frame.sender)
                return [Unconfirmed(self.peer, frame.sender)]
            self._begin(frame.sender, events)
        elif frame.sender < self.peer_session:
            self.counts.dropped_replaced += 1
            return events
        if frame.receiver != self.session:
            # It does not know us yet, or takes us for the one before: any frame of ours tells it.
            if frame.receiver != NO_SESSION:
                self.counts.dropped_misaddressed += 1
            self._due = True
            return events
        self._heard_at = now
        if self.left:
            self.counts.dropped_invalid += 1
            return events
        if frame.acknowledged > self._sent_max:
            self.counts.dropped_invalid += 1
            return events
        if not self.greeted:
            self.greeted = True
            events.append(Greeted(self.peer, frame.sender))
        if frame.grants:
            for grant in frame.grants:
                known = self.granted.get(grant.task)
                if known is None or grant.limit >= known.limit:
                    self.granted[grant.task] = grant
            events.append(Granted(self.peer, frame.grants))
        if frame.acknowledged > self._acked:
            self._acknowledge(frame.acknowledged)
        if frame.gap:
            self._resend(now)
        if frame.kind is Kind.DATA:
            self._receive_data(frame, events)
        else:
            if frame.sequence > self._received:
                self._gap_due = self._due = True
            if frame.kind is Kind.GREETING:
                self._due = True
            elif frame.kind is Kind.GOODBYE:
                self._leave(frame, events)
        return events

    def confirm(self, zxid_max: int | None) -> list[Event]:
        """The zxid of the assignment as it was read now: sessions up to it count. None when it is
        not known; then all do."""
        self._zxid_max = zxid_max
        session, events = self._unconfirmed, list[Event]()
        if session is not None:
            self._unconfirmed = None
            known = zxid_max is None or session.assignment_zxid <= zxid_max
            if known and (self.peer_session is None or session > self.peer_session):
                self._begin(session, events)
        return events

    def _receive_data(self, frame: Frame, events: list[Event]) -> None:
        if frame.sequence == self._received + 1:
            sections: tuple[bytes, ...] | None = frame.sections
            if frame.more or self._parts:
                if not self._fits(frame):
                    self.counts.dropped_invalid += 1
                    return
                sections = self._put_together(frame)
            self._received = frame.sequence
            if sections is not None:
                size = sum(map(_size, sections))
                events.append(Delivered(self.peer, frame.sender, frame.sequence, sections, size))
        elif frame.sequence <= self._received:
            self.counts.dropped_repeat += 1
            self._due = True  # it may not have seen our acknowledgement
        else:
            self.counts.dropped_gap += 1
            self._gap_due = self._due = True

    def _fits(self, frame: Frame) -> bool:
        """Whether the frame can be the next part of a section."""
        size = sum(map(len, self._parts)) + len(frame.sections[0])
        return len(frame.sections) == 1 and size <= SECTION_BYTES_MAX

    def _put_together(self, frame: Frame) -> tuple[bytes, ...] | None:
        """The section whose last part this frame is; None while there is more. It is taken, and
        acknowledged, whole."""
        self._parts += frame.sections
        if frame.more:
            return None
        section = b"".join(self._parts)
        self._parts.clear()
        return (section,)

    def take(self, delivered: Delivered, now: float) -> None:
        """The engine has the sections of `delivered`; calls come in the order of delivery."""
        if delivered.session != self.peer_session:
            return
        self._taken = delivered.sequence
        self._taken_bytes += delivered.size_bytes
        if self._taken_bytes >= ACK_BYTES:
            self._due = True
        elif self._ack_at is None:
            self._ack_at = now + ACK_DELAY_SECS

    def _begin(self, session: Session, events: list[Event]) -> None:
        """The peer's slot has a new session."""
        old = self.peer_session
        if old is not None:
            drained = self.left and self._drained
            frames = len(self._frames)
            events.append(Replaced(self.peer, old, session, drained, frames, self._drop_frames()))
        self.peer_session = session
        self.greeted = self.left = self._drained = False
        self._acked = self._last = self._sent_max = 0
        self._cursor = 1
        self._resent_at = float("-inf")
        self._received = self._taken = self._taken_bytes = 0
        self._parts.clear()
        self._ack_at = None
        self._gap_due = False
        self._due = True
        self._greeting_secs = GREETING_SECS
        self._grants.clear()
        self.granted.clear()
        self._grants_due.clear()
        waiting, self._waiting = self._waiting, deque()
        self._number(waiting)
        events.append(Began(self.peer, self.sessions, tuple(waiting)))

    def _leave(self, frame: Frame, events: list[Event]) -> None:
        self.left = True
        self._drained = frame.sequence == self._received and not self._parts
        self._waiting.extend(whole(self._frames.values()))  # never taken: for the next session
        self._frames.clear()
        self._due = self._gap_due = False
        self._ack_at = None
        events.append(Left(self.peer, frame.sender, self._drained))

    def _acknowledge(self, sequence: int) -> None:
        for number in range(self._acked + 1, sequence + 1):
            self.backlog_bytes -= self._frames.pop(number).size_bytes
        self._acked = sequence
        self._cursor = max(self._cursor, sequence + 1)
        self._probe_secs = PROBE_SECS

    def _resend(self, now: float) -> None:
        if now - self._resent_at < RESEND_SECS:
            return
        self._resent_at = now
        self._cursor = self._acked + 1

    def _drop_frames(self) -> tuple[bytes, ...]:
        dropped = self._unacknowledged()
        for out in self._frames.values():
            self.backlog_bytes -= out.size_bytes
        self._frames.clear()
        return dropped

    def _unacknowledged(self) -> tuple[bytes, ...]:
        return tuple(whole(self._frames.values()))

    def queued(self) -> tuple[bytes, ...]:
        """Every section that the peer has not acknowledged."""
        return (*self._unacknowledged(), *self._waiting)

    # -- time ---------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Let time pass: after this, `next_frame` gives what `deadline` was for."""
        if now < self.deadline():
            return
        self._due = True
        if not self.greeted:
            self._greeting_at = now + self._greeting_secs
            self._greeting_secs = min(2 * self._greeting_secs, GREETING_MAX_SECS)
        elif self._frames and now >= self._sent_at + self._probe_secs:
            self._probe_secs = min(2 * self._probe_secs, IDLE_SECS)
        self._ack_at = None
        self._sent_at = now  # also when the socket takes nothing: the next one waits its time

    def deadline(self) -> float:
        """When `tick` is next worth calling, on the clock of `now`."""
        if self.left:
            return float("inf")
        if not self.greeted:
            return self._greeting_at
        deadline = self._sent_at + (self._probe_secs if self._frames else IDLE_SECS)
        return deadline if self._ack_at is None else min(deadline, self._ack_at)

    def connected(self, now: float) -> None:
        """The socket has (again) a connection: greet or probe at once."""
        self._due = True
        self._repeat_at = now
        self._probe_secs = PROBE_SECS
        self._greeting_secs = GREETING_SECS

    def stands(self, since: float) -> bool:
        """Whether the peer knows us and was heard of since then; an idle peer speaks every
        IDLE_SECS."""
        return self.greeted and not self.left and self._heard_at >= since

    def fell_silent(self, since: float) -> bool:
        """Whether the peer knew us, has not left, and was not heard of since then."""
        return self.greeted and not self.left and self._heard_at < since

    @property
    def settled(self) -> bool:
        """Nothing queued is unacknowledged (or can be: the peer left)."""
        return self.left or not (self._frames or self._waiting)

    def __str__(self) -> str:
        return (
            f"{self.peer} {self.session}->{self.peer_session or 'unknown'}"
            f"{' greeted' if self.greeted else ''}{' left' if self.left else ''} "
            f"out={self._acked}/{self._sent_max}/{self._last} in={self._taken}/{self._received} "
            f"backlog={self.backlog_bytes}"
        )

    def validate(self) -> None:
        """Assert the invariants; tests call it after each step."""
        assert self._taken <= self._received
        assert self._acked <= self._sent_max <= self._last
        assert self._acked < self._cursor <= self._sent_max + 1
        assert self.left or list(self._frames) == list(range(self._acked + 1, self._last + 1))
        assert self.backlog_bytes == sum(out.size_bytes for out in self._frames.values()) + sum(
            map(_size, self._waiting)
        )
        assert not (self.greeted and self.peer_session is None)
