"""The interface between an engine and the transport that connects the workers of a topology.

The engine hands over *sections*: opaque bytes, each with the encoded tuples (or acks) of one turn
for one peer. The transport carries them in order, in frames, and hands the engine the sections that
arrive. It knows peers, sequence numbers and incarnations, but nothing about tuples. *Grants* travel
in the header of the next frame, and are repeated: only the newest for a task counts.

In the worker, `frames` is the format, `link` makes delivery reliable, and `zmq` has the sockets.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from squall_common.topology.model import WorkerSlot


class Grant(NamedTuple):
    """A receiver's permission to send more to one of its tasks, and the load of that task."""

    task: int
    limit: int  # bytes that may be sent to it since the beginning of this pair of sessions
    load: int  # how full its inbox is: 0 to LOAD_MAX


LOAD_MAX = 0xFFFF


class Feature(enum.IntFlag):
    """What an engine understands beyond the first version of sections."""

    COLUMNS = 1  # TUPLES sections with columns


# No task has this id. A grant for it is how an engine says, once in each pair of sessions, which
# features it has: they are its `load`. An engine of an earlier version knows no such task, grants
# nothing for it, and takes no notice of the grant.
FEATURES_TASK = -(2**31)


def features_grant() -> Grant:
    """What this engine understands, for a peer."""
    return Grant(FEATURES_TASK, 0, int(Feature.COLUMNS))


class Arrival(NamedTuple):
    """Sections of one frame. `sessions` names the pair of sessions in which it was sent."""

    peer: WorkerSlot
    sessions: object
    sections: Sequence[bytes]


class Listener(Protocol):
    """The engine's view for the transport, for everything that is not in sections. Called on the
    loop between turns; must not call the transport."""

    def session_began(self, peer: WorkerSlot, sessions: object, waiting: Sequence[bytes]) -> None:
        """Both ends count from zero again. `waiting` are the sections that go out first."""
        ...

    def granted(self, peer: WorkerSlot, grants: Sequence[Grant]) -> None:
        """Grants have arrived, possibly repeated or out of order."""
        ...


class Transport(Protocol):
    """The engine's view of the transport. Nothing here blocks or awaits."""

    def send(self, peer: WorkerSlot, sections: Sequence[bytes], credited: int = 0) -> None:
        """Queue sections for a peer, in order. Sections for a peer that is unknown or not connected
        yet wait for it; those for a peer whose incarnation ended are dropped (acking replays them).
        If too much is waiting already, those after the first `credited` are dropped as well. The
        credited ones are bounded by the peer's credit, and must arrive, or it would be lost."""
        ...

    def drain(self, limit_bytes: int) -> list[Arrival]:
        """Take about `limit_bytes` at most of what has arrived; empty when there is nothing."""
        ...

    def grant(self, peer: WorkerSlot, grants: Iterable[Grant], *, soon: bool) -> None:
        """Send grants to a peer in the current pair of sessions: with the next frame to it, or, if
        `soon`, at the end of this turn. They are dropped when a new pair begins."""
        ...

    def set_wakeup(self, wakeup: Callable[[], None], listener: Listener) -> None:
        """Call `wakeup` on the event loop, directly and not from within another call, when `drain`
        has something or grants arrived; it may call `drain` and `send` at once. `listener` is
        notified now of the sessions that already exist."""
        ...
