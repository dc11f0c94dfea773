"""The task of a spout: it is asked for tuples, and notified of what became of its messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Protocol

from squall_common.component.collector import SpoutCollector
from squall_common.daemon.mypyc import mypyc_attr
from squall_engine.core import PendingRoots, SpoutCalls, Taken
from squall_engine.core.drive import call_for, notify_each
from squall_engine.tasks.base import HOLD_SECS, Task, TaskParts
from squall_engine.tasks.source_end import SourceEnd


class MessageFilter(Protocol):
    """Chooses which finished messages the spout is notified about (see `dead_letters`)."""

    def acked(self, message_ids: Sequence[Any]) -> Sequence[Any]: ...

    def failed(
        self, message_ids: Iterable[Any], root: int | None = None, *, lost: bool = False
    ) -> list[Any]: ...

    def clear(self) -> None:
        """Forget all messages, because the spout's process is gone."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SpoutTask(Task):
    """A spout's task: called when it may emit, and notified of acks and fails."""

    # Storm's WaitStrategyProgressive sleeps 1 ms whenever nextTuple emitted nothing. A wake-up of
    # an idle process costs 200 us of a core, so the wait grows, which bounds both CPU and latency.
    # A component that cannot wait for it calls `context.wake()`.
    _WAITS: ClassVar[Sequence[tuple[int, float]]] = (
        (16, 0.001),
        (48, 0.002),
        (200, 0.005),
        (600, 0.01),
        (700, 0.025),
    )
    _WAITS_RUNS: ClassVar[int] = 700
    WAIT_SECS_MAX: ClassVar[float] = 0.05
    _CHUNK_MAX: ClassVar[int] = 32
    _ERROR_WAIT_SECS_MAX: ClassVar[float] = 1.0

    # Else it emits between two turns, where nothing but `calls_max` bounds how long it takes.
    emits_in_turns: ClassVar[bool] = True
    on_loop: ClassVar[bool] = True  # its component is called there

    calls: SpoutCalls  # the core's
    collector: SpoutCollector  # what the component emits through: `calls`, or a collector around it

    def __init__(self, parts: TaskParts) -> None:
        super().__init__(parts)
        self.pending = PendingRoots()
        self.pending_max: int | None = None
        self.calls_max = 1  # of next_tuple in a turn
        self.takes_turn_size = True  # `calls_max` is the worker's, not topology.spout.batch
        self.idle_until = 0.0  # monotonic
        self.idle_secs_min = 0.0  # topology.sleep.spout.wait.strategy.time.ms
        self._idle_runs = 0
        self._woken = False  # since it was last asked
        self._failures = 0  # in a row, of next_tuple
        self._emitted = 0  # when it was last asked
        self.active = False
        # Not None in programs that ask for it: ids whose last outcome is a failure.
        self.failed_ids: set[Any] | None = None
        # Which of ack() and fail() the user's class defines; the others need not be called.
        self.listens: frozenset[str] = frozenset({"ack", "fail"})
        self.acks_in_batches = False
        self.dies = False  # the worker ends when the user's code raises
        self.on_asking_raised: Callable[[str, int, BaseException], None] | None = None
        self.source_end: SourceEnd | None = None  # of one that defines exhausted()
        self.message_filter: MessageFilter | None = None  # with topology.max.replays
        # Called with messages and whether they were acked, with topology.tracing.enabled.
        self.on_completed: Callable[[Iterable[Any], bool], None] | None = None
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

    @property
    def busy(self) -> bool:
        """Whether a call is in progress, or acks and fails wait to be delivered."""
        return self.has_news

    @property
    def has_news(self) -> bool:
        """Whether acks and fails wait to be delivered, or are being delivered."""
        return bool(self.calls.untracked)

    @property
    def has_ended(self) -> bool:
        """Whether its source has ended, as it says itself."""
        return self.source_end is not None and self.source_end.has_ended

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
        has_emitted = emitted() > first
        if self.source_end is not None:
            self.ask_end(self.source_end, is_idle=idle, has_emitted=has_emitted)
        if idle:
            self._rest(end)
        elif self._failures == 0:
            self._idle_runs = 0
        return has_emitted

    def ask_end(self, end: SourceEnd, *, is_idle: bool, has_emitted: bool) -> None:
        """After calls of next_tuple, ask the spout whether its source has ended, if it had nothing
        to emit and was not asked just now."""
        if has_emitted:
            end.goes_on()
        start = self.host.now()
        if not is_idle or start < end.ask_at:
            return
        has_replays = bool(getattr(self.user, "has_replays", False))
        try:
            end.answered(call_for(self, self.user.exhausted), start, has_replays=has_replays)
        except Exception as error:
            end.answered(False, start, has_replays=has_replays)
            self.raised(error)
        secs = self.host.now() - start
        if secs > HOLD_SECS and self.on_loop:
            self.host.held_loop(self.component, "a call of exhausted", secs)

    def _idle_wait(self) -> float:
        return max(self.idle_secs_min, self._growing_wait())

    def _growing_wait(self) -> float:
        self._idle_runs += 1
        if self._idle_runs <= self._WAITS_RUNS:
            for runs, secs in self._WAITS:
                if self._idle_runs <= runs:
                    return secs
        return self.WAIT_SECS_MAX

    def throttle(self) -> None:
        """Do not let it emit for now."""

    @property
    def may_emit(self) -> bool:
        return self.pending_max is None or len(self.pending) < self.pending_max

    # -- what became of the messages --

    def acked(self, roots: Iterable[int]) -> None:
        """Notify the spout that these trees are complete."""
        self._notify("ack", self.pending.take(roots, self.host.now()))

    def failed(self, roots: Iterable[int], *, lost: bool = False) -> None:
        """Notify the spout that these trees failed; `lost`: because a worker was lost."""
        if self.on_failing is not None:
            roots = list(roots)
            self.on_failing(roots)
        if self.message_filter is None:
            self._notify("fail", self.pending.take(roots, self.host.now()))
            return
        for root in roots:
            self._notify("fail", self.pending.take((root,), self.host.now()), root=root, lost=lost)

    def expire(self, bucket: int) -> bool:
        """Fail the messages that have timed out; True if there were any."""
        roots = self.pending.expired(bucket)
        if not roots:
            return False
        if self.on_failing is not None:
            self.on_failing(roots)
        expired = self.pending.take(roots, self.host.now())
        self._notify("fail", expired)
        return bool(expired.message_ids)

    def completed(self) -> bool:
        """Ack the trees that the ackers of this worker have completed; True if there were any."""
        taken = self.pending.take_completed(self.host.now())
        if taken is None:
            return False
        self._notify("ack", taken)
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
        self._notify("ack", found, timed=False)
        return True

    def _notify(
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
        message_ids: Sequence[Any] = taken.message_ids
        if not message_ids:
            return
        acked = what == "ack"
        if self.on_completed is not None:
            self.on_completed(message_ids, acked)
        counts = self.counts.acked if acked else self.counts.failed
        for stream, (count, secs) in taken.by_stream.items():
            self.counts.add(counts, stream, count)
            if acked and timed:
                self.counts.processed(stream, secs, count)
        if self.message_filter is not None:
            if acked:
                message_ids = self.message_filter.acked(message_ids)
            else:
                message_ids = self.message_filter.failed(message_ids, root, lost=lost)
        if self.failed_ids is not None:
            if acked:
                self.failed_ids.difference_update(map(_key_of, message_ids))
            else:
                self.failed_ids.update(map(_key_of, message_ids))
        observer = self.host.observer
        if observer is not None:
            for message_id in message_ids:
                observer.completed(self.component, self.task, message_id, not acked)
        if message_ids and what in self.listens:
            self.call_user(what, message_ids)
        if self.hooks is not None and message_ids:
            self.call_hooks(message_ids, failed=not acked)
        self.wake()

    def call_user(self, what: str, message_ids: Sequence[Any]) -> None:
        call = getattr(self.user, what)
        now = self.host.now
        start = now()
        # One call for all of them, or one for each.
        batched = self.acks_in_batches and what == "ack"
        ids: Iterator[Any] = iter((message_ids,) if batched else message_ids)
        if batched:
            call = self.user.ack_batch
        while True:
            try:
                notify_each(self, call, ids)
                break
            except Exception as error:
                self.raised(error)
        if what == "fail" and self.source_end is not None:
            self.source_end.goes_on()
        secs = now() - start
        if secs > HOLD_SECS:
            self.host.held_loop(self.component, f"{len(message_ids)} call(s) of {what}", secs)

    def call_hooks(self, message_ids: Sequence[Any], *, failed: bool) -> None:
        """Notify the hooks, after the user."""
        assert self.hooks is not None
        call_for(self, self.hooks.messages_settled, message_ids, failed)

    # -- life --

    def set_active(self, active: bool) -> None:
        """Call activate() or deactivate() when the state changes."""
        if active != self.active:
            self.active = active
            self.wake()
            self.lifecycle(self.user.activate if active else self.user.deactivate)

    def lifecycle(self, call: Callable[[], Any]) -> None:
        try:
            call_for(self, call)
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


def _key_of(message_id: Any) -> Any:
    """The id, or its text if it cannot be in a set, such as a list."""
    try:
        hash(message_id)
    except TypeError:
        return repr(message_id)
    return message_id
