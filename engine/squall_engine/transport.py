"""Messages between the workers of one topology.

The engine hands over *sections*: opaque bytes, each the encoded tuples (or acks) of one turn for
one peer. The transport carries them in order, in frames, and hands the engine the sections that
arrived. It knows peers, sequences and incarnations; it knows nothing of tuples. *Grants* travel in
the header of whatever frame goes next, and are repeated: only the newest of a task counts.

`frames` is the format, `link` what makes delivery of it, `zmq` the sockets.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from squall_common.topology.model import WorkerSlot


class Grant(NamedTuple):
    """What a receiver tells a sender of one of its tasks."""

    task: int
    limit: int  # bytes that may be sent to it since the beginning of this pair of sessions
    load: int  # how full its inbox is: 0 to LOAD_MAX


LOAD_MAX = 0xFFFF


class Arrival(NamedTuple):
    """Sections of one frame. `sessions` names the pair of sessions in which it was sent."""

    peer: WorkerSlot
    sessions: object
    sections: Sequence[bytes]


class Listener(Protocol):
    """The engine, as the transport tells it what is not in sections. Called on the loop, between
    turns; may not call back in."""

    def session_began(self, peer: WorkerSlot, sessions: object, waiting: Sequence[bytes]) -> None:
        """What the two ends count starts anew. `waiting` are the sections that go out first."""
        ...

    def granted(self, peer: WorkerSlot, grants: Sequence[Grant]) -> None:
        """Grants have come, perhaps not for the first time, perhaps out of order."""
        ...


class Transport(Protocol):
    """The engine's view of the transport. Nothing here blocks or awaits."""

    def send(self, peer: WorkerSlot, sections: Sequence[bytes], credited: int = 0) -> None:
        """Queue sections for a peer, in order. Sections for a peer that is unknown or not connected
        yet wait for it; those for one whose incarnation ended are dropped (acking replays them).
        So are those beyond the first `credited` where too much waits already; what the peer gave
        credit for is bounded by that, and must arrive, or the credit would be lost."""
        ...

    def drain(self, limit_bytes: int) -> list[Arrival]:
        """What has arrived, at most about `limit_bytes` of it; empty when nothing."""
        ...

    def grant(self, peer: WorkerSlot, grants: Iterable[Grant], *, soon: bool) -> None:
        """Tell a peer, in the present pair of sessions: with the next frame that goes there
        anyway, or, if `soon`, at the end of this turn. Forgotten when a new pair begins."""
        ...

    def set_wakeup(self, wakeup: Callable[[], None], listener: Listener) -> None:
        """Call `wakeup` on the event loop, out of no other call, when `drain` has something or
        grants came: it may call `drain` and `send` at once. `listener` hears now of the
        sessions that stand already."""
        ...
