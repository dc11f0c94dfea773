"""The kinds of tasks, one function each: how a component is invoked, and what it is bound to.

A task's calls come from the core. The component is bound directly to them where possible. Where
something has to stand between (a lock, a wake-up, a memory of messages), it is bound to a collector
that delegates to them (`squall_common.component.collector`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from squall_common.component.collector import BoltCollector, SpoutCollector
from squall_common.component.component import Spout
from squall_common.component.context import TopologyContext
from squall_common.config.options.typed import TopologyOptions
from squall_engine.acking.dead_letters import DeadLetters, FailureRecorder
from squall_engine.acking.suspects import Suspects
from squall_engine.core import (
    BoltCalls,
    CarefulCalls,
    ColumnCalls,
    Emitter,
    Ledger,
    SpoutCalls,
    Tuple,
)
from squall_engine.core.invocation import InvocationMode
from squall_engine.plan import Plan
from squall_engine.settings import EngineCallbacks
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
from squall_engine.tasks.spout import SpoutTask
from squall_engine.tasks.thread import (
    LockedBoltCollector,
    LockedSpoutCollector,
    ThreadBatchBolt,
    ThreadBolt,
    ThreadSpout,
)

if TYPE_CHECKING:
    from squall_engine.tracing.trees import TreeTracing

_CALLS_MIN = 256
_BATCH_RULE = (
    "in execute_batch, emit(values, anchors=...) must name the tuples that the values come from, "
    "or () for none"
)

Anchors = Callable[[], tuple[Tuple, ...]]  # the anchors of an emit that names none
OnSettled = Callable[[Tuple, bool], None]  # the tuple, and whether it failed


class KindHost(Host, Protocol):
    """What the different kinds of tasks need from the engine."""

    plan: Plan
    callbacks: EngineCallbacks
    dead_letters: DeadLetters | None
    in_hand: InHand | None
    suspects: Suspects | None
    tracing: TreeTracing | None


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

    @property
    def recorder(self) -> FailureRecorder | None:
        """Notes why tuples fail here; None without `topology.max.replays`."""
        dead_letters = self.host.dead_letters
        if dead_letters is None:
            return None
        return FailureRecorder(dead_letters, self.parts.component, self.parts.task)

    @property
    def auto_ack(self) -> bool:
        return bool(self.user.auto_ack)

    @property
    def auto_anchor(self) -> bool:
        return bool(self.user.auto_anchor)

    @property
    def dies(self) -> bool:
        """Whether the worker ends when the user's code raises."""
        return self.options.topology_bolt_die_on_error

    def bind(self, collector: SpoutCollector | BoltCollector[Tuple]) -> None:
        """Give the component its collector."""
        wrap = self.host.callbacks.wrap_collector
        bound = collector if wrap is None else wrap(self.parts.component, collector)
        self.user._bind(bound, self.context)


# -- spouts --


def make_spout(new: NewTask) -> SpoutTask:
    """Make a spout's task and bind its component."""
    return _SPOUTS[new.mode](new)


def _plain_spout(new: NewTask) -> SpoutTask:
    spout = SpoutTask(new.parts)
    _set_up(new, spout)
    _bind_spout(new, spout, spout.collector)
    return spout


def _async_spout(new: NewTask) -> SpoutTask:
    spout = AsyncSpout(new.parts)
    _set_up(new, spout)
    _bind_spout(new, spout, WakingSpoutCollector(spout.collector, new.host.wake))
    return spout


def _thread_spout(new: NewTask) -> SpoutTask:
    spout = ThreadSpout(new.parts)
    _set_up(new, spout)
    locked = LockedSpoutCollector(spout.collector, spout.lock, new.host.wake)
    _bind_spout(new, spout, locked)
    return spout


def _shell_spout(new: NewTask) -> SpoutTask:
    from squall_engine.multilang.spout import ShellSpout

    spout = ShellSpout(new.parts)
    _set_up(new, spout)
    new.bind(spout.collector)
    return spout


_SPOUTS: dict[InvocationMode, Callable[[NewTask], SpoutTask]] = {
    InvocationMode.NEXT_TUPLE: _plain_spout,
    InvocationMode.ASYNC_NEXT_TUPLE: _async_spout,
    InvocationMode.THREAD_NEXT_TUPLE: _thread_spout,
    InvocationMode.SHELL_SPOUT: _shell_spout,
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
    # A turn visits every task that has something: with a message for each, that is worth the cost.
    many = max(_CALLS_MIN, len(host.plan.local_tasks))
    spout.calls_max = options.topology_spout_batch or many
    spout.listens = frozenset(
        call
        for call in ("ack", "fail")
        if getattr(getattr(user, call), "__func__", None) is not getattr(Spout, call)
    )
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
    return _BOLTS[new.mode](new)


def _plain_bolt(new: NewTask) -> BoltTask:
    return _sync_bolt(new) if new.auto_anchor else _one_by_one_bolt(new)


def _sync_bolt(new: NewTask) -> BoltTask:
    host, user, recorder = new.host, new.user, new.recorder
    bolt = SyncBolt(new.parts)
    bolt.auto_ack = new.auto_ack
    bolt.calls = BoltCalls(
        new.emitter,
        new.ledger,
        bolt.counts,
        user.execute if recorder is None else recorder.guard(user.execute),
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
    new.bind(_traced(new, bound))
    return bolt


def _column_bolt(new: NewTask) -> BoltTask:
    host, user, recorder = new.host, new.user, new.recorder
    bolt = ColumnBolt(new.parts)
    bolt.auto_ack = new.auto_ack
    bolt.in_hand = host.in_hand
    bolt.calls = ColumnCalls(
        new.emitter,
        new.ledger,
        bolt.counts,
        user.execute_columns if recorder is None else recorder.guard_columns(user.execute_columns),
        auto_ack=bolt.auto_ack,
        auto_anchor=new.auto_anchor,
        default_anchors=_must_name(
            new,
            "in execute_columns, use emit_columns, or emit(values, anchors=()) for a tuple "
            "without anchors",
        ),
        on_error=_reporter(new, bolt, die=new.dies, recorder=recorder),
        on_settled=_observing(new, bolt, recorder),
        on_outside=bolt.mark_dirty,
    )
    if host.tracing is not None:
        host.tracing.of_columns(bolt, new.parts, auto_ack=bolt.auto_ack)
    new.bind(bolt.calls)
    return bolt


def _batch_bolt(new: NewTask) -> BoltTask:
    bolt, recorder = BatchBolt(new.parts), new.recorder
    bolt.auto_ack = new.auto_ack
    bolt.calls = _careful_calls(new, bolt, recorder, _must_name(new, _BATCH_RULE))
    new.bind(_bound(new, bolt, recorder))
    return bolt


def _one_by_one_bolt(new: NewTask) -> BoltTask:
    bolt, recorder = OneByOneBolt(new.parts), new.recorder
    bolt.auto_ack = new.auto_ack
    bolt.calls = _careful_calls(new, bolt, recorder, _no_anchors)
    new.bind(_bound(new, bolt, recorder))
    return bolt


def _async_bolt(new: NewTask) -> BoltTask:
    bolt, recorder = AsyncBolt(new.parts), new.recorder
    bolt.auto_ack = new.auto_ack
    bolt.concurrency = new.options.topology_bolt_async_concurrency
    anchors = _current(new, CURRENT.get)
    bolt.calls = _careful_calls(new, bolt, recorder, anchors, own=bolt.on_settled)
    new.bind(_bound(new, bolt, recorder))
    return bolt


def _async_batch_bolt(new: NewTask) -> BoltTask:
    bolt, recorder = AsyncBatchBolt(new.parts), new.recorder
    bolt.auto_ack = new.auto_ack
    bolt.concurrency = new.options.topology_bolt_async_concurrency
    bolt.calls = _careful_calls(new, bolt, recorder, _must_name(new, _BATCH_RULE))
    new.bind(_bound(new, bolt, recorder))
    return bolt


def _thread_bolt(new: NewTask) -> BoltTask:
    bolt = ThreadBolt(new.parts)
    return _on_thread(new, bolt, _current(new, lambda: bolt.current))


def _thread_batch_bolt(new: NewTask) -> BoltTask:
    return _on_thread(new, ThreadBatchBolt(new.parts), _must_name(new, _BATCH_RULE))


def _on_thread(new: NewTask, bolt: ThreadBolt, anchors: Anchors) -> BoltTask:
    recorder = new.recorder
    bolt.auto_ack = new.auto_ack
    bolt.calls = _careful_calls(new, bolt, recorder, anchors)
    recording_fails = _bound(new, bolt, recorder)
    locked = LockedBoltCollector(recording_fails, bolt.lock, new.host.wake)
    new.bind(locked)
    return bolt


def _shell_bolt(new: NewTask) -> BoltTask:
    from squall_engine.multilang.bolt import ShellBolt

    bolt, recorder = ShellBolt(new.parts), new.recorder
    bolt.auto_ack = new.auto_ack
    tracing = new.host.tracing
    own = None
    if tracing is not None:
        spans = tracing.of_child(new.parts)
        bolt.on_given, own = spans.begin, spans.settled
    # The task itself emits what its child emits.
    bolt.calls = _traced(new, _careful_calls(new, bolt, recorder, _no_anchors, own=own))
    new.bind(bolt.calls if recorder is None else recorder.recording_fails(bolt.calls, settles=True))
    return bolt


_BOLTS: dict[InvocationMode, Callable[[NewTask], BoltTask]] = {
    InvocationMode.SYNC: _plain_bolt,
    InvocationMode.COLUMNS: _column_bolt,
    InvocationMode.BATCH: _batch_bolt,
    InvocationMode.ASYNC: _async_bolt,
    InvocationMode.ASYNC_BATCH: _async_batch_bolt,
    InvocationMode.THREAD: _thread_bolt,
    InvocationMode.THREAD_BATCH: _thread_batch_bolt,
    InvocationMode.SHELL_BOLT: _shell_bolt,
}


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
    if own is not None:
        found.append(own)
    if len(found) < 2:
        return found[0] if found else None

    def settled(tup: Tuple, failed: bool) -> None:
        for each in found:
            each(tup, failed)

    return settled


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
