"""The run loop: the executors of one worker, in turns, on one thread.

    turn:  drain the transport -> rotate a time-out bucket -> ticks -> spouts
           -> bolts, sources before consumers -> settle acks -> send

A turn is plain synchronous code with a budget of `topology.run.turn.ms` and `topology.spout.batch`
calls a spout; between two turns the event loop has its say. What the tasks of a component emitted
is flushed right after they ran, so a tuple passes the whole chain of a worker within one turn, and
what a turn has for another worker leaves in one piece at its end: the batch adapts to the load by
itself.

When a turn found nothing to do, the next one waits for a timer (a spout's idle wait, a tick, a
time-out), for the transport, or for `wake`. A turn in which nothing has arrived, no spout has
emitted and nobody has `_schedule`d anything ends after the spouts: most turns of an idle worker,
and every second one of a worker with little to do, are that short.

Turned down: an asyncio task and a queue a task (four times the CPU on one worker, twenty across
two), and a thread an executor (one interpreter lock).
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import threading
from collections.abc import Callable, Collection, Mapping, Sequence

from squall_common.cluster.values import ExecutorStats
from squall_common.component.context import WorkerContext
from squall_common.config.load import component_conf
from squall_common.daemon.clock import Clock, SystemClock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError, describe
from squall_common.names import ACKER_COMPONENT
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.topology.serialization import Registry
from squall_engine import core
from squall_engine.acking.coordinator import AckCoordinator
from squall_engine.acking.dead_letters import LOST, Reason, Replays, roots_of
from squall_engine.acking.suspects import Suspects
from squall_engine.build.build import Edges, build_task, open_task
from squall_engine.build.close import close_components
from squall_engine.core import Edge, Inspector, Source, TurnState
from squall_engine.core.codec import CodecError, ValueCodec
from squall_engine.core.inspectors import (
    DebugInspector,
    Observer,
    ObservingInspector,
    SerializingInspector,
)
from squall_engine.core.known_classes import component_modules
from squall_engine.core.sections import ACKS, TUPLES, AcksSection, TuplesSection
from squall_engine.core.stats import TaskCounts, Totals
from squall_engine.dataflow.flow import Flow
from squall_engine.dataflow.outgoing import Waiting
from squall_engine.dataflow.remote import Exchange
from squall_engine.engine_life import EngineEvent, EngineLife, EngineState, TurnReason
from squall_engine.grouping.routing import Balancers
from squall_engine.loading import ComponentStartError
from squall_engine.observe.error_log import ErrorLogThrottle
from squall_engine.observe.event_log import EventLog
from squall_engine.observe.readings import ExecutorReadings, add_totals
from squall_engine.plan import Plan
from squall_engine.settings import EngineCallbacks, EngineSettings
from squall_engine.tasks.base import BoltTask, SpoutTask
from squall_engine.tasks.built import Built
from squall_engine.tasks.in_hand import Before, InHand
from squall_engine.timing import Every, Rotation, Ticks
from squall_engine.transport import Grant, Transport

log = get_logger(__name__)

_RECEIVE_BYTES = 1024 * 1024  # drained from the transport in a turn
_LOADS_SECS = 1.0  # how often shuffles look at the load of their targets
_STATS_SECS = 30.0  # the finest bucket of the statistics' windows
_TIMER_SECS_MIN = 0.001  # uvloop's timers are whole milliseconds; a shorter one spins
_DRAIN_POLL_SECS = 0.005
_NO_CALLBACKS = EngineCallbacks()
# As plain ints: see `TurnReason`.
_STIRRED, _ARRIVED, _TIMED, _PUT_OFF = map(int, TurnReason)
_ENDING = frozenset({EngineState.CLOSING, EngineState.STOPPED})


class Engine:
    """Runs the tasks of one worker on the running event loop.

    Life: construct -> `await start()` -> `set_routes`, `set_ready(True)`, `set_active(True)` in
    any order and as often as things change -> `await stop(drain_secs)`. All methods are called on
    the loop's thread, except `wake` (any thread) and the attribute `turn_started` (any thread may
    read it).
    """

    turn_started: float | None = None
    """Clock.monotonic() when the present turn began; None between turns. For the heartbeat
    thread: turn age = monotonic() - turn_started."""

    after_turn: Callable[[], None] | None = None
    """Called after each turn, and at the end, while somebody waits for something (see `embed`)."""

    fatal: BaseException | None = None
    """What the engine died of, once `on_fatal` was called with it."""

    def __init__(
        self,
        settings: EngineSettings,
        callbacks: EngineCallbacks = _NO_CALLBACKS,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
        observer: Observer | None = None,
        hand: InHand | None = None,
        before: Before | None = None,
    ) -> None:
        """`transport` None: every task is local. `observer` sees everything that happens (for the
        test kit; it costs time). `hand` is where this worker notes what is in hand, `before` what
        the worker before it has noted there.

        Raises SquallError for what this worker can never run (a shell component, Java bytes)."""
        prepared, conf = settings.prepared, settings.conf
        topology, topology_id = prepared.topology, settings.topology_id
        self.plan = Plan(
            topology, prepared.task_to_component, settings.executors, near=settings.near
        )
        self.conf = conf
        self.callbacks = callbacks
        self.now = (clock or SystemClock()).monotonic
        self.observer = observer
        self.make_counts: Callable[[], TaskCounts] = TaskCounts
        if settings.times_calls:
            from squall_engine.observe.history_rows import TimedCounts

            self.make_counts = TimedCounts
        self._complaints = ErrorLogThrottle(self.now, callbacks.on_reported, conf)
        self.report = self._complaints.report
        self.held_loop = self._complaints.held_loop
        self.rng = random.Random(os.urandom(32) if settings.seed is None else settings.seed)
        registry = Registry.from_conf(conf)
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
            open_state=callbacks.open_state,
        )
        codec = ValueCodec(
            registry,
            allow_pickle=bool(conf.get("topology.fall.back.on.pickle")),
            modules=component_modules(topology),
        )
        self._checker: SerializingInspector | None = None
        self.events: EventLog | None = None  # with topology.eventlogger.executors
        self.inspector = self._make_inspector(codec)

        now = self.now()
        self.turn = TurnState(now)
        self._transport = transport
        self._exchange = Exchange(self.plan, codec, transport, self.reject, self._fail_lost)
        worker = settings.worker or str(settings.slot)
        self.replays = Replays.of(self.plan, self._exchange, codec, conf, worker)
        self.hand = hand
        self.suspects: Suspects | None = None
        if hand is not None:
            self.suspects = Suspects(
                self.plan,
                self._exchange,
                codec,
                registry,
                conf,
                hand,
                now=self.now,
                report=self.report,
                wake=self.wake,
                before=before,
            )
        self._flow = Flow(self.plan, self._exchange, transport, conf)
        self._desk = AckCoordinator(
            self.plan,
            self._exchange,
            self.turn,
            self.rng.getrandbits,
            timeouts=conf.get("topology.enable.message.timeouts") is not False,
            replays=self.replays,
        )
        self._desk.suspects = self.suspects
        self.ledger = self._desk.ledger
        self.built: list[Built] = []
        self.edges = Edges(self.plan.local_tasks)
        self.balancers: Balancers | None = None
        if not conf.get("topology.disable.loadaware.messaging"):
            self.balancers = Balancers(conf, self.rng)
        self._readings = ExecutorReadings(
            self.plan.executors,
            self._add_totals,
            is_spout=lambda executor: self.plan.is_spout(executor.task_start),
            component_of=lambda executor: self.plan.component_of(executor.task_start).id,
            now=now,
        )

        self._turn_secs = float(conf.get("topology.run.turn.ms") or 2) / 1000.0
        timeout = float(conf.get("topology.message.timeout.secs") or 30)
        self._rotation = Rotation(timeout / 10.0, now)
        self._ticks = Ticks()
        self._stats_due = Every(_STATS_SECS, now)
        self._loads_due = Every(_LOADS_SECS, now)

        self._active = False
        self._ready = transport is None
        self._may_turn = callbacks.may_turn
        self._life = EngineLife()
        self._fault: BaseException | None = None  # what has ended its turns
        self._stopped: asyncio.Future[bool] | None = None  # not None once it was asked to stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._why = _STIRRED  # the reasons for the next turn, or for this one
        self._due = now  # when the first of ticks, time-out buckets, loads and statistics is due
        self._clock_due = now  # the first of ticks and statistics: these end a wait

    def _make_inspector(self, codec: ValueCodec) -> Inspector | None:
        inspector: Inspector | None = None
        debugged = {
            id
            for id, component in self.plan.topology.components.items()
            if component_conf(self.conf, component.conf).get("topology.debug")
        }
        if debugged:
            inspector = DebugInspector(debugged)
        if self.conf.get("topology.eventlogger.executors"):
            inspector = self.events = EventLog(inspector)
        if self.observer is not None:
            inspector = ObservingInspector(self.observer, inspector)
        if self.conf.get("topology.testing.always.try.serialize"):
            inspector = self._checker = SerializingInspector(codec, self._on_mutated, inspector)
        return inspector

    # ---- life ----

    async def start(self) -> None:
        """Construct the components, `open`/`prepare` them in task order and begin to turn. Raises
        ComponentStartError, after `report_error` was told. Spouts stay silent until active and
        ready."""
        self._happened(EngineEvent.START_REQUESTED)
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        try:
            for task in sorted(self.plan.local_user_tasks()):
                built = build_task(self, task)
                self.built.append(built)
                await open_task(built)
                if self._life.state in _ENDING:
                    await close_components([built], self.report)
                    raise SquallError("the engine was stopped while it started")
        except BaseException as error:
            if isinstance(error, ComponentStartError):
                self.report(error.component, error.task, error.__cause__ or error)
            if self._happened(EngineEvent.START_FAILED):
                await self._close()
            raise
        if self.suspects is not None:
            self.suspects.begin()
        self._flow.wire(self.built)
        self._desk.attach(self._flow.spouts)
        now = self.now()
        for one in self.built:
            freq = one.conf.get("topology.tick.tuple.freq.secs")
            if freq and isinstance(one.task, BoltTask):
                self._ticks.add(one.task, freq, now)
        self._flow.flush_all()
        self._happened(EngineEvent.TASKS_OPENED)
        log.info("engine_started", core=core.NAME, tasks=len(self.plan.local_tasks))
        if self._transport is not None:
            self._transport.set_wakeup(self._on_arrival, self)
        self._apply_active()

    def resume(self) -> None:
        """`may_turn` returns True again: make up for the turns that were put off."""
        if self._transport is not None:
            self._why |= _ARRIVED
        self._schedule()

    async def stop(self, drain_secs: float) -> bool:
        """Stop spouts, let tuples in flight finish for at most `drain_secs`, then deactivate,
        close and clean up every component. True when everything of this worker had drained: its
        inboxes are empty and the trees of its spouts settled. Idempotent."""
        if self._stopped is not None:
            return await asyncio.shield(self._stopped)
        self._stopped = asyncio.get_running_loop().create_future()
        drained = False
        try:
            self._happened(EngineEvent.STOP_REQUESTED)
            self._apply_active()
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
                self._desk.detach()
                self._give_up()  # what was acked in cleanup, and coroutines that were cancelled
        finally:
            self._stopped.set_result(drained)
        return drained

    def _give_up(self) -> None:
        """The last acks leave, and what this worker can finish no more fails now: the peers think
        it well kept, and its trees would wait for their time-out. Nothing is received any more:
        what was not taken goes to the next worker of this slot."""
        if self._transport is not None:
            self._flow.catch_up(self.ledger)
            self._fail_lost(self._flow.give_up())
            self._desk.settle()
            self._desk.give_up()
            self._exchange.flush()

    async def _close(self, *, late: bool = False) -> None:
        """End the components: for whoever has brought the engine into CLOSING."""
        left = await close_components(self.built, self.report, late=late)
        if self.replays is not None:  # they were failed: after that, since the last note counts
            self.replays.note([root for tup in left for root in roots_of(tup)], LOST)
        self._happened(EngineEvent.COMPONENTS_CLOSED)

    def _happened(self, event: EngineEvent) -> bool:
        """Whether that has led to another state. From any thread."""
        return self._life.happened(event, self.now())

    @property
    def state(self) -> EngineState:
        return self._life.state

    def validate(self) -> None:
        """Assert what must be true between two events, on the loop's thread. Raises
        ContradictionError, which tells what led there."""
        state = self._life.state
        with self._life.story.checking(self._life):
            if state is EngineState.NEW:
                assert not self.built, "components before the start"
            if state is EngineState.RUNNING:
                assert self._stopped is None, "running, although it was asked to stop"
            if state is EngineState.DRAINING:
                assert self._stopped is not None, "draining, and nobody has asked it to stop"
            if state is EngineState.DEAD:
                assert self._fault is not None, "dead of nothing"
            if self._life.turns:
                assert self._fault is None, "turning, in spite of a fault"
                # Or it would sleep until somebody wakes it, whatever is due.
                ahead = self._scheduled or self._timer is not None or self._why & _PUT_OFF
                assert ahead or self.turn_started is not None, "no turn is ahead"
            if self._fault is None:
                assert self.fatal is None, "on_fatal was called without a fault"

    def is_drained(self) -> bool:
        """Whether nothing of this worker is in flight."""
        return self._flow.is_drained

    # ---- what the worker process tells ----

    def set_active(self, active: bool) -> None:
        """Topology status: spouts emit only while ACTIVE; calls activate()/deactivate()."""
        self._active = active
        self._apply_active()

    def set_ready(self, ready: bool) -> None:
        """Whether the connections that the spouts need are up (True at first without a
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
        """Where every task of the topology runs now; entries for own tasks are ignored. Tuples
        for a task without a route are kept a while (bounded), then the oldest are dropped: acking
        replays them."""
        self._flow.set_routes(routes)
        self._schedule()

    def worker_lost(self, tasks: Collection[int]) -> None:
        """A worker that ran `tasks` ended without a goodbye: fail, once and paced, the pending
        roots of each local spout whose downstream components or ackers are among them
        (`topology.fail.on.worker.loss`)."""
        if self.conf.get("topology.fail.on.worker.loss") is not False:
            self._desk.worker_lost(tasks)
            self._schedule()
        if self.suspects is not None:
            self.suspects.lost()

    def sections_dropped(self, sections: Sequence[bytes]) -> None:
        """Sections that will never reach their worker: fail the trees that miss them, so that
        their spouts, wherever they are, hear of it now (`topology.fail.on.worker.loss`)."""
        if self.conf.get("topology.fail.on.worker.loss") is False:
            return
        # What was for a spout is of no use without it; a lost fail or reset is no more than late.
        for section in self._exchange.read(sections):
            if isinstance(section, TuplesSection):
                self._fail_lost(section.trees())
            elif isinstance(section, AcksSection):
                self._desk.give_up_acks(section)
                self._schedule()

    def _fail_lost(self, roots: Collection[int]) -> None:
        """Trees fail that nobody is to blame for."""
        if self.replays is not None:
            self.replays.note(roots, LOST)
        self.ledger.fail(roots)
        self._schedule()

    def wake(self) -> None:
        """Take a turn soon. Safe from any thread."""
        if threading.get_ident() == self._thread_id:
            self._schedule()
        elif self._loop is not None and not (self._scheduled and self._why & _STIRRED):
            # (In this order: a turn that is whole, and comes after what was done before this.)
            try:
                self._loop.call_soon_threadsafe(self._schedule)
            except RuntimeError:
                pass  # the loop is closed: nothing turns any more

    def _wake_spouts(self) -> None:
        """`context.wake()`: end the idle waits of the spouts."""
        for spout in self._flow.spouts:
            spout.wake()
        self.wake()

    def tap(self, wrap: Callable[[Edge], Waiting | None]) -> None:
        """Let another object stand between the tasks' buffers and the way out: see `Flow.tap`."""
        self._flow.tap(wrap)

    def stats(self, executors_max: int | None = None) -> dict[Executor, ExecutorStats]:
        """Statistics of this worker's executors for the heartbeat; counts are exact. Of more than
        `executors_max`: sums by component, see `ExecutorReadings.stats`."""
        return self._readings.stats(executors_max)

    def _add_totals(self, task_id: int, totals: Totals) -> None:
        task = self._flow.task_of.get(task_id)
        if task is not None:
            add_totals(task, totals)
        elif self.plan.task_to_component[task_id] == ACKER_COMPONENT:
            self._desk.add_to(totals, task_id)

    # ---- what tasks tell ----

    def reject(self, component: str, task: int, error: Exception, roots: Collection[int]) -> None:
        """A tuple that cannot be delivered: report the error, count it and fail its trees."""
        self.report(component, task, error)
        self.callbacks.on_rejected(component, task, error)
        sender = self._flow.task_of.get(task)
        # (The message of a spout's tuple counts when its tree fails.)
        if sender is not None and not (roots and self.plan.is_spout(task)):
            with sender.lock:
                sender.counts.add(sender.counts.failed, self.plan.failed_key(component))
        if self.replays is not None:
            reason = Reason(describe(error), component, task, self.replays.worker)
            self.replays.note(roots, reason)
        self.ledger.fail(roots)
        self._schedule()

    def die(self, error: BaseException) -> None:
        """The worker must end: stop turning, tell the process. From any thread."""
        if self._fault is None:
            self._fault = error
            self._happened(EngineEvent.DIED)
            self.loop.call_soon_threadsafe(self._died, error)

    def _died(self, error: BaseException) -> None:
        self.fatal = error
        if self.callbacks.on_fatal is None:
            log.error("engine_died", error=error, exc_info=error)
        else:
            self.callbacks.on_fatal(error)
        if self.after_turn is not None:
            self.after_turn()

    @property
    def has_ended(self) -> bool:
        """Whether it turns no more: it was stopped, or `on_fatal` has been called."""
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
        """Something was done, or is to be done: take a whole turn as soon as the event loop comes
        round."""
        self._why |= _STIRRED
        self._call_turn()

    def _call_turn(self) -> None:
        if self._life.turns and not self._scheduled:
            self._scheduled = True
            assert self._loop is not None
            self._loop.call_soon(self._take_turn)

    def _on_arrival(self) -> None:
        """The transport has something. It says so between the turns: the way around the loop can
        be spared."""
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
        """Have the next turn when something is due. A timer that stands and comes before that is
        kept: a turn too many costs less than a timer for each."""
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
        flow, desk = self._flow, self._desk
        start = self.turn.now = self.now()
        worked = bool(self._why & _ARRIVED) and self._receive()
        if start >= self._due:
            worked |= self._pass_time(start)
        may_emit = self._ready and self._stopped is None
        deadline = start + self._turn_secs
        # A timer is good to a millisecond, and may come that much too soon.
        due = start + (_TIMER_SECS_MIN if self._why & _TIMED else 0.0)
        self._why &= ~_TIMED
        worked |= flow.run_spouts(due, deadline, may_emit=may_emit)
        if self.suspects is not None:
            worked |= self.suspects.turn()
        if not (worked or self._why & _STIRRED or desk.has_lost or flow.spouts_spoke()):
            return False
        self._why &= ~_STIRRED
        worked |= desk.fail_lost()
        if not self._may_turn():  # the process slept meanwhile
            self._why |= _STIRRED
            return False
        # The spouts' time is up: the bolts have theirs, so that what was emitted passes on.
        if self.suspects is None or not self.suspects.bolts_wait:
            worked |= flow.run_bolts(self.now() + self._turn_secs)
        worked |= flow.catch_up(desk.ledger)
        worked |= desk.settle()
        if self._checker is not None:
            self._checker.check()
        flow.tell_senders()
        self._exchange.flush()
        if worked and flow.has_more():
            self._why |= _STIRRED
        # The next turn asks the spouts again; where there are none, it would find nothing.
        return worked and bool(self._why & _STIRRED or desk.has_lost or flow.spouts)

    def _pass_time(self, now: float) -> bool:
        """What is due because time has passed. True when there was anything for this turn."""
        worked = self._rotation.is_due(now) and self._desk.rotate()
        worked |= self._ticks.deliver(now)
        if self._loads_due.is_due(now):
            self._flow.tell_loads()
            if self.balancers is not None:
                self.balancers.update(self._flow.loads(self.balancers.targets))
            self._why |= _STIRRED  # once a second a whole turn, whatever nobody told
        if self._stats_due.is_due(now):
            self._readings.tick(now)
        self._clock_due = self._ticks.next_due(self._stats_due.due)
        self._due = min(self._rotation.due, self._loads_due.due, self._clock_due)
        return worked

    def _receive(self) -> bool:
        """Take in what has arrived. A section that cannot be read is dropped and logged: its
        tuples time out."""
        assert self._transport is not None
        self._why &= ~_ARRIVED
        arrivals = self._transport.drain(_RECEIVE_BYTES)
        for arrival in arrivals:
            for section in arrival.sections:
                kind = section[0] if section else 0
                try:
                    if kind == TUPLES:
                        self._flow.deliver(section, arrival.peer, arrival.sessions)
                    elif kind == ACKS:
                        self._desk.receive_acks(section)
                    else:
                        self._desk.receive_roots(section)
                except CodecError as error:
                    log.error("section_dropped", bytes=len(section), error=error)
        return bool(arrivals)

    # ---- what the transport tells (see `transport.Listener`) ----

    def session_began(self, peer: WorkerSlot, sessions: object, waiting: Sequence[bytes]) -> None:
        """What a peer and we have sent each other is counted anew."""
        self._flow.session_began(peer, sessions, waiting)
        self._schedule()

    def granted(self, peer: WorkerSlot, grants: Sequence[Grant]) -> None:
        """A peer takes more."""
        self._flow.granted(peer, grants)
        self._schedule()

    def _next_deadline(self) -> float:
        """When there will be something to do if nothing arrives before."""
        deadline = self._clock_due
        if self._ready and self._stopped is None:
            now = self.turn.now
            for spout in self._flow.spouts:
                at = spout.idle_until
                if 0 < at <= now:  # gated: nothing to ask, but it may have emitted unasked
                    at = now + SpoutTask.WAIT_SECS_MAX
                if 0 < at < deadline and spout.active and spout.may_emit:
                    deadline = at
        if self._rotation.due < deadline and self._desk.has_timeouts:
            deadline = self._rotation.due
        if self._loads_due.due < deadline and self._flow.told_load:
            deadline = self._loads_due.due
        return deadline


def tune_garbage_collector() -> None:
    """For a process that is a worker: what exists now stays, and collections are rare. With the
    defaults, large msgpack decodes are almost three times slower."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
