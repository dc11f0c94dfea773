"""The states of an engine, and the reasons for its next turn. Pure: `Engine` acts on them.

    NEW --> STARTING --> RUNNING --> DRAINING --> CLOSING --> STOPPED
                |            |           |           ^
                |            +---DIED----+--> DEAD --+
                +------------ START_FAILED ----------+

An engine takes turns only in RUNNING and DRAINING. The caller whose event leads to CLOSING closes
the components, so that happens once, even when a failing start, a stop and the death of a thread
coincide.
"""

from __future__ import annotations

import enum
import threading

from squall_common.daemon.output.story import Story


class EngineState(enum.Enum):
    """The states of an engine."""

    NEW = "constructed; no component exists yet"
    STARTING = "its components are being created and opened"
    RUNNING = "it takes turns"
    DRAINING = "it was asked to stop, and takes turns until nothing is in flight or its time is up"
    DEAD = "a fault has ended its turns; its components are not closed yet"
    CLOSING = "it takes no more turns; its components are being closed"
    STOPPED = "all its components have ended, or were left behind"


class EngineEvent(enum.Enum):
    """The events in the life of an engine."""

    START_REQUESTED = "start was called"
    TASKS_OPENED = "every component is open"
    START_FAILED = "a component could not be created or opened, or the start was cancelled"
    STOP_REQUESTED = "stop was called"
    DRAIN_ENDED = "stop has waited for what was in flight, or had nothing to wait for"
    DIED = "a component raised an error that ends the worker, or the engine has a fault"
    COMPONENTS_CLOSED = "close and cleanup have returned, or were abandoned"


_S, _E = EngineState, EngineEvent
TABLE: dict[tuple[EngineState, EngineEvent], EngineState] = {
    # state       what happened          next state
    (_S.NEW,      _E.START_REQUESTED):   _S.STARTING,
    (_S.NEW,      _E.STOP_REQUESTED):    _S.NEW,
    (_S.NEW,      _E.DRAIN_ENDED):       _S.CLOSING,

    (_S.STARTING, _E.TASKS_OPENED):      _S.RUNNING,
    (_S.STARTING, _E.START_FAILED):      _S.CLOSING,
    (_S.STARTING, _E.STOP_REQUESTED):    _S.STARTING,
    (_S.STARTING, _E.DRAIN_ENDED):       _S.CLOSING,
    (_S.STARTING, _E.DIED):              _S.DEAD,

    (_S.RUNNING,  _E.STOP_REQUESTED):    _S.DRAINING,
    (_S.RUNNING,  _E.DIED):              _S.DEAD,

    (_S.DRAINING, _E.DRAIN_ENDED):       _S.CLOSING,
    (_S.DRAINING, _E.DIED):              _S.DEAD,

    (_S.DEAD,     _E.TASKS_OPENED):      _S.DEAD,
    (_S.DEAD,     _E.START_FAILED):      _S.CLOSING,
    (_S.DEAD,     _E.STOP_REQUESTED):    _S.DEAD,
    (_S.DEAD,     _E.DRAIN_ENDED):       _S.CLOSING,

    (_S.CLOSING,  _E.TASKS_OPENED):      _S.CLOSING,
    (_S.CLOSING,  _E.START_FAILED):      _S.CLOSING,
    (_S.CLOSING,  _E.STOP_REQUESTED):    _S.CLOSING,
    (_S.CLOSING,  _E.DRAIN_ENDED):       _S.CLOSING,
    (_S.CLOSING,  _E.DIED):              _S.CLOSING,
    (_S.CLOSING,  _E.COMPONENTS_CLOSED): _S.STOPPED,

    (_S.STOPPED,  _E.TASKS_OPENED):      _S.STOPPED,
    (_S.STOPPED,  _E.START_FAILED):      _S.STOPPED,
    (_S.STOPPED,  _E.STOP_REQUESTED):    _S.STOPPED,
    (_S.STOPPED,  _E.DRAIN_ENDED):       _S.STOPPED,
    (_S.STOPPED,  _E.DIED):              _S.STOPPED,
}  # fmt: skip

_TURNING = frozenset({_S.RUNNING, _S.DRAINING})


class TurnReason(enum.IntFlag):
    """Why a whole turn is due. The engine keeps their sum as a plain int, because it checks it
    several times a turn and operations on flags are slow."""

    ACTIVITY = 1  # something was done since the last whole turn, or is left of it
    ARRIVED = 2  # the transport has something
    TIMED = 4  # a timer has rung
    PUT_OFF = 8  # `may_turn` has said no: the next turn waits for `resume`


class EngineLife:
    """The state of one engine. `happened` may be called from any thread."""

    __slots__ = ("_lock", "state", "story", "turns")

    def __init__(self) -> None:
        self.state = EngineState.NEW
        self.turns = False  # whether it takes turns in this state
        self.story = Story()
        self._lock = threading.Lock()

    def happened(self, event: EngineEvent, now: float) -> bool:
        """Go to the next state. Returns whether it differs from the last. Raises IllegalEventError,
        and changes nothing, for an event that cannot happen in this state."""
        with self._lock:
            before = self.state
            following = TABLE.get((before, event))
            self.state = self.story.step(before, event.name, following, now)
            self.turns = self.state in _TURNING
            return self.state is not before

    def __str__(self) -> str:
        return f"engine {self.state.name}"
