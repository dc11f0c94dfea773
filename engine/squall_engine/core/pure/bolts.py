"""The calls of a bolt, and the loop that feeds it: the hottest code there is.

`bind_sync_bolt` makes them as closures over a few shared cells, because in CPython a cell costs a
tenth of an attribute of an object: `current` is the tuple in `execute`, `root` its root, `balance`
the local tuples made less those settled since `root` last changed. With `auto_ack` nothing is ever
written to the tuples themselves, and every tuple but the current one is settled by definition.

`CarefulCalls` keeps all that in the tuples and the ledger, for bolts where several are in flight at
once: coroutines, batches, threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from squall_common.names import DEFAULT_STREAM
from squall_engine.core.drive import run_each
from squall_engine.core.pure.acking import Ledger
from squall_engine.core.pure.emitting import Emitter, as_anchors, ids_of
from squall_engine.core.pure.outputs import Edge, Output, Pair
from squall_engine.core.pure.tuples import Batch, Tuple, roots_of
from squall_engine.core.stats import TaskCounts
from squall_engine.core.values import ID_BITS, MANY, UNANCHORED, settled_error, wrong_values

Emit = Callable[..., Sequence[int]]
Anchors = Tuple | Iterable[Tuple] | None


@dataclass(slots=True)
class BoltCalls:
    """What a bolt is bound to (`squall_common.component.collector.BoltCollector`), and how it is
    fed."""

    emit: Emit
    emit_direct: Emit
    ack: Callable[[Tuple], None]
    fail: Callable[[Tuple], None]
    reset_timeout: Callable[[Tuple], None]
    report_error: Callable[[BaseException], None]
    # run(batch, count) executes the first `count` tuples, which are then no longer in the batch.
    run: Callable[[Batch, int], None]
    # Likewise of several batches of one stream.
    run_each: Callable[[Sequence[Batch], int], None]


def bind_sync_bolt(
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
) -> BoltCalls:
    """For a plain `execute` with `auto_anchor`. `on_error(error)` gets what `execute` raises,
    `on_settled(tup, failed)` of every ack and fail (for the test kit), and `on_outside()` is called
    after each call that is made while no tuple is executed: there is something for a turn to do.
    `in_hand` are words in which the tree of the current tuple is noted (see `in_hand`)."""
    made, xors = ledger.counts, ledger.xors
    bits = emitter.next_bits
    default = emitter.outputs.get(DEFAULT_STREAM)
    arity = default.arity if default is not None else 0
    source = default.source if default is not None else None
    next_pair = default.next_pair if default is not None else None
    by_field = default.by_field if default is not None else None
    index = by_field.indexes[0] if by_field is not None else 0
    memo: dict[Any, Pair] = by_field.memo if by_field is not None else {}
    pick: Callable[[Any], Pair] = by_field.pick if by_field is not None else _no_pick

    current: Tuple | None = None
    root = UNANCHORED
    balance = 0
    settled = False  # the current tuple is
    # The current tuple has several roots or is settled, or there is none: no fast path.
    odd = True
    # One tuple at a time is timed from its execution to its ack, when acks are the bolt's own.
    sample: Tuple | None = None
    sample_start = 0.0

    def emit_by_turn(
        values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        nonlocal balance
        if odd or anchors is not None or stream is not DEFAULT_STREAM:
            return emit(values, anchors, stream)
        if len(values) != arity:
            raise wrong_values(source, values)  # type: ignore[arg-type]
        append, ids, local = next_pair()  # type: ignore[misc]
        if local:
            balance += 1
            append(Tuple(values, 0, root, source))  # type: ignore[arg-type]
        else:
            append(Tuple(values, cross() if root else 0, root, source))  # type: ignore[arg-type]
        return ids

    def emit_by_field(
        values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        nonlocal balance
        if odd or anchors is not None or stream is not DEFAULT_STREAM:
            return emit(values, anchors, stream)
        if len(values) != arity:
            raise wrong_values(source, values)  # type: ignore[arg-type]
        key = values[index]
        try:
            append, ids, local = memo[key]
        except (KeyError, TypeError):
            append, ids, local = pick(key)
        if local:
            balance += 1
            append(Tuple(values, 0, root, source))  # type: ignore[arg-type]
        else:
            append(Tuple(values, cross() if root else 0, root, source))  # type: ignore[arg-type]
        return ids

    def emit_by_only_field(
        values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        nonlocal balance
        if odd or anchors is not None or stream is not DEFAULT_STREAM:
            return emit(values, anchors, stream)
        try:
            (key,) = values  # the key and, in one instruction, the number of values
        except (ValueError, TypeError):
            raise wrong_values(source, values) from None  # type: ignore[arg-type]
        try:
            append, ids, local = memo[key]
        except (KeyError, TypeError):
            append, ids, local = pick(key)
        if local:
            balance += 1
            append(Tuple(values, 0, root, source))  # type: ignore[arg-type]
        else:
            append(Tuple(values, cross() if root else 0, root, source))  # type: ignore[arg-type]
        return ids

    def cross() -> int:
        """A new edge to another worker."""
        edge = bits(ID_BITS)
        xors[root] = xors.get(root, 0) ^ edge
        return edge

    def emit(
        values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        output = emitter.output(stream, values)
        return send(output, emitter.edges(output, values), values, anchors)

    def emit_direct(
        task: int,
        values: Sequence[Any],
        anchors: Anchors = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        output = emitter.output(stream, values)
        return send(output, emitter.direct_edges(output, task), values, anchors)

    def send(
        output: Output, edges: tuple[Edge, ...], values: Sequence[Any], anchors: Anchors
    ) -> Sequence[int]:
        chosen: tuple[Tuple, ...] = ()
        if anchors is not None:
            chosen = as_anchors(anchors)
        elif current is not None:
            chosen = (current,)
        for anchor in chosen:
            if is_settled(anchor):
                raise settled_error(anchor, "emit")
        emitter.send(output, edges, values, roots_of(chosen))
        if current is None:
            on_outside()
        return ids_of(edges)

    def is_settled(tup: Tuple) -> bool:
        if tup is current:
            return settled
        return auto_ack or tup.settled

    def settle(tup: Tuple, what: str) -> None:
        nonlocal odd, settled, sample
        if is_settled(tup):
            raise settled_error(tup, what)
        if tup is current:
            settled = odd = True
        if not auto_ack:
            tup.settled = True
            if tup is sample:
                sample = None
                if what == "ack":
                    counts.processed(tup.source.key, now() - sample_start)
        settle_roots(ledger, tup)
        if current is None:
            on_outside()

    def ack(tup: Tuple) -> None:
        settle(tup, "ack")
        if not auto_ack:
            counts.acked[tup.source.key] = counts.acked.get(tup.source.key, 0) + 1
        if on_settled is not None:
            on_settled(tup, False)

    def fail(tup: Tuple) -> None:
        settle(tup, "fail")
        ledger.fails += roots_of((tup,))
        counts.failed[tup.source.key] = counts.failed.get(tup.source.key, 0) + 1
        if on_settled is not None:
            on_settled(tup, True)

    def reset_timeout(tup: Tuple) -> None:
        if is_settled(tup):
            raise settled_error(tup, "reset_timeout")
        ledger.resets += roots_of((tup,))
        if current is None:
            on_outside()

    def raised(error: Exception) -> None:
        tup = current
        assert tup is not None
        if not is_settled(tup):
            fail(tup)
        on_error(error)

    def run_auto(batch: Batch, count: int) -> None:
        nonlocal balance, current, odd, root, settled
        key = batch.source.key
        local = batch.source.local
        failed_before = counts.failed.get(key, 0)
        odd = False
        if in_hand is not None:
            in_hand[1] = emitter.task
        tuples = iter(batch.take(count).tuples)
        try:
            while True:
                try:
                    for current in tuples:
                        # Tuples of one root often come in a row, and then share the object.
                        if current.root is not root:
                            if balance and root:
                                made[root] = made.get(root, 0) + balance
                            balance = 0
                            root = current.root
                            odd = root == MANY
                            if in_hand is not None:
                                in_hand[0] = root
                        if odd and in_hand is not None:
                            _hold_several(in_hand, current)
                        execute(current)
                        if odd:
                            if not settled:
                                settle_roots(ledger, current)
                            settled = False
                            odd = root == MANY
                        elif local:
                            balance -= 1
                        elif root:
                            xors[root] = xors.get(root, 0) ^ current.id
                    break
                except Exception as error:
                    raised(error)
                    settled = False
                    odd = root == MANY
        finally:
            leave()
            failed = counts.failed.get(key, 0) - failed_before
            counts.acked[key] = counts.acked.get(key, 0) + count - failed

    def run_manual(batch: Batch, count: int) -> None:
        nonlocal balance, current, odd, root, sample, sample_start, settled
        taken = batch.take(count).tuples
        if in_hand is not None:
            in_hand[1] = emitter.task
        if sample is None:
            sample = taken[0]
            sample_start = now()
        tuples = iter(taken)
        try:
            while True:
                try:
                    for current in tuples:
                        if current.root is not root:
                            if balance and root:
                                made[root] = made.get(root, 0) + balance
                            balance = 0
                            root = current.root
                            if in_hand is not None:
                                in_hand[0] = root
                        odd = root == MANY
                        if odd and in_hand is not None:
                            _hold_several(in_hand, current)
                        settled = False
                        execute(current)
                    break
                except Exception as error:
                    raised(error)
        finally:
            leave()

    def leave() -> None:
        """No tuple is current any more."""
        nonlocal balance, current, odd, root, settled
        if balance and root:
            made[root] = made.get(root, 0) + balance
        balance = 0
        current = None
        root = UNANCHORED
        odd = True
        settled = False
        if in_hand is not None:
            in_hand[0] = 0

    if on_settled is not None:
        plain_execute = execute

        def execute_observed(tup: Tuple) -> None:
            plain_execute(tup)
            if auto_ack and not settled:
                ack(tup)

        execute = execute_observed

    fast: Emit = emit
    if next_pair is not None:
        fast = emit_by_turn
    elif by_field is not None:
        fast = emit_by_only_field if arity == 1 else emit_by_field
    run = run_auto if auto_ack else run_manual
    return BoltCalls(
        emit=fast,
        emit_direct=emit_direct,
        ack=ack,
        fail=fail,
        reset_timeout=reset_timeout,
        report_error=on_error,
        run=run,
        run_each=partial(run_each, run),
    )


def _hold_several(in_hand: memoryview, tup: Tuple) -> None:
    """Note the trees of a tuple that has several."""
    roots = list(tup.anchors or ())[: len(in_hand) - 2]
    for at, root in enumerate([*roots, *[0] * (len(in_hand) - 2 - len(roots))], 2):
        in_hand[at] = root
    in_hand[0] = MANY


def _no_pick(key: Any) -> Pair:
    raise AssertionError("there is no fields grouping")


def settle_roots(ledger: Ledger, tup: Tuple) -> None:
    """A tuple is out of the way: what its trees hear of it."""
    edges = tup.anchors
    if edges is None:
        if tup.root == UNANCHORED:
            return
        edges = {tup.root: tup.id}
    for root, edge in edges.items():
        if edge:
            ledger.xors[root] = ledger.xors.get(root, 0) ^ edge
        else:
            ledger.counts[root] = ledger.counts.get(root, 0) - 1


class CarefulCalls:
    """A bolt's calls when several tuples are in flight. Not for two threads at once."""

    def __init__(
        self,
        emitter: Emitter,
        ledger: Ledger,
        counts: TaskCounts,
        *,
        default_anchors: Callable[[], tuple[Tuple, ...]],
        on_error: Callable[[BaseException], None],
        on_settled: Callable[[Tuple, bool], None] | None = None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        """`default_anchors()` are those of an emit that names none. `on_settled(tup, failed)` is
        called when a tuple was acked or failed, `on_change()` after every call that leaves
        something for the engine to do."""
        self._emitter = emitter
        self._ledger = ledger
        self._counts = counts
        self._default_anchors = default_anchors
        self._on_settled = on_settled
        self._on_change = on_change
        self.report_error = on_error

    def emit(
        self, values: Sequence[Any], anchors: Anchors = None, stream: str = DEFAULT_STREAM
    ) -> Sequence[int]:
        output = self._emitter.output(stream, values)
        return self._send(output, self._emitter.edges(output, values), values, anchors)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        anchors: Anchors = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        output = self._emitter.output(stream, values)
        return self._send(output, self._emitter.direct_edges(output, task), values, anchors)

    def _send(
        self, output: Output, edges: tuple[Edge, ...], values: Sequence[Any], anchors: Anchors
    ) -> Sequence[int]:
        chosen = self._default_anchors() if anchors is None else as_anchors(anchors)
        for anchor in chosen:
            if anchor.settled:
                raise settled_error(anchor, "emit")
        self._emitter.send(output, edges, values, roots_of(chosen))
        if self._on_change is not None:
            self._on_change()
        return ids_of(edges)

    def ack(self, tup: Tuple) -> None:
        self._settle(tup, "ack")
        self._counts.add(self._counts.acked, tup.source.key)
        self._notify_settled(tup, False)

    def fail(self, tup: Tuple) -> None:
        self._settle(tup, "fail")
        self._ledger.fails += roots_of((tup,))
        self._counts.add(self._counts.failed, tup.source.key)
        self._notify_settled(tup, True)

    def reset_timeout(self, tup: Tuple) -> None:
        if tup.settled:
            raise settled_error(tup, "reset_timeout")
        self._ledger.resets += roots_of((tup,))
        if self._on_change is not None:
            self._on_change()

    def _settle(self, tup: Tuple, what: str) -> None:
        if tup.settled:
            raise settled_error(tup, what)
        tup.settled = True
        settle_roots(self._ledger, tup)

    def _notify_settled(self, tup: Tuple, failed: bool) -> None:
        if self._on_settled is not None:
            self._on_settled(tup, failed)
        if self._on_change is not None:
            self._on_change()
