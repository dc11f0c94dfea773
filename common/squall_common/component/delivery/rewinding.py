"""`RewindableSpout`: a spout whose source can be read again from a position.

    class Lines(RewindableSpout):
        outputs = ["line"]

        def __init__(self, path):
            self.path = path

        def open(self, conf, context):
            self.file = open(self.path, "rb")

        def seek(self, positions):
            self.file.seek(positions.get(self.path, 0))

        def next_tuple(self):
            line = self.file.readline()
            if line:
                self.emit([line.decode()], position=(self.path, self.file.tell()))

With checkpoints (`topology.checkpoint.interval.secs`) an epoch holds the position of each *split*
(a file, a partition), as of the last tuple that was emitted from it. After a fault the spout seeks
to the positions of the last complete epoch, as all state of the topology goes back to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any

from squall_common.component.component import Spout
from squall_common.component.groupings import stable_hash
from squall_common.errors import SquallError

if TYPE_CHECKING:
    from squall_common.component.collector import SpoutCollector
    from squall_common.component.context import TopologyContext


class RewindableSpout(Spout):
    """A spout that emits each tuple with the position at which its source is to be read on.

        class Numbers(RewindableSpout):
            outputs = ["number"]

            def seek(self, positions):
                self.at = positions.get("all", 0)

            def next_tuple(self):
                self.emit([self.at], position=("all", self.at + 1))
                self.at += 1

    It runs in topologies with checkpoints; others refuse it. `ack` and `fail` are not called: an
    epoch settles all its messages at once. All tuples that one call of `next_tuple` emits belong to
    one epoch, so it is enough that the last tuple of a message has the position behind it.
    """

    _collector: SpoutCollector
    _send: Callable[[Sequence[Any], Hashable | None, str], Sequence[int]]
    _positions: dict[Any, Any]
    _ids: Iterator[int] | None
    _place: tuple[int, TopologyContext]

    #: In `seek` and later: whether no checkpoint of the topology has this spout yet. A source that
    #: is not to be read from its beginning may choose where to begin then, and emits from there; it
    #: calls `begin_at`, so that every later start goes on from what was chosen.
    is_first_run: bool = True

    def _bind(self, collector: SpoutCollector, context: TopologyContext) -> None:
        super()._bind(collector, context)
        # Here, so that a subclass need not call `super()` in its constructor or in `open`.
        set_own = partial(object.__setattr__, self)
        set_own("_positions", {})
        set_own("_ids", None)
        set_own("_send", self._collector.emit)  # with the checks of declared types
        set_own("_place", (context.this_task_index, context))

    def seek(self, positions: Mapping[Any, Any]) -> None:
        """Called after `open`, before the first `next_tuple`: read on from these positions, by
        split. A split that is not among them is read from its beginning."""
        raise NotImplementedError(f"{type(self).__name__} does not define seek()")

    def owns(self, split: Hashable) -> bool:
        """Whether this task is the one of the component's tasks that reads a split. Each split has
        one; that changes only with the number of tasks, and the position moves with it."""
        index, context = self._place
        tasks = len(context.component_tasks(context.this_component_id))
        return stable_hash(split) % tasks == index

    def emit(
        self,
        values: Sequence[Any],
        *,
        message_id: Hashable | None = None,
        stream: str = "default",
        position: tuple[Hashable, Any] | None = None,
    ) -> Sequence[int]:
        """Emit a tuple. `position` is (split, where to read on): both of types that can be emitted,
        the split hashable, and the pair is never changed afterwards. None: the position stays.
        `message_id` must be None."""
        if message_id is not None:
            raise SquallError(
                f"{type(self).__name__}: emit() with a message id",
                hint="a RewindableSpout emits positions; epochs settle its messages",
            )
        ids = self._ids
        sent = self._send(values, None if ids is None else next(ids), stream)
        if position is not None:
            self._positions[position[0]] = position[1]
        return sent

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        *,
        message_ids: Sequence[Hashable] | None = None,
        stream: str = "default",
        position: tuple[Hashable, Any] | None = None,
    ) -> None:
        """Emit many tuples of one split at once, given as one list for each field. `position` is
        that behind the last of them; otherwise as `emit`."""
        if message_ids is not None:
            raise SquallError(
                f"{type(self).__name__}: emit_columns() with message ids",
                hint="a RewindableSpout emits positions; epochs settle its messages",
            )
        ids = self._ids
        count = len(columns[0]) if columns else 0
        numbers = None if ids is None else list(islice(ids, count))
        super().emit_columns(columns, message_ids=numbers, stream=stream)
        if position is not None:
            self._positions[position[0]] = position[1]

    def begin_at(self, split: Hashable, position: Any) -> None:
        """Have the next checkpoint say where a split is to be read on, although nothing was emitted
        from it."""
        self._positions[split] = position

    def forget(self, split: Hashable) -> None:
        """Leave a split out of the next checkpoints, because it is gone."""
        self._positions.pop(split, None)

    def ack_batch(self, msg_ids: Sequence[Any]) -> None:
        """Not called for anything: an epoch settles all its messages at once."""

    # ---- called by the engine ----

    def _speed_up(self, make: Callable[[Any, dict[Any, Any], Any, Any], Any]) -> None:
        """Have what `make(send, positions, ids, emit)` returns called instead of `emit`, if no
        subclass has its own."""
        if type(self).emit is RewindableSpout.emit:
            own = make(self._send, self._positions, self._ids, self.emit)
            object.__setattr__(self, "emit", own)

    def _number_messages(self) -> None:
        """Have messages tracked, because their number is limited."""
        object.__setattr__(self, "_ids", count(1))

    def _rewind(self, positions: Mapping[Any, Any], *, is_first_run: bool = False) -> None:
        object.__setattr__(self, "is_first_run", is_first_run)
        self._positions.update(positions)
        self.seek(positions)

    def _positions_now(self) -> Mapping[Any, Any]:
        return self._positions
