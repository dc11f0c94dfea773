"""The kinds of tasks, one function each: how a component is invoked, and what it is bound to.

A task's calls come from the core. The component is bound directly to them where possible. Where
something has to stand between (a lock, a wake-up, a memory of messages), it is bound to a collector
that delegates to them (`squall_common.component.collector`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from squall_common.component.collector import BoltCollector, SpoutCollector
from squall_common.component.component import Spout
from squall_common.component.context import TopologyContext
from squall_common.config.options.typed import TopologyOptions
from squall_engine.acking.dead_letters import Blame, Replays
from squall_engine.acking.suspects import Suspects
from squall_engine.core import (
    CarefulCalls,
    ColumnCalls,
    Emitter,
    Ledger,
    Tuple,
    bind_spout,
    bind_sync_bolt,
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
    replays: Replays | None
    hand: InHand | None
    suspects: Suspects | None


@dataclass(frozen=True, slots=True)
class Fresh:
    """The parts of a task that exist before its kind matters."""

    host: KindHost
    feed: InvocationMode
    parts: TaskParts
    user: Any  # the component's object, or what runs it as a child process: of any class
    options: TopologyOptions
    emitter: Emitter
    ledger: Ledger
    context: TopologyContext

    @property
    def blame(self) -> Blame | None:
        """Notes why tuples fail here; None without `topology.max.replays`."""
        replays = self.host.replays
        if replays is None:
            return None
        return Blame(replays, self.parts.component, self.parts.task)

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


def make_spout(fresh: Fresh) -> SpoutTask:
    """Make a spout's task and bind its component."""
    return _SPOUTS[fresh.feed](fresh)


def _plain_spout(fresh: Fresh) -> SpoutTask:
    spout = SpoutTask(fresh.parts)
    _set_up(fresh, spout)
    _bind_spout(fresh, spout, spout.collector)
    return spout


def _async_spout(fresh: Fresh) -> SpoutTask:
    spout = AsyncSpout(fresh.parts)
    _set_up(fresh, spout)
    _bind_spout(fresh, spout, WakingSpoutCollector(spout.collector, fresh.host.wake))
    return spout


def _thread_spout(fresh: Fresh) -> SpoutTask:
    spout = ThreadSpout(fresh.parts)
    _set_up(fresh, spout)
    locked = LockedSpoutCollector(spout.collector, spout.lock, fresh.host.wake)
    _bind_spout(fresh, spout, locked)
    return spout


def _shell_spout(fresh: Fresh) -> SpoutTask:
    from squall_engine.multilang.spout import ShellSpout

    spout = ShellSpout(fresh.parts)
    _set_up(fresh, spout)
    fresh.bind(spout.collector)
    return spout


_SPOUTS: dict[InvocationMode, Callable[[Fresh], SpoutTask]] = {
    InvocationMode.NEXT_TUPLE: _plain_spout,
    InvocationMode.ASYNC_NEXT_TUPLE: _async_spout,
    InvocationMode.THREAD_NEXT_TUPLE: _thread_spout,
    InvocationMode.SHELL_SPOUT: _shell_spout,
}


def _set_up(fresh: Fresh, spout: SpoutTask) -> None:
    """Set what all spouts have in common: their calls, and how often they may be asked."""
    host, options, user = fresh.host, fresh.options, fresh.user
    spout.calls = bind_spout(
        fresh.emitter,
        fresh.ledger,
        spout.pending,
        host.turn,
        acker=host.plan.acker_of_spout(spout.task),
        on_error=_reporter(fresh, spout),
    )
    spout.collector = spout.calls
    if host.replays is not None:
        replays = host.replays.of_spout(spout.component, spout.calls, spout.pending, host.wake)
        if replays is not None:
            spout.replays, spout.collector = replays, replays.recording()
    if host.suspects is not None:
        host.suspects.of_spout(spout)
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
    spout.dies = fresh.dies
    spout.on_asking_raised = host.callbacks.on_asking_raised
    spout.downstream = host.plan.downstream_of(spout.component)


def _bind_spout(fresh: Fresh, spout: SpoutTask, collector: SpoutCollector) -> None:
    fresh.bind(collector)
    object.__setattr__(fresh.user, "_squall_pending", spout.pending)  # as `_bind` sets its own


# -- bolts --


def make_bolt(fresh: Fresh) -> BoltTask:
    """Make a bolt's task and bind its component."""
    return _BOLTS[fresh.feed](fresh)


def _plain_bolt(fresh: Fresh) -> BoltTask:
    return _sync_bolt(fresh) if fresh.auto_anchor else _one_by_one_bolt(fresh)


def _sync_bolt(fresh: Fresh) -> BoltTask:
    host, user, blame = fresh.host, fresh.user, fresh.blame
    bolt = SyncBolt(fresh.parts)
    bolt.auto_ack = fresh.auto_ack
    bolt.calls = bind_sync_bolt(
        fresh.emitter,
        fresh.ledger,
        bolt.counts,
        user.execute if blame is None else blame.guard(user.execute),
        auto_ack=bolt.auto_ack,
        on_error=_reporter(fresh, bolt, die=fresh.dies),
        now=host.now,
        on_outside=bolt.stir,
        on_settled=_observing(fresh, bolt),
        hand=None if host.hand is None else host.hand.loop,
    )
    bound: BoltCollector[Tuple] = bolt.calls
    if blame is not None:
        bound = blame.noting(bound, settles=False)
    fresh.bind(bound)
    return bolt


def _column_bolt(fresh: Fresh) -> BoltTask:
    host, user, blame = fresh.host, fresh.user, fresh.blame
    bolt = ColumnBolt(fresh.parts)
    bolt.auto_ack = fresh.auto_ack
    bolt.hand = host.hand
    bolt.calls = ColumnCalls(
        fresh.emitter,
        fresh.ledger,
        bolt.counts,
        user.execute_columns if blame is None else blame.guard_columns(user.execute_columns),
        auto_ack=bolt.auto_ack,
        auto_anchor=fresh.auto_anchor,
        default_anchors=_must_name(
            fresh,
            "in execute_columns, use emit_columns, or emit(values, anchors=()) for a tuple "
            "without anchors",
        ),
        on_error=_reporter(fresh, bolt, die=fresh.dies, blame=blame),
        on_settled=_observing(fresh, bolt, blame),
        on_outside=bolt.stir,
    )
    fresh.bind(bolt.calls)
    return bolt


def _batch_bolt(fresh: Fresh) -> BoltTask:
    bolt, blame = BatchBolt(fresh.parts), fresh.blame
    bolt.auto_ack = fresh.auto_ack
    bolt.calls = _careful_calls(fresh, bolt, blame, _must_name(fresh, _BATCH_RULE))
    fresh.bind(_noting(bolt.calls, blame))
    return bolt


def _one_by_one_bolt(fresh: Fresh) -> BoltTask:
    bolt, blame = OneByOneBolt(fresh.parts), fresh.blame
    bolt.auto_ack = fresh.auto_ack
    bolt.calls = _careful_calls(fresh, bolt, blame, _no_anchors)
    fresh.bind(_noting(bolt.calls, blame))
    return bolt


def _async_bolt(fresh: Fresh) -> BoltTask:
    bolt, blame = AsyncBolt(fresh.parts), fresh.blame
    bolt.auto_ack = fresh.auto_ack
    bolt.concurrency = fresh.options.topology_bolt_async_concurrency
    anchors = _current(fresh, CURRENT.get)
    bolt.calls = _careful_calls(fresh, bolt, blame, anchors, own=bolt.on_settled)
    fresh.bind(_noting(bolt.calls, blame))
    return bolt


def _async_batch_bolt(fresh: Fresh) -> BoltTask:
    bolt, blame = AsyncBatchBolt(fresh.parts), fresh.blame
    bolt.auto_ack = fresh.auto_ack
    bolt.concurrency = fresh.options.topology_bolt_async_concurrency
    bolt.calls = _careful_calls(fresh, bolt, blame, _must_name(fresh, _BATCH_RULE))
    fresh.bind(_noting(bolt.calls, blame))
    return bolt


def _thread_bolt(fresh: Fresh) -> BoltTask:
    bolt = ThreadBolt(fresh.parts)
    return _on_thread(fresh, bolt, _current(fresh, lambda: bolt.current))


def _thread_batch_bolt(fresh: Fresh) -> BoltTask:
    return _on_thread(fresh, ThreadBatchBolt(fresh.parts), _must_name(fresh, _BATCH_RULE))


def _on_thread(fresh: Fresh, bolt: ThreadBolt, anchors: Anchors) -> BoltTask:
    blame = fresh.blame
    bolt.auto_ack = fresh.auto_ack
    bolt.calls = _careful_calls(fresh, bolt, blame, anchors)
    noting = _noting(bolt.calls, blame)
    locked = LockedBoltCollector(noting, bolt.lock, fresh.host.wake)
    fresh.bind(locked)
    return bolt


def _shell_bolt(fresh: Fresh) -> BoltTask:
    from squall_engine.multilang.bolt import ShellBolt

    bolt, blame = ShellBolt(fresh.parts), fresh.blame
    bolt.auto_ack = fresh.auto_ack
    bolt.calls = _careful_calls(fresh, bolt, blame, _no_anchors)
    fresh.bind(_noting(bolt.calls, blame))
    return bolt


_BOLTS: dict[InvocationMode, Callable[[Fresh], BoltTask]] = {
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
    fresh: Fresh,
    bolt: BoltTask,
    blame: Blame | None,
    anchors: Anchors,
    *,
    own: OnSettled | None = None,
) -> CarefulCalls:
    """The calls of a bolt that may have several tuples in flight. `own` is the task's callback for
    when a tuple was acked or failed."""
    bolt.hand = fresh.host.hand
    return CarefulCalls(
        fresh.emitter,
        fresh.ledger,
        bolt.counts,
        default_anchors=anchors,
        on_error=_reporter(fresh, bolt, die=fresh.dies, blame=blame),
        on_settled=_observing(fresh, bolt, blame, own),
        # A thread's calls wake the engine themselves, and its buffers are looked at every turn.
        on_change=None if isinstance(bolt, ThreadBolt) else bolt.stir,
    )


def _noting(calls: BoltCollector[Tuple], blame: Blame | None) -> BoltCollector[Tuple]:
    return calls if blame is None else blame.noting(calls, settles=True)


def _no_anchors() -> tuple[Tuple, ...]:
    return ()


def _current(fresh: Fresh, current: Callable[[], Tuple | None]) -> Anchors:
    """Anchor an emit that names no anchors to the tuple in execution."""
    if not fresh.auto_anchor:
        return _no_anchors

    def of_current() -> tuple[Tuple, ...]:
        tup = current()
        return () if tup is None else (tup,)

    return of_current


def _must_name(fresh: Fresh, rule: str) -> Anchors:
    """Refuse an emit that names no anchors, citing this rule: several tuples are in execution."""
    if not fresh.auto_anchor:
        return _no_anchors

    def refuse() -> tuple[Tuple, ...]:
        raise TypeError(f"{fresh.parts.component!r}: {rule}")

    return refuse


def _observing(
    fresh: Fresh, task: BoltTask, blame: Blame | None = None, own: OnSettled | None = None
) -> OnSettled | None:
    """The function to call when a tuple was acked or failed: for the observer, for blame and for
    the task, as far as they exist."""
    found: list[OnSettled] = []
    observer = fresh.host.observer
    if observer is not None:
        observed, component, number = observer.settled, task.component, task.task
        found.append(lambda tup, failed: observed(component, number, tup, failed))
    if blame is not None:
        found.append(blame.settled)
    if own is not None:
        found.append(own)
    if len(found) < 2:
        return found[0] if found else None

    def settled(tup: Tuple, failed: bool) -> None:
        for each in found:
            each(tup, failed)

    return settled


def _reporter(
    fresh: Fresh, task: Task, *, die: bool = False, blame: Blame | None = None
) -> Callable[[BaseException], None]:
    host = fresh.host

    def report(error: BaseException) -> None:
        if blame is not None:
            blame.raised(error)
        host.report(task.component, task.task, error)
        if die:
            if host.hand is not None:
                host.hand.keep_last()
            host.die(error)

    return report
