"""The door for programs that run tasks: worker, local mode, test kit, Spark, simulation, benchmark.

    prepared = prepare(topology, conf)
    settings = EngineSettings(
        prepared=prepared, topology_id="words-1-1700000000", slot=WorkerSlot("local", 1),
        executors=prepared.executors, daemon_conf=default_conf(),
    )
    engine = EmbeddedEngine(settings, EngineCallbacks(on_reported=print))
    await engine.start()
    engine.set_active(True)
    await engine.run_until_drained()
    await engine.stop(drain_secs=1.0)

Settings go in as values, and what leaves the engine comes through callbacks and the transport. The
rest of this package is the engine's own: a program that needs more of it adds to this module.

An engine changes one thing in the process that it runs in: from `start` to the end of `stop` (or
until `start` has failed, or `on_fatal` is called) the interpreter's switch interval is a quarter of
`topology.run.turn.ms`, if the program has not set a shorter one, so that threads of the program
get their turn beside a busy loop. When the last engine of the process has ended it is the program's
again. `tune_garbage_collector` is the program's own choice, and stays.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from squall_common.component.context import CurrentCredentials
from squall_common.component.metrics.instruments import Gauge, Instrument
from squall_common.component.metrics.registered import AssignableMetric
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import Clock
from squall_common.errors import SquallError
from squall_common.names import MARK_STREAM, is_system_id
from squall_common.state.keyed import KeyedState
from squall_common.telemetry.live_state import Answer, Question
from squall_common.topology.model import Executor, Topology
from squall_common.topology.serialization import Registry
from squall_engine.core import UNANCHORED, Batch, Source, Tuple, decode_batches, tick_source
from squall_engine.core.codec import ValueCodec
from squall_engine.core.inspectors import Observer
from squall_engine.core.known_classes import component_modules
from squall_engine.core.sections import addressee
from squall_engine.core.values import checked_origins
from squall_engine.engine import Engine, tune_garbage_collector
from squall_engine.loading import ComponentStartError, make_user_object
from squall_engine.observe.describe import describe_tasks
from squall_engine.observe.error_source import source_of
from squall_engine.observe.event_log import EventLog
from squall_engine.observe.log_place import LogPlace
from squall_engine.observe.readings import exhausted
from squall_engine.observe.under_way import CallsUnderWay, CallUnderWay, coroutine_frames
from squall_engine.settings import EngineCallbacks, EngineSettings
from squall_engine.tasks.bolt import BoltTask
from squall_engine.tasks.built import Built
from squall_engine.tasks.in_hand import Before, InHand
from squall_engine.tasks.spout import SpoutTask
from squall_engine.tasks.thread import ThreadBolt, ThreadSpout, on_thread

if TYPE_CHECKING:
    from squall_engine.observe.drained import DrainGauge, RestClock
    from squall_engine.observe.history_rows import Recorder as Recorder
    from squall_engine.observe.metrics import Metrics as Metrics
    from squall_engine.observe.metrics import MetricsObserver
    from squall_engine.observe.samples import WorkerSamples as WorkerSamples
    from squall_engine.reporting.reporters import Reporters as Reporters

# Not everything that a program waits for ends with a turn: a spout's thread may finish between two
# turns. Such a change is noticed at most this much later.
_LOOK_SECS = 0.01


class EngineEndedError(SquallError):
    """The engine has died or was stopped, so the awaited condition can no longer become true."""


class EmbeddedEngine(Engine):
    """An engine with the methods that embedding programs need. Call them on its event loop, unless
    a method says otherwise."""

    _gauge: DrainGauge | None = None
    _rest: RestClock | None = None

    # ---- waiting ----

    _looks: tuple[Callable[[], None], ...] = ()  # one for each wait

    async def run_until(
        self, condition: Callable[[], object], *, look_secs: float = _LOOK_SECS
    ) -> None:
        """Let the engine run until `condition()` is true. The condition is checked on the loop
        after every turn, and every `look_secs` in between: it must be quick, and may raise to end
        the wait. Raises EngineEndedError when the engine ends meanwhile."""
        loop = self.loop
        # The error, if any, is its result. Code of mypyc passes on an exception that is thrown into
        # an `await` in a way that Python deprecates since 3.12, which `-W error` makes the error.
        done: asyncio.Future[Exception | None] = loop.create_future()

        def look() -> None:
            if done.done():
                return
            try:
                if condition():
                    done.set_result(None)
                elif self.has_ended:
                    topology_id = self.worker_context.topology_id
                    raise EngineEndedError(f"the engine of {topology_id} has ended")
            except Exception as error:
                done.set_result(error)

        timer: asyncio.TimerHandle

        def look_again() -> None:
            nonlocal timer
            look()
            timer = loop.call_later(look_secs, look_again)

        timer = loop.call_later(look_secs, look_again)
        self._looks += (look,)
        self.after_turn = self._look
        look()
        try:
            failure = await done
        finally:
            timer.cancel()
            self._looks = tuple(one for one in self._looks if one is not look)
            if not self._looks:
                self.after_turn = None
        if failure is not None:
            raise failure

    def _look(self) -> None:
        for look in self._looks:
            look()

    async def run_until_drained(
        self,
        also: Callable[[], object] | None = None,
        *,
        calm_secs: float = 0.0,
        activity: Callable[[], object] | None = None,
        look_secs: float = _LOOK_SECS,
    ) -> None:
        """Let the engine run until nothing of this worker is in flight: inboxes and buffers are
        empty, and the trees of its spouts are settled. With `also`, until that is true as well; it
        may raise to end the wait. With `calm_secs`, until both have been true for that long, and
        the value of `activity` (by default how many tuples were emitted) has not changed meanwhile.
        While a checkpoint keeps spouts silent, nothing follows from their silence: that time does
        not count. Limit the wait with `asyncio.timeout`. Raises EngineEndedError."""
        calm = _Calm(calm_secs, self.emitted_tuples if activity is None else activity)

        def drained() -> bool:
            done = (also is None or also()) and self.is_drained()
            if not done or (calm_secs and self._has_replays()):
                calm.disturb()
                return False
            if not calm_secs or self.has_ended:
                return True
            if self.epochs is not None and self.epochs.under_way:
                calm.pause()
                return False
            return calm.lasts(self.now())

        await self.run_until(drained, look_secs=look_secs)

    def work_when_drained(self, *, at_end: bool = False) -> int | None:
        """How much this worker has done so far if its spouts are off and nothing is in flight in
        it; None otherwise. Two equal results have nothing in between (see `observe.drained`). With
        `at_end`, spouts need not be off: they say that their sources have ended."""
        if self._gauge is None:
            from squall_engine.observe.drained import DrainGauge

            self._gauge = DrainGauge(self.built, self._ticks.secs_max)
        drained = self.is_drained() and not self._has_letters()
        return self._gauge.read(self.now(), drained=drained, at_end=at_end)

    def rest_secs(self, work: int | None) -> float | None:
        """How long this worker has been at rest, to be asked again and again with the result of
        `work_when_drained`; None while something may be in flight. See `observe.drained`."""
        if self._rest is None:
            from squall_engine.observe.drained import RestClock

            self._rest = RestClock()
        return self._rest.read(self.now(), work)

    def sources_ended(self) -> bool | None:
        """Whether all tasks of spouts in this worker say that their source has ended (also without
        any); None if one does not say whether it ends. Quick, whatever the number of bolts."""
        spouts = self._spout_tasks()
        ended = exhausted(spouts)
        return not spouts or (None if ended is None else ended == len(spouts))

    def _has_replays(self) -> bool:
        """Whether a ReplayingSpout waits with messages that failed."""
        return any(getattr(spout.user, "has_replays", False) for spout in self._spout_tasks())

    def _has_letters(self) -> bool:
        """Whether messages are held back, or dead letters wait to be emitted again."""
        held = self.suspects is not None and self.suspects.holds_messages
        return held or (self.dead_letters is not None and self.dead_letters.has_letters)

    # ---- what this worker runs ----

    @property
    def executors(self) -> Sequence[Executor]:
        """This worker's executors, sorted."""
        return self.plan.executors

    @property
    def has_spouts(self) -> bool:
        """Whether this worker runs a spout."""
        return any(map(self.plan.is_spout, self.plan.local_user_tasks()))

    def users(self, component: str | None = None) -> list[Any]:
        """The users' spouts and bolts in the order of a turn; with `component`, only its own, by
        task."""
        return [
            one.task.user
            for one in self.built
            if component is None or one.task.component == component
        ]

    def emitted_tuples(self) -> int:
        """How many tuples the spouts and bolts have emitted so far."""
        outputs = (output for one in self.built for output in one.task.outputs)
        return sum(out.emitted_total() for out in outputs if out.source.stream != MARK_STREAM)

    def totals(self) -> dict[str, dict[str, int]]:
        """All-time counts by component: emitted, transferred, acked and failed, and for bolts also
        executed. System components are left out."""
        totals: dict[str, dict[str, int]] = {}
        for executor, stats in self.stats().items():
            component = self.plan.task_to_component[executor.task_start]
            if is_system_id(component):
                continue
            counts: dict[str, Any] = {
                "emitted": stats.emitted,
                "transferred": stats.transferred,
                "acked": stats.specific.acked,
                "failed": stats.specific.failed,
            }
            if hasattr(stats.specific, "executed"):
                counts["executed"] = stats.specific.executed
            mine = totals.setdefault(component, {})
            for what, windows in counts.items():
                mine[what] = mine.get(what, 0) + sum(windows.get(":all-time", {}).values())
        return totals

    def failed_tuples(self) -> int:
        """How many tuples the bolts have failed so far."""
        bolts = (one.task for one in self.built if isinstance(one.task, BoltTask))
        return sum(sum(task.counts.failed.values()) for task in bolts)

    def track_failed_messages(self) -> None:
        """From now on, keep the ids of failed messages, for `failed_messages`. They take memory
        until a message with the same id is acked."""
        for spout in self._spout_tasks():
            spout.failed_ids = set()

    def failed_messages(self) -> int:
        """How many messages have failed and were not acked after that, under the same id, or are
        dead letters that no bolt consumes."""
        unconsumed = 0 if self.dead_letters is None else self.dead_letters.unconsumed.count
        return unconsumed + sum(len(spout.failed_ids or ()) for spout in self._spout_tasks())

    def _spout_tasks(self) -> list[SpoutTask]:
        return [one.task for one in self.built if isinstance(one.task, SpoutTask)]

    def set_credentials(self, values: Mapping[str, str]) -> None:
        """Give the topology's components other credentials."""
        current = self.worker_context.credentials
        current.values = MappingProxyType(dict(values))
        for one in self.built:
            update = getattr(one.task.user, "credentials_updated", None)
            if update is not None:
                one.context.call_later(0.0, partial(_update_credentials, update, current))

    async def call(self, user: Any, method: str) -> None:
        """Call a method of a user's object where its other methods are called: on its own thread if
        it has one. Awaits a coroutine. Raises what the method raises."""
        await self.call_for(user, getattr(user, method))

    async def call_for(self, user: Any, call: Callable[[], Any]) -> None:
        """Make a call where the methods of a user's object are called. Awaits a coroutine. Raises
        what the call raises."""
        task = next(one.task for one in self.built if one.task.user is user)
        if isinstance(task, ThreadBolt | ThreadSpout):
            await on_thread(task, call)
            return
        result = call()
        if inspect.isawaitable(result):
            await result

    # ---- tuples and time, for programs that decide when they come ----

    def tuples_in(self, section: bytes) -> list[Tuple]:
        """Decode the tuples of a section from another worker, which are for a task of this one. One
        that cannot be read is dropped, as `on_rejected` reports."""
        return [
            tup for batch in self._exchange.decode(section).values() for tup in batch.as_tuples()
        ]

    def make_tuple(self, task: int, stream: str, values: Sequence[Any]) -> Tuple:
        """A tuple that a task has emitted, in no tree."""
        source = self._exchange.source(task, stream)
        assert source is not None, f"task {task} has no stream {stream}"
        return Tuple(values, 0, UNANCHORED, source)

    def deliver(self, task: int, tuples: Sequence[Tuple]) -> None:
        """Put tuples of one stream, at least one, into the inbox of a bolt of this worker."""
        self._flow.bolt_of[task].inbox.put(Batch.of(tuples[0].source, tuples))
        self.wake()

    def tick(self, task: int, freq_secs: float) -> None:
        """Put a tick tuple into the inbox of a bolt of this worker."""
        source = tick_source()
        self._flow.bolt_of[task].inbox.put(
            Batch.of(source, [Tuple([freq_secs], 0, UNANCHORED, source)])
        )
        self.wake()

    def next_timer(self) -> float:
        """When the first timer of a component is due, by the engine's clock; infinity without
        one."""
        return self._timers.next_due(math.inf)

    def last_timer(self) -> float:
        """When the last of the pending timers is due; minus infinity without one."""
        return self._timers.last_due()

    def ring_timers(self, until: float) -> None:
        """Make the calls of the timers that are due up to a time, as if it had come. Those that are
        started meanwhile wait."""
        self._ring(until)
        self.wake()

    # ---- what is observed ----

    def make_event_log(self) -> EventLog:
        """A sample of what components emit, which costs nothing until it is asked for. Once, after
        the start, and after `record_history`."""
        calls = self.calls_under_way()
        return EventLog(self.plan, self._flow.rewrap_edges, calls.message_of)

    def log_place(self) -> LogPlace:
        """Finds the component that a line of the log comes from: for `logs.set_place`."""
        return LogPlace(self.built)

    def samples(self) -> WorkerSamples:
        """A reader of this worker's samples for Prometheus. Once, after the start."""
        from squall_engine.observe.samples import WorkerSamples

        return WorkerSamples(self.built, self._add_totals, self._flow.credit)

    def instruments(self) -> Iterator[tuple[str, int, str, Instrument]]:
        """(component, task, name, instrument): what the components have made of their contexts."""
        for one in self.built:
            for name, instrument in list(one.context.instruments.items()):
                yield one.task.component, one.task.task, name, instrument

    def metric_values(self, component: str) -> dict[str, float]:
        """What a component's tasks have recorded since the beginning, together, by name: counters
        and meters as sums, gauges as sums of what they show, histograms and timers as the number of
        their values. Raises what a gauge's function raises."""
        found: dict[str, float] = {}
        for owner, _, name, instrument in self.instruments():
            if owner == component:
                if isinstance(instrument, Gauge):
                    value = instrument.value
                else:
                    value = instrument.count
                if value is not None:
                    found[name] = found.get(name, 0) + value
        return found

    def gauge_value(self, component: str, name: str) -> float | None:
        """What a component's tasks show now by this metric, together: an `AssignableMetric` or a
        gauge. None: nothing yet."""
        registered = [
            one.context.metrics.get(name, (None,))[0]
            for one in self.built
            if one.task.component == component
        ]
        shown = [metric.value for metric in registered if isinstance(metric, AssignableMetric)]
        values = [value for value in shown if value is not None]
        return float(sum(values)) if values else self.metric_values(component).get(name)

    def calls_under_way(self) -> CallsUnderWay:
        """The calls that components are in, for any thread. Call it once the engine has started."""
        return CallsUnderWay(self.built, self.options.topology, self._thread_id)

    def sample_stacks(self, until: float) -> str:
        """Sample the stacks of this worker's tasks until that time of the system's clock; blocks,
        on a thread of the caller's. Returns a text (see `observe.stack_samples`)."""
        from squall_engine.observe.stack_samples import StackSamples, run

        return run(StackSamples(self.built, self._thread_id), until)

    def live_state(self, question: Question, secs: float) -> Answer:
        """Answer a question about the state of this worker's tasks within `secs`; blocks, on a
        thread of the caller's, once the engine has started (see `state.live`)."""
        from squall_engine.state import live

        return live.answer(
            self,
            self.built,
            question,
            index_of=lambda one: self.plan.tasks_of[one.task.component].index(one.task.task),
            make_codec=self.make_codec,
            secs=secs,
        )

    def why_busy(self, one: Built) -> str:
        """What keeps a task from being called at once, in words; from any thread."""
        under_way, started = self.calls_under_way(), self.turn_started
        if isinstance(one.task, ThreadBolt | ThreadSpout):
            calls = [call for call in under_way.on_threads() if call.task == one.task.task]
            return f"its thread is in {_named(calls[0])}" if calls else "its thread is busy"
        if started is None:
            return "its worker's run loop is busy"
        secs = self.now() - started
        call = _named(under_way.on_loop(started))
        return f"its worker's run loop has been in {call} for {secs:.1f} s"

    def source_of(self, error: BaseException) -> str:
        """What a component was given when it raised `error`, for an `on_reported` callback:
        `a tuple of words (task 3), stream default, message id 17`. "" if unknown."""
        return source_of(error, self.built)

    def describe(self, now: float) -> Iterable[str]:
        """One line for each task, for a dump; from any thread. `now` is the engine clock's time."""
        return describe_tasks(self.built, now)

    def record_history(
        self, key_rate: float, *, clock: Clock, rng: random.Random | None = None
    ) -> Recorder:
        """Record what the tasks do from now on, as rows of the history. The share `key_rate` of the
        tuples of fields groupings is sampled for their keys. Once, after the start."""
        from squall_engine.observe.history_rows import KeySamples, Recorder

        keys = None
        if key_rate > 0:
            keys = KeySamples(self.plan, key_rate, rng or random.Random())
            self.wrap_edges(keys.observe)
        return Recorder(self.built, keys, clock=clock)

    def start_metrics(
        self,
        *,
        host: str,
        clock: Clock,
        report: Callable[[str, int, BaseException], None],
        log_dir: Path | None = None,
        observer: MetricsObserver | None = None,
    ) -> Metrics | None:
        """Feed the topology's metrics consumers, and `observer`, from now on. Returns None when
        there is neither a consumer nor an observer; otherwise close what is returned after
        `stop`."""
        if observer is None and not self.options.topology.topology_metrics_consumer_register:
            return None
        from squall_engine.observe.metrics import Metrics

        metrics = Metrics.of(
            self.built,
            self.conf,
            self.options.topology,
            topology_id=self.worker_context.topology_id,
            host=host,
            port=self.worker_context.worker_port,
            log_dir=log_dir,
            clock=clock,
            report=report,
            observer=observer,
            tasks_of=self.plan.tasks_of,
            local_tasks=self.plan.local_tasks,
            peers=self._exchange,
        )
        if metrics is not None:
            metrics.start()
            self.receive_metrics = metrics.receive
        return metrics

    def start_reporters(
        self,
        *,
        host: str,
        clock: Clock,
        report: Callable[[str, int, BaseException], None],
        log_dir: Path | None = None,
    ) -> Reporters | None:
        """Feed the topology's metrics reporters from now on. Returns None if it has none;
        otherwise close what is returned after `stop`."""
        if not self.options.topology.topology_metrics_reporters:
            return None
        from squall_common.component.metrics.consumers import ConsumerContext
        from squall_engine.reporting.reporters import Reporters

        context = ConsumerContext(
            self.worker_context.topology_id, host, self.worker_context.worker_port, log_dir
        )
        reporters = Reporters(
            self.built, self.options.topology, context, clock=clock, report=report
        )
        reporters.start()
        return reporters


def _named(call: CallUnderWay) -> str:
    return f"{call.name} of {call.component!r} (task {call.task}; {call.place()})"


def _update_credentials(
    update: Callable[[Mapping[str, str]], object], current: CurrentCredentials
) -> None:
    """The newest ones, if there were others while the call waited."""
    result = update(current.values)
    if inspect.iscoroutine(result):
        result.close()
        raise SquallError("credentials_updated() may not be async def")


class _Calm:
    """How long nothing has changed, without the time in which nothing could."""

    def __init__(self, secs: float, activity: Callable[[], object]) -> None:
        self._secs = secs
        self._activity = activity
        self._last: object = None
        self._lasted = 0.0
        self._looked: float | None = None  # None: what was until the next look does not count

    def disturb(self) -> None:
        self._lasted, self._looked = 0.0, None

    def pause(self) -> None:
        self._looked = None

    def lasts(self, now: float) -> bool:
        """Whether it has lasted for long enough."""
        activity = self._activity()
        if activity != self._last:
            self._last, self._lasted = activity, 0.0
        elif self._looked is not None:
            self._lasted += now - self._looked
        self._looked = now
        return self._lasted >= self._secs


def value_codec(topology: Topology, conf: Mapping[str, Any], *, allow_pickle: bool) -> ValueCodec:
    """The codec that a topology's engines use for values."""
    registry = Registry.of(TopologyOptions.read(conf))
    return ValueCodec(registry, allow_pickle=allow_pickle, modules=component_modules(topology))


def tried_state(state: KeyedState, codec: ValueCodec) -> Any:
    """What a bolt gets as its state with checkpoints: `begin(key)` a call, and `end()` it."""
    from squall_engine.atomic.undo import UndoableState, hot

    return hot(UndoableState(state, codec))


def section_rows(
    section: bytes, codec: ValueCodec, component: str, fields: tuple[str, ...]
) -> list[Any]:
    """Decode the values of each tuple in a section that a transport was given to send, which
    `component` emitted on a stream with these fields. Raises CodecError."""

    def source(task: int, stream: str) -> Source:
        return Source(component, task, stream, fields, local=False)

    batches = decode_batches(section, codec, source)
    return [row for batch in batches.values() for row in batch.rows()]


__all__ = [
    "Before",
    "CallUnderWay",
    "CallsUnderWay",
    "ComponentStartError",
    "EmbeddedEngine",
    "EngineCallbacks",
    "EngineEndedError",
    "EngineSettings",
    "EventLog",
    "InHand",
    "Observer",
    "Tuple",
    "ValueCodec",
    "addressee",
    "checked_origins",
    "coroutine_frames",
    "make_user_object",
    "section_rows",
    "tried_state",
    "tune_garbage_collector",
    "value_codec",
]
