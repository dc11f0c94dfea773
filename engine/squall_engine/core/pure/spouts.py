"""The calls of a spout: emitting, and starting the trees that its ackers watch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from squall_common.names import DEFAULT_STREAM
from squall_engine.core.pure.acking import Ledger, Pending, PendingRoots
from squall_engine.core.pure.emitting import Emitter, ids_of
from squall_engine.core.pure.outputs import Edge, Output
from squall_engine.core.pure.tuples import Tuple
from squall_engine.core.values import (
    ACKER_INDEX_BITS,
    ID_BITS,
    UNANCHORED,
    EmitError,
    rows_of,
    wrong_values,
)

Emit = Callable[..., Sequence[int]]
Interceptor = Callable[[Sequence[Any], Any, str, int | None], Sequence[int]]
_ROOT_BITS = 64 - ACKER_INDEX_BITS


class TurnState:
    """What the calls of components need to know of the present turn."""

    __slots__ = ("bucket", "now")

    def __init__(self, now: float) -> None:
        self.now = now  # monotonic, read once a turn
        self.bucket = 0  # the current timeout bucket


@dataclass(slots=True)
class SpoutCalls:
    """What a spout is bound to (`squall_common.component.collector.SpoutCollector`)."""

    emit: Emit
    emit_direct: Emit
    emit_columns: Callable[..., None]
    report_error: Callable[[BaseException], None]
    emitted: Callable[[], int]  # emits so far
    # run(next_tuple, calls, pending_max): calls next_tuple that often, or until as many tuples
    # were emitted; and only while fewer roots are pending.
    run: Callable[[Callable[[], Any], int, int | None], None]
    # Messages that are acked without an acker (acking is off): (message id, stream).
    untracked: list[tuple[Any, str]]
    # set_interceptor(call): have call(values, message_id, stream, task) called in place of emit
    # and, with a task, of emit_direct, for whatever has a message id; None ends it.
    set_interceptor: Callable[[Interceptor | None], None]
    last_root: Callable[[], int]  # of the message that was emitted last


def bind_spout(
    emitter: Emitter,
    ledger: Ledger,
    pending: PendingRoots,
    turn: TurnState,
    *,
    acker: int | None,
    on_error: Callable[[BaseException], None],
) -> SpoutCalls:
    """`acker` is the index of the spout's acker among the topology's; None: acking is off, and a
    message counts as acked once it is emitted (as in Storm)."""
    task = emitter.task
    bits = emitter.next_bits
    default = emitter.outputs.get(DEFAULT_STREAM)
    arity = default.arity if default is not None else 0
    source = default.source if default is not None else None
    next_pair = default.next_pair if default is not None else None
    untracked: list[tuple[Any, str]] = []
    counts, xors, inits = ledger.counts, ledger.xors, ledger.inits
    emitted = 0
    interceptor: Interceptor | None = None
    newest = 0

    def set_interceptor(new: Interceptor | None) -> None:
        nonlocal interceptor
        interceptor = new

    def new_root() -> int:
        while True:
            root = bits(_ROOT_BITS) << ACKER_INDEX_BITS | acker  # type: ignore[operator]
            # Not a root that lives, and not one that means something else.
            if root not in pending and root >> ACKER_INDEX_BITS:
                return root

    def emit_by_turn(
        values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        nonlocal emitted, newest
        if interceptor is not None and message_id is not None:
            return interceptor(values, message_id, stream, None)
        if stream is not DEFAULT_STREAM or (acker is None and message_id is not None):
            return emit(values, message_id, stream)
        if len(values) != arity:
            raise wrong_values(source, values)  # type: ignore[arg-type]
        append, ids, local = next_pair()  # type: ignore[misc]
        emitted += 1
        if message_id is None:
            append(Tuple(values, 0, UNANCHORED, source))  # type: ignore[arg-type]
            return ids
        root = bits(_ROOT_BITS) << ACKER_INDEX_BITS
        if acker:
            root |= acker
        if root in pending or root == acker:
            root = new_root()
        newest = root
        pending[root] = Pending(message_id, DEFAULT_STREAM, turn.now, turn.bucket)
        inits[root] = task
        if local:
            counts[root] = 1
            append(Tuple(values, 0, root, source))  # type: ignore[arg-type]
        else:
            edge = xors[root] = bits(ID_BITS)
            append(Tuple(values, edge, root, source))  # type: ignore[arg-type]
        return ids

    def emit(
        values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        if interceptor is not None and message_id is not None:
            return interceptor(values, message_id, stream, None)
        output = emitter.output(stream, values)
        return send(output, emitter.edges(output, values), values, message_id)

    def emit_direct(
        task: int, values: Sequence[Any], message_id: Any = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        if interceptor is not None and message_id is not None:
            return interceptor(values, message_id, stream, task)
        output = emitter.output(stream, values)
        return send(output, emitter.direct_edges(output, task), values, message_id)

    def send(
        output: Output, edges: tuple[Edge, ...], values: Sequence[Any], message_id: Any
    ) -> Sequence[int]:
        nonlocal emitted, newest
        emitted += 1
        stream = output.source.stream
        if message_id is None:
            emitter.send(output, edges, values, ())
        elif acker is None:
            emitter.send(output, edges, values, ())
            untracked.append((message_id, stream))
        else:
            root = newest = new_root()
            pending[root] = Pending(message_id, stream, turn.now, turn.bucket)
            inits[root] = task
            emitter.send(output, edges, values, (root,))
        return ids_of(edges)

    def emit_columns(
        columns: Sequence[Sequence[Any]],
        message_ids: Sequence[Any] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        rows = rows_of(emitter.find(stream).source, columns)
        if message_ids is None:
            for row in rows:
                one(row, None, stream)
        elif len(message_ids) != len(rows):
            raise EmitError(f"emit_columns: {len(message_ids)} message ids for {len(rows)} tuples")
        else:
            for row, message_id in zip(rows, message_ids, strict=True):
                one(row, message_id, stream)

    one = emit_by_turn if next_pair is not None else emit

    def run(next_tuple: Callable[[], Any], calls: int, pending_max: int | None) -> None:
        limit = emitted + calls
        if pending_max is None:
            for _ in range(calls):
                next_tuple()
                if emitted >= limit:
                    return
            return
        for _ in range(calls):
            if len(pending) >= pending_max or emitted >= limit:
                return
            next_tuple()

    return SpoutCalls(
        emit=one,
        emit_direct=emit_direct,
        emit_columns=emit_columns,
        report_error=on_error,
        emitted=lambda: emitted,
        run=run,
        untracked=untracked,
        set_interceptor=set_interceptor,
        last_root=lambda: newest,
    )
