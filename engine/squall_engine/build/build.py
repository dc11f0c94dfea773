"""Makes the tasks of a worker: user objects, outputs, calls. After this the topology's description
is not looked at any more."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from squall_common.component.component import Spout
from squall_common.component.context import TopologyContext, WorkerContext
from squall_common.component.groupings import CustomGrouping
from squall_common.config.load import component_conf
from squall_common.errors import SquallError, describe
from squall_common.names import DEAD_LETTER_STREAM, is_system_id
from squall_common.topology.arguments import instantiate
from squall_common.topology.model import Component, GlobalStreamId, Grouping
from squall_engine.acking.dead_letters import Blame, Replays
from squall_engine.acking.suspects import Suspects
from squall_engine.core import (
    SHARES_EDGES,
    Batch,
    CarefulCalls,
    ColumnCalls,
    Edge,
    Emitter,
    Inspector,
    Ledger,
    Output,
    Source,
    Tuple,
    bind_spout,
    bind_sync_bolt,
)
from squall_engine.core.inspectors import Observer
from squall_engine.core.invocation import InvocationMode
from squall_engine.core.stats import TaskCounts
from squall_engine.grouping.routing import Balancers, make_grouper
from squall_engine.loading import ComponentStartError, feed_of
from squall_engine.plan import Plan
from squall_engine.tasks.async_ import CURRENT, AsyncBolt, AsyncSpout, asked_to_end
from squall_engine.tasks.base import (
    BatchBolt,
    BoltTask,
    ColumnBolt,
    Host,
    SpoutTask,
    SyncBolt,
    Task,
    take_all,
    trees_of,
)
from squall_engine.tasks.in_hand import InHand
from squall_engine.tasks.thread import Locked, ThreadBolt, ThreadSpout

_CALLS_MIN = 256
_SLEEP_KEY = "topology.sleep.spout.wait.strategy.time.ms"


class BuildHost(Host, Protocol):
    """The engine, as far as building needs it."""

    plan: Plan
    ledger: Ledger
    rng: random.Random
    edges: Edges
    observer: Observer | None
    make_object: Callable[[Component, int], Any]
    make_counts: Callable[[], TaskCounts]
    worker_context: WorkerContext
    balancers: Balancers | None
    inspector: Inspector | None
    replays: Replays | None
    hand: InHand | None
    suspects: Suspects | None

    def reject(self, component: str, task: int, error: Exception, roots: Collection[int]) -> None:
        """A tuple that cannot be delivered: report the error and fail its trees."""

    def die(self, error: BaseException) -> None:
        """The worker must end."""


class Edges:
    """The edges of a worker. With as many of them as tasks of one component times those of another,
    a turn would have a tuple or two for each: so the tasks of a component share theirs, apart from
    those that run on threads of their own."""

    def __init__(self, local_tasks: Collection[int]) -> None:
        self._local_tasks = local_tasks
        self._shared: dict[tuple[str, str, int], Edge] = {}

    def edge(self, target: int, source: Source, *, shared: bool) -> Edge:
        """From what one task emits on one stream to another task."""
        local = target in self._local_tasks
        if not (shared and SHARES_EDGES):
            return Edge(target, source, local=local)
        place = (*source.key, target)
        edge = self._shared.get(place)
        if edge is None:
            edge = self._shared[place] = Edge(target, source, local=local)
        return edge


@dataclass(slots=True)
class Built:
    """A task, ready to be opened or prepared. `ledger` is its own (a thread's), or None."""

    task: Task
    conf: Mapping[str, Any]
    context: TopologyContext
    ledger: Ledger | None
    own_conf: Mapping[str, Any]  # the component's own, without the topology's
    opened: bool = False  # open or prepare has returned: close or cleanup is owed


def build_task(host: BuildHost, task: int) -> Built:
    """Construct the user's object of a task and bind it. Raises ComponentStartError."""
    component = host.plan.component_of(task)
    user = host.make_object(component, task)
    feed = feed_of(user, component.id, task)
    conf = component_conf(host.worker_context.conf, component.conf)
    context = TopologyContext(host.worker_context, task, conf)
    threaded = feed in (InvocationMode.THREAD, InvocationMode.THREAD_NEXT_TUPLE)
    outputs = _outputs(host, component, task, context, shared=not threaded)
    made_of = (
        host,
        component.id,
        task,
        host.plan.executor_of[task],
        list(outputs.values()),
        host.make_counts(),
    )
    ledger = host.ledger.fresh() if threaded else host.ledger
    emitter = Emitter(
        component.id,
        task,
        outputs,
        ledger,
        host.rng.getrandbits,
        inspector=host.inspector,
        on_rejected=lambda error, roots: host.reject(component.id, task, error, roots),
    )
    built: Task
    if host.plan.is_spout(task):
        built = _spout(host, feed, made_of, user, conf, emitter, ledger, context)
    else:
        built = _bolt(host, feed, made_of, user, conf, emitter, ledger, context)
    built.user = user
    if feed in (InvocationMode.SHELL_BOLT, InvocationMode.SHELL_SPOUT):
        try:
            user.attach(built, conf, context, host.now)
        except SquallError as error:
            where = f"component {component.id!r}: {error.message}"
            raise ComponentStartError(component.id, task, where, hint=error.hint) from error
    return Built(built, conf, context, ledger if threaded else None, component.conf)


def _spout(
    host: BuildHost,
    feed: InvocationMode,
    made_of: Any,
    user: Any,
    conf: Mapping[str, Any],
    emitter: Emitter,
    ledger: Ledger,
    context: TopologyContext,
) -> SpoutTask:
    kinds: dict[InvocationMode, type[SpoutTask]] = {
        InvocationMode.ASYNC_NEXT_TUPLE: AsyncSpout,
        InvocationMode.THREAD_NEXT_TUPLE: ThreadSpout,
    }
    if feed is InvocationMode.SHELL_SPOUT:
        from squall_engine.multilang.spout import ShellSpout

        kinds[feed] = ShellSpout
    spout = kinds.get(feed, SpoutTask)(*made_of)
    spout.calls = bind_spout(
        emitter,
        ledger,
        spout.pending,
        host.turn,
        acker=host.plan.acker_of_spout(spout.task),
        on_error=_reporter(host, spout),
    )
    core_calls = spout.calls
    if host.replays is not None:
        replays = host.replays.of_spout(spout.component, spout.calls, spout.pending, host.wake)
        if replays is not None:
            spout.replays, spout.calls = replays, replays.recording()
    if host.suspects is not None:
        host.suspects.of_spout(spout, core_calls)
    pending_max = conf.get("topology.max.spout.pending")
    spout.pending_max = None if pending_max is None or not host.plan.acker_tasks else pending_max
    # A turn visits every task that has something: a message for each makes it worth its while.
    many = max(_CALLS_MIN, len(host.plan.local_tasks))
    spout.calls_max = int(conf.get("topology.spout.batch") or many)
    spout.listens = frozenset(
        call
        for call in ("ack", "fail")
        if getattr(getattr(user, call), "__func__", None) is not getattr(Spout, call)
    )
    spout.idle_secs_min = float(conf.get(_SLEEP_KEY) or 0) / 1000
    spout.dies = _dies(conf)
    spout.downstream = host.plan.downstream_of(spout.component)
    calls: Any = spout.calls
    if isinstance(spout, ThreadSpout):
        calls = Locked(calls, spout.lock, host.wake)
    elif feed is InvocationMode.ASYNC_NEXT_TUPLE:
        calls = _Waking(calls, host.wake)
    user._bind(calls, context)
    if feed is not InvocationMode.SHELL_SPOUT:
        object.__setattr__(user, "_squall_pending", spout.pending)  # as `_bind` sets its own
    return spout


def _bolt(
    host: BuildHost,
    feed: InvocationMode,
    made_of: Any,
    user: Any,
    conf: Mapping[str, Any],
    emitter: Emitter,
    ledger: Ledger,
    context: TopologyContext,
) -> BoltTask:
    auto_ack, auto_anchor = bool(user.auto_ack), bool(user.auto_anchor)
    blame = None
    if host.replays is not None:
        blame = Blame(host.replays, made_of[1], made_of[2])
    if feed is InvocationMode.SYNC and auto_anchor:
        bolt = SyncBolt(*made_of)
        bolt.auto_ack = auto_ack
        bolt.calls = bind_sync_bolt(
            emitter,
            ledger,
            bolt.counts,
            user.execute if blame is None else blame.guard(user.execute),
            auto_ack=auto_ack,
            on_error=_reporter(host, bolt, die=_dies(conf)),
            now=host.now,
            on_outside=bolt.stir,
            on_settled=_observing(host, bolt),
            hand=None if host.hand is None else host.hand.loop,
        )
        bound: Any = bolt.calls
        if blame is not None:
            bound = blame.noting(bound, user._calls, settles=False)
        user._bind(bound, context)
        return bolt
    if feed is InvocationMode.COLUMNS:
        fed = ColumnBolt(*made_of)
        fed.auto_ack = auto_ack
        fed.hand = host.hand
        fed.calls = ColumnCalls(
            emitter,
            ledger,
            fed.counts,
            user.execute_columns if blame is None else blame.guard_columns(user.execute_columns),
            auto_ack=auto_ack,
            auto_anchor=auto_anchor,
            default_anchors=_default_anchors(feed, _no_tuple, auto_anchor, fed.component),
            on_error=_reporter(host, fed, die=_dies(conf), blame=blame),
            on_settled=_observing(host, fed, blame),
            on_outside=fed.stir,
        )
        user._bind(fed.calls, context)
        return fed
    kinds: dict[InvocationMode, type[BoltTask]] = {
        InvocationMode.ASYNC: AsyncBolt,
        InvocationMode.THREAD: ThreadBolt,
        InvocationMode.BATCH: BatchBolt,
    }
    if feed is InvocationMode.SHELL_BOLT:
        from squall_engine.multilang.bolt import ShellBolt

        kinds[feed] = ShellBolt
    careful: Any = kinds.get(feed, OneByOneBolt)(*made_of)
    careful.auto_ack = auto_ack
    careful.hand = host.hand
    current: Callable[[], Tuple | None] = lambda: None  # noqa: E731
    if feed is InvocationMode.ASYNC:
        current = CURRENT.get
        careful.concurrency = int(conf.get("topology.bolt.async.concurrency") or 100)
    elif feed not in (InvocationMode.BATCH, InvocationMode.SHELL_BOLT):
        current = lambda: careful.current  # noqa: E731
    careful.calls = CarefulCalls(
        emitter,
        ledger,
        careful.counts,
        default_anchors=_default_anchors(feed, current, auto_anchor, careful.component),
        on_error=_reporter(host, careful, die=_dies(conf), blame=blame),
        on_settled=_observing(host, careful, blame),
        on_change=None if feed is InvocationMode.THREAD else careful.stir,
    )
    calls: Any = careful.calls
    if blame is not None:
        names = [*user._calls, "ack", "fail", "reset_timeout", "emit", "emit_direct"]
        calls = blame.noting(calls, names, settles=True)
    if isinstance(careful, ThreadBolt):
        calls = Locked(calls, careful.lock, host.wake)
    user._bind(calls, context)
    bolt_task: BoltTask = careful
    return bolt_task


class OneByOneBolt(BatchBolt):
    """`execute(tup)` with `auto_anchor` off: like a batch, one tuple at a time."""

    current: Tuple | None = None

    def work(self, batches: Sequence[Batch], count: int) -> int:
        hand = self.hand
        try:
            for tup in take_all(batches, count):
                self.current = tup
                cells = [] if hand is None else [hand.put(one, self.task) for one in trees_of(tup)]
                try:
                    self.user.execute(tup)
                except Exception as error:
                    if not tup.settled:
                        self.calls.fail(tup)
                    self.calls.report_error(error)
                else:
                    if self.auto_ack and not tup.settled:
                        self.calls.ack(tup)
                if hand is not None:
                    hand.clear_batch(cells)
        finally:
            self.current = None
        return count


class _Waking:
    """The calls of an async spout: what it emits between two turns must be sent."""

    def __init__(self, calls: Any, wake: Callable[[], None]) -> None:
        self._calls = calls
        self._wake = wake
        self.report_error = calls.report_error

    def emit(self, *args: Any, **kwargs: Any) -> Sequence[int]:
        ids: Sequence[int] = self._calls.emit(*args, **kwargs)
        self._wake()
        return ids

    def emit_direct(self, *args: Any, **kwargs: Any) -> Sequence[int]:
        ids: Sequence[int] = self._calls.emit_direct(*args, **kwargs)
        self._wake()
        return ids

    def emit_columns(self, *args: Any, **kwargs: Any) -> None:
        self._calls.emit_columns(*args, **kwargs)
        self._wake()


def _default_anchors(
    feed: InvocationMode, current: Callable[[], Tuple | None], auto_anchor: bool, component: str
) -> Callable[[], tuple[Tuple, ...]]:
    """The anchors of an emit that names none."""
    if not auto_anchor:
        return lambda: ()
    if feed in (InvocationMode.BATCH, InvocationMode.COLUMNS):
        what = (
            "in execute_batch, emit(values, anchors=...) must name the tuples that the values "
            "come from, or () for none"
            if feed is InvocationMode.BATCH
            else "in execute_columns, use emit_columns, or emit(values, anchors=()) for a tuple "
            "that is anchored to none"
        )

        def refuse() -> tuple[Tuple, ...]:
            raise TypeError(f"{component!r}: {what}")

        return refuse

    def of_current() -> tuple[Tuple, ...]:
        tup = current()
        return () if tup is None else (tup,)

    return of_current


def _observing(
    host: BuildHost, task: BoltTask, blame: Blame | None = None
) -> Callable[[Tuple, bool], None] | None:
    """What to call when a tuple was acked or failed."""
    observer = host.observer
    own = task.on_settled if type(task) is AsyncBolt else None
    if blame is not None:
        inner, blamed = own, blame.settled

        def own(tup: Tuple, failed: bool) -> None:
            blamed(tup, failed)
            if inner is not None:
                inner(tup, failed)

    if observer is None:
        return own

    def settled(tup: Tuple, failed: bool) -> None:
        observer.settled(task.component, task.task, tup, failed)
        if own is not None:
            own(tup, failed)

    return settled


def _no_tuple() -> Tuple | None:
    return None


def _dies(conf: Mapping[str, Any]) -> bool:
    return bool(conf.get("topology.bolt.die.on.error"))


def _reporter(
    host: BuildHost, task: Task, *, die: bool = False, blame: Blame | None = None
) -> Callable[[BaseException], None]:
    def report(error: BaseException) -> None:
        if blame is not None:
            blame.raised(error)
        host.report(task.component, task.task, error)
        if die:
            if host.hand is not None:
                host.hand.keep_last()
            host.die(error)

    return report


def _outputs(
    host: BuildHost, component: Component, task: int, context: TopologyContext, *, shared: bool
) -> dict[str, Output]:
    outputs = {}
    for stream, info in component.streams.items():
        if is_system_id(stream) and stream != DEAD_LETTER_STREAM:
            continue
        source = Source(component.id, task, stream, info.fields)
        output = Output(source, direct=info.direct)
        for consumer, grouping in host.plan.consumers_of(component.id, stream):
            edges = [
                host.edges.edge(target, source, shared=shared)
                for target in host.plan.tasks_of[consumer.id]
            ]
            try:
                grouper = make_grouper(
                    grouping,
                    source,
                    consumer.id,
                    edges,
                    local_tasks=host.plan.local_tasks,
                    rng=host.rng,
                    registry=host.worker_context.serialization,
                    make_custom=_custom_maker(context, GlobalStreamId(component.id, stream)),
                    balancers=host.balancers,
                )
            except Exception as error:
                raise ComponentStartError(
                    component.id,
                    task,
                    f"the grouping of {consumer.id!r} on stream {stream!r} of "
                    f"{component.id!r} cannot be used: {describe(error)}",
                ) from error
            output.add_consumer(grouper, edges)
        output.seal(fast=host.inspector is None)
        outputs[stream] = output
    return outputs


def _custom_maker(
    context: TopologyContext, stream: GlobalStreamId
) -> Callable[[Grouping, Sequence[int]], CustomGrouping]:
    def make(grouping: Grouping, targets: Sequence[int]) -> CustomGrouping:
        assert grouping.custom is not None
        custom = instantiate(grouping.custom)
        if not isinstance(custom, CustomGrouping):
            raise TypeError(f"{grouping.custom.class_path} is not a squall.CustomGrouping")
        custom.prepare(context, stream, tuple(targets))
        return custom

    return make


async def open_task(built: Built) -> None:
    """Call `open` or `prepare` (which may be a coroutine). Raises ComponentStartError."""
    task = built.task
    name = "open" if isinstance(task, SpoutTask) else "prepare"
    try:
        if isinstance(task, ThreadSpout | ThreadBolt):
            task.start_thread()
            await on_thread(task, lambda: getattr(task.user, name)(built.conf, built.context))
        else:
            result = getattr(task.user, name)(built.conf, built.context)
            if inspect.isawaitable(result):
                await result
        built.opened = True
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and asked_to_end():
            raise
        raise ComponentStartError(
            task.component,
            task.task,
            f"component {task.component!r}: {name}() failed: {describe(error)}",
        ) from error


async def on_thread(task: ThreadSpout | ThreadBolt, call: Callable[[], Any]) -> None:
    """Make a call on a component's thread and wait for it; what it raises comes through."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            call()
        except BaseException as raised:
            error = raised
        try:
            loop.call_soon_threadsafe(settle, error)
        except RuntimeError:
            pass  # the loop has ended, nobody waits any more

    task.call_on_thread(run)
    await done
