"""Runs one task of a topology over sections, with a worker's engine.

To the engine this is a worker with one task: every other task is on the same peer, and tuples sent
there leave the partition. Nothing is acked (no tuple has a root), time is that of the input
(see `event_time`), and the random numbers depend only on the task, so that a partition that Spark
runs again makes the same choices.

A cluster replays failed messages; within a stage, Spark has nothing to replay from. So a tuple that
fails, by an exception or by `fail`, fails the partition, and with it the job: nothing is lost
silently. An error that a component reports with `report_error` is printed to its log, and the task
goes on.
"""

from __future__ import annotations

import asyncio
import functools
import math
import sys
import zlib
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import uvloop

from squall.windows import WindowedBolt
from squall.windows.driven import DrivenWindows, timestamp_in
from squall_common.component.collector import ColumnCollector
from squall_common.component.columns.columns import Columns
from squall_common.component.component import Spout
from squall_common.component.state import KeyValueState
from squall_common.config.load import default_conf
from squall_common.errors import SquallError, describe
from squall_common.topology.model import Component, Executor, PythonObject, WorkerSlot
from squall_common.topology.prepared import PreparedTopology
from squall_engine.embed import (
    ComponentStartError,
    EmbeddedEngine,
    EngineCallbacks,
    EngineEndedError,
    EngineSettings,
    Tuple,
    addressee,
    checked_origins,
    make_user_object,
    value_codec,
)
from squall_engine.transport import Arrival, Grant, Listener
from squall_spark.plan import SparkPlan, near_tasks
from squall_spark.state.owner import CurrentOwner
from squall_spark.tasks.arrow import (
    ArrowCollector,
    ArrowColumns,
    ArrowOutput,
    decode,
    is_arrow,
)
from squall_spark.tasks.by_time import ByTime
from squall_spark.tasks.event_time import InputClock, TimeOfBolt
from squall_spark.tasks.hiding import hiding

Row = tuple[int, bytes]  # the task that receives it, and a section

# The work of one turn before it sends: sections of a useful size, however many targets there are.
_TURN_MS = 20
_DRAIN_BYTES = 1024 * 1024
_CHUNK_ROWS = 2_000  # rows of a data set that a spout emits at once
_OUT_BYTES = 4 * 1024 * 1024  # how far a bounded spout may run ahead of Spark
# One peer, with a section for each task: a peer for each would cost every task as many of them.
_ELSEWHERE = WorkerSlot("spark", 0)
_NO_END = 1 << 62
_WINDOWS = "windows"  # the key of a windowed bolt's state


class TaskFailedError(SquallError):
    """A tuple failed, or a component raised: the message names component and task."""


class _Transport:
    """The engine's input and output: lists. Credit is unlimited: the engine turns only while its
    output is wanted."""

    def __init__(self, tasks: Iterable[int]) -> None:
        self._tasks = tuple(tasks)
        self.arrived: list[bytes] = []
        self.leaving: list[Row] = []
        self.leaving_bytes = 0
        self.wakeup: Callable[[], None] = lambda: None

    @property
    def routes(self) -> dict[int, WorkerSlot]:
        """Where the tasks are."""
        return dict.fromkeys(self._tasks, _ELSEWHERE)

    def send(self, peer: WorkerSlot, sections: Sequence[bytes], credited: int = 0) -> None:
        for section in sections:
            self.leaving.append((addressee(section)[0], section))
            self.leaving_bytes += len(section)

    def drain(self, limit_bytes: int) -> list[Arrival]:
        taken, size = 0, 0
        while taken < len(self.arrived) and size < limit_bytes:
            size += len(self.arrived[taken])
            taken += 1
        sections = self.arrived[:taken]
        del self.arrived[:taken]
        if self.arrived:
            asyncio.get_running_loop().call_soon(self.wakeup)
        return [Arrival(_ELSEWHERE, None, sections)] if sections else []

    def grant(self, peer: WorkerSlot, grants: Iterable[Grant], *, soon: bool) -> None:
        """Nothing waits for credit."""

    def set_wakeup(self, wakeup: Callable[[], None], listener: Listener) -> None:
        self.wakeup = wakeup
        listener.granted(_ELSEWHERE, [Grant(task, _NO_END, 0) for task in self._tasks])


class DataSpout(Spout):
    """Replaces a spout with --input: emits the rows that it is given."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Sequence[Sequence[Any]]]] = []

    def next_tuple(self) -> None:
        if self.waiting:
            stream, columns = self.waiting[0]
            self.emit_columns([c[:_CHUNK_ROWS] for c in columns], stream=stream)
            rest = [c[_CHUNK_ROWS:] for c in columns]
            if rest[0]:
                self.waiting[0] = (stream, rest)
            else:
                del self.waiting[0]


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """The description of a task for its partition. Pickled to Spark's Python workers."""

    plan: SparkPlan
    component: str
    from_data: bool  # a DataSpout instead of the user's


class TaskRunner:
    """One task, from `prepare` to `cleanup`. Use it in a `with` statement, on a thread without an
    event loop; `take` returns the emitted tuples."""

    def __init__(
        self,
        spec: TaskSpec,
        index: int,
        *,
        code_dir: Path | None = None,
        state: KeyValueState | None = None,
        owner: CurrentOwner | None = None,
        now_secs: float | None = None,
    ) -> None:
        """`index` is the task's among those of its component. `state` is for a StatefulBolt
        (None: a state in memory), which `owner` follows, or has the windows of a WindowedBolt.
        `now_secs` is the time of a micro-batch; None in a batch job."""
        self._spec = spec
        self._plan = spec.plan
        self.component = spec.component
        self._stage = self._plan.stage(spec.component)
        self.task = self._stage.tasks[index]
        self._code_dir = code_dir
        self._state = state
        self._owner = owner
        self._transport = _Transport(_targets(self._plan, spec.component))
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._engine: EmbeddedEngine | None = None
        self._user: Any = None
        self._now_secs = now_secs
        self._clock: InputClock | None = None  # None: the machine's
        self._windows: DrivenWindows | None = None
        self._time: TimeOfBolt | None = None  # None: time does not pass for it
        self._sorted: ByTime | None = None  # its tuples, if they come in order
        self._arrow = ArrowOutput(spec.plan, spec.component, self.task)
        self._arrow_taken = 0
        self._rows_in_hand = 0  # of the record batch that the bolt is processing
        self._reported: BaseException | None = None  # the last error
        self._refused: Exception | None = None  # why a tuple could not be delivered
        self._raised: BaseException | None = None  # by a spout's next_tuple
        self._died: BaseException | None = None

    def __enter__(self) -> TaskRunner:
        try:
            self._loop.run_until_complete(self._start())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._engine is not None:
                self._loop.run_until_complete(self._engine.stop(0))
                self._print_metrics(self._engine)
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            if self._sorted is not None:
                self._sorted.close()
            self._loop.close()

    # ---- life ----

    async def _start(self) -> None:
        plan = self._plan
        conf = {
            **plan.conf,
            "topology.run.turn.ms": _TURN_MS,
            "topology.max.spout.pending": None,  # nothing is pending
            "topology.bolt.die.on.error": False,
            "topology.enable.message.timeouts": False,
        }
        stage = self._stage
        made_of = plan.topology.components[self.component].object
        has_ticks = stage.tick_secs is not None and isinstance(made_of, PythonObject)
        if stage.windowed or stage.by_time or has_ticks:
            in_stream = self._now_secs is not None and not stage.by_time
            self._clock = InputClock(self._now_secs if in_stream else None)
        settings = EngineSettings(
            prepared=PreparedTopology(plan.topology, conf, plan.task_to_component),
            topology_id=f"{plan.name}-0-0",
            slot=WorkerSlot("spark", self.task),
            executors=[Executor(self.task, self.task)],
            daemon_conf=_daemon_conf(),
            # For local-or-shuffle groupings some of the others are here.
            near=near_tasks(plan, self.task),
            seed=zlib.crc32(f"{plan.name}/{self.component}/{self.task}".encode()),
            code_dir=self._code_dir,
            marks=False,
        )
        callbacks = EngineCallbacks(
            on_reported=self._on_reported,
            on_fatal=self._on_fatal,
            on_rejected=self._on_rejected,
            on_asking_raised=self._on_asking_raised,
            make_object=self._make,
            wrap_collector=self._wrap_collector,
            open_state=self._open_state,
        )
        engine = self._engine = EmbeddedEngine(
            settings, callbacks, transport=self._transport, clock=self._clock
        )
        # (Before the start, so that it is connected once, and only to those that it sends to.)
        engine.set_routes(self._transport.routes)
        try:
            await engine.start()
        except ComponentStartError as error:
            raise TaskFailedError(error.message, hint=error.hint) from error
        try:
            engine.set_active(True)
            engine.set_ready(True)
            await self._settle()
            if self._clock is not None:
                await self._start_time(engine, self._clock)
        except BaseException:  # `__exit__` is not called
            await engine.stop(0)
            raise

    async def _start_time(self, engine: EmbeddedEngine, clock: InputClock) -> None:
        """Prepare to let time pass, and take the windows of the micro-batch before."""
        stage, windows = self._stage, self._windows
        codec = value_codec(self._plan.topology, self._plan.conf, allow_pickle=False)
        if windows is not None and self._state is not None:
            stored = self._state.get(_WINDOWS)
            if stored is not None:
                time_ms, data = stored
                windows.restore(data, codec, engine.make_tuple)
                if stage.by_time:
                    clock.begin(time_ms)
            await engine.call_for(self._user, windows.advance_clock)
            await self._settle()
        self._time = TimeOfBolt(
            engine,
            clock,
            self.task,
            self._user,
            self._settle,
            windows=windows,
            tick_secs=stage.tick_secs if self._now_secs is None else None,
        )
        if stage.by_time:
            self._sorted = ByTime(self._time_of(windows), codec, engine.make_tuple)

    def _time_of(self, windows: DrivenWindows | None) -> Callable[[Tuple], int]:
        """How to find the time of a tuple; raises TaskFailedError."""
        by_field = timestamp_in(self._stage.timestamp_field or "")
        found = by_field if windows is None else windows.time_of

        def time_of(tup: Tuple) -> int:
            try:
                return found(tup)
            except Exception as error:
                what = f"a tuple of {tup.source.component!r} has no timestamp"
                raise self._failed(what, error) from error

        return time_of

    def _print_metrics(self, engine: EmbeddedEngine) -> None:
        """Write what the component recorded to Spark's log: there are no consumers here."""
        try:
            for name, value in engine.metric_values(self.component).items():
                line = f"{self.component}:{self.task}: metric {name} = {value}"
                print(line, file=sys.stderr, flush=True)
        except Exception as error:  # of a gauge's function
            print(f"{self.component}:{self.task}: {describe(error)}", file=sys.stderr, flush=True)

    def _make(self, component: Component, task: int) -> Any:
        if self._spec.from_data:
            self._user = DataSpout()
            return self._user
        self._user = make_user_object(component, task)
        if isinstance(self._user, WindowedBolt):
            self._windows = DrivenWindows.of(self._user)
        elif self._owner is not None:
            self._owner.follow(self._user)
        if self._arrow and hasattr(self._user, "execute_columns"):
            self._user.execute_columns = self._counting_rows(self._user.execute_columns)
        return self._user

    def _wrap_collector(self, component: str, collector: Any) -> Any:
        """Let `emit` return only the ids of tasks that exist on a cluster, so no sinks."""
        if self._spec.from_data:
            return collector
        if self._plan.is_written(component):
            collector = hiding(collector, self._plan.sink_tasks)
        if self._arrow and isinstance(collector, ColumnCollector):
            collector = ArrowCollector(collector, self._arrow, self._check_origins)
        return collector

    def _open_state(self, component: str, task: int) -> KeyValueState | None:
        """The state of the stream's checkpoint; None, in memory, in a batch job. Never what
        `topology.state.provider` says."""
        return self._state

    def _on_asking_raised(self, component: str, task: int, error: BaseException) -> None:
        if isinstance(error, Exception):
            self._raised = error

    def _on_rejected(self, component: str, task: int, error: Exception) -> None:
        self._refused = error

    def _on_reported(self, component: str, task: int, error: BaseException) -> None:
        self._reported = error
        print(f"{component}:{task}: {describe(error)}", file=sys.stderr, flush=True)

    def _on_fatal(self, error: BaseException) -> None:
        self._died = error

    # ---- work ----

    def feed(self, sections: Iterable[bytes]) -> None:
        """Process sections from other tasks, or Arrow batches, completely. Raises
        TaskFailedError."""
        for section in sections:
            if self._sorted is not None:
                self._sorted.add(self._started().tuples_in(section), len(section))
                self._check()
            elif is_arrow(section):
                self._feed_arrow(section)
            else:
                self._transport.arrived.append(section)
        self._loop.run_until_complete(self._settle())

    def _feed_arrow(self, section: bytes) -> None:
        batch = decode(section)
        component = self._plan.task_to_component[int(batch.schema.metadata[b"task"])]
        columns = ArrowColumns(batch, component, self._fail_rows)
        try:
            self._user.execute_columns(columns)
        except TaskFailedError:
            raise
        except Exception as error:
            raise self._failed("a tuple failed", error) from error
        self._arrow_taken += columns.rows

    def _counting_rows(self, execute: Callable[[Columns], None]) -> Callable[[Columns], None]:
        """`execute_columns`, such that the batch of what it emits is known."""

        def execute_columns(columns: Columns) -> None:
            self._rows_in_hand = columns.rows
            try:
                execute(columns)
            finally:
                self._rows_in_hand = 0

        return execute_columns

    def _fail_rows(self) -> None:
        raise self._failed("it failed a tuple, and Spark cannot replay it", None)

    def _check_origins(self, origins: Any, emitted: int) -> None:
        if isinstance(origins, pa.Array):
            origins = origins.to_pylist()
        checked_origins(origins, emitted, self._rows_in_hand)

    def feed_columns(self, stream: str, columns: Sequence[pa.Array]) -> None:
        """Emit rows of a data set as the spout, one array per field. Raises TaskFailedError."""
        if not columns or not len(columns[0]) or self._arrow.takes(stream, columns):
            return
        columns = [c.to_pylist(maps_as_pydicts="strict") for c in columns]
        if columns:
            self._user.waiting.append((stream, columns))
            self._loop.run_until_complete(self._settle())

    def finish(self) -> Iterator[list[Row]]:
        """The end of the input: flush the bolt, or run a bounded spout to its end. Yields the
        output meanwhile, in portions. Raises TaskFailedError."""
        if isinstance(self._user, DataSpout):
            pass  # it has emitted what it was given
        elif isinstance(self._user, Spout):
            while not self._loop.run_until_complete(self._run_spout()):
                yield self.take()
        else:
            if self._sorted is not None and self._time is not None:
                run = self._time.run(self._sorted, self._has_emitted_enough)
                while not self._loop.run_until_complete(run):
                    yield self.take()
                    run = self._time.run(self._sorted, self._has_emitted_enough)
            self._loop.run_until_complete(self._end())
        yield [*self.take(), *self._arrow.take(end=True)]

    def totals(self) -> tuple[int, int]:
        """How many tuples the task has taken and emitted so far (a copy that is sent to an output
        does not count)."""
        counts = self._started().totals().get(self.component, {})
        return (
            counts.get("executed", 0) + self._arrow_taken,
            counts.get("emitted", 0) + self._arrow.emitted,
        )

    def take(self) -> list[Row]:
        """The output since the last call, as pairs of receiving task and section."""
        transport = self._transport
        rows, transport.leaving, transport.leaving_bytes = transport.leaving, [], 0
        return rows + self._arrow.take()

    async def _settle(self) -> None:
        """Let the engine turn until nothing is in flight."""
        self._wake()
        await self._wait(self._started().run_until_drained(self._has_taken_all))

    async def _run_spout(self) -> bool:
        """Run a bounded spout until it has emitted enough, or has ended; returns whether it has."""
        transport = self._transport
        ended = False

        def enough() -> bool:
            nonlocal ended
            self._check()
            if transport.leaving_bytes > _OUT_BYTES:
                return True
            answer = self._user.exhausted()
            if answer is None:
                raise self._failed("its source has no end: exhausted() returned None", None)
            ended = bool(answer) and engine.is_drained()
            return ended

        engine = self._started()
        await self._wait(engine.run_until(enough))
        if ended:
            await self._settle()
        return ended

    async def _wait(self, turning: Coroutine[Any, Any, None]) -> None:
        """Let the engine turn until it has done what is awaited. Raises TaskFailedError."""
        try:
            await turning
        except EngineEndedError as error:
            raise self._failed("it ended", error) from error

    def _has_taken_all(self) -> bool:
        """Whether the engine has taken all of the input. Raises TaskFailedError."""
        self._check()
        waiting = isinstance(self._user, DataSpout) and self._user.waiting
        return not (waiting or self._transport.arrived)

    def _started(self) -> EmbeddedEngine:
        assert self._engine is not None
        return self._engine

    def _has_emitted_enough(self) -> bool:
        return self._transport.leaving_bytes > _OUT_BYTES

    async def _end(self) -> None:
        """The end of the input, or of a micro-batch. A bolt without `flush` gets a last tick."""
        engine, time, stage = self._started(), self._time, self._stage
        if time is None:
            engine.ring_timers(math.inf)
            await engine.call_for(self._user, _nothing)
            await self._settle()
        elif self._now_secs is None:
            await time.end_input()
            await time.ring_pending(tick=not stage.flushes)
        else:
            await time.advance_watermark()
            await time.ring_pending(tick=False)
        ticked = time is not None and self._now_secs is None
        if stage.tick_secs is not None and not stage.flushes and not ticked:
            engine.tick(self.task, stage.tick_secs)
            await self._settle()
        await self._flush()
        if self._windows is not None and self._state is not None:
            await engine.call_for(self._user, self._store_windows)

    def _store_windows(self) -> None:
        assert self._windows is not None
        assert self._state is not None
        assert self._clock is not None
        codec = value_codec(self._plan.topology, self._plan.conf, allow_pickle=False)
        time_ms = round(self._clock.time() * 1000)
        self._state.put(_WINDOWS, [time_ms, self._windows.snapshot(codec, Tuple)])

    async def _flush(self) -> None:
        if not hasattr(self._user, "flush"):
            return  # a shell component
        try:
            await self._started().call(self._user, "flush")
        except Exception as error:
            raise self._failed("flush() failed", error) from error
        await self._settle()

    def _wake(self) -> None:
        self._transport.wakeup()
        if isinstance(self._user, Spout):
            self._user.context.wake()

    def _check(self) -> None:
        """Raise the failure that has occurred meanwhile, if any."""
        if self._died is not None:
            raise self._failed("it died", self._died) from self._died
        if self._refused is not None:
            raise self._failed("a tuple cannot be sent", self._refused) from self._refused
        if self._raised is not None:
            raise self._failed("next_tuple() failed", self._raised) from self._raised
        if self._started().failed_tuples():
            cause = self._reported
            if cause is None:
                raise self._failed("it failed a tuple, and Spark cannot replay it", None)
            raise self._failed("a tuple failed", cause) from cause

    def _failed(self, what: str, cause: BaseException | None) -> TaskFailedError:
        why = "" if cause is None else f": {' '.join(describe(cause).split())}".rstrip(": ")
        return TaskFailedError(f"component {self.component!r}, task {self.task}: {what}{why}")


def _nothing() -> None:
    pass


@functools.cache
def _daemon_conf() -> dict[str, Any]:
    return default_conf()


def _targets(plan: SparkPlan, component: str) -> list[int]:
    """The tasks that a component may send to."""
    consumers = {
        id_
        for id_, consumer in plan.topology.components.items()
        if any(source.component == component for source in consumer.inputs)
    }
    return [task for task, id_ in plan.task_to_component.items() if id_ in consumers]
