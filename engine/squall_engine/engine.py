"""The run loop: runs the executors of one worker in turns, on one thread.

    turn:  drain the transport -> rotate a timeout bucket -> ticks -> spouts
           -> bolts, sources before consumers -> settle acks -> send

A turn is plain synchronous code with a budget of `topology.run.turn.ms` and `topology.spout.batch`
calls for each spout; the event loop runs between two turns. The tuples that the tasks of a
component emitted are flushed right after these tasks ran, so a tuple passes the whole chain of a
worker within one turn. Everything that a turn has for another worker leaves in one batch at its
end, so batches adapt to the load.

When a turn has found nothing to do, the next one waits for a timer (a spout's idle wait, a tick, a
timeout), for the transport, or for `wake`. A turn in which nothing has arrived, no spout has
emitted and `_schedule` was not called ends after the spouts: most turns of an idle worker are that
short.

Rejected: an asyncio task and a queue for each task (four times the CPU on one worker, twenty times
across two), and a thread for each executor (there is one interpreter lock).
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from squall_common.cluster.values import ExecutorStats
from squall_common.component.checkpoints import Place, option_refusals
from squall_common.component.context import (
    CurrentCredentials,
    WorkerContext,
    WorkerTopologyContext,
)
from squall_common.component.refusals import refuse
from squall_common.component.shared_threads import SharedThreads
from squall_common.component.state import KeyValueState
from squall_common.daemon import compiled_modules
from squall_common.daemon.clock import Clock, SystemClock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError, describe
from squall_common.names import ACKER_COMPONENT, SYSTEM_COMPONENT, SYSTEM_TASK
from squall_common.telemetry.sums import ComponentSums
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.topology.serialization import Registry
from squall_engine import core
from squall_engine.acking.coordinator import AckCoordinator
from squall_engine.acking.dead_letters import LOST, DeadLetters, Reason, roots_of
from squall_engine.acking.suspects import Suspects
from squall_engine.build.build import Edges, build_task, open_task
from squall_engine.build.close import close_components, finish
from squall_engine.core import Edge, Inspector, Tuple, TurnState
from squall_engine.core.codec import CodecError, ValueCodec
from squall_engine.core.inspectors import (
    DebugInspector,
    Observer,
    ObservingInspector,
    SerializingInspector,
)
from squall_engine.core.known_classes import component_modules
from squall_engine.core.sections import (
    ACKS,
    EPOCHS,
    METRICS,
    TRACES,
    TUPLES,
    AcksSection,
    TuplesSection,
)
from squall_engine.core.stats import Totals
from squall_engine.core.values import Source
from squall_engine.dataflow.flow import Flow
from squall_engine.dataflow.marks import MarkOut, marks_of
from squall_engine.dataflow.outgoing import TupleBuffer
from squall_engine.dataflow.remote import Exchange
from squall_engine.engine_life import EngineEvent, EngineLife, EngineState, TurnReason
from squall_engine.grouping.routing import Balancers
from squall_engine.hooks.worker_hooks import WorkerHooks
from squall_engine.loading import ComponentStartError
from squall_engine.observe.component_sums import ComponentReadings
from squall_engine.observe.error_log import ErrorLog
from squall_engine.observe.error_source import source_of
from squall_engine.observe.given import messages_of
from squall_engine.observe.loop_advice import user_of
from squall_engine.observe.readings import BLOCKED, SENT, ExecutorReadings, add_totals, calls_max
from squall_engine.options import EngineOptions
from squall_engine.plan import Plan
from squall_engine.settings import EngineCallbacks, EngineSettings
from squall_engine.state.task_states import TaskStates
from squall_engine.switch_interval import Wish
from squall_engine.tasks.base import HOLD_SECS, Task
from squall_engine.tasks.bolt import BoltTask
from squall_engine.tasks.built import Built
from squall_engine.tasks.in_hand import Before, InHand
from squall_engine.tasks.spout import SpoutTask
from squall_engine.tasks.thread import ThreadBolt, ThreadSpout
from squall_engine.timing import Every, Rotation, Ticks, Timer, Timers, share_interpreter
from squall_engine.transport import Grant, Transport

if TYPE_CHECKING:
    from squall_engine.epochs.driver import EpochDriver
    from squall_engine.tracing.trees import TreeTracing

log = get_logger(__name__)

_RECEIVE_BYTES = 1024 * 1024  # drained from the transport in a turn
_LOADS_SECS = 1.0  # how often shuffles look at the load of their targets
_STATS_SECS = 30.0  # the finest bucket of the statistics' windows
_TIMER_SECS_MIN = 0.001  # uvloop's timers are whole milliseconds; a shorter one spins
_DRAIN_POLL_SECS = 0.005
_NO_CALLBACKS = EngineCallbacks()
_FREE = (bytes([TRACES]), bytes([METRICS]))  # sections that no tree needs
# As plain ints: see `TurnReason`.
_ACTIVITY, _ARRIVED, _TIMED, _PUT_OFF = map(int, TurnReason)
_ENDING = frozenset({EngineState.CLOSING, EngineState.STOPPED})


class Engine:
    """Runs the tasks of one worker on the running event loop.

    Life: construct -> `await start()` -> `set_routes`, `set_ready(True)`, `set_active(True)` in
    any order and as often as things change -> `await stop(drain_secs)`. Call all methods on the
    loop's thread, except `wake`; any thread may call it, and may read `turn_started`.
    """

    turn_started: float | None
    """Clock.monotonic() when the current turn began; None between turns. For the heartbeat
    thread: turn age = monotonic() - turn_started."""

    receive_metrics: Callable[[bytes], None] | None
    """Called with each METRICS section from another worker."""

    receive_epochs: Callable[[WorkerSlot, bytes], None] | None
    """Called with each EPOCHS section from another worker that is not for the fence."""

    after_turn: Callable[[], None] | None
    """Called after each turn, and at the end, while an embedder waits (see `embed`)."""

    fatal: BaseException | None
    """The error that the engine died of, once `on_fatal` was called with it."""

    def __init__(
        self,
        settings: EngineSettings,
        callbacks: EngineCallbacks = _NO_CALLBACKS,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
        observer: Observer | None = None,
        in_hand: InHand | None = None,
        before: Before | None = None,
    ) -> None:
        """Without a `transport`, every task is local. `observer` sees everything that happens (for
        the test kit; it costs time). `in_hand` is where this worker notes the messages that it has
        in hand; `before` has the notes of its predecessor in this slot.

        Raises SquallError for a component that no worker can run (Java bytes)."""
        self.turn_started = self.receive_metrics = self.receive_epochs = None
        self.after_turn = self.fatal = None
        prepared, conf = settings.prepared, settings.conf
        topology, topology_id = prepared.topology, settings.topology_id
        self.conf = conf
        self.options = EngineOptions(topology, conf)
        options = self.options.topology
        self.plan = Plan(
            topology,
            prepared.task_to_component,
            settings.executors,
            near=settings.near,
            marks=marks_of(topology, self.options) if settings.marks else {},
        )
        self.callbacks = callbacks
        clock = clock or SystemClock()
        self.now = clock.monotonic
        self._timers = Timers()
        self.observer = observer
        self._error_log = ErrorLog(
            self.now,
            callbacks.on_reported,
            options,
            lambda error: source_of(error, self.built),
            lambda component: user_of(component, self.built),
        )
        self.report = self._error_log.report
        self.held_loop = self._error_log.held_loop
        self.rng = random.Random(os.urandom(32) if settings.seed is None else settings.seed)
        registry = Registry.of(options)
        make_codec = self.make_codec = partial(
            ValueCodec,
            registry,
            allow_pickle=options.topology_fall_back_on_pickle,
            modules=component_modules(topology),
        )

        worker = settings.worker or str(settings.slot)
        self.epochs: EpochDriver | None = None
        interval = options.topology_checkpoint_interval_secs
        if settings.epochs is None and interval is not None:
            refuse(option_refusals(options, Place.ENGINE))
        if settings.epochs is not None:
            from squall_engine.epochs.driver import EpochDriver

            self.epochs = EpochDriver(self, settings.epochs, make_codec, registry, worker=worker)
        self.worker_context = WorkerContext(
            topology_id=topology_id,
            topology=topology,
            conf=conf,
            task_to_component=self.plan.task_to_component,
            worker_tasks=tuple(sorted(self.plan.local_tasks)),
            worker_port=settings.slot.port,
            code_dir=settings.code_dir,
            pid_dir=settings.pid_dir,
            wake=self._wake_spouts,
            serialization=registry,
            now=self.now,
            time=clock.time,
            call_later=self._call_later,
            shared_threads=SharedThreads(options.topology_worker_shared_thread_pool_size),
            make_counter=core.Counter,
            open_state=callbacks.open_state or self._open_state,
            credentials=CurrentCredentials(settings.credentials),
            identity_tokens=settings.identity_tokens,
        )
        self._worker_hooks = WorkerHooks(topology.worker_hooks, callbacks.make_hook)
        codec = make_codec()
        self.states: TaskStates | None = None
        if callbacks.open_state is None and self.epochs is None:
            self.states = TaskStates.of(
                self.plan,
                self.options,
                make_codec,
                topology_id=topology_id,
                registry=registry,
                now=self.now,
            )
        self._checker: SerializingInspector | None = None
        self.inspector = self._make_inspector(codec)

        now = self.now()
        self.turn = TurnState(now)
        self._transport = transport
        self._exchange = Exchange(self.plan, codec, transport, self.reject, self._fail_lost)
        self._fence = None if settings.epochs is None else settings.epochs.fence
        self._exchange.fence = self._fence
        self.dead_letters = DeadLetters.of(
            self.plan, self._exchange, codec, self.options, worker, settings.log_dir
        )
        self.in_hand = in_hand
        self.suspects: Suspects | None = None
        if in_hand is not None:
            self.suspects = Suspects(
                self.plan,
                self._exchange,
                codec,
                registry,
                self.options,
                in_hand,
                now=self.now,
                report=self.report,
                wake=self.wake,
                before=before,
            )
        self._flow = Flow(self.plan, self._exchange, transport, options, self.turn)
        self.tracing: TreeTracing | None = None
        if settings.tracer_provider is not None:
            from squall_engine.tracing.trees import TreeTracing

            self.tracing = TreeTracing(
                settings.tracer_provider,
                options.topology_tracing_sample_rate,
                self.rng,
                self._exchange.send_ahead,
            )
        self._coordinator = AckCoordinator(
            self.plan,
            self._exchange,
            self.turn,
            self.rng.getrandbits,
            timeouts=options.topology_enable_message_timeouts,
            dead_letters=self.dead_letters,
        )
        self._coordinator.suspects = self.suspects
        self.ledger = self._coordinator.ledger
        self.built: list[Built] = []
        self.edges = Edges(self.plan.local_tasks, self.plan.near_tasks)
        self.balancers: Balancers | None = None
        if not options.topology_disable_loadaware_messaging:
            self.balancers = Balancers(options, self.rng)
        self._readings = ExecutorReadings(
            self.plan.executors,
            self._add_totals,
            lambda task: self._flow.task_of.get(task),
            self._flow.credit,
            is_spout=lambda executor: self.plan.is_spout(executor.task_start),
            component_of=lambda executor: self.plan.component_of(executor.task_start).id,
            now=now,
        )

        self._component_readings: ComponentReadings | None = None  # once somebody watches

        self._turn_secs = options.topology_run_turn_ms / 1000.0
        self._rotation = Rotation(options.topology_message_timeout_secs / 10.0, now)
        self._ticks = Ticks()
        self._stats_due = Every(_STATS_SECS, now)
        self._loads_due = Every(_LOADS_SECS, now)

        self._active = False
        self._ready = transport is None and self.epochs is None
        self._may_turn = callbacks.may_turn
        self._life = EngineLife()
        self._fault: BaseException | None = None  # what has ended its turns
        self._stopped: asyncio.Future[bool] | None = None  # not None once it was asked to stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._interpreter_shared: Wish | None = None  # until it takes no more turns
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._why = _ACTIVITY  # the reasons for the next turn, or for this one
        self._due = now  # when the first of ticks, timeout buckets, loads and statistics is due
        self._clock_due = now  # the first of ticks and statistics: these end a wait

    def _make_inspector(self, codec: ValueCodec) -> Inspector | None:
        inspector: Inspector | None = None
        debugged = {
            id for id in self.plan.topology.components if self.options.of(id).topology_debug
        }
        if debugged:
            inspector = DebugInspector(debugged)
        if self.observer is not None:
            inspector = ObservingInspector(self.observer, inspector)
        if self.options.topology.topology_testing_always_try_serialize:
            inspector = self._checker = SerializingInspector(codec, self._on_mutated, inspector)
        return inspector

    # ---- life ----

    async def start(self) -> None:
        """Start the worker hooks, construct the components, `open` or `prepare` them in task order,
        and begin to take turns. Spouts emit nothing until the engine is active and ready. Raises
        ComponentStartError, after reporting it, and WorkerHookError."""
        self._happened(EngineEvent.START_REQUESTED)
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._interpreter_shared = share_interpreter(self._turn_secs)
        try:
            await self._worker_hooks.start(self.conf, WorkerTopologyContext(self.worker_context))
            if self.states is not None:
                await self.states.open()
            for task in sorted(self.plan.local_user_tasks()):
                built = build_task(self, task)
                self.built.append(built)
                await open_task(built)
                if self.epochs is not None:
                    await self.epochs.restore(built)
                if self._life.state in _ENDING:
                    await close_components([built], self.report)
                    raise SquallError("the engine was stopped while it started")
        except BaseException as error:
            if isinstance(error, ComponentStartError):
                cause = error.__cause__  # an exception of the user's has a traceback to show
                if cause is None or isinstance(cause, SquallError):
                    cause = error
                self.report(error.component, error.task, cause)
            self._let_interpreter()
            if self._happened(EngineEvent.START_FAILED):
                await self._close()
            raise
        if self.suspects is not None:
            self.suspects.begin()
        self._flow.wire(self.built, None if self.tracing is None else self.tracing.follow)
        if self.epochs is not None:
            self.epochs.wire(self._flow)
        self._coordinator.attach(self._flow.spouts)
        now = self.now()
        for one in self.built:
            freq = one.options.topology_tick_tuple_freq_secs
            if freq and isinstance(one.task, BoltTask):
                self._ticks.add(one.task, freq, now)
        self._flow.flush_all()
        self._happened(EngineEvent.TASKS_OPENED)
        if self.states is not None:
            self.states.begin(self._call_later)
        modules = "compiled" if compiled_modules.are_used() else "python"
        tasks = len(self.plan.local_tasks)
        log.info("engine_started", core=core.NAME, modules=modules, tasks=tasks)
        if self._transport is not None:
            self._transport.set_wakeup(self._on_arrival, self)
        self._apply_active()

    def resume(self) -> None:
        """Take the turns that were put off, now that `may_turn` returns True again."""
        if self._transport is not None:
            self._why |= _ARRIVED
        self._schedule()

    async def stop(self, drain_secs: float) -> bool:
        """Stop the spouts, let tuples in flight finish for at most `drain_secs`, then deactivate,
        close and clean up every component. Returns True when this worker had drained: its inboxes
        were empty, and the trees of its spouts settled. Idempotent."""
        if self._stopped is not None:
            return await asyncio.shield(self._stopped)
        self._stopped = asyncio.get_running_loop().create_future()
        drained = False
        try:
            self._happened(EngineEvent.STOP_REQUESTED)
            self._apply_active()
            if self.states is not None:
                self.states.hurry()
            deadline = self.now() + drain_secs
            while self._life.turns and not (drained := self.is_drained()):
                left = deadline - self.now()
                if left <= 0:
                    break
                self._schedule()
                await asyncio.sleep(min(_DRAIN_POLL_SECS, max(left, _TIMER_SECS_MIN)))
            alive = self._life.turns
            closes = self._happened(EngineEvent.DRAIN_ENDED)
            if self._timer is not None:
                self._timer.cancel()
            if alive:
                self._give_up()
            if closes:
                await self._close(late=drain_secs > 0 and not drained)
            if alive:
                self._coordinator.detach()
                self._give_up()  # what was acked in cleanup, and coroutines that were cancelled
        finally:
            self._let_interpreter()
            self._stopped.set_result(drained)
        return drained

    def _let_interpreter(self) -> None:
        """It takes no more turns, which other threads would wait for."""
        if self._interpreter_shared is not None:
            self._interpreter_shared.end()

    def _give_up(self) -> None:
        """Send the last acks, and fail now what this worker can no longer finish: the peers believe
        that it was delivered, and its trees would wait for their timeout. Nothing more is received:
        what was not taken goes to the next worker of this slot."""
        if self._transport is not None:
            self._flow.catch_up(self.ledger)
            self._fail_lost(self._flow.give_up())
            self._coordinator.settle()
            self._coordinator.give_up()
            self._exchange.flush()

    async def _close(self, *, late: bool = False) -> None:
        """End the components. Called by the one whose event brought the engine into CLOSING."""
        left = await close_components(self.built, self.report, late=late)
        if self.states is not None:
            await self.states.close()
        # They were failed: after that, since the last note counts.
        if self.dead_letters is not None:
            self.dead_letters.note([root for tup in left for root in roots_of(tup)], LOST)
        await self._worker_hooks.shutdown(
            finish, lambda error: self.report(SYSTEM_COMPONENT, SYSTEM_TASK, error)
        )
        self.worker_context.shared_threads.close()
        self._happened(EngineEvent.COMPONENTS_CLOSED)

    def _happened(self, event: EngineEvent) -> bool:
        """Record an event. Returns whether it led to another state. From any thread."""
        return self._life.happened(event, self.now())

    @property
    def state(self) -> EngineState:
        return self._life.state

    def validate(self) -> None:
        """Assert what must be true between two events, on the loop's thread. Raises
        ContradictionError, which shows the events that led there."""
        state = self._life.state
        with self._life.story.checking(self._life):
            if state is EngineState.NEW:
                assert not self.built, "components before the start"
            if state is EngineState.RUNNING:
                assert self._stopped is None, "running, although it was asked to stop"
            if state is EngineState.DRAINING:
                assert self._stopped is not None, "draining, although it was not asked to stop"
            if state is EngineState.DEAD:
                assert self._fault is not None, "dead without a fault"
            if self._life.turns:
                assert self._fault is None, "turning despite a fault"
                # Otherwise it would sleep until `wake` is called, whatever is due.
                ahead = self._scheduled or self._timer is not None or self._why & _PUT_OFF
                assert ahead or self.turn_started is not None, "no turn is scheduled"
            if self._fault is None:
                assert self.fatal is None, "on_fatal was called without a fault"

    def is_drained(self) -> bool:
        """Whether nothing of this worker is in flight."""
        return self._flow.is_drained

    # ---- called by the worker process ----

    def set_active(self, active: bool) -> None:
        """Set whether the topology is ACTIVE. Spouts emit only then; calls their activate() or
        deactivate()."""
        self._active = active
        self._apply_active()

    def set_ready(self, ready: bool) -> None:
        """Set whether the connections that the spouts need are up (at first True without a
        transport, False with one)."""
        self._ready = ready
        if ready and self.suspects is not None:
            self.suspects.ready()
        self._schedule()

    def _apply_active(self) -> None:
        for spout in self._flow.spouts:
            spout.set_active(self._active and self._stopped is None)
        self._schedule()

    def set_routes(self, routes: Mapping[int, WorkerSlot]) -> None:
        """Set where every task of the topology runs now; entries for tasks of this worker are
        ignored. Tuples for a task without a route wait; above a bound the oldest are dropped, and
        replayed because of acking."""
        self._flow.set_routes(routes)
        self._schedule()

    def worker_lost(self, tasks: Collection[int]) -> None:
        """React to the unexpected exit of a worker that ran `tasks`: fail, once and in portions,
        the pending roots of each local spout whose downstream components or ackers are among them
        (`topology.fail.on.worker.loss`)."""
        if self.options.topology.topology_fail_on_worker_loss:
            self._coordinator.worker_lost(tasks)
            self._schedule()
        if self.suspects is not None:
            self.suspects.lost()

    def sections_dropped(self, sections: Sequence[bytes]) -> None:
        """React to sections that will never reach their worker: fail the trees that need them, so
        that their spouts, on any worker, are notified now (`topology.fail.on.worker.loss`)."""
        if not self.options.topology.topology_fail_on_worker_loss:
            return
        # What was for a spout is useless without it; a lost fail or reset only causes a delay.
        kept = (section for section in sections if section[:1] not in _FREE)
        for section in self._exchange.read(kept):
            if isinstance(section, TuplesSection):
                self._fail_lost(section.trees())
            elif isinstance(section, AcksSection):
                self._coordinator.give_up_acks(section)
                self._schedule()

    def _fail_lost(self, roots: Collection[int]) -> None:
        """Fail trees without blaming a component."""
        if self.dead_letters is not None:
            self.dead_letters.note(roots, LOST)
        self.ledger.fail(roots)
        self._schedule()

    def wake(self) -> None:
        """Take a turn soon. Safe from any thread."""
        if threading.get_ident() == self._thread_id:
            self._schedule()
        elif self._loop is not None and not (self._scheduled and self._why & _ACTIVITY):
            # (Tested in this order: the turn must be a whole one, and come after this call.)
            try:
                self._loop.call_soon_threadsafe(self._schedule)
            except RuntimeError:
                pass  # the loop is closed: nothing turns any more

    def _wake_spouts(self) -> None:
        """`context.wake()`: end the idle waits of the spouts."""
        for spout in self._flow.spouts:
            spout.wake()
        self.wake()

    def wrap_edges(self, wrap: Callable[[Edge], TupleBuffer | None]) -> None:
        """Insert an object between the tasks' buffers and their outgoing edges: see
        `Flow.wrap_edges`."""
        self._flow.wrap_edges(wrap)

    def stats(self, executors_max: int | None = None) -> dict[Executor, ExecutorStats]:
        """Statistics of this worker's executors for the heartbeat; counts are exact. With more than
        `executors_max` executors they are sums by component: see `ExecutorReadings.stats`."""
        return self._readings.stats(executors_max)

    def component_sums(self) -> dict[str, ComponentSums]:
        """Sums by component of what this worker's executors have done: see `ComponentReadings`."""
        if self._component_readings is None:
            self._component_readings = ComponentReadings(
                self.plan.executors,
                self._add_totals,
                lambda executor: self.plan.component_of(executor.task_start).id,
                is_spout=lambda executor: self.plan.is_spout(executor.task_start),
                calls_max=lambda executor: calls_max(
                    task
                    for number in executor.tasks
                    if (task := self._flow.task_of.get(number)) is not None
                ),
            )
        return self._component_readings.read(self.now())

    def _open_state(self, component: str, task: int) -> KeyValueState | None:
        if self.epochs is not None:
            return self.epochs.open_state(component, task)
        stored = None if self.states is None else self.states.get(task)
        return None if stored is None else stored.state

    def _add_totals(self, task_id: int, totals: Totals) -> None:
        task = self._flow.task_of.get(task_id)
        if task is not None:
            add_totals(task, totals)
            for component, secs in self._flow.waits(task, self.now()).items():
                totals[BLOCKED, component] = totals.get((BLOCKED, component), 0) + secs
            for component, octets in self._flow.sent(task).items():
                totals[SENT, component] = totals.get((SENT, component), 0) + octets
        elif self.plan.task_to_component[task_id] == ACKER_COMPONENT:
            self._coordinator.add_to(totals, task_id)

    # ---- called by tasks, and while they are made ----

    def mark_out(self, bolt: BoltTask) -> MarkOut:
        """Where the marks of event time of a task go."""
        return MarkOut(self._flow, bolt)

    def reject(self, component: str, task: int, error: Exception, roots: Collection[int]) -> None:
        """React to tuples that cannot be delivered: report the error, count it and fail the
        trees."""
        self.report(component, task, error)
        if self.epochs is not None:
            self.epochs.rejected(component, task, error)  # no message is replayed
        self.callbacks.on_rejected(component, task, error)
        sender = self._flow.task_of.get(task)
        # (The message of a spout's tuple counts when its tree fails.)
        if sender is not None and not (roots and self.plan.is_spout(task)):
            with sender.lock:
                sender.counts.add(sender.counts.failed, self.plan.failed_key(component))
        if self.dead_letters is not None:
            reason = Reason(describe(error), component, task, self.dead_letters.worker)
            self.dead_letters.note(roots, reason)
        self.ledger.fail(roots)
        self._schedule()

    def messages_of(self, tuples: Sequence[Tuple]) -> Mapping[int, Any]:
        """The ids of the messages that tuples descend from, by root, as far as they are in flight
        from spouts of this worker. From any thread."""
        return messages_of(tuples, self.built)

    def die(self, error: BaseException) -> None:
        """Stop taking turns and notify the process, because the worker must end. From any
        thread."""
        if self._fault is None:
            self._fault = error
            self._happened(EngineEvent.DIED)
            self.loop.call_soon_threadsafe(self._died, error)

    def _died(self, error: BaseException) -> None:
        self.fatal = error
        self._let_interpreter()
        if self.callbacks.on_fatal is None:
            log.error("engine_died", error=error, exc_info=error)
        else:
            self.callbacks.on_fatal(error)
        if self.after_turn is not None:
            self.after_turn()

    @property
    def has_fault(self) -> bool:
        """Whether `die` was called. From any thread."""
        return self._fault is not None

    @property
    def has_ended(self) -> bool:
        """Whether it takes no more turns: it was stopped, or `on_fatal` has been called."""
        return self.fatal is not None or self._life.state in _ENDING

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that it was started on."""
        assert self._loop is not None, "not started"
        return self._loop

    def _on_mutated(self, source: Source, error: Exception) -> None:
        self.report(source.component, source.task, error)

    # ---- turns ----

    def _schedule(self) -> None:
        """Take a whole turn as soon as the event loop runs again, because something was done or is
        to be done."""
        self._why |= _ACTIVITY
        self._call_turn()

    def _call_turn(self) -> None:
        if self._life.turns and not self._scheduled:
            self._scheduled = True
            assert self._loop is not None
            self._loop.call_soon(self._take_turn)

    def _on_arrival(self) -> None:
        """The transport has something. It calls this between turns, so no trip through the event
        loop is needed."""
        self._why |= _ARRIVED
        if self.turn_started is not None:
            self._schedule()
        elif not self._scheduled:
            self._take_turn()

    def _on_timer(self) -> None:
        self._timer = None
        if not self._scheduled:
            self._why |= _TIMED
            self._take_turn()

    def _take_turn(self) -> None:
        self._scheduled = False
        if not self._life.turns:
            return
        if not self._may_turn():
            self._why |= _PUT_OFF
            return
        self._why &= ~_PUT_OFF
        self.turn_started = self.now()
        try:
            worked = self._turn()
        except BaseException as error:
            self.die(error)
            if isinstance(error, KeyboardInterrupt):
                raise
            return
        finally:
            self.turn_started = None
        if self.after_turn is not None:
            self.after_turn()
        if worked:
            self._call_turn()
        elif self._life.turns and not self._scheduled:
            self._wait()

    def _wait(self) -> None:
        """Take the next turn when something is due. A pending timer that rings before that is kept:
        a superfluous turn costs less than a new timer."""
        now = self.now()
        at = max(self._next_deadline(), now + _TIMER_SECS_MIN)
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._timer_at = at
        assert self._loop is not None
        self._timer = self._loop.call_later(at - now, self._on_timer)

    def _turn(self) -> bool:
        """One turn. True when another should follow at once."""
        flow, coordinator = self._flow, self._coordinator
        start = self.turn.now = self.now()
        worked = bool(self._why & _ARRIVED) and self._receive()
        if start >= self._due:
            worked |= self._pass_time(start)
        may_emit = self._ready and self._stopped is None
        deadline = start + self._turn_secs
        # A timer is exact to a millisecond, and may ring that much too soon.
        due = start + (_TIMER_SECS_MIN if self._why & _TIMED else 0.0)
        self._why &= ~_TIMED
        worked |= flow.run_spouts(due, deadline, may_emit=may_emit)
        if self.suspects is not None:
            worked |= self.suspects.turn()
        if not (worked or self._why & _ACTIVITY or coordinator.has_lost or flow.spouts_spoke()):
            return False
        self._why &= ~_ACTIVITY
        worked |= coordinator.fail_lost()
        if not self._may_turn():  # the process slept meanwhile
            self._why |= _ACTIVITY
            return False
        # The spouts have used their time; the bolts get their own, to work on what was emitted.
        if self.suspects is None or not self.suspects.bolts_wait:
            began = self.now()
            worked |= flow.run_bolts(began + self._turn_secs)
            flow.bolts_ran(self.now() - began)
        worked |= flow.catch_up(coordinator.ledger)
        if self.epochs is not None:
            worked |= self.epochs.turn()
        worked |= coordinator.settle()
        if self._checker is not None:
            self._checker.check()
        flow.send_grants()
        self._exchange.flush()
        if worked and flow.has_more():
            self._why |= _ACTIVITY
        # The next turn asks the spouts again; where all of them rest, it would find nothing.
        asks = self.suspects is not None or flow.has_spout_to_ask(self.now())
        return worked and bool(self._why & _ACTIVITY or coordinator.has_lost or asks)

    def _pass_time(self, now: float) -> bool:
        """Do what is due because time has passed. True when that left work for this turn."""
        worked = self._rotation.is_due(now) and self._coordinator.rotate()
        if self.epochs is None or not self.epochs.under_way:
            worked |= self._ticks.deliver(now)
            worked |= self._ring(now)
        if self._loads_due.is_due(now):
            self._flow.report_loads()
            if self.balancers is not None:
                self.balancers.update(self._flow.loads(self.balancers.targets))
            self._why |= _ACTIVITY  # once a second a whole turn, even if `_schedule` was not called
        if self._stats_due.is_due(now):
            self._readings.tick(now)
        self._clock_due = self._timers.next_due(self._ticks.next_due(self._stats_due.due))
        self._due = min(self._rotation.due, self._loads_due.due, self._clock_due)
        return worked

    # ---- timers of components ----

    def _call_later(self, task: int, secs: float, call: Callable[[], object]) -> Timer:
        """`TopologyContext.call_later`, from any thread."""
        timer = self._timers.add(self.now() + max(0.0, secs), task, call)
        if threading.get_ident() == self._thread_id:
            self._timer_added(timer)
        elif self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._timer_added, timer)
            except RuntimeError:
                pass  # the loop is closed
        return timer

    def _timer_added(self, timer: Timer) -> None:
        self._due = min(self._due, timer.due)
        self._clock_due = min(self._clock_due, timer.due)
        if self.turn_started is None:
            self._schedule()  # it may wait for something later

    def _ring(self, now: float) -> bool:
        """Make the calls that are due. True when there were any."""
        timers = self._timers.take_due(now)
        for timer in timers:
            task = self._flow.task_of.get(timer.task)
            if isinstance(task, ThreadBolt | ThreadSpout):
                task.call_on_thread(partial(self._call_timer, task, timer))
            elif task is not None:
                self._call_timer(task, timer)
        return bool(timers)

    def _call_timer(self, task: Task, timer: Timer) -> None:
        call, timer.call = timer.call, None
        if call is None:
            return
        start = self.now()
        try:
            call()
        except Exception as error:
            self.report(task.component, task.task, error)
        secs = self.now() - start
        if secs > HOLD_SECS and not isinstance(task, ThreadBolt | ThreadSpout):
            self.held_loop(task.component, "a timer's call", secs)

    def _receive(self) -> bool:
        """Take in what has arrived. A section that cannot be read is dropped and logged: its
        tuples time out."""
        assert self._transport is not None
        self._why &= ~_ARRIVED
        arrivals = self._transport.drain(_RECEIVE_BYTES)
        fence = self._fence
        for arrival in arrivals:
            accounts = self._flow.accounts_of(arrival.peer, arrival.sessions)
            for section in arrival.sections:
                kind = section[0] if section else 0
                if fence is not None and not fence.admits(arrival.peer, arrival.sessions, section):
                    continue
                try:
                    if kind == TUPLES:
                        self._flow.deliver(section, accounts)
                    elif kind == ACKS:
                        self._coordinator.receive_acks(section)
                    elif kind == METRICS:
                        if self.receive_metrics is not None:
                            self.receive_metrics(section)
                    elif kind == TRACES:
                        if self.tracing is not None:
                            self.tracing.receive(section)
                    elif kind == EPOCHS:
                        if self.receive_epochs is not None:
                            self.receive_epochs(arrival.peer, section)
                    else:
                        self._coordinator.receive_roots(section)
                except CodecError as error:
                    log.error("section_dropped", bytes=len(section), error=error)
                    if fence is not None:
                        fence.lost(f"a section could not be read: {error}")
        return bool(arrivals)

    # ---- called by the transport (see `transport.Listener`) ----

    def session_began(self, peer: WorkerSlot, sessions: object, waiting: Sequence[bytes]) -> None:
        """A new pair of sessions with a peer: both ends count what they send from zero."""
        if self._fence is not None:
            self._fence.session_began(peer)
        self._flow.session_began(peer, sessions, waiting)
        self._schedule()

    def granted(self, peer: WorkerSlot, grants: Sequence[Grant]) -> None:
        """A peer accepts more bytes."""
        self._flow.granted(peer, grants)
        self._schedule()

    def _next_deadline(self) -> float:
        """When there will be something to do if nothing arrives before."""
        deadline = self._clock_due
        if self._ready and self._stopped is None:
            now = self.turn.now
            for spout in self._flow.spouts:
                at = spout.idle_until
                if 0 < at <= now:  # throttled: not to be asked, but it may have emitted by itself
                    at = now + SpoutTask.WAIT_SECS_MAX
                if 0 < at < deadline and spout.active and spout.may_emit:
                    deadline = at
        if self._rotation.due < deadline and self._coordinator.has_timeouts:
            deadline = self._rotation.due
        if self._loads_due.due < deadline and self._flow.load_reported:
            deadline = self._loads_due.due
        return deadline


def tune_garbage_collector() -> None:
    """Tune the garbage collector of a worker process: objects that exist now are never examined
    again, and collections are rare. With Python's defaults, decoding large msgpack data takes
    almost three times as long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
