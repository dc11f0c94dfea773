"""Messages between the workers of one topology.

The engine hands over *sections*: opaque bytes, each the encoded tuples (or acks) of one turn for
one peer. The transport carries them in order, in frames, and hands the engine the sections that
arrived. It knows peers, sequences and incarnations; it knows nothing of tuples.

`frames` is the format, `link` what makes delivery of it, `zmq` the sockets.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from squall.model import WorkerSlot


class Transport(Protocol):
    """The engine's view of the transport. Nothing here blocks or awaits."""

    def send(self, peer: WorkerSlot, sections: Sequence[bytes]) -> None:
        """Queue sections for a peer, in order. Sections for a peer that is unknown or not connected
        yet wait for it; those for one whose incarnation ended are dropped (acking replays them)."""
        ...

    def drain(self, limit_bytes: int) -> list[bytes]:
        """Sections that have arrived, at most about `limit_bytes` of them; empty when none."""
        ...

    def backlog_bytes(self, peer: WorkerSlot) -> int:
        """Bytes queued for a peer that it has not acknowledged: the engine stops spouts that feed
        a peer above its limit."""
        ...

    def set_wakeup(self, wakeup: Callable[[], None]) -> None:
        """Call `wakeup` on the event loop when `drain` has something, or a backlog fell."""
        ...
