"""The life of a link as a table: its states, what happens on it, and what follows.

Every event is reported to the link's owner; four of them change the state. A link does not give
commands: its owner gets the frames to send from `Link.next_frame`. `link.Link` runs the table.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from squall_common.topology.model import WorkerSlot
from squall_engine.transport import Grant
from squall_worker.transport.frames import Session


class State(enum.Enum):
    """What is true of a link. Sections go out in GREETING and STANDING, and wait otherwise."""

    UNKNOWN = "Nothing has come from the peer: its session is not known."
    GREETING = "The peer's session is known; whether it knows ours is not."
    STANDING = "A frame for our session has come from the peer's: both directions work."
    LEFT = "The peer's session has said goodbye; the next one of that slot has not spoken."


class Owed(enum.Enum):
    """What the peer must be sent now, whether or not a data frame goes there."""

    NOTHING = "Nothing: what the peer has to know can ride on the next data frame."
    FRAME = "A frame of any kind."
    GAP = "A frame that says that one of the peer's is missing."


# Events: what has happened.


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
    """A new pair of sessions: numbers of the previous pair have no meaning any more. `waiting` are
    the sections that are sent first."""

    peer: WorkerSlot
    sessions: tuple[Session, Session]  # ours, the peer's
    waiting: tuple[bytes, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Granted:
    """The peer has sent grants of its tasks."""

    peer: WorkerSlot
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Greeted:
    """The link stands: the peer knows this session, and its frames arrive here."""

    peer: WorkerSlot
    session: Session


@dataclass(frozen=True, slots=True)
class Left:
    """The peer said goodbye. `drained`: everything that it sent has arrived here."""

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
    """A session has greeted that cannot belong to the assignment as it was last read."""

    peer: WorkerSlot
    session: Session


Event = Began | Delivered | Granted | Greeted | Left | Replaced | Unconfirmed
Change = Began | Greeted | Left | Replaced  # the events that change the state

_UNKNOWN = State.UNKNOWN
_GREETING = State.GREETING
_STANDING = State.STANDING
_LEFT = State.LEFT

# A newer session shows in any state but UNKNOWN: Replaced, and at once Began.
TABLE: dict[tuple[State, type[Change]], State] = {
    # state      what happened   next state
    (_UNKNOWN,   Began):         _GREETING,

    (_GREETING,  Greeted):       _STANDING,
    (_GREETING,  Replaced):      _UNKNOWN,

    (_STANDING,  Left):          _LEFT,
    (_STANDING,  Replaced):      _UNKNOWN,

    (_LEFT,      Replaced):      _UNKNOWN,
}  # fmt: skip
