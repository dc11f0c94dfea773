"""The life of a child as a table: its states, what can happen to it, and what is then to be done.

Events are in the past, what to do in the imperative. `life.ChildLife` runs the table; three of the
events it raises itself, from the time that has passed.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.Enum):
    """The states of a child."""

    STARTING = "runs, and has not sent its pid"
    RUNNING = "runs"
    DYING = "was killed, and its exit was not seen yet"
    WAITING = "there is no child; the next is started after a pause"
    STOPPED = "no child is wanted any more; the last one may still be exiting"


class Do(enum.Enum):
    """What the caller is to do."""

    NOTHING = "nothing"
    BEAT = "send a heartbeat"
    KILL = "kill the child: it was silent for too long"
    START = "start a child"


# Events: what has happened.


@dataclass(frozen=True, slots=True)
class ChildStarted:
    """There is a process."""


@dataclass(frozen=True, slots=True)
class StartFailed:
    """No process was started: the command was not found, or the machine has no resources for it."""


@dataclass(frozen=True, slots=True)
class PidReceived:
    """The child has read its handshake and sent its pid."""


@dataclass(frozen=True, slots=True)
class ChildKilled:
    """It was sent SIGKILL because of something that it did."""


@dataclass(frozen=True, slots=True)
class ChildExited:
    """The process is gone."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """No child is wanted any more."""


@dataclass(frozen=True, slots=True)
class BeatDue:
    """A second has passed since the last heartbeat, and that was answered."""


@dataclass(frozen=True, slots=True)
class SilenceExceeded:
    """It owes us something, and has not written for as long as the timeout."""


@dataclass(frozen=True, slots=True)
class PauseOver:
    """The next child may be started."""


Event = (
    ChildStarted
    | StartFailed
    | PidReceived
    | ChildKilled
    | ChildExited
    | StopRequested
    | BeatDue
    | SilenceExceeded
    | PauseOver
)

_WAITING = State.WAITING
_STARTING = State.STARTING
_RUNNING = State.RUNNING
_DYING = State.DYING
_STOPPED = State.STOPPED

TABLE: dict[tuple[State, type[Event]], tuple[State, Do]] = {
    # state      what happened      next state  what to do
    (_WAITING,   PauseOver):        (_WAITING,  Do.START),
    (_WAITING,   ChildStarted):     (_STARTING, Do.NOTHING),
    (_WAITING,   StartFailed):      (_WAITING,  Do.NOTHING),
    (_WAITING,   StopRequested):    (_STOPPED,  Do.NOTHING),

    (_STARTING,  PidReceived):      (_RUNNING,  Do.NOTHING),
    (_STARTING,  SilenceExceeded):  (_DYING,    Do.KILL),
    (_STARTING,  ChildKilled):      (_DYING,    Do.NOTHING),
    (_STARTING,  ChildExited):      (_WAITING,  Do.NOTHING),
    (_STARTING,  StopRequested):    (_STOPPED,  Do.NOTHING),

    (_RUNNING,   PidReceived):      (_RUNNING,  Do.NOTHING),
    (_RUNNING,   BeatDue):          (_RUNNING,  Do.BEAT),
    (_RUNNING,   SilenceExceeded):  (_DYING,    Do.KILL),
    (_RUNNING,   ChildKilled):      (_DYING,    Do.NOTHING),
    (_RUNNING,   ChildExited):      (_WAITING,  Do.NOTHING),
    (_RUNNING,   StopRequested):    (_STOPPED,  Do.NOTHING),

    (_DYING,     PidReceived):      (_DYING,    Do.NOTHING),
    (_DYING,     ChildKilled):      (_DYING,    Do.NOTHING),
    (_DYING,     ChildExited):      (_WAITING,  Do.NOTHING),
    (_DYING,     StopRequested):    (_STOPPED,  Do.NOTHING),

    (_STOPPED,   PidReceived):      (_STOPPED,  Do.NOTHING),
    (_STOPPED,   ChildKilled):      (_STOPPED,  Do.NOTHING),
    (_STOPPED,   ChildExited):      (_STOPPED,  Do.NOTHING),
    (_STOPPED,   StopRequested):    (_STOPPED,  Do.NOTHING),
}  # fmt: skip
