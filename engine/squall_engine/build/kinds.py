"""The kinds of tasks, one function each: how a component is invoked, and what it is bound to.

A task's calls come from the core. The component is bound directly to them where possible. Where
something has to stand between (a lock, a wake-up, a memory of messages), it is bound to a collector
that delegates to them (`squall_common.component.collector`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from squall_common.component.collector import BoltCollector, SpoutCollector
from squall_common.component.component import Spout
from squall_common.component.context import TopologyContext
from squall_common.component.methods import acks_in_batches, defines
from squall_common.config.options.typed import TopologyOptions
from squall_common.names import MARK_STREAM
from squall_engine.acking.dead_letters import DeadLetters, FailureRecorder
from squall_engine.acking.suspects import Suspects
from squall_engine.core import (
    BoltCalls,
    CarefulCalls,
    ColumnCalls,
    Columns,
    Emitter,
    Ledger,
    SpoutCalls,
    Tuple,
)
from squall_engine.core.codec import ValueCodec
from squall_engine.core.invocation import InvocationMode
from squall_engine.dataflow.marks import MarkOut, can_take_marks, without_marks
from squall_engine.hooks.collectors import (
    HookedBoltCollector,
    HookedColumnCollector,
    HookedSpoutCollector,
)
from squall_engine.hooks.task_hooks import TaskHooks
from squall_engine.loading import ComponentStartError
from squall_engine.plan import Plan
from squall_engine.settings import EngineCallbacks
from squall_engine.state.stored_task import StoredTask
from squall_engine.tasks.async_ import (
    CURRENT,
    AsyncBatchBolt,
    AsyncBolt,
    AsyncSpout,
    WakingSpoutCollector,
)
from squall_engine.tasks.base import Host, Task, TaskParts
from squall_engine.tasks.bolt import BatchBolt, BoltTask, ColumnBolt, SyncBolt
from squall_engine.tasks.in_hand import InHand
from squall_engine.tasks.one_by_one import OneByOneBolt
from squall_engine.tasks.source_end import SourceEnd
from squall_engine.tasks.spout import SpoutTask
from squall_engine.tasks.thread import (
    LockedBoltCollector,
    LockedSpoutCollector,
    ThreadBatchBolt,
    ThreadBolt,
    ThreadSpout,
)

if TYPE_CHECKING:
    from squall_engine.atomic.bolt import AtomicCalls
    from squall_engine.epochs.driver import EpochDriver
    from squall_engine.multilang.bolt import ShellBolt
    from squall_engine.tracing.trees import TreeTracing

_BATCH_RULE = (
    "in execute_batch, emit(values, anchors=...) must name the tuples that the values come from, "
    "or () for none"
)

Anchors = Callable[[], tuple[Tuple, ...]]  # the anchors of an emit that names none
_Collector = SpoutCollector | BoltCollector[Tuple]
_Hold = Callable[[Any], Any]  # a collector, and one around it
OnSettled = Callable[[Tuple, bool], None]  # the tuple, and whether it failed


class KindHost(Host, Protocol):
    """What the different kinds of tasks need from the engine."""

    plan: Plan
    callbacks: EngineCallbacks
    dead_letters: DeadLetters | None
    in_hand: InHand | None
    suspects: Suspects | None
    tracing: TreeTracing | None
    epochs: EpochDriver | None

    def mark_out(self, bolt: BoltTask) -> MarkOut:
        """Where the marks of a task go."""
        ...

    @property
    def make_codec(self) -> Callable[[], ValueCodec]: ...


@dataclass(frozen=True, slots=True)
class NewTask:
    """The parts of a task that exist before its kind matters."""

    host: KindHost
    mode: InvocationMode
    parts: TaskParts
    user: Any  # the component's object, or what runs it as a child process: of any class
    options: TopologyOptions
    emitter: Emitter
    ledger: Ledger
    context: TopologyContext
    hooks: TaskHooks | None = None
    stored: StoredTask | None = None  # the bolt's state, if it is stored

    @property
    def recorder(self) -> FailureRecorder | None:
        """Notes why tuples fail here; None without `topology.max.replays`."""
        dead_letters = self.host.dead_letters
        if dead_letters is None:
            return None
        return FailureRecorder(dead_letters, self.parts.component, self.parts.task)

    @property
    def auto_ack(self) -> bool:
        """Whether the task acks. The tuples of a bolt whose state is stored are acked later."""
        return bool(self.user.auto_ack) and self.stored is None

    @property
    def auto_anchor(self) -> bool:
        return bool(self.user.auto_anchor)

    @property
    def dies(self) -> bool:
        """Whether the worker ends when the user's code raises."""
        return self.options.topology_bolt_die_on_error

    @property
    def execute(self) -> Callable[[Any], Any]:
        """The component's own method, reported to its hooks."""
        name, around = _CALLED[self.mode]
        method: Callable[[Any], Any] = getattr(self.user, name)
        if self.stored is not None:
            method = self.stored.around(self.mode, method, auto_ack=bool(self.user.auto_ack))
        return method if self.hooks is None else around(self.hooks, method)

    @property
    def execute_columns(self) -> Callable[[Columns], Any]:
        """Likewise for a bolt that is fed with columns."""
        method: Callable[[Columns], Any] = self.user.execute_columns
        if self.hooks is None:
            return method
        return self.hooks.around_columns(method, auto_ack=self.auto_ack)

    def hooked(self, collector: _Collector) -> Any:
        """The collector, or one around it that reports to the hooks."""
        if self.hooks is None:
            return collector
        return _HOOKED.get(self.mode, HookedBoltCollector)(collector, self.hooks)

    def bind(
        self, collector: _Collector, ack_rest: Callable[[list[Tuple]], None] | None = None
    ) -> None:
        """Give the component its collector. `ack_rest` acks tuples that are not settled, all in one
        call, where that is the same as the collector's `ack` of each."""
        if self.stored is not None:  # of a bolt
            collector = self.stored.collector(cast(BoltCollector[Tuple], collector))
            ack_rest = None  # acks wait for a flush
        collector = self.hooked(collector)
        wrap = self.host.callbacks.wrap_collector
        bound = collector if wrap is None else wrap(self.parts.component, collector)
        if bound is not collector:
            ack_rest = None  # that collector may have an ack of its own
        if getattr(self.user, "_squall_windowed", False):  # it makes its shell when it is bound
            object.__setattr__(self.user, "_squall_codec", self.host.make_codec)
            object.__setattr__(self.user, "_squall_ack_rest", ack_rest)
        self.user._bind(bound, self.context)


# The method that a task calls, and how it is reported to hooks.
_CALLED: dict[InvocationMode, tuple[str, Callable[[TaskHooks, Any], Any]]] = {
    InvocationMode.SYNC: ("execute", TaskHooks.around),
    InvocationMode.ASYNC: ("execute", TaskHooks.around_async),
    InvocationMode.THREAD: ("execute", TaskHooks.around),
    InvocationMode.BATCH: ("execute_batch", TaskHooks.around_batch),
    InvocationMode.ASYNC_BATCH: ("execute_batch", TaskHooks.around_async_batch),
    InvocationMode.THREAD_BATCH: ("execute_batch", TaskHooks.around_batch),
}
_HOOKED: dict[InvocationMode, Callable[[Any, TaskHooks], Any]] = {
    InvocationMode.NEXT_TUPLE: HookedSpoutCollector,
    InvocationMode.ASYNC_NEXT_TUPLE: HookedSpoutCollector,
    InvocationMode.THREAD_NEXT_TUPLE: HookedSpoutCollector,
    InvocationMode.SHELL_SPOUT: HookedSpoutCollector,
    InvocationMode.COLUMNS: HookedColumnCollector,
}


# -- spouts --


def make_spout(new: NewTask) -> SpoutTask:
    """Make a spout's task and bind its component."""
    kind, bind = _SPOUTS[new.mode]
    spout = kind(new.parts)
    _set_up(new, spout)
    bind(new, spout)
    return spout


def _bind_plain(new: NewTask, spout: SpoutTask) -> None:
    _bind_spout(new, spout, spout.collector)


def _bind_async(new: NewTask, spout: SpoutTask) -> None:
    _bind_spout(new, spout, WakingSpoutCollector(spout.collector, new.host.wake))


def _bind_thread(new: NewTask, spout: SpoutTask) -> None:
    assert isinstance(spout, ThreadSpout)
    locked = LockedSpoutCollector(spout.collector, spout.lock, new.host.wake)
    _bind_spout(new, spout, locked)


def _make_shell_spout(parts: TaskParts) -> SpoutTask:
    from squall_engine.multilang.spout import ShellSpout

    return ShellSpout(parts)


def _bind_shell_spout(new: NewTask, spout: SpoutTask) -> None:
    spout.collector = new.hooked(spout.collector)
    new.user._bind(spout.collector, new.context)


_SPOUTS: dict[
    InvocationMode,
    tuple[Callable[[TaskParts], SpoutTask], Callable[[NewTask, SpoutTask], None]],
] = {
    InvocationMode.NEXT_TUPLE: (SpoutTask, _bind_plain),
    InvocationMode.ASYNC_NEXT_TUPLE: (AsyncSpout, _bind_async),
    InvocationMode.THREAD_NEXT_TUPLE: (ThreadSpout, _bind_thread),
    InvocationMode.SHELL_SPOUT: (_make_shell_spout, _bind_shell_spout),
}


def _set_up(new: NewTask, spout: SpoutTask) -> None:
    """Set what all spouts have in common: their calls, and how often they may be asked."""
    host, options, user = new.host, new.options, new.user
    spout.calls = SpoutCalls(
        new.emitter,
        new.ledger,
        spout.pending,
        host.turn,
        acker=host.plan.acker_of_spout(spout.task),
        on_error=_reporter(new, spout),
    )
    spout.collector = spout.calls
    if host.dead_letters is not None:
        dead_letters = host.dead_letters.of_spout(
            spout.component, spout.task, spout.calls, spout.pending, host.wake
        )
        if dead_letters is not None:
            spout.message_filter, spout.collector = dead_letters, dead_letters.recording()
    if host.suspects is not None:
        host.suspects.of_spout(spout)
    if host.tracing is not None:
        host.tracing.of_spout(spout, new.parts)
    pending_max = options.topology_max_spout_pending
    spout.pending_max = None if pending_max is None or not host.plan.acker_tasks else pending_max
    if options.topology_spout_batch is not None:
        spout.calls_max, spout.takes_turn_size = options.topology_spout_batch, False
    spout.listens = frozenset(
        call
        for call in ("ack", "fail")
        if getattr(getattr(user, call), "__func__", None) is not getattr(Spout, call)
    )
    if isinstance(user, Spout) and acks_in_batches(user):
        spout.acks_in_batches = True
        spout.listens |= {"ack"}
    if isinstance(user, Spout) and defines(user, "exhausted"):
        spout.source_end = SourceEnd()
    spout.idle_secs_min = options.topology_sleep_spout_wait_strategy_time_ms / 1000
    spout.dies = new.dies
    spout.on_asking_raised = host.callbacks.on_asking_raised
    spout.downstream = host.plan.downstream_of(spout.component)


def _bind_spout(new: NewTask, spout: SpoutTask, collector: SpoutCollector) -> None:
    new.bind(collector)
    object.__setattr__(new.user, "_squall_pending", spout.pending)  # as `_bind` sets its own


# -- bolts --


def make_bolt(new: NewTask) -> BoltTask:
    """Make a bolt's task and bind its component."""
    if new.host.tracing is not None:
        new.host.tracing.of_component(new.parts, new.user, new.mode)
    kind, wire = _kind_of_bolt(new)
    bolt = kind(new.parts)
    if new.parts.component in new.host.plan.marks:
        if not can_take_marks(new.user, new.mode):
            raise ComponentStartError(
                new.parts.component,
                new.parts.task,
                f"component {new.parts.component!r}: it sets topology.bolts.watermark.from, and is "
                "neither a windowed bolt nor one of the streams API",
                hint="leave it out: the streams API sets it",
            )
        # Before it is bound, which makes the shell of windows.
        marks = tuple(new.host.plan.marks[new.parts.component])
        object.__setattr__(new.user, "_squall_marks_from", marks)
    if new.host.plan.consumers_of(new.parts.component, MARK_STREAM):
        object.__setattr__(new.user, "_squall_marks", new.host.mark_out(bolt))
    if new.stored is not None:
        _store(new, new.stored, bolt)
    if new.host.tracing is not None and isinstance(bolt, ColumnBolt):
        new.host.tracing.of_columns(bolt, new.parts, auto_ack=new.auto_ack)
    wire(new, bolt)
    return bolt


def _store(new: NewTask, stored: StoredTask, bolt: BoltTask) -> None:
    if new.mode is InvocationMode.COLUMNS:
        raise ComponentStartError(
            bolt.component,
            bolt.task,
            f"component {bolt.component!r}: its state is stored, so it cannot define "
            "execute_columns(), in which no tuple is the current one",
            hint="define execute() or execute_batch()",
        )
    stored.attach(bolt)
    bolt.stored_bytes = lambda: stored.stored_bytes
    stored.state.set_ttl(getattr(new.user, "state_ttl_secs", None))
    for name, read in stored.gauges().items():
        new.context.gauge(name, read)


def rebind(new: NewTask, task: Task) -> None:
    """Bind a component once more, because it has hooks now. Only before anything was executed."""
    if isinstance(task, SpoutTask):
        _, bind = _SPOUTS[new.mode]
        bind(new, task)
    else:
        _, wire = _kind_of_bolt(new)
        wire(new, task)


def _wire_sync(new: NewTask, bolt: SyncBolt) -> None:
    host, recorder = new.host, new.recorder
    bolt.auto_ack = new.auto_ack
    execute = new.execute if recorder is None else recorder.guard(new.execute)
    hold: _Hold | None = None
    if host.epochs is not None:
        execute, hold = _atomic(new, host.epochs, execute)
    execute = _without_marks(new, execute)
    bolt.calls = BoltCalls(
        new.emitter,
        new.ledger,
        bolt.counts,
        execute,
        auto_ack=bolt.auto_ack,
        on_error=_reporter(new, bolt, die=new.dies),
        now=host.now,
        on_outside=bolt.mark_dirty,
        on_settled=_observing(new, bolt),
        in_hand=None if host.in_hand is None else host.in_hand.loop,
    )
    bound: BoltCollector[Tuple] = bolt.calls
    if recorder is not None:
        bound = recorder.recording_fails(bound, settles=False)
    if hold is not None:
        bound = hold(bound)
    new.bind(_traced(new, bound))


def _wire_columns(new: NewTask, bolt: ColumnBolt) -> None:
    host, recorder = new.host, new.recorder
    bolt.auto_ack = new.auto_ack
    bolt.in_hand = host.in_hand
    execute, hold = new.execute_columns, None
    on_changed_row: Callable[[Tuple, Exception], bool] | None = None
    if recorder is not None:
        execute, on_changed_row = recorder.guard_columns(execute), recorder.changed_row
    if host.epochs is not None:
        atomic = _made_atomic(new, host.epochs, execute)
        execute, hold, on_changed_row = atomic.execute, atomic.collector, atomic.on_changed_row
    execute = _without_marks(new, execute)
    bolt.calls = ColumnCalls(
        new.emitter,
        new.ledger,
        bolt.counts,
        execute,
        auto_ack=bolt.auto_ack,
        auto_anchor=new.auto_anchor,
        default_anchors=_must_name(
            new,
            "in execute_columns, use emit_columns, or emit(values, anchors=()) for a tuple "
            "without anchors",
        ),
        on_error=_reporter(new, bolt, die=new.dies, recorder=recorder),
        on_settled=_observing(new, bolt, recorder),
        notes_acks=_notes_acks(new),
        on_outside=bolt.mark_dirty,
        on_changed_row=on_changed_row,
    )
    new.bind(bolt.calls if hold is None else hold(bolt.calls))


def _wire_batch(new: NewTask, bolt: BatchBolt) -> None:
    recorder = new.recorder
    bolt.auto_ack, bolt.execute = new.auto_ack, new.execute
    bolt.calls = _careful_calls(new, bolt, recorder, _must_name(new, _BATCH_RULE))
    # On a cycle, results may come to the bolt's own inbox, from which nothing is taken meanwhile.
    in_slices = not new.host.plan.is_on_cycle(bolt.component)
    if in_slices and getattr(new.user, "_squall_windowed", False):
        # It makes its shell when it is bound.
        object.__setattr__(new.user, "_squall_in_slices", bolt.in_slices)
    _bind_whole(new, bolt, recorder, bolt.calls.ack_rest)
    bolt.execute = _without_marks(new, bolt.execute)


def _bind_whole(
    new: NewTask,
    bolt: BatchBolt | AsyncBolt,
    recorder: FailureRecorder | None,
    ack_rest: Callable[[list[Tuple]], None] | None = None,
) -> None:
    """Bind the component; with checkpoints its calls are atomic."""
    bound = _bound(new, bolt, recorder)
    if new.host.epochs is not None:
        bolt.auto_ack = True  # also of windows, which hold what is in their task's snapshot
        bolt.execute, hold = _atomic(new, new.host.epochs, new.execute)
        new.bind(hold(bound))
    else:
        new.bind(bound, ack_rest)


def _wire_one_by_one(new: NewTask, bolt: OneByOneBolt) -> None:
    recorder = new.recorder
    bolt.auto_ack, bolt.execute = new.auto_ack, new.execute
    bolt.calls = _careful_calls(new, bolt, recorder, _no_anchors)
    new.bind(_bound(new, bolt, recorder))


def _wire_async(new: NewTask, bolt: AsyncBolt) -> None:
    recorder = new.recorder
    bolt.auto_ack, bolt.execute = new.auto_ack, new.execute
    bolt.concurrency = new.options.topology_bolt_async_concurrency
    anchors = _current(new, CURRENT.get)
    bolt.calls = _careful_calls(new, bolt, recorder, anchors, own=bolt.on_settled)
    _bind_whole(new, bolt, recorder)
    bolt.execute = _without_marks(new, bolt.execute)


def _wire_async_batch(new: NewTask, bolt: AsyncBatchBolt) -> None:
    recorder = new.recorder
    bolt.auto_ack, bolt.execute = new.auto_ack, new.execute
    bolt.concurrency = new.options.topology_bolt_async_concurrency
    bolt.calls = _careful_calls(new, bolt, recorder, _must_name(new, _BATCH_RULE))
    _bind_whole(new, bolt, recorder)


def _wire_thread(new: NewTask, bolt: ThreadBolt) -> None:
    _wire_on_thread(new, bolt, _current(new, lambda: bolt.current))


def _wire_thread_batch(new: NewTask, bolt: ThreadBatchBolt) -> None:
    _wire_on_thread(new, bolt, _must_name(new, _BATCH_RULE))


def _wire_on_thread(new: NewTask, bolt: ThreadBolt, anchors: Anchors) -> None:
    recorder = new.recorder
    bolt.auto_ack, bolt.execute = new.auto_ack, new.execute
    bolt.calls = _careful_calls(new, bolt, recorder, anchors)
    bound = _bound(new, bolt, recorder)
    locked = LockedBoltCollector(bound, bolt.lock, new.host.wake)
    if new.host.epochs is not None:
        bolt.auto_ack = True
        bolt.execute, hold = _atomic(new, new.host.epochs, new.execute)
        new.bind(hold(locked))
    else:
        new.bind(locked, locked.locked(bolt.calls.ack_rest))
    bolt.execute = _without_marks(new, bolt.execute)


def _without_marks(new: NewTask, execute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same, for a bolt that gets marks of event time as such."""
    if new.parts.component not in new.host.plan.marks:
        return execute
    return without_marks(new.mode, execute, new.user)


def _atomic(
    new: NewTask, epochs: EpochDriver, execute: Callable[[Any], Any]
) -> tuple[Callable[[Any], Any], _Hold]:
    atomic = _made_atomic(new, epochs, execute)
    return atomic.execute, atomic.collector


def _made_atomic(new: NewTask, epochs: EpochDriver, execute: Callable[[Any], Any]) -> AtomicCalls:
    parts = new.parts
    return epochs.make_atomic(parts.component, parts.task, new.options, execute)


def _make_shell_bolt(parts: TaskParts) -> BoltTask:
    from squall_engine.multilang.bolt import ShellBolt

    return ShellBolt(parts)


def _wire_shell(new: NewTask, bolt: ShellBolt) -> None:
    recorder = new.recorder
    bolt.auto_ack = new.auto_ack
    tracing = new.host.tracing
    own = None
    if tracing is not None:
        spans = tracing.of_child(new.parts)
        bolt.on_given, own = spans.begin, spans.settled
    # The task itself emits what its child emits.
    calls = _traced(new, _careful_calls(new, bolt, recorder, _no_anchors, own=own))
    bolt.calls = new.hooked(calls)
    new.bind(calls if recorder is None else recorder.recording_fails(calls, settles=True))


# How each kind is made, and bound to its component.
_BoltKind = tuple[Callable[[TaskParts], BoltTask], Callable[[NewTask, Any], None]]
_ONE_BY_ONE: _BoltKind = (OneByOneBolt, _wire_one_by_one)
_BOLTS: dict[InvocationMode, _BoltKind] = {
    InvocationMode.SYNC: (SyncBolt, _wire_sync),
    InvocationMode.COLUMNS: (ColumnBolt, _wire_columns),
    InvocationMode.BATCH: (BatchBolt, _wire_batch),
    InvocationMode.ASYNC: (AsyncBolt, _wire_async),
    InvocationMode.ASYNC_BATCH: (AsyncBatchBolt, _wire_async_batch),
    InvocationMode.THREAD: (ThreadBolt, _wire_thread),
    InvocationMode.THREAD_BATCH: (ThreadBatchBolt, _wire_thread_batch),
    InvocationMode.SHELL_BOLT: (_make_shell_bolt, _wire_shell),
}


def _kind_of_bolt(new: NewTask) -> _BoltKind:
    if new.mode is InvocationMode.SYNC and not new.auto_anchor:
        return _ONE_BY_ONE
    return _BOLTS[new.mode]


def _careful_calls(
    new: NewTask,
    bolt: BoltTask,
    recorder: FailureRecorder | None,
    anchors: Anchors,
    *,
    own: OnSettled | None = None,
) -> CarefulCalls:
    """The calls of a bolt that may have several tuples in flight. `own` is the task's callback for
    when a tuple was acked or failed."""
    bolt.in_hand = new.host.in_hand
    return CarefulCalls(
        new.emitter,
        new.ledger,
        bolt.counts,
        default_anchors=anchors,
        on_error=_reporter(new, bolt, die=new.dies, recorder=recorder),
        on_settled=_observing(new, bolt, recorder, own),
        notes_acks=_notes_acks(new) or own is not None,
        # A thread's calls wake the engine themselves, and its buffers are looked at every turn.
        on_change=None if isinstance(bolt, ThreadBolt) else bolt.mark_dirty,
    )


def _bound(new: NewTask, bolt: BoltTask, recorder: FailureRecorder | None) -> BoltCollector[Tuple]:
    """What the component of a bolt with careful calls makes its calls through."""
    calls: BoltCollector[Tuple] = bolt.calls
    if recorder is not None:
        calls = recorder.recording_fails(calls, settles=True)
    return _traced(new, calls)


def _traced(new: NewTask, calls: BoltCollector[Tuple]) -> BoltCollector[Tuple]:
    tracing = new.host.tracing
    return calls if tracing is None else tracing.collector(new.parts, calls)


def _no_anchors() -> tuple[Tuple, ...]:
    return ()


def _current(new: NewTask, current: Callable[[], Tuple | None]) -> Anchors:
    """Anchor an emit that names no anchors to the tuple in execution."""
    if not new.auto_anchor:
        return _no_anchors

    def of_current() -> tuple[Tuple, ...]:
        tup = current()
        return () if tup is None else (tup,)

    return of_current


def _must_name(new: NewTask, rule: str) -> Anchors:
    """Refuse an emit that names no anchors, citing this rule: several tuples are in execution."""
    if not new.auto_anchor:
        return _no_anchors

    def refuse() -> tuple[Tuple, ...]:
        raise TypeError(f"{new.parts.component!r}: {rule}")

    return refuse


def _observing(
    new: NewTask,
    task: BoltTask,
    recorder: FailureRecorder | None = None,
    own: OnSettled | None = None,
) -> OnSettled | None:
    """The function to call when a tuple was acked or failed: for the observer, the recorder and
    the task, as far as they exist."""
    found: list[OnSettled] = []
    observer = new.host.observer
    if observer is not None:
        observed, component, number = observer.settled, task.component, task.task
        found.append(lambda tup, failed: observed(component, number, tup, failed))
    if recorder is not None:
        found.append(recorder.settled)
    if new.hooks is not None:
        columns = new.mode is InvocationMode.COLUMNS
        found.append(new.hooks.row_settled if columns else new.hooks.settled)
    if own is not None:
        found.append(own)
    if len(found) < 2:
        return found[0] if found else None

    def settled(tup: Tuple, failed: bool) -> None:
        for each in found:
            each(tup, failed)

    return settled


def _notes_acks(new: NewTask) -> bool:
    """Whether anything wants to know what is acked. (A recorder wants to know what fails.)"""
    return new.host.observer is not None or new.hooks is not None


def _reporter(
    new: NewTask, task: Task, *, die: bool = False, recorder: FailureRecorder | None = None
) -> Callable[[BaseException], None]:
    host = new.host

    def report(error: BaseException) -> None:
        if recorder is not None:
            recorder.raised(error)
        host.report(task.component, task.task, error)
        if die:
            if host.in_hand is not None:
                host.in_hand.keep_last()
            host.die(error)

    return report
