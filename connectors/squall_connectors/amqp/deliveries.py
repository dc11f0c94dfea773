"""Which deliveries of an AMQP channel are unacknowledged.

The broker names a delivery by a tag, which counts within one channel. When the channel is lost,
what is unacknowledged goes back to the queue, and comes again with another tag, to this task or
another. Only a `message_id`, which publishers may set, tells that it is the same message: then a
record that is in flight here is not emitted a second time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable


class Deliveries:
    """The unacknowledged deliveries of one channel after another, by message id."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._channel = 0
        self._tags: dict[Hashable, tuple[int, int]] = {}  # channel and tag
        self._open: dict[int, bool] = {}  # of this channel, by tag, in order: whether it is done

    def connected(self) -> None:
        """There is a new channel; the tags of the last one mean nothing now."""
        self._channel += 1
        self._open.clear()

    def delivered(self, tag: int, message_id: str | None, *, redelivered: bool) -> Hashable:
        """A message came. Returns its id: of a message that is in flight since a channel before,
        the same."""
        self._open[tag] = False
        of: Hashable = (self._queue, self._channel, tag)
        if message_id is not None:
            known = self._tags.get((self._queue, message_id))
            if known is None or (redelivered and known[0] < self._channel):
                of = (self._queue, message_id)
            # Otherwise the publisher used the id twice: these are two messages.
        self._tags[of] = (self._channel, tag)
        return of

    def done(self, message_ids: Iterable[Hashable]) -> list[tuple[int, bool]]:
        """These messages are processed. Returns the tags to acknowledge, each with whether that
        includes all before it. Those of a channel before are not among them: the broker delivers
        them again."""
        singles = []
        for message_id in message_ids:
            channel, tag = self._tags.pop(message_id, (0, 0))
            if channel == self._channel and tag in self._open:
                self._open[tag] = True
                singles.append(tag)
        last = 0
        for tag, is_done in list(self._open.items()):
            if not is_done:
                break
            del self._open[tag]
            last = tag
        found = [(last, True)] if last else []
        for tag in singles:
            if tag > last:
                # It is acknowledged by itself now, and counts no more when the prefix grows.
                del self._open[tag]
                found.append((tag, False))
        return found
