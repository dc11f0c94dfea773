"""A spout that loses no message that failed: `ReplayingSpout`.

    class Sentences(ReplayingSpout):
        outputs = ["sentence"]

        def __init__(self, path):
            self.path = path

        def open(self, conf, context):
            self.lines = open(self.path)

        def next_message(self):
            line = self.lines.readline()
            return [line] if line else None

A message that fails or times out must come from its source again, or it is lost. Many sources
cannot be asked again for a single message (a file, a socket, a generator), so this spout keeps what
it emitted, in memory, until it is acked. What was kept goes with the worker: a source that must not
lose messages then either (a queue, a log) has to forget them only when `acked` says so.
"""

from __future__ import annotations

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


class ReplayingSpout(Spout):
    """A spout that keeps each message until it is acked, and emits it again when it fails.

    A subclass defines `next_message` in place of `next_tuple`, and `acked` where its source must
    know what was processed:

        class Orders(ReplayingSpout):
            outputs = ["order", "amount"]

            def open(self, conf, context):
                self.queue = connect(conf["queue.url"])

            def next_message(self):
                found = self.queue.poll()
                return None if found is None else [found.id, found.amount]

            def acked(self, values):
                self.queue.delete(values[0])

    A message that failed is emitted before new ones, with the message id that it had, so that
    `topology.max.replays` counts its failures. All messages go to the stream "default".
    """

    #: Keep at most so many messages. Below this, `topology.max.spout.pending` is the bound.
    messages_max: int = 10_000

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
        self._ids = count(1)

    def next_message(self) -> Sequence[Any] | None:
        """The values of the next message, None when there is none now. They must not be changed
        afterwards."""
        raise NotImplementedError(f"{type(self).__name__} does not define next_message()")

    def acked(self, values: Sequence[Any]) -> None:
        """The message with these values was processed, or is a dead letter: it is not emitted
        again."""

    def next_tuple(self) -> None:
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
        values = self._kept.pop(msg_id, None)
        if values is not None:
            self.acked(values)

    def fail(self, msg_id: Any) -> None:
        if msg_id in self._kept:
            self._failed.append(msg_id)
