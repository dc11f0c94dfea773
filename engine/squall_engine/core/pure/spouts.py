"""The calls of a spout: emitting, and starting the trees that its ackers watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from squall_common.names import DEFAULT_STREAM
from squall_engine.core.pure.acking import Ledger, PendingRoots
from squall_engine.core.pure.emitting import Emitter, ids_of
from squall_engine.core.pure.outputs import Edge, Output
from squall_engine.core.pure.tuples import Tuple
from squall_engine.core.values import ACKER_INDEX_MASK, EmitError, rows_of

# Roots come in blocks of 16 that follow each other, which the compiled core's tables like: the bits
# of a root that are its acker's index or its place in the block.
_BLOCK_MASK = (ACKER_INDEX_MASK << 4) | 15

# interceptor(values, message_id, stream, task)
Interceptor = Callable[[Sequence[Any], Any, str, int | None], Sequence[int]]


class TurnState:
    """The properties of the present turn that the calls of components need."""

    __slots__ = ("bucket", "now")

    def __init__(self, now: float) -> None:
        self.now = now  # monotonic, read once a turn
        self.bucket = 0  # the current timeout bucket


class SpoutCalls:
    """The calls of a spout (`squall_common.component.collector.SpoutCollector`), and the loop that
    asks it for tuples."""

    def __init__(
        self,
        emitter: Emitter,
        ledger: Ledger,
        pending: PendingRoots,
        turn: TurnState,
        *,
        acker: int | None,
        on_error: Callable[[BaseException], None],
    ) -> None:
        """`acker` is the index of the spout's acker among the topology's; None: acking is off, and
        a message counts as acked once it is emitted (as in Storm)."""
        self._emitter = emitter
        self._ledger = ledger
        self._pending = pending
        self._turn = turn
        self._acker = acker
        self._emits = 0
        self._newest = 0
        self._next_root = 0  # 0: a new block is due
        self._interceptor: Interceptor | None = None
        self.report_error = on_error
        # Messages that are acked without an acker (acking is off): (message id, stream).
        self.untracked: list[tuple[Any, str]] = []

    def emit(
        self, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        if self._interceptor is not None and message_id is not None:
            return self._interceptor(values, message_id, stream, None)
        output = self._emitter._output(stream, values)
        return self._send(output, self._emitter._edges(output, values), values, message_id)

    def emit_direct(
        self, task: int, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        if self._interceptor is not None and message_id is not None:
            return self._interceptor(values, message_id, stream, task)
        output = self._emitter._output(stream, values)
        return self._send(output, self._emitter._direct_edges(output, task), values, message_id)

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        message_ids: Sequence[Any] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        rows = rows_of(self._emitter._find(stream).source, columns)
        if message_ids is None:
            message_ids = [None] * len(rows)
        elif len(message_ids) != len(rows):
            raise EmitError(f"emit_columns: {len(message_ids)} message ids for {len(rows)} tuples")
        for row, message_id in zip(rows, message_ids, strict=True):
            self.emit(row, message_id, stream)

    def emitted(self) -> int:
        """The number of emits so far."""
        return self._emits

    def run(self, next_tuple: Callable[[], Any], calls: int, pending_max: int | None) -> None:
        """Call `next_tuple` that often, or until as many tuples were emitted; and only while fewer
        than `pending_max` roots are pending."""
        emits_end = self._emits + calls
        for _ in range(calls):
            if self._emits >= emits_end:
                break
            if pending_max is not None and len(self._pending) >= pending_max:
                break
            next_tuple()

    def set_interceptor(self, interceptor: Interceptor | None) -> None:
        """Have `interceptor(values, message_id, stream, task)` called in place of emit (task None)
        and emit_direct for all that has a message id; None ends it."""
        self._interceptor = interceptor

    def last_root(self) -> int:
        """The root of the message that was emitted last."""
        return self._newest

    def _send(
        self, output: Output, edges: tuple[Edge, ...], values: Sequence[Any], message_id: Any
    ) -> Sequence[int]:
        self._emits += 1
        stream = output.source.stream
        if message_id is None or self._acker is None:
            self._emitter._send(output, edges, values, ())
            if message_id is not None:
                self.untracked.append((message_id, stream))
            return ids_of(edges)
        root = self._newest = self._new_root(self._acker)
        self._pending.put(root, message_id, stream, self._turn.now, self._turn.bucket)
        # The root as an anchor of its own: the edges that are anchored to it are the init's XOR
        # (zero when no component consumes the stream, which completes the root at once).
        anchor = Tuple(values, 0, root, output.source)
        self._emitter._send(output, edges, values, (anchor,))
        self._ledger.init(root, anchor._axor, self._emitter.task)
        return ids_of(edges)

    def _new_root(self, acker: int) -> int:
        while True:
            root = self._next_root or self._emitter._ids.draw() & ~_BLOCK_MASK | acker
            following = root + ACKER_INDEX_MASK + 1
            self._next_root = following if following & _BLOCK_MASK > ACKER_INDEX_MASK else 0
            # Not a root that lives, and not one that means something else.
            if root > ACKER_INDEX_MASK and root not in self._pending:
                return root
