"""Messages that keep failing: counted by their spout, and emitted on the `__dead_letter` stream.

With `topology.max.replays` each spout task remembers the values of its messages in flight and how
often each failed. A message that fails once more than that is not failed to the spout again, but
emitted as a *dead letter*. That is a message of its own: tracked by the same acker, and emitted
again for as long as it fails. Only when it was processed is the spout notified, by `ack` of the
message. So the source keeps a message until it, or its dead letter, took effect. A dead letter that
no bolt consumes is written to a file (see `unconsumed`) before it is emitted, without a receiver.

The reason of a failure is known where it happened; an acker only reports that a tree failed. So the
task that fails a tree *notes* the reason, and once a turn, before the fails leave, the notes go to
the workers that have spouts. Only failures that the topology itself caused count (an error, a
`fail`, a timeout); failures caused by losing or stopping a worker do not, nor do failures without a
recorded reason. A note that arrives after its fail still counts.

None of this exists while `topology.max.replays` is not set.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from squall_common.component.collector import (
    BoltCollector,
    DelegatingBoltCollector,
    DelegatingSpoutCollector,
    SpoutCollector,
)
from squall_common.component.columns.shared_rows import SharedRows, shared_rows
from squall_common.daemon.logs import get_logger
from squall_common.errors import describe_fully
from squall_common.names import DEAD_LETTER_STREAM, DEFAULT_STREAM
from squall_common.topology.model import ComponentKind
from squall_engine.acking.unconsumed import UnconsumedLetters, shown
from squall_engine.core import UNANCHORED, Batch, Columns, PendingRoots, Tuple
from squall_engine.core.codec import CodecError, ValueCodec, ValueNotEncodableError
from squall_engine.core.sections import NOTES
from squall_engine.dataflow.remote import TUPLE_BYTES_MAX, Exchange
from squall_engine.options import EngineOptions
from squall_engine.plan import Plan

log = get_logger(__name__)

_REASON_CHARS_MAX = 500
_NOTES_MAX = 100_000  # kept of each kind; the oldest go, and their fails do not count
_FAILING_MAX = 100_000  # messages a spout task that failed and were not acked since
_VALUE_CHARS_MAX = 1_000  # of a value that cannot be sent as it is


class Reason(msgspec.Struct, frozen=True, array_like=True):
    """Why a tree failed, and at which task. `counts` is False when the topology did not cause
    it."""

    text: str
    component: str | None = None
    task: int | None = None
    worker: str | None = None
    counts: bool = True


class _Note(msgspec.Struct, frozen=True, array_like=True):
    reason: Reason
    roots: list[int]


LOST = Reason("a worker was lost or stopped", counts=False)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[_Note]).decode


@dataclass(slots=True, eq=False)
class DeadLetter:
    """The id under which a dead letter is emitted."""

    message_id: Any
    row: list[Any]


@dataclass(slots=True)
class _Failing:
    """A message that failed and was not acked since."""

    count: int = 0
    reason: Reason | None = None  # of the last fail that counts


# What is remembered of a message: its values, or the rows that it is one of, and the stream.
_Emitted = tuple[Sequence[Any] | SharedRows, str]


class RecordingCollector(DelegatingSpoutCollector):
    """The collector of a spout whose messages are remembered while they are in flight."""

    def __init__(self, inner: SpoutCollector, in_flight: dict[Any, _Emitted]) -> None:
        """`in_flight`: by message id."""
        self._in_flight = in_flight
        self._emit = inner.emit  # at hand: it is called for each message
        super().__init__(inner)

    def emit(
        self,
        values: Sequence[Any],
        message_id: Hashable | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        if message_id is not None:
            self._in_flight[message_id] = (values, stream)
        return self._emit(values, message_id, stream)

    def emit_direct(
        self,
        task: int,
        values: Sequence[Any],
        message_id: Hashable | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> Sequence[int]:
        if message_id is not None:
            self._in_flight[message_id] = (values, stream)
        return self._inner.emit_direct(task, values, message_id, stream)

    def emit_columns(
        self,
        columns: Sequence[Sequence[Any]],
        message_ids: Sequence[Hashable] | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        self._inner.emit_columns(columns, message_ids, stream)
        if message_ids is not None:
            for some, rows in shared_rows(columns, message_ids):
                self._in_flight.update(dict.fromkeys(some, (rows, stream)))


class SpoutDeadLetters:
    """The messages of one spout task."""

    def __init__(
        self,
        dead_letters: DeadLetters,
        limit: int,
        calls: SpoutCollector,
        pending: PendingRoots,
        timed_out: Reason,
        wake: Callable[[], None],
        record: Callable[[Sequence[Any]], bool] | None = None,
    ) -> None:
        """`calls` are the spout's own. `wake` makes the engine take a turn after an emit, which it
        would not notice for a spout on a thread. `record` is called with each dead letter if no
        bolt consumes them, and returns whether it is kept."""
        self._dead_letters = dead_letters
        self._record = record
        self._limit = limit
        self._wake = wake
        self._calls = calls
        self._timed_out = timed_out
        self.pending = pending
        self._in_flight: dict[Any, _Emitted] = {}
        self._failing: dict[Any, _Failing] = {}
        self._unexplained: dict[int, Any] = {}  # root -> message id: failed, reason not known yet
        self._again: deque[DeadLetter] = deque()
        self._letters = 0  # dead letters that are not acked yet

    # -- emitting --

    def recording(self) -> SpoutCollector:
        """The spout's calls, with a memory of what is emitted."""
        return RecordingCollector(self._calls, self._in_flight)

    # -- what became of messages --

    def acked(self, message_ids: Sequence[Any]) -> Sequence[Any]:
        """Forget messages that are done. Returns the ids that the spout is to be notified about."""
        in_flight = self._in_flight
        if not self._failing and not self._letters:
            for message_id in message_ids:
                in_flight.pop(message_id, None)
            return message_ids
        notified = []
        for message_id in message_ids:
            if isinstance(message_id, DeadLetter):
                self._letters -= 1
                message_id = message_id.message_id
            in_flight.pop(message_id, None)
            self._failing.pop(message_id, None)
            notified.append(message_id)
        return notified

    def failed(
        self, message_ids: Iterable[Any], root: int | None = None, *, lost: bool = False
    ) -> list[Any]:
        """Count messages that failed, with the tree of `root` or by timeout. Returns the ids that
        the spout is to be notified about, so that it emits them again; the others become dead
        letters."""
        notified = []
        for message_id in message_ids:
            if isinstance(message_id, DeadLetter):
                self._again.append(message_id)
                continue
            reason: Reason | None = LOST if lost else self._timed_out
            if root is not None and not lost:
                reason = self._dead_letters.reason_of(root)
                if reason is None:
                    _put(self._unexplained, root, message_id, _NOTES_MAX)
            if reason is not None and reason.counts:
                self._count(message_id, reason)
            emitted = self._in_flight.pop(message_id, None)
            failing = self._failing.get(message_id)
            over = failing is not None and failing.count > self._limit
            if (
                failing is None
                or not over
                or emitted is None
                or not self._emit_dead_letter(message_id, emitted, failing)
            ):
                notified.append(message_id)
        return notified

    def explained(self, root: int, reason: Reason) -> bool:
        """Take the reason of a fail that came before it. False when no such fail waits for one."""
        if root not in self._unexplained:
            return False
        message_id = self._unexplained.pop(root)
        if reason.counts:
            self._count(message_id, reason)
        return True

    def _count(self, message_id: Any, reason: Reason) -> None:
        failing = self._failing.pop(message_id, None) or _Failing()
        failing.count += 1
        if reason.component is not None or failing.reason is None:
            failing.reason = reason
        else:  # a timeout has no place: keep the last one that is known
            known = failing.reason
            failing.reason = Reason(reason.text, known.component, known.task, known.worker)
        _put(self._failing, message_id, failing, _FAILING_MAX)

    def _emit_dead_letter(self, message_id: Any, emitted: _Emitted, failing: _Failing) -> bool:
        """Emit the dead letter of a message; False when that fails."""
        values, stream = emitted
        if isinstance(values, SharedRows):
            values = values.row(message_id)
        reason = failing.reason or Reason("unknown")
        row = [
            message_id, list(values), stream, reason.text,
            reason.component, reason.task, reason.worker, failing.count - 1,
        ]  # fmt: skip
        if self._record is not None and not self._record(row):
            return False
        letter = DeadLetter(message_id, self._dead_letters.sendable(row))
        self._letters += 1
        try:
            self._emit(letter)
        except Exception as error:
            self._letters -= 1
            log.error("dead_letter_not_made", message_id=message_id, error=error)
            return False
        self._failing.pop(message_id, None)
        if self._record is not None:
            return True
        log.warning(
            "dead_letter",
            message_id=message_id,
            reason=reason.text,
            component=reason.component,
            task=reason.task,
            worker=reason.worker,
            replays=failing.count - 1,
        )
        return True

    def _emit(self, letter: DeadLetter) -> None:
        self._calls.emit(letter.row, letter, DEAD_LETTER_STREAM)
        self._wake()

    def retry(self) -> bool:
        """Emit again the dead letters that failed; True when there were any."""
        letters = [self._again.popleft() for _ in range(len(self._again))]
        for letter in letters:
            self._emit(letter)
        return bool(letters)

    @property
    def has_letters(self) -> bool:
        """Whether dead letters wait to be emitted again."""
        return bool(self._again)

    def clear(self) -> None:
        """Forget everything: message ids mean something else from now on."""
        self._in_flight.clear()
        self._failing.clear()
        self._unexplained.clear()
        self._again.clear()
        self._letters = 0


class DeadLetters:
    """The notes of one worker, and its spouts that count failures."""

    def __init__(
        self,
        plan: Plan,
        exchange: Exchange,
        codec: ValueCodec,
        options: EngineOptions,
        worker: str,
        folder: Path | None = None,
    ) -> None:
        """`worker` is host:port, for reasons. `folder` is for dead letters that no bolt
        consumes."""
        self._plan = plan
        self._exchange = exchange
        self._codec = codec
        self._options = options
        self.worker = worker
        self.unconsumed = UnconsumedLetters(folder)
        self.spouts: list[SpoutDeadLetters] = []
        self._noted: deque[tuple[Collection[int], Reason]] = deque()  # from any thread
        self._known: dict[int, Reason] = {}

    @classmethod
    def of(
        cls,
        plan: Plan,
        exchange: Exchange,
        codec: ValueCodec,
        options: EngineOptions,
        worker: str,
        folder: Path | None = None,
    ) -> DeadLetters | None:
        """The notes of a worker; None when no spout of the topology counts failures."""
        dead_letters = cls(plan, exchange, codec, options, worker, folder)
        if not any(
            dead_letters._limit_of(component) is not None for component in plan.topology.spouts
        ):
            return None
        if not plan.acker_tasks:
            log.warning(
                "max_replays_without_effect", why="without ackers (topology.acker.executors: 0)"
            )
            return None
        return dead_letters

    def _limit_of(self, component_id: str) -> int | None:
        """`topology.max.replays` of a spout; None if unset."""
        component = self._plan.topology.components[component_id]
        if component.kind is not ComponentKind.SPOUT:
            return None
        return self._options.of(component_id).topology_max_replays

    def of_spout(
        self,
        component: str,
        task: int,
        calls: SpoutCollector,
        pending: PendingRoots,
        wake: Callable[[], None],
    ) -> SpoutDeadLetters | None:
        """The messages of one spout task of this worker; None when it does not count failures."""
        limit = self._limit_of(component)
        if limit is None:
            return None
        secs = self._options.topology.topology_message_timeout_secs
        timed_out = Reason(f"timed out: neither ack nor fail within {secs:g} s")
        record = None
        if not self._plan.consumers_of(component, DEAD_LETTER_STREAM):
            record = functools.partial(self.unconsumed.record, component, task)
        found = SpoutDeadLetters(self, limit, calls, pending, timed_out, wake, record)
        self.spouts.append(found)
        return found

    # -- notes --

    def note(self, roots: Collection[int], reason: Reason) -> None:
        """Note the reason why these trees fail. From any thread; before they fail, or in the same
        turn of the loop."""
        if roots:
            self._noted.append((roots, reason))

    def reason_of(self, root: int) -> Reason | None:
        """Remove and return the reason that was noted for a tree."""
        return self._known.pop(root, None)

    def flush(self) -> None:
        """Sort the notes of this turn: for spouts here, and for those of other workers."""
        if not self._noted:
            return
        last: dict[int, Reason] = {}
        while self._noted:
            roots, reason = self._noted.popleft()
            last.update(dict.fromkeys(roots, reason))
        elsewhere: dict[Reason, list[int]] = {}
        for root, reason in last.items():
            if not self._take(root, reason):
                elsewhere.setdefault(reason, []).append(root)
        if elsewhere:
            notes = [_Note(reason, roots) for reason, roots in elsewhere.items()]
            section = bytes([NOTES]) + _encode(notes)
            for slot in self._spout_slots():
                self._exchange.send(slot, section)

    def receive(self, section: bytes) -> None:
        """Take a NOTES section from another worker. Raises CodecError."""
        try:
            notes = _decode(memoryview(section)[1:])
        except msgspec.MsgspecError as error:
            raise CodecError(f"cannot read notes from another worker: {error}") from error
        for note in notes:
            for root in note.roots:
                self._take(root, note.reason)

    def _take(self, root: int, reason: Reason) -> bool:
        """Keep a note when a spout here waits for the root, or waited for the note."""
        for spout in self.spouts:
            if spout.explained(root, reason):
                return True
            if root in spout.pending:
                _put(self._known, root, reason, _NOTES_MAX)
                return True
        return False

    def _spout_slots(self) -> set[Any]:
        tasks = (
            task
            for component in self._plan.topology.spouts
            if self._limit_of(component) is not None
            for task in self._plan.tasks_of.get(component, ())
        )
        routes = self._exchange.routes
        return {routes[task] for task in tasks if task in routes}

    # -- dead letters --

    def retry(self) -> bool:
        """Emit again the dead letters that failed; True when there were any."""
        found = [spout.retry() for spout in self.spouts]
        return any(found)

    @property
    def has_letters(self) -> bool:
        """Whether dead letters wait to be emitted again."""
        return any(spout.has_letters for spout in self.spouts)

    def sendable(self, row: list[Any]) -> list[Any]:
        """Make a dead letter that can be sent to any worker: values that cannot be sent become
        text. The message may have failed for this very reason."""
        return sendable(self._codec, row)


def sendable(codec: ValueCodec, row: list[Any]) -> list[Any]:
    """See `DeadLetters.sendable`."""

    def fits(some: list[Any]) -> bool:
        try:
            return len(codec.encode_row(some)) < TUPLE_BYTES_MAX // 2
        except ValueNotEncodableError:
            return False

    if fits(row):
        return row
    message_id, values, *rest = row
    sent = [value if fits([value]) else shown(value, _VALUE_CHARS_MAX) for value in values]
    if not fits([sent]):  # each fits, and together they do not
        sent = [shown(value, _VALUE_CHARS_MAX) for value in values]
    if not fits([message_id]):
        message_id = shown(message_id, _VALUE_CHARS_MAX)
    return [message_id, sent, *rest]


class FailureRecorder:
    """Notes why tuples fail at one bolt task."""

    def __init__(self, dead_letters: DeadLetters, component: str, task: int) -> None:
        self._dead_letters = dead_letters
        self._component = component
        self._task = task
        self._failed: list[int] = []  # roots that failed in a call that may yet turn out to raise
        self._explicit = False

    def _reason(self, error: BaseException) -> Reason:
        return self._reason_of(describe_fully(error, _REASON_CHARS_MAX))

    def _reason_of(self, text: str) -> Reason:
        return Reason(text, self._component, self._task, self._dead_letters.worker)

    def _note_failed(self, roots: Collection[int]) -> None:
        self._dead_letters.note(roots, self._reason_of("failed by the bolt: fail() was called"))

    def guard(self, execute: Callable[[Tuple], Any]) -> Callable[[Tuple], Any]:
        """`execute` that notes what it raises."""

        def guarded(tup: Tuple) -> None:
            try:
                execute(tup)
            except Exception as error:
                self._dead_letters.note(roots_of(tup), self._reason(error))
                raise

        return guarded

    def guard_columns(self, execute: Callable[[Columns], Any]) -> Callable[[Columns], Any]:
        """`execute_columns` before which nothing has failed."""

        def guarded(columns: Columns) -> None:
            self._failed.clear()
            execute(columns)

        return guarded

    def changed_row(self, tup: Tuple, error: Exception) -> bool:
        """A tuple fails that `execute_columns` does not get, and no other with it."""
        self._failed.clear()
        return False

    def recording_fails(
        self, calls: BoltCollector[Tuple], *, settles: bool
    ) -> BoltCollector[Tuple]:
        """Calls whose `fail` is distinguished from the fail of an error. `settles`: `settled` is
        called as well."""
        return FailureRecordingCollector(
            calls, self.fail_settled if settles else self.fail_unsettled
        )

    def fail_settled(self, fail: Callable[[Tuple], None], tup: Tuple) -> None:
        """The bolt calls fail(), and `settled` is called for it."""
        self._explicit = True
        try:
            fail(tup)
        finally:
            self._explicit = False

    def fail_unsettled(self, fail: Callable[[Tuple], None], tup: Tuple) -> None:
        """The bolt calls fail(), and `settled` is not called for it."""
        fail(tup)
        self._note_failed(roots_of(tup))

    def settled(self, tup: Tuple, failed: bool) -> None:
        """A tuple was acked or failed."""
        if failed:
            roots = roots_of(tup)
            self._note_failed(roots)
            if not self._explicit:
                self._failed += roots
                del self._failed[:-_NOTES_MAX]

    def raised(self, error: BaseException) -> None:
        """The component raised or reported an error, which is the reason of the last failures."""
        if self._failed:
            self._dead_letters.note(self._failed, self._reason(error))
            self._failed = []


class FailureRecordingCollector(DelegatingBoltCollector[Tuple]):
    """The collector of a bolt whose calls of `fail` are noted: `on_fail(fail, tup)` makes them."""

    def __init__(
        self,
        inner: BoltCollector[Tuple],
        on_fail: Callable[[Callable[[Tuple], None], Tuple], None],
    ) -> None:
        self._on_fail = on_fail
        super().__init__(inner)

    def fail(self, tup: Tuple) -> None:
        self._on_fail(self._inner.fail, tup)


def roots_of(tup: Tuple) -> list[int]:
    """The trees that a tuple belongs to."""
    return [root for root in Batch.of(tup.source, [tup]).roots() if root != UNANCHORED]


def _put(kept: dict[Any, Any], key: Any, value: Any, size_max: int) -> None:
    """Keep the newest."""
    if len(kept) >= size_max and key not in kept:
        del kept[next(iter(kept))]
    kept[key] = value
