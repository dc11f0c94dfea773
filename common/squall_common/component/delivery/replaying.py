"""`ReplayingSpout`: a spout that emits failed messages again.

    class Sentences(ReplayingSpout):
        outputs = ["sentence"]

        def __init__(self, path):
            self.path = path

        def open(self, conf, context):
            self.lines = open(self.path)

        def next_message(self):
            line = self.lines.readline()
            return [line] if line else None

A message that fails or times out is lost unless its spout emits it again. Many sources cannot
supply a single message again (a file, a socket, a generator), so this spout keeps each message in
memory until it is acked. The messages that it keeps are lost with the worker. To survive that too,
a source that stores its messages (a queue, a log) must forget one only when `acked` is called.
"""

from __future__ import annotations

import heapq
import inspect
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from squall_common.component.component import Spout
from squall_common.errors import InvalidTopologyError

if TYPE_CHECKING:
    from squall_common.component.collector import SpoutCollector
    from squall_common.component.context import TopologyContext


# A message that failed is emitted again at once this often, and then after a wait that doubles.
_AT_ONCE = 2
_WAIT_SECS = 0.1


class ReplayingSpout(Spout):
    """A spout that keeps each message until it is acked, and emits it again when it fails.

    A subclass defines `next_message` instead of `next_tuple`, and `acked` if its source must know
    which messages were processed:

        class Orders(ReplayingSpout):
            outputs = ["order", "amount"]

            def open(self, conf, context):
                self.queue = connect(conf["queue.url"])

            def next_message(self):
                found = self.queue.poll()
                return None if found is None else [found.id, found.amount]

            def acked(self, values):
                self.queue.delete(values[0])

    A failed message is emitted again before new ones, with the same message id, so that
    `topology.max.replays` counts its failures. The first two times that is at once; a message that
    keeps failing then waits for 0.1 s, twice as long each time, up to `replay_wait_secs_max`. All
    messages go to the stream "default".
    """

    #: The largest number of messages to keep. A smaller `topology.max.spout.pending` limits it
    #: further.
    messages_max: int = 10_000
    #: The longest time in seconds that a message waits which fails again and again.
    replay_wait_secs_max: float = 10.0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if inspect.iscoroutinefunction(cls.next_message):
            raise InvalidTopologyError(
                f"{cls.__name__}: next_message() cannot be async",
                hint="set blocking = True, and it may wait for its source",
            )

    def _bind(self, collector: SpoutCollector, context: TopologyContext) -> None:
        super()._bind(collector, context)
        # Here, so that a subclass need not call `super()` in its constructor or in `open`.
        self._kept: dict[int, Sequence[Any]] = {}
        self._failed: deque[int] = deque()  # of those kept: to be emitted again, first come first
        self._failures: dict[int, int] = {}  # in a row, of those kept
        self._later: list[tuple[float, int]] = []  # a heap: when to emit which of them again
        self._now = context.monotonic
        self._ids = count(1)

    @property
    def has_replays(self) -> bool:
        """Whether failed messages wait to be emitted again."""
        return bool(self._failed or self._later)

    def next_message(self) -> Sequence[Any] | None:
        """Return the values of the next message, or None if there is none now. Do not change the
        values afterwards."""
        raise NotImplementedError(f"{type(self).__name__} does not define next_message()")

    def acked(self, values: Sequence[Any]) -> None:
        """Called when the message with these values was processed, or became a dead letter: it will
        not be emitted again."""

    def next_tuple(self) -> None:
        if self._later and self._later[0][0] <= self._now():
            self._failed.append(heapq.heappop(self._later)[1])
        if self._failed:
            message_id = self._failed.popleft()
            self.emit(self._kept[message_id], message_id=message_id)
            return
        if len(self._kept) >= self.messages_max:
            return
        values = self.next_message()
        if values is None:
            return
        message_id = next(self._ids)
        self.emit(values, message_id=message_id)
        self._kept[message_id] = values

    def ack(self, msg_id: Any) -> None:
        self._failures.pop(msg_id, None)
        values = self._kept.pop(msg_id, None)
        if values is not None:
            self.acked(values)

    def fail(self, msg_id: Any) -> None:
        if msg_id not in self._kept:
            return
        failures = self._failures[msg_id] = self._failures.get(msg_id, 0) + 1
        if failures <= _AT_ONCE:
            self._failed.append(msg_id)
            return
        wait_secs = _WAIT_SECS * 2.0 ** min(failures - _AT_ONCE - 1, 30)
        due = self._now() + min(wait_secs, self.replay_wait_secs_max)
        heapq.heappush(self._later, (due, msg_id))
