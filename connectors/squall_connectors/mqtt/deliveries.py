"""Which messages of an MQTT session are unacknowledged, and when each may be acknowledged.

The broker names a message by a packet id, which is free again after its PUBACK. MQTT wants PUBACKs
in the order of the deliveries (MQTT 5, 4.6), while tuple trees end in any order: what is done waits
until everything before it is done.

After a lost connection the broker delivers again what it has no PUBACK of, under the same packet
ids and marked as duplicates; a message that is in flight here, or done, is recognised by that.
A delivery that is not marked is a new message even if its packet id is in use: then the broker has
forgotten the one before (it was restarted with an older state).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count


@dataclass(slots=True)
class _Delivery:
    message_id: Hashable
    content: tuple[str, bytes]
    done: bool = False


class Deliveries:
    """The unacknowledged messages of one session, in the order of their last delivery."""

    def __init__(self, session: str) -> None:
        self._session = session
        # By packet id: those that this connection has delivered, in order, and those of a
        # connection before, whose PUBACK must wait until they are delivered again.
        self._open: OrderedDict[int, _Delivery] = OrderedDict()
        self._before: dict[int, _Delivery] = {}
        # Message ids of records that are in flight while the broker has forgotten their messages:
        # it gives their packet ids to others.
        self._forgotten: set[Hashable] = set()
        self._numbers = count(1)

    def __len__(self) -> int:
        return len(self._open) + len(self._before)

    def connected(self, *, session_present: bool) -> None:
        """There is a new connection. Without its old session, the broker has forgotten all."""
        before = {**self._before, **self._open}
        if not session_present:
            for known in before.values():
                self._forget(known)
            before = {}
        self._before = before
        self._open.clear()

    def delivered(self, packet_id: int, topic: str, payload: bytes, *, dup: bool) -> Hashable:
        """A message came. Returns its message id: the same as before for one that comes again."""
        content = (topic, payload)
        known = self._open.pop(packet_id, None) or self._before.pop(packet_id, None)
        if known is not None and dup and known.content == content:
            self._open[packet_id] = known
            return known.message_id
        if known is not None:
            self._forget(known)
        message_id: Hashable = (self._session, packet_id)
        if message_id in self._forgotten:
            message_id = (self._session, packet_id, next(self._numbers))
        self._open[packet_id] = _Delivery(message_id, content)
        return message_id

    def is_done(self, message_id: Hashable) -> bool:
        """Whether a message was processed and only waits for its PUBACK."""
        known = self._find(message_id)
        return known is not None and known.done

    def done(self, message_id: Hashable) -> None:
        """A message is processed. Does nothing for one that the broker has forgotten."""
        if (known := self._find(message_id)) is not None:
            known.done = True
        self._forgotten.discard(message_id)

    def _forget(self, known: _Delivery) -> None:
        if not known.done:
            self._forgotten.add(known.message_id)

    def acknowledgeable(self) -> list[int]:
        """Take the packet ids whose PUBACKs are due, in their order."""
        found = []
        while self._open:
            packet_id, first = next(iter(self._open.items()))
            if not first.done:
                break
            del self._open[packet_id]
            found.append(packet_id)
        return found

    def _find(self, message_id: Hashable) -> _Delivery | None:
        packet_id: int = message_id[1]  # type: ignore[index]
        known = self._open.get(packet_id) or self._before.get(packet_id)
        return known if known is not None and known.message_id == message_id else None
