"""The life of the transport over ZeroMQ as a table, and how its port is read."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class State(enum.Enum):
    """What is true of the transport. Links take sections in any of these."""

    UNBOUND = "It has no port yet; peers may be known, and their sockets connect."
    BOUND = "Its port is open."
    CLOSING = "The engine has stopped; peers may still acknowledge what they were sent."
    CLOSED = "It has no socket and no timer any more."


class Reading(enum.Enum):
    """Who makes sure that the port is read."""

    WATCHED = "The socket was empty at the last look: its FD speaks when something comes."
    DUE = "A callback is on its way, since reading stopped to let others have their turn."
    HELD = "The inbox is full: `drain` goes on reading once the engine has taken some of it."


# Events: what has happened.


@dataclass(frozen=True, slots=True)
class PortBound:
    """The port is bound."""


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """The transport is to close."""


@dataclass(frozen=True, slots=True)
class SocketsClosed:
    """Peers have acknowledged everything, or had their time for it."""


Change = PortBound | CloseRequested | SocketsClosed

TABLE: dict[tuple[State, type[Change]], State] = {
    # state            what happened     next state
    (State.UNBOUND,    PortBound):       State.BOUND,
    (State.UNBOUND,    CloseRequested):  State.CLOSING,

    (State.BOUND,      CloseRequested):  State.CLOSING,

    (State.CLOSING,    CloseRequested):  State.CLOSING,
    (State.CLOSING,    SocketsClosed):   State.CLOSED,

    (State.CLOSED,     SocketsClosed):   State.CLOSED,  # it was asked for twice
}  # fmt: skip
