"""The calls of a bolt, and the loop that feeds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from squall_common.names import DEFAULT_STREAM
from squall_engine.core.pure.acking import Ledger
from squall_engine.core.pure.emitting import Anchors, Emitter, as_anchors, ids_of
from squall_engine.core.pure.inbox import Inbox
from squall_engine.core.pure.outputs import Edge, Output
from squall_engine.core.pure.tuples import Batch, Tuple, roots_of
from squall_engine.core.stats import TaskCounts
from squall_engine.core.values import IN_HAND_WORDS, MANY, settled_error


class _Calls:
    """What both kinds of a bolt's calls have in common. Not for two threads at once."""

    def __init__(
        self,
        emitter: Emitter,
        ledger: Ledger,
        counts: TaskCounts,
        *,
        default_anchors: Callable[[], tuple[Tuple, ...]],
        on_error: Callable[[BaseException], None],
        on_settled: Callable[[Tuple, bool], None] | None = None,
        notes_acks: bool = True,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """`default_anchors()` are those of an emit that names none. `on_settled(tup, failed)` is
        called when a tuple was acked or failed (without `notes_acks`: when it failed),
        `on_change()` after every call that leaves something for the engine to do."""
        self._emitter = emitter
        self._ledger = ledger
        self._counts = counts
        self._default_anchors = default_anchors
        self._on_settled = on_settled
        self._notes_acks = notes_acks
        self._on_change = on_change
        self.report_error = on_error

    def emit(
        self, values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        output = self._emitter._output(stream, values)
        return self._send(output, self._emitter._edges(output, values), values, anchors)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Anchors = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        output = self._emitter._output(stream, values)
        return self._send(output, self._emitter._direct_edges(output, task), values, anchors)

    def ack(self, tup: Tuple) -> None:
        self._settle(tup, "ack")
        _ack_roots(self._ledger, tup)
        self._counts.add(self._counts.acked, tup.source.key)
        self._notify_settled(tup, False)

    def fail(self, tup: Tuple) -> None:
        self._settle(tup, "fail")
        self._ledger.fail(roots_of((tup,)))
        self._counts.add(self._counts.failed, tup.source.key)
        self._notify_settled(tup, True)

    def reset_timeout(self, tup: Tuple) -> None:
        _check_unsettled(tup, "reset_timeout")
        self._ledger.reset(roots_of((tup,)))
        self._changed()

    def _send(
        self, output: Output, edges: tuple[Edge, ...], values: Sequence[Any], anchors: Anchors
    ) -> Sequence[int]:
        chosen = self._default_anchors() if anchors is None else as_anchors(anchors)
        for anchor in chosen:
            _check_unsettled(anchor, "emit")
        self._emitter._send(output, edges, values, chosen)
        self._changed()
        return ids_of(edges)

    def _settle(self, tup: Tuple, what: str) -> None:
        _check_unsettled(tup, what)
        tup.settled = True

    def _notify_settled(self, tup: Tuple, failed: bool) -> None:
        if self._on_settled is not None and (failed or self._notes_acks):
            self._on_settled(tup, failed)
        self._changed()

    def _changed(self) -> None:
        if self._on_change is not None:
            self._on_change()


def _check_unsettled(tup: Tuple, what: str) -> None:
    if not isinstance(tup, Tuple):
        raise TypeError(f"{what}(tup): expected a tuple, got {tup!r}")
    if tup.settled:
        raise settled_error(tup, what)


def _ack_roots(ledger: Ledger, tup: Tuple) -> None:
    """Report to its trees that a tuple was acked, and which tuples were anchored to it."""
    if tup.anchors is not None:
        for root, edge in tup.anchors.items():
            ledger.ack(root, edge ^ tup._axor)
    elif tup.root:
        ledger.ack(tup.root, tup.id ^ tup._axor)


class CarefulCalls(_Calls):
    """A bolt's calls when several tuples are in flight."""

    def ack_rest(self, tuples: list[Tuple]) -> None:
        """Ack those of these tuples that are not settled."""
        for tup in tuples:
            if not tup.settled:
                self.ack(tup)


class BoltCalls(_Calls):
    """The calls of a bolt with a plain `execute` and `auto_anchor`
    (`squall_common.component.collector.BoltCollector`), and the loop that feeds it."""

    def __init__(
        self,
        emitter: Emitter,
        ledger: Ledger,
        counts: TaskCounts,
        execute: Callable[[Tuple], Any],
        *,
        auto_ack: bool,
        on_error: Callable[[BaseException], None],
        now: Callable[[], float],
        on_outside: Callable[[], None],
        on_settled: Callable[[Tuple, bool], None] | None = None,
        in_hand: memoryview | None = None,
    ) -> None:
        """`on_error(error)` gets the errors that `execute` raises; `on_settled(tup, failed)` is
        called for every ack and fail (for the test kit); and `on_outside()` after each call that is
        made while no tuple is executed, because there is something for a turn to do. `in_hand` are
        words in which the trees of the current tuple are noted (see
        `squall_engine.tasks.in_hand`). Raises ValueError when they are too few."""
        if in_hand is not None and len(in_hand) < IN_HAND_WORDS:
            raise ValueError(f"in_hand: {len(in_hand)} words, not {IN_HAND_WORDS}")
        super().__init__(
            emitter,
            ledger,
            counts,
            default_anchors=lambda: () if self._current is None else (self._current,),
            on_error=on_error,
            on_settled=on_settled,
        )
        self._execute = execute
        self._auto_ack = auto_ack
        self._now = now
        self._on_outside = on_outside
        self._in_hand = in_hand
        self._current: Tuple | None = None
        # One tuple at a time is timed from its execution to its ack, when acks are the bolt's own.
        self._sample: Tuple | None = None
        self._sample_start = 0.0

    def run(self, batch: Batch, count: int) -> None:
        """Execute the first `count` tuples, which are then no longer in the batch."""
        self.run_each([batch], count)

    def run_each(self, batches: list[Batch], count: int) -> None:
        """Likewise with several batches of one stream."""
        tuples: list[Tuple] = []
        for batch in batches:
            tuples += batch.take(count - len(tuples))._tuples
        if not tuples:
            return
        if not self._auto_ack and self._sample is None:
            self._sample = tuples[0]
            self._sample_start = self._now()
        if self._in_hand is not None:
            self._in_hand[1] = self._emitter.task
        try:
            for tup in tuples:
                self._run_one(tup)
        finally:
            self._current = None
            if self._in_hand is not None:
                self._in_hand[0] = 0

    def run_slice(self, inbox: Inbox, room: int) -> tuple[int, float, float]:
        """Execute up to `room` tuples of one stream of an inbox, and count them. Returns how many
        there were, when that ended, and how many seconds it took; (0, 0, 0) if nothing waits."""
        batches, n = inbox.pull(room)
        if not n:
            return 0, 0.0, 0.0
        key = batches[0].source.key
        start = self._now()
        processed = 0
        try:
            self.run_each(batches, n)
            processed = n if self._auto_ack else 0
        finally:
            end = self._now()
            self._counts.executed_many(key, n, end - start, processed)
        return n, end, end - start

    def _run_one(self, tup: Tuple) -> None:
        self._current = tup
        if self._in_hand is not None:
            _hold(self._in_hand, tup)
        try:
            self._execute(tup)
            if self._auto_ack and not tup.settled:
                self.ack(tup)
        except Exception as error:
            if not tup.settled:
                self.fail(tup)
            self.report_error(error)

    def _settle(self, tup: Tuple, what: str) -> None:
        super()._settle(tup, what)
        if tup is self._sample:
            self._sample = None
            if what == "ack":
                self._counts.processed(tup.source.key, self._now() - self._sample_start)

    def _changed(self) -> None:
        if self._current is None:
            self._on_outside()


def _hold(in_hand: memoryview, tup: Tuple) -> None:
    """Note the trees of a tuple."""
    if tup.root == MANY:
        roots = [*(tup.anchors or ()), *[0] * IN_HAND_WORDS]
        for at in range(2, IN_HAND_WORDS):
            in_hand[at] = roots[at - 2]
    in_hand[0] = tup.root
