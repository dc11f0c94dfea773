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

The last frames of a burst have no later frame to show their loss, so a sender that waits for an
acknowledgement repeats its last sequence in idle frames, soon and then more and more slowly, and
one that waits for nothing still does so once a second. Nothing is resent on a mere timeout: a
receiver that is stuck or slow does not get a second copy of frames that are in its socket.

A link begins with greetings: each side sends one until a frame arrives that is addressed to its
own session, which proves both directions. Data needs only that the peer's session is known, since
every frame names the session that it is for and a replaced or restarted receiver drops frames that
are not for it.

What the peer acknowledges, it has *taken*: its engine has it. So the unacknowledged bytes are a
true backlog, and a goodbye (sent after the engine stopped) says exactly what was never taken:
those frames go to the next session of that slot. When a session ends without one, its
unacknowledged frames may or may not have taken effect: they are dropped and reported, and acking
replays them.

A session counts only if the assignment knows of it: its zxid is at most that of the assignment as
this worker read it last. A greater one may belong to a worker that was placed since, or to a
stranger: it changes nothing until a new reading has confirmed it. The launch number cannot be
checked like that, since a supervisor relaunches a worker on its own, even while ZooKeeper is away:
a greater one counts. The key decides who may connect at all (`curve`).

Turned down: resending whenever the connection is re-established (needs a socket monitor, races
with what is still queued, and is not enough alone); selective acknowledgement (losses are rare).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice

from squall_common.daemon.output.story import Story
from squall_common.topology.model import WorkerSlot
from squall_engine.transport import Grant
from squall_worker.transport.frames import (
    FRAME_BYTES_TARGET,
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
from squall_worker.transport.link_counts import LinkCounts
from squall_worker.transport.link_table import (
    TABLE,
    Began,
    Change,
    Delivered,
    Event,
    Granted,
    Greeted,
    Left,
    Owed,
    Replaced,
    State,
    Unconfirmed,
)
from squall_worker.transport.out_frames import OutFrame, cut, size_of, whole

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


# Sections go out in these states, and wait in the others.
_OPEN = (State.GREETING, State.STANDING)
_UNKNOWN, _STANDING, _LEFT = State.UNKNOWN, State.STANDING, State.LEFT
_NOTHING, _GAP = Owed.NOTHING, Owed.GAP


class Link:
    """This worker's end of the link to one peer.

    The owner calls `receive`, `take`, `queue` and `tick`, and after each of them sends the frames
    that `next_frame` returns, calling `sent` for each frame that the socket took. At
    `backlog_bytes_max` unacknowledged bytes, `queue` drops and counts sections without credit (acks
    and the like): the engine stops the spouts long before that.
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

        self.state = State.UNKNOWN
        self.peer_session: Session | None = None  # None exactly in UNKNOWN
        self.sessions = (session, NO_SESSION)  # the current pair: ours and the peer's
        self._drained = False  # nothing of `peer_session` is missing; True only in LEFT
        self._story = Story()

        # Out. `_frames` holds the unacknowledged frames, sequences `_acked` + 1 to `_last`.
        self._frames: dict[int, OutFrame] = {}
        self._waiting: deque[bytes] = deque()  # for the next session; only in UNKNOWN and LEFT
        self._acked = 0
        self._last = 0
        self._sent_max = 0  # highest sequence that ever went out
        self._cursor = 1  # next sequence to go out
        self._resent_at = float("-inf")

        # In. `_taken` <= `_received`.
        self._heard_at = now
        self._received = 0
        self._taken = 0
        self._taken_bytes = 0  # taken, and the peer does not know yet
        self._parts: list[bytes] = []  # of the section whose end has not come

        # The grants of our tasks, and which of them the next frame carries. All of them are
        # repeated, since a frame that carries them may be lost.
        self._grants: dict[int, Grant] = {}
        self._grants_due: dict[int, Grant] = {}
        self.granted: dict[int, Grant] = {}  # the grants of its tasks that the peer sent
        self._repeat_at = now + IDLE_SECS

        self._owed = Owed.NOTHING
        self._ack_at: float | None = None
        self._greeting_at = now
        self._greeting_secs = GREETING_SECS
        self._probe_secs = PROBE_SECS
        self._sent_at = now

    # -- out ----------------------------------------------------------------------------------

    def queue(self, sections: Sequence[bytes], credited: int = 0) -> bool:
        """Queue sections in order; returns False if there was no room, and then all but the first
        `credited` are dropped. Raises ValueError if one does not fit into any frame (then none of
        them is queued)."""
        size = sum(map(len, sections)) + LENGTH_BYTES * len(sections)
        if size > SECTION_BYTES_MAX:
            for section in sections:
                check_section(section)
        fits = len(sections) <= credited or self.backlog_bytes + size <= self._backlog_bytes_max
        if not fits:
            self.counts.dropped_overflow += len(sections) - credited
            sections = sections[:credited]
            size = size_of(sections)
        self.backlog_bytes += size
        if self.state in _OPEN:
            self._number(sections, size)
        else:
            self._waiting.extend(sections)
        return fits

    def _number(self, sections: Sequence[bytes], size_bytes: int) -> None:
        """Put sections of that many bytes into frames. A frame that has not been sent yet takes
        further sections, so that frames grow while a peer is slow."""
        if not sections:
            return
        tail = self._frames[self._last] if self._last > self._sent_max else None
        if tail is None and size_bytes <= FRAME_BYTES_TARGET:
            tail = self._new_frame(OutFrame())
        if tail is not None and tail.takes(size_bytes, len(sections)):
            tail.sections += sections
            tail.size_bytes += size_bytes
            return
        for section in sections:
            if len(section) > PART_BYTES:
                tail = None
                for out in cut(section):
                    self._new_frame(out)
                continue
            size = len(section) + LENGTH_BYTES
            if tail is None or not tail.takes(size):
                tail = self._new_frame(OutFrame())
            tail.sections.append(section)
            tail.size_bytes += size

    def _new_frame(self, out: OutFrame) -> OutFrame:
        self._last += 1
        self._frames[self._last] = out
        return out

    def grant(self, grants: Iterable[Grant], *, soon: bool) -> None:
        """Send the grants of our tasks with the next frame; `soon`: have a frame sent now."""
        if self.state not in _OPEN:
            return
        for grant in grants:
            self._grants[grant.task] = self._grants_due[grant.task] = grant
            if soon:
                self._owe_frame()

    def _owe_frame(self) -> None:
        if self._owed is Owed.NOTHING:
            self._owed = Owed.FRAME

    @property
    def has_more(self) -> bool:
        """Whether `next_frame` may return a frame."""
        return self._owed is not _NOTHING or self._cursor <= self._last

    def next_frame(self, now: float) -> Frame | None:
        """The frame to send now, or None. Returns the same one again until `sent` is called."""
        state = self.state
        if state is _LEFT:
            return None
        if now >= self._repeat_at:
            self._repeat_at = now + IDLE_SECS
            self._grants_due.update(self._grants)
        owes = self._owed is not _NOTHING
        if state is _UNKNOWN:
            return self._frame(Kind.GREETING, 0) if owes else None
        unsent = self._frames.get(self._cursor)
        if unsent is not None:
            return self._frame(Kind.DATA, self._cursor, tuple(unsent.sections), unsent.more)
        if not owes:
            return None
        return self._frame(Kind.IDLE if state is _STANDING else Kind.GREETING, self._sent_max)

    def next_data(self, now: float) -> tuple[int, int, list[bytes]] | None:
        """Sequence, acknowledgement and sections of the frame to send now, if it is a data frame
        that has neither grants nor flags: then this costs less than `next_frame`."""
        if self._owed is _GAP or self._grants_due or now >= self._repeat_at:
            return None
        cursor = self._cursor
        unsent = self._frames.get(cursor)
        if unsent is None or unsent.more:
            return None
        return cursor, self._taken, unsent.sections

    def sent_data(self, now: float) -> None:
        """The ring took what `next_data` returned."""
        self._sent_data(self._cursor)
        self._owed = _NOTHING
        self._ack_at = None
        self._taken_bytes = 0
        self._sent_at = now

    def _sent_data(self, sequence: int) -> None:
        self.counts.frames_sent += 1
        if sequence <= self._sent_max:
            self.counts.frames_resent += 1
        else:
            self._sent_max = sequence
            self._probe_secs = PROBE_SECS
        self._cursor = sequence + 1

    def sent(self, frame: Frame, now: float) -> None:
        """The socket took `frame`."""
        if frame.kind is Kind.DATA:
            self._sent_data(frame.sequence)
        else:
            self.counts.frames_sent += 1
        for grant in frame.grants:
            if self._grants_due.get(grant.task) is grant:
                del self._grants_due[grant.task]
        if frame.gap or self._owed is not _GAP:
            more_grants = len(frame.grants) == GRANTS_MAX and self._grants_due
            self._owed = Owed.FRAME if more_grants else _NOTHING
        self._ack_at = None
        self._taken_bytes = 0
        self._sent_at = now

    def goodbye(self) -> Frame | None:
        """The last frame of this session, for after the engine has stopped. None if the peer has
        never been heard or has left."""
        if self.state not in _OPEN:
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
            self._owed is _GAP,
            sections,
            tuple(islice(self._grants_due.values(), GRANTS_MAX)) if self._grants_due else (),
            more,
        )

    # -- in -----------------------------------------------------------------------------------

    @property
    def greeted(self) -> bool:
        """Whether a frame of the peer's current session has arrived for ours, even if that has left
        since."""
        return self.state is _STANDING or self.state is _LEFT

    def receive(self, frame: Frame, now: float) -> list[Event]:
        """Take a frame of this peer's slot; returns the resulting events, in order."""
        self.counts.frames_received += 1
        events: list[Event] = []
        if self.peer_session is None or frame.sender > self.peer_session:
            if self._zxid_max is not None and frame.sender.assignment_zxid > self._zxid_max:
                self.counts.dropped_unconfirmed += 1
                self._unconfirmed = max(frame.sender, self._unconfirmed or frame.sender)
                return [Unconfirmed(self.peer, frame.sender)]
            self._begin(frame.sender, now, events)
        elif frame.sender < self.peer_session:
            self.counts.dropped_replaced += 1
            return events
        if frame.receiver != self.session:
            # It does not know us yet, or knows the one before us: any frame of ours tells it.
            if frame.receiver != NO_SESSION:
                self.counts.dropped_misaddressed += 1
            self._owe_frame()
            return events
        self._heard_at = now
        if self.state is _LEFT:
            self.counts.dropped_invalid += 1
            return events
        if frame.acknowledged > self._sent_max:
            self.counts.dropped_invalid += 1
            return events
        if self.state is not _STANDING:
            self._change(Greeted(self.peer, frame.sender), now, events)
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
                self._owed = Owed.GAP
            if frame.kind is Kind.GREETING:
                self._owe_frame()
            elif frame.kind is Kind.GOODBYE:
                self._leave(frame, now, events)
        return events

    def receive_data(
        self,
        sequence: int,
        acknowledged: int,
        sections: tuple[bytes, ...],
        size_bytes: int,
        now: float,
    ) -> Delivered | None:
        """Take a data frame of the current pair of sessions, without grants and flags, if it is the
        next in order; `size_bytes`: of its sections, with their lengths. None: it is for `receive`,
        and nothing was done."""
        if (
            sequence != self._received + 1
            or acknowledged > self._sent_max
            or self._parts
            or self.state is not _STANDING
        ):
            return None
        self.counts.frames_received += 1
        self._heard_at = now
        if acknowledged > self._acked:
            self._acknowledge(acknowledged)
        self._received = sequence
        assert self.peer_session is not None
        return Delivered(self.peer, self.peer_session, sequence, sections, size_bytes)

    def confirm(self, zxid_max: int | None, now: float) -> list[Event]:
        """Set the zxid of the assignment as just read: sessions up to it count. With None it is not
        known, and all sessions count."""
        self._zxid_max = zxid_max
        session, events = self._unconfirmed, list[Event]()
        if session is not None:
            self._unconfirmed = None
            known = zxid_max is None or session.assignment_zxid <= zxid_max
            if known and (self.peer_session is None or session > self.peer_session):
                self._begin(session, now, events)
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
                size = size_of(sections)
                events.append(Delivered(self.peer, frame.sender, frame.sequence, sections, size))
        elif frame.sequence <= self._received:
            self.counts.dropped_repeat += 1
            self._owe_frame()  # it may not have seen our acknowledgement
        else:
            self.counts.dropped_gap += 1
            self._owed = Owed.GAP

    def _fits(self, frame: Frame) -> bool:
        """Whether the frame can be the next part of a section."""
        size = sum(map(len, self._parts)) + len(frame.sections[0])
        return len(frame.sections) == 1 and size <= SECTION_BYTES_MAX

    def _put_together(self, frame: Frame) -> tuple[bytes, ...] | None:
        """The section whose last part this frame is; None while there is more. It is taken, and
        acknowledged, as a whole."""
        self._parts += frame.sections
        if frame.more:
            return None
        section = b"".join(self._parts)
        self._parts.clear()
        return (section,)

    def take(self, delivered: Delivered, now: float) -> bool:
        """The engine has the sections of `delivered`; calls come in the order of delivery. Returns
        whether there is more to do because of it: a frame that is owed, or a new deadline."""
        if delivered.session != self.peer_session:
            return False
        self._taken = delivered.sequence
        self._taken_bytes += delivered.size_bytes
        if self._taken_bytes >= ACK_BYTES:
            self._owe_frame()
        elif self._ack_at is None:
            self._ack_at = now + ACK_DELAY_SECS
        else:
            return False
        return True

    def _change(self, event: Change, now: float, events: list[Event]) -> None:
        """Handle an event that changes the state."""
        following = TABLE.get((self.state, type(event)))
        self.state = self._story.step(self.state, event, following, now)
        events.append(event)

    def _begin(self, session: Session, now: float, events: list[Event]) -> None:
        """The peer's slot has a new session."""
        old = self.peer_session
        if old is not None:
            frames, dropped = len(self._frames), self._drop_frames()
            replaced = Replaced(self.peer, old, session, self._drained, frames, dropped)
            self._change(replaced, now, events)
        self.peer_session = session
        self.sessions = (self.session, session)
        self._drained = False
        self._acked = self._last = self._sent_max = 0
        self._cursor = 1
        self._resent_at = float("-inf")
        self._received = self._taken = self._taken_bytes = 0
        self._parts.clear()
        self._ack_at = None
        self._owed = Owed.FRAME
        self._greeting_secs = GREETING_SECS
        self._grants.clear()
        self.granted.clear()
        self._grants_due.clear()
        waiting = tuple(self._waiting)
        self._waiting.clear()
        self._number(waiting, size_of(waiting))
        self._change(Began(self.peer, self.sessions, waiting), now, events)

    def _leave(self, frame: Frame, now: float, events: list[Event]) -> None:
        self._drained = frame.sequence == self._received and not self._parts
        self._waiting.extend(whole(self._frames.values()))  # never taken: for the next session
        self._frames.clear()
        self._owed = Owed.NOTHING
        self._ack_at = None
        self._change(Left(self.peer, frame.sender, self._drained), now, events)

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
        """Let time pass: after this, `next_frame` returns the frame that `deadline` was for."""
        if now < self.deadline():
            return
        self._owe_frame()
        if self.state is not _STANDING:
            self._greeting_at = now + self._greeting_secs
            self._greeting_secs = min(2 * self._greeting_secs, GREETING_MAX_SECS)
        elif self._frames and now >= self._sent_at + self._probe_secs:
            self._probe_secs = min(2 * self._probe_secs, IDLE_SECS)
        self._ack_at = None
        self._sent_at = now  # even if the socket takes nothing: the next one waits its time

    def deadline(self) -> float:
        """When `tick` is next worth calling, on the clock of `now`."""
        if self.state is _LEFT:
            return float("inf")
        if self.state is not _STANDING:
            return self._greeting_at
        deadline = self._sent_at + (self._probe_secs if self._frames else IDLE_SECS)
        return deadline if self._ack_at is None else min(deadline, self._ack_at)

    def connected(self, now: float) -> None:
        """The socket has a connection (again): greet or probe at once."""
        self._owe_frame()
        self._repeat_at = now
        self._probe_secs = PROBE_SECS
        self._greeting_secs = GREETING_SECS

    def stands(self, since: float) -> bool:
        """Whether the peer knows us and was heard since then; an idle peer speaks every
        IDLE_SECS."""
        return self.state is _STANDING and self._heard_at >= since

    def fell_silent(self, since: float) -> bool:
        """Whether the peer knew us, has not left, and was not heard since then."""
        return self.state is _STANDING and self._heard_at < since

    @property
    def in_flight(self) -> bool:
        """Whether the peer has not acknowledged all that was sent to it."""
        return self._sent_max > self._acked

    @property
    def settled(self) -> bool:
        """Whether nothing queued is unacknowledged (or can be: the peer left)."""
        return self.state is _LEFT or not (self._frames or self._waiting)

    def __str__(self) -> str:
        return (
            f"{self.peer} {self.session}->{self.peer_session or 'unknown'} {self.state.name} "
            f"out={self._acked}/{self._sent_max}/{self._last} in={self._taken}/{self._received} "
            f"backlog={self.backlog_bytes} owes={self._owed.name}"
        )

    def validate(self) -> None:
        """Assert what must be true between two events; tests call it after each. Raises
        ContradictionError, with what led there."""
        with self._story.checking(self):
            self._check_session()
            assert self._taken <= self._received, "more was taken than has arrived"
            assert self._acked <= self._sent_max <= self._last, "acknowledged, sent, numbered"
            assert self._acked < self._cursor <= self._sent_max + 1, f"cursor at {self._cursor}"
            numbers = range(self._acked + 1, self._last + 1) if self.state is not _LEFT else ()
            assert list(self._frames) == list(numbers), f"it keeps the frames {list(self._frames)}"
            unacknowledged = sum(out.size_bytes for out in self._frames.values())
            backlog = unacknowledged + size_of(self._waiting)
            assert self.backlog_bytes == backlog, f"{backlog} bytes are unacknowledged"
            assert self._grants_due.keys() <= self._grants.keys(), "a grant that was not given"

    def _check_session(self) -> None:
        state, newer = self.state, self._unconfirmed
        assert (self.peer_session is None) == (state is _UNKNOWN), "a session and no state for it"
        assert state is _LEFT or not self._drained, "drained, and has not left"
        assert not (self._drained and self._parts), "drained in the middle of a section"
        assert state in _OPEN or self._owed is not _GAP, "a gap of a session that does not speak"
        if state in _OPEN:
            assert not self._waiting, "sections wait although the session is known"
        else:
            assert not self._frames, "frames for no session"
        if state is _UNKNOWN:
            assert self._received == self._last == 0, "frames of no session"
        if newer is not None:
            assert self._zxid_max is not None, "nothing is confirmed, and a session waits for it"
            assert newer.assignment_zxid > self._zxid_max, f"{newer} waits, and is confirmed"
