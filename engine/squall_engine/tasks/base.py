"""The tasks of a worker as the run loop sees them: an inbox, and a turn to take.

A *task* runs one instance of a component; an executor is only a range of tasks with common
statistics. Each kind of bolt is a subclass with its own invocation mode:

    SyncBolt    execute(tup) on the loop, slice by slice of about a millisecond
    BatchBolt   execute_batch(tuples)
    ColumnBolt  execute_columns(columns)
    AsyncBolt   async execute(tup), several in flight       (async_)
    ThreadBolt  execute(tup) on a thread of its own         (thread)
    OneByOneBolt  execute(tup) on the loop, anchored by hand    (one_by_one)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from squall_common.component.collector import BoltCollector, SpoutCollector
from squall_common.topology.model import Executor
from squall_engine.backpressure.inbox import Received
from squall_engine.core import (
    MANY,
    Batch,
    BoltCalls,
    CarefulCalls,
    ColumnCalls,
    Output,
    PendingRoots,
    SpoutCalls,
    Taken,
    Tuple,
    TurnState,
)
from squall_engine.core.drive import run_each
from squall_engine.core.inspectors import Observer
from squall_engine.core.stats import TaskCounts
from squall_engine.tasks.in_hand import InHand

# A slice of an inbox should take about this long, so that the loop stays responsive.
SLICE_SECS = 0.001
SLICE_TUPLES_MAX = 1024
# A component that holds the loop for longer is named in a warning.
HOLD_SECS = 0.05


class _NoLock:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


NO_LOCK = _NoLock()


def _decode_nothing(_task: int, _section: bytes) -> Batch | None:
    return None


class Host(Protocol):
    """What tasks need from the engine."""

    turn: TurnState
    observer: Observer | None

    def now(self) -> float: ...

    def held_loop(self, component: str, what: str, secs: float) -> None: ...

    def report(self, component: str, task: int, error: BaseException) -> None: ...

    def wake(self) -> None: ...

    def die(self, error: BaseException) -> None: ...


class MessageFilter(Protocol):
    """Chooses which finished messages the spout is notified about (see `dead_letters`)."""

    def acked(self, message_ids: Iterable[Any]) -> list[Any]: ...

    def failed(
        self, message_ids: Iterable[Any], root: int | None = None, *, lost: bool = False
    ) -> list[Any]: ...

    def clear(self) -> None:
        """Forget all messages, because the spout's process is gone."""


@dataclass(frozen=True, slots=True)
class TaskParts:
    """The parts that every kind of task has."""

    host: Host
    component: str
    task: int
    executor: Executor
    outputs: Sequence[Output]
    counts: TaskCounts


class Task:
    """One task: its place in the topology, its outputs and its counts."""

    def __init__(self, parts: TaskParts) -> None:
        self.host = parts.host
        self.component = parts.component
        self.task = parts.task
        self.executor = parts.executor
        self.outputs = parts.outputs
        self.counts = parts.counts
        self.user: Any = None  # the user's object, once made
        self.stirred = False  # it may have emitted, acked ... between two turns
        self.hand: InHand | None = None  # records what is in hand; not for a SyncBolt
        # Held while the task's buffers and counts are used; a real lock only for tasks on threads.
        self.lock: AbstractContextManager[Any] = NO_LOCK


class BoltTask(Task):
    """A bolt's task: batches of tuples wait in `inbox`."""

    calls: BoltCollector[Tuple]

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self.inbox: deque[Batch | Received] = deque()
        self.queued = 0  # tuples in `inbox`
        self.local = 0  # of them, from tasks of this worker
        self.gated = False  # blocked: a target that it feeds is full
        self.decode: Callable[[int, bytes], Batch | None] = _decode_nothing
        # Above `soft` local tuples the spouts that feed it wait, above `hard` all tasks that feed
        # it; a cycle that it is on may fill it up to `hard_max`.
        self.soft = self.hard = self.hard_max = 1
        self.samples = 0  # batches until the size of a tuple is sampled again
        self._tuple_bytes = 0.0
        self._marks = (1, 1, 1)

    def stir(self) -> None:
        """Ask for a turn, because something was done between two turns."""
        self.stirred = True
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
        self.soft = min(soft, self.hard)
        self.hard_max = 8 * self.hard

    def load(self) -> float:
        """How full the inbox is: 1.0 or more when the spouts that feed it wait."""
        return self.queued / self.soft

    def deliver(self, batch: Batch) -> None:
        self.inbox.append(batch)
        self.queued += len(batch)
        if batch.source.local:
            self.local += len(batch)

    def receive(self, received: Received) -> None:
        """Add tuples from another worker to the inbox."""
        self.inbox.append(received)
        self.queued += received.count

    def head(self) -> Batch | None:
        """The batch at the head of the inbox, without removing it; None when the inbox is empty."""
        while self.inbox:
            first = self.inbox[0]
            if not isinstance(first, Received):
                return first
            batch = self.decode(self.task, first.take())
            if batch is not None:
                self.inbox[0] = batch
                return batch
            self.inbox.popleft()
            self.queued -= first.count
        return None

    def take(self, limit: int) -> Batch | None:
        """Take at most `limit` tuples of one source; None when there are none, or it is blocked."""
        if not self.inbox or limit <= 0 or self.gated:
            return None
        batch = self.head()
        if batch is None:
            return None
        if len(batch) > limit:
            batch = batch.take(limit)
        else:
            self.inbox.popleft()
        n = len(batch)
        self.queued -= n
        if batch.source.local:
            self.local -= n
        return batch

    def empty(self) -> list[Batch]:
        """Remove and return everything that waits in the inbox."""
        found = []
        while (batch := self.head()) is not None:
            found.append(batch)
            self.inbox.popleft()
        self.queued = self.local = 0
        return found

    def run(self, deadline: float) -> bool:
        """Work on the tuples that are in the inbox now, until `deadline`, but at least on a slice
        of them. True when anything was done."""
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """Whether it has work that will lead to more emits or acks."""
        return bool(self.inbox)

    @property
    def holds_back(self) -> bool:
        """Whether tuples emitted between two turns wait for more of them, and for `wake`."""
        return False

    def abort(self) -> None:
        """Abandon what is in flight, because the worker ends now."""


class SlicedBolt(BoltTask):
    """A bolt that runs on the loop: its slices adapt to how long a tuple takes."""

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self._slice = 16
        # Called between two slices: True when a target that it emits to is full.
        self.pause: Callable[[], bool] | None = None

    def run(self, deadline: float) -> bool:
        now = self.host.now
        left = self.queued
        granted = self._slice  # tuples, whatever the deadline says
        worked = False
        while (batch := self.head()) is not None:
            worked = True
            key = batch.source.key
            room = min(self._slice, left)
            batches = [batch]
            n = self._pull(batch, room)
            # With many tasks, batches are small: those of one stream are a slice together.
            while n < room:
                batch = self.head()
                if batch is None or batch.source.key != key:
                    break
                batches.append(batch)
                n += self._pull(batch, room - n)
            start = now()
            processed = 0
            try:
                processed = self.work(batches, n)
            finally:
                end = now()
                secs = end - start
                self.counts.executed_many(key, n, secs, processed)
            if secs > 0:
                self._slice = max(1, min(SLICE_TUPLES_MAX, int(SLICE_SECS * n / secs)))
                if secs > HOLD_SECS:
                    self.host.held_loop(self.component, f"{n} tuple(s)", secs)
            else:
                self._slice = SLICE_TUPLES_MAX
            left -= n
            granted -= n
            if left <= 0 or (end >= deadline and granted <= 0):
                break
            if self.pause is not None and self.pause():
                break
        return worked

    def _pull(self, batch: Batch, room: int) -> int:
        """Count up to `room` tuples of the first batch as taken; drop the batch from the inbox when
        that is all of it. Returns how many they are."""
        n = len(batch)
        if n <= room:
            self.inbox.popleft()
        else:
            n = room
        self.queued -= n
        if batch.source.local:
            self.local -= n
        return n

    def work(self, batches: Sequence[Batch], count: int) -> int:
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

    def work(self, batches: Sequence[Batch], count: int) -> int:
        self.calls.run_each(batches, count)
        return count if self.auto_ack else 0


class BatchBolt(SlicedBolt):
    """`execute_batch(tuples)`: acks what it did not fail, and fails the rest when it raises."""

    calls: CarefulCalls
    auto_ack: bool

    def work(self, batches: Sequence[Batch], count: int) -> int:
        tuples = take_all(batches, count)
        hand, cells = self.hand, []
        if hand is not None:
            cells = hand.put_batch((trees_of(tup) for tup in tuples), self.task)
        try:
            return self._execute(tuples, count)
        finally:
            if hand is not None:
                hand.clear_batch(cells)

    def _execute(self, tuples: list[Tuple], count: int) -> int:
        try:
            self.user.execute_batch(tuples[:])
        except Exception as error:
            for tup in tuples:
                if not tup.settled:
                    self.calls.fail(tup)
            self.calls.report_error(error)
            return 0
        if self.auto_ack:
            for tup in tuples:
                if not tup.settled:
                    self.calls.ack(tup)
        return count


class ColumnBolt(SlicedBolt):
    """`execute_columns(columns)`."""

    calls: ColumnCalls
    auto_ack: bool

    def work(self, batches: Sequence[Batch], count: int) -> int:
        hand, cells = self.hand, []
        if hand is not None:
            cells = hand.put_batch((batch.roots() for batch in batches), self.task)
        try:
            run_each(self.calls.run, batches, count)
        finally:
            if hand is not None:
                hand.clear_batch(cells)
        return count if self.auto_ack else 0


class SpoutTask(Task):
    """A spout's task: called when it may emit, and notified of acks and fails."""

    # Storm's WaitStrategyProgressive sleeps 1 ms whenever nextTuple emitted nothing. A wake-up of
    # an idle process costs 200 us of a core, so the wait grows, which bounds both CPU and latency.
    # A component that cannot wait for it calls `context.wake()`.
    _WAITS = ((16, 0.001), (48, 0.002), (200, 0.005), (600, 0.01), (700, 0.025))
    _WAITS_RUNS = 700
    WAIT_SECS_MAX = 0.05
    _CHUNK_MAX = 32
    _ERROR_WAIT_SECS_MAX = 1.0

    calls: SpoutCalls  # the core's
    collector: SpoutCollector  # what the component emits through: `calls`, or a collector around it

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self.pending = PendingRoots()
        self.pending_max: int | None = None
        self.calls_max = 1  # of next_tuple in a turn
        self.idle_until = 0.0  # monotonic
        self.idle_secs_min = 0.0  # topology.sleep.spout.wait.strategy.time.ms
        self._idle_runs = 0
        self._woken = False  # since it was last asked
        self._failures = 0  # in a row, of next_tuple
        self._emitted = 0  # when it was last asked
        self.active = False
        # Which of ack() and fail() the user's class defines; the others need not be called.
        self.listens: frozenset[str] = frozenset({"ack", "fail"})
        self.dies = False  # the worker ends when the user's code raises
        self.on_asking_raised: Callable[[str, int, BaseException], None] | None = None
        self.replays: MessageFilter | None = None  # with topology.max.replays
        # Called with trees that are about to fail, with topology.max.worker.kills.
        self.on_failing: Callable[[Iterable[int]], None] | None = None
        # The components downstream, for backpressure.
        self.downstream: frozenset[str] = frozenset()

    # -- emitting --

    @property
    def has_emitted(self) -> bool:
        """Whether it has emitted since the last `emitted_more`, or has messages to settle."""
        calls = self.calls
        return calls.emitted() != self._emitted or bool(calls.untracked)

    def emitted_more(self) -> bool:
        """Whether it has emitted since the last call of this method."""
        emitted = self.calls.emitted()
        more = emitted != self._emitted
        self._emitted = emitted
        return more

    def wake(self) -> None:
        """Ask for a tuple again in the next turn. From any thread (`context.wake()`)."""
        self._woken = True
        self.idle_until = 0.0
        self._idle_runs = 0

    def _rest(self, now: float) -> None:
        """It had no tuple: ask again later, or at once if it was woken meanwhile."""
        self.idle_until = now + self._idle_wait()
        if self._woken:  # in this order: another thread may be setting it just now
            self.idle_until = 0.0

    def run(self, deadline: float) -> bool:
        """Call next_tuple until it emits no more, or a limit is reached. True if it emitted."""
        next_tuple = self.user.next_tuple
        run = self.calls.run
        emitted = self.calls.emitted
        first = emitted()
        now = self.host.now
        start = now()
        calls_max = self.calls_max
        calls = 0
        chunk = 1
        idle = False
        self._woken = False
        try:
            while calls < calls_max:
                before = emitted()
                run(next_tuple, chunk, self.pending_max)
                calls += chunk
                if emitted() == before:
                    idle = True
                    break
                if now() >= deadline or emitted() - first >= calls_max:
                    break
                chunk = min(2 * chunk, self._CHUNK_MAX, calls_max - calls)
            self._failures = 0
        except Exception as error:
            self._failures += 1
            self.asking_raised(error)
            wait = min(self._ERROR_WAIT_SECS_MAX, 0.001 * 2 ** min(self._failures, 12))
            self.idle_until = now() + wait
        end = now()
        if end - start > HOLD_SECS:
            self.host.held_loop(self.component, f"{calls} call(s) of next_tuple", end - start)
        if idle:
            self._rest(end)
        elif self._failures == 0:
            self._idle_runs = 0
        return emitted() > first

    def _idle_wait(self) -> float:
        return max(self.idle_secs_min, self._growing_wait())

    def _growing_wait(self) -> float:
        self._idle_runs += 1
        if self._idle_runs <= self._WAITS_RUNS:
            for runs, secs in self._WAITS:
                if self._idle_runs <= runs:
                    return secs
        return self.WAIT_SECS_MAX

    def close_gate(self) -> None:
        """Do not let it emit for now."""

    @property
    def may_emit(self) -> bool:
        return self.pending_max is None or len(self.pending) < self.pending_max

    # -- what became of the messages --

    def acked(self, roots: Iterable[int]) -> None:
        """Notify the spout that these trees are complete."""
        self._tell("ack", self.pending.take(roots, self.host.now()))

    def failed(self, roots: Iterable[int], *, lost: bool = False) -> None:
        """Notify the spout that these trees failed; `lost`: because a worker was lost."""
        if self.on_failing is not None:
            roots = list(roots)
            self.on_failing(roots)
        if self.replays is None:
            self._tell("fail", self.pending.take(roots, self.host.now()))
            return
        for root in roots:
            self._tell("fail", self.pending.take((root,), self.host.now()), root=root, lost=lost)

    def expire(self, bucket: int) -> bool:
        """Fail the messages that have timed out; True if there were any."""
        roots = self.pending.expired(bucket)
        if not roots:
            return False
        if self.on_failing is not None:
            self.on_failing(roots)
        expired = self.pending.take(roots, self.host.now())
        self._tell("fail", expired)
        return bool(expired.message_ids)

    def completed(self) -> bool:
        """Ack the trees that the ackers of this worker have completed; True if there were any."""
        taken = self.pending.take_completed(self.host.now())
        if taken is None:
            return False
        self._tell("ack", taken)
        return True

    def reset_timeout(self, roots: Iterable[int], bucket: int) -> None:
        for root in roots:
            self.pending.reset(root, bucket)

    def settle_untracked(self) -> bool:
        """Ack the messages that no acker tracks; True if there were any."""
        untracked = self.calls.untracked
        if not untracked:
            return False
        found = Taken()
        for message_id, stream in untracked:
            found.add(message_id, stream, 0.0)
        untracked.clear()
        self._tell("ack", found, timed=False)
        return True

    def _tell(
        self,
        what: str,
        taken: Taken,
        *,
        timed: bool = True,
        root: int | None = None,
        lost: bool = False,
    ) -> None:
        """Call ack or fail with each message id. An error in one call is reported, and the other
        calls are still made."""
        message_ids = taken.message_ids
        if not message_ids:
            return
        acked = what == "ack"
        counts = self.counts.acked if acked else self.counts.failed
        for stream, (count, secs) in taken.by_stream.items():
            self.counts.add(counts, stream, count)
            if acked and timed:
                self.counts.processed(stream, secs, count)
        if self.replays is not None:
            if acked:
                message_ids = self.replays.acked(message_ids)
            else:
                message_ids = self.replays.failed(message_ids, root, lost=lost)
        observer = self.host.observer
        if observer is not None:
            for message_id in message_ids:
                observer.completed(self.component, self.task, message_id, not acked)
        if message_ids and what in self.listens:
            self.call_user(what, message_ids)
        self.wake()

    def call_user(self, what: str, message_ids: Sequence[Any]) -> None:
        call = getattr(self.user, what)
        ids = iter(message_ids)
        now = self.host.now
        start = now()
        while True:
            try:
                for message_id in ids:
                    call(message_id)
                break
            except Exception as error:
                self.raised(error)
        secs = now() - start
        if secs > HOLD_SECS:
            self.host.held_loop(self.component, f"{len(message_ids)} call(s) of {what}", secs)

    # -- life --

    def set_active(self, active: bool) -> None:
        """Call activate() or deactivate() when the state changes."""
        if active != self.active:
            self.active = active
            self.wake()
            self.lifecycle(self.user.activate if active else self.user.deactivate)

    def lifecycle(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except Exception as error:
            self.raised(error)

    def asking_raised(self, error: BaseException) -> None:
        """Report an error that next_tuple raised."""
        self.raised(error)
        if self.on_asking_raised is not None:
            self.on_asking_raised(self.component, self.task, error)

    def raised(self, error: BaseException) -> None:
        """Report an error of the user's code. With `topology.bolt.die.on.error` the worker ends."""
        self.host.report(self.component, self.task, error)
        if self.dies:
            self.host.die(error)

    def abort(self) -> None:
        """Stop, because the worker ends now."""
