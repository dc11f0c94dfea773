"""The tasks of bolts: an inbox, and a turn to take. Each kind has its own invocation mode:

    SyncBolt    execute(tup) on the loop, slice by slice of about a millisecond
    BatchBolt   execute_batch(tuples)
    ColumnBolt  execute_columns(columns)
    AsyncBolt   async execute(tup), several in flight       (async_)
    AsyncBatchBolt   async execute_batch(tuples)            (async_)
    ThreadBolt  execute(tup) on a thread of its own         (thread)
    ThreadBatchBolt  execute_batch(tuples) on a thread      (thread)
    OneByOneBolt  execute(tup) on the loop, anchored by hand    (one_by_one)

The first three are here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from squall_common.component.collector import BoltCollector
from squall_common.daemon.mypyc import mypyc_attr
from squall_engine.backpressure.inbox import EncodedTuples
from squall_engine.backpressure.memory_size import tuple_bytes
from squall_engine.core import MANY, Batch, BoltCalls, CarefulCalls, ColumnCalls, Inbox, Tuple
from squall_engine.core.drive import call_batch, call_for, run_each
from squall_engine.tasks.base import HOLD_SECS, Task, TaskParts

# A slice of an inbox should take about this long, so that the loop stays responsive.
SLICE_SECS = 0.001
SLICE_TUPLES_MAX = 1024


# Work in slices: called with a clock and the time until which to go on, though at least for one
# step. Returns False when it is done. It may stop earlier, as that clock may stand still.
Rest = Callable[[Callable[[], float], float], bool]

# Takes the first tuples, so many, out of batches and executes them: see `SlicedBolt.work`.
Work = Callable[[list[Batch], int], int]


def _decode_nothing(_task: int, _section: bytes) -> Batch | None:
    return None


def _overlook(_task: BoltTask) -> None:
    pass


@mypyc_attr(allow_interpreted_subclasses=True)
class BoltTask(Task):
    """A bolt's task: its tuples wait in `inbox`."""

    calls: BoltCollector[Tuple]
    # The component's execute or execute_batch, where the task calls it itself.
    execute: Callable[[Any], Any]

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self.inbox = Inbox(self._decode, on_sample=self._sample_row, on_full=self._is_full)
        self.blocked = False  # blocked: a target that it feeds is full
        self.decode: Callable[[int, bytes], Batch | None] = _decode_nothing
        # Called when there are more than `inbox.soft` local tuples, after each batch.
        self.on_full: Callable[[BoltTask], None] = _overlook
        # Above `inbox.soft` local tuples the spouts that feed it wait, above `hard` all tasks that
        # feed it; a cycle that it is on may fill it up to `hard_max`.
        self.hard = self.hard_max = 1
        # What the call of a timer, or a mark, has left for the turns that follow. Until it is done,
        # nothing is taken from the inbox.
        self.rest: Rest | None = None
        self._tuple_bytes = 0.0
        self._marks = (1, 1, 1)

    def mark_dirty(self) -> None:
        """Ask for a turn, because something was done between two turns."""
        self.dirty = True
        self.host.wake()

    def set_marks(self, soft: int, hard: int, inbox_bytes: int) -> None:
        """Set how many local tuples may wait, and how many bytes of them."""
        self._marks = (min(soft, hard), hard, inbox_bytes)
        self.sample(self._tuple_bytes)

    def sample(self, tuple_bytes: float) -> None:
        """Take the size of a tuple in the inbox into account: at once if it is larger than the
        mean so far, slowly if it is smaller."""
        mean = self._tuple_bytes
        self._tuple_bytes = max(tuple_bytes, mean + (tuple_bytes - mean) / 8)
        soft, hard, inbox_bytes = self._marks
        fit = max(1, int(inbox_bytes / max(1.0, self._tuple_bytes)))
        self.hard = min(hard, fit)
        self.inbox.soft = min(soft, self.hard)
        self.hard_max = 8 * self.hard

    def load(self) -> float:
        """How full the inbox is: 1.0 or more when the spouts that feed it wait."""
        return self.inbox.queued / self.inbox.soft

    def queued_bytes(self) -> int:
        """About how many bytes wait in the inbox: those of other workers as they came, the others
        by the sampled size of a tuple."""
        encoded: int = sum(one.size for one in self.inbox.encoded())
        return encoded + int(self.inbox.local * self._tuple_bytes)

    def _sample_row(self, values: Sequence[Any]) -> None:
        self.sample(tuple_bytes(values))

    def _is_full(self) -> None:
        self.on_full(self)

    def _decode(self, encoded: EncodedTuples) -> Batch | None:
        return call_for(self, self.decode, self.task, encoded.take())

    def take(self, limit: int) -> Batch | None:
        """Take at most `limit` tuples of one source; None when there are none, or it is blocked."""
        if limit <= 0 or self.blocked:
            return None
        return self.inbox.take(limit)

    def run(self, deadline: float) -> bool:
        """Work on `rest`, then on the tuples that are in the inbox now, until `deadline`, but at
        least on a slice. True when anything was done."""
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """Whether it has work that will lead to more emits or acks."""
        return bool(self.inbox) or self.rest is not None

    @property
    def calls_max(self) -> int | None:
        """How many calls it has under way at most (of batches: tuples in calls), if calls do not
        take the loop's time for as long as they last; None if they do."""
        return None

    @property
    def holds_back(self) -> bool:
        """Whether tuples emitted between two turns wait for more of them, and for `wake`."""
        return False

    def abort(self) -> None:
        """Abandon what is in flight, because the worker ends now."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SlicedBolt(BoltTask):
    """A bolt that runs on the loop: its slices adapt to how long a tuple takes."""

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self._slice = 16
        # Called between two slices: True when a target that it emits to is full.
        self.pause: Callable[[], bool] | None = None

    def in_slices(self, rest: Rest) -> None:
        """Do this in the turns that follow, before anything is taken from the inbox."""
        self.rest = rest
        self.host.wake()

    def run(self, deadline: float) -> bool:
        worked = self.rest is not None
        if self.rest is not None and not self._go_on(self.rest, deadline):
            return True
        left = max(1, self.inbox.queued)  # a section may have no tuple, and must go all the same
        granted = self._slice  # tuples, whatever the deadline says
        while True:
            taken, end, secs = self.run_slice(min(self._slice, left))
            if not taken:
                break
            worked = True
            if secs > 0:
                self._slice = max(1, min(SLICE_TUPLES_MAX, int(SLICE_SECS * taken / secs)))
                if secs > HOLD_SECS:
                    self.host.held_loop(self.component, f"{taken} tuple(s)", secs)
            else:
                self._slice = SLICE_TUPLES_MAX
            left -= taken
            granted -= taken
            if left <= 0 or (end >= deadline and granted <= 0):
                break
            if self.rest is not None:
                break  # a mark of event time has ended windows: their results come first
            if self.pause is not None and self.pause():
                break
        return worked

    def _go_on(self, rest: Rest, deadline: float) -> bool:
        """Do `rest` until `deadline`, but at least a slice of it. True when it is done, and there
        is time for the inbox."""
        now = self.host.now
        end = now()
        while True:
            start = end
            try:
                is_left = call_for(self, rest, now, start + SLICE_SECS)
            except Exception as error:  # what it was at is lost, as with any call of a timer
                self.host.report(self.component, self.task, error)
                is_left = False
            if not is_left:
                self.rest = None
            end = now()
            if end - start > HOLD_SECS:
                self.host.held_loop(self.component, "a part of a timer's call", end - start)
            if end >= deadline or (self.pause is not None and self.pause()):
                return False
            if not is_left:
                return True

    def run_slice(self, room: int) -> tuple[int, float, float]:
        """Execute up to `room` tuples of one stream, and count them. Returns how many there were,
        when that ended, and how many seconds it took; (0, 0, 0) if nothing waits."""
        # With many tasks, batches are small: those of one stream are a slice together.
        batches, n = self.inbox.pull(room)
        if not n:
            return 0, 0.0, 0.0
        key = batches[0].source.key
        now = self.host.now
        start = now()
        processed = 0
        try:
            processed = self.work(batches, n)
        finally:
            end = now()
            secs = end - start
            self.counts.executed_many(key, n, secs, processed)
        return n, end, secs

    def work(self, batches: list[Batch], count: int) -> int:
        """Take the first `count` tuples out of the batches, which are all of one stream, and
        execute them. Returns how many of them count as processed."""
        raise NotImplementedError


def take_all(batches: Sequence[Batch], count: int) -> list[Tuple]:
    """Remove and return the first `count` tuples of the batches."""
    found: list[Tuple] = []
    for batch in batches:
        found += batch.take(count - len(found)).as_tuples()
    return found


def trees_of(tup: Tuple) -> Sequence[int]:
    """The roots of a tuple."""
    if tup.root == MANY:
        return list(tup.anchors or ())
    return (tup.root,) if tup.root else ()


class SyncBolt(SlicedBolt):
    """`execute(tup)`."""

    calls: BoltCalls
    auto_ack: bool

    def run_slice(self, room: int) -> tuple[int, float, float]:
        return self.calls.run_slice(self.inbox, room)


@mypyc_attr(allow_interpreted_subclasses=True)
class BatchBolt(SlicedBolt):
    """`execute_batch(tuples)`: acks what it did not fail, and fails the rest when it raises."""

    calls: CarefulCalls
    auto_ack: bool

    def work(self, batches: list[Batch], count: int) -> int:
        tuples = take_all(batches, count)
        in_hand, cells = self.in_hand, []
        if in_hand is not None:
            cells = in_hand.put_batch((trees_of(tup) for tup in tuples), self.task)
        try:
            return self._execute(tuples, count)
        finally:
            if in_hand is not None:
                in_hand.clear_batch(cells)

    def _execute(self, tuples: list[Tuple], count: int) -> int:
        try:
            call_batch(self, tuples)
        except Exception as error:
            for tup in tuples:
                if not tup.settled:
                    self.calls.fail(tup)
            self.calls.report_error(error)
            return 0
        if self.auto_ack:
            self.calls.ack_rest(tuples)
        return count


class ColumnBolt(SlicedBolt):
    """`execute_columns(columns)`."""

    calls: ColumnCalls
    auto_ack: bool

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        # Called with what it does with batches, and these, with topology.tracing.enabled.
        self.around: Callable[[Work, list[Batch], int], int] | None = None

    def work(self, batches: list[Batch], count: int) -> int:
        if self.around is not None:
            return self.around(self._execute, batches, count)
        return self._execute(batches, count)

    def _execute(self, batches: list[Batch], count: int) -> int:
        in_hand, cells = self.in_hand, []
        if in_hand is not None:
            cells = in_hand.put_batch((batch.roots() for batch in batches), self.task)
        try:
            run_each(self, batches, count)
        finally:
            if in_hand is not None:
                in_hand.clear_batch(cells)
        return count if self.auto_ack else 0
