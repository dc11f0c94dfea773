"""Bolts and whole topologies on a clock that the test moves."""

from __future__ import annotations

import asyncio
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from squall._builder import TopologyBuilder
from squall.local import LocalError
from squall.windows.bolt import WindowedBolt, windowed_conf, with_late_stream
from squall.windows.spec import Windows
from squall_common.component.component import Bolt, Spout, Stream
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import ManualClock
from squall_common.errors import SquallError
from squall_common.names import DEFAULT_STREAM
from squall_common.topology.arguments import instantiate
from squall_common.topology.model import (
    Component,
    ComponentKind,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    PythonObject,
    ShellObject,
    StreamInfo,
    Topology,
    WorkerSlot,
)
from squall_common.topology.prepared import prepare
from squall_common.topology.system import validate_topology

if TYPE_CHECKING:
    from squall_common.component.tuples import Tuple

_T = TypeVar("_T")
_GIVEN = PythonObject("squall.testing:FeederSpout", b'{"args":[],"kwargs":{}}')
_STEP_SECS = 0.001
_CALM_SECS = 0.02
_THREADS_SECS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Emitted:
    """A tuple that a component emitted."""

    component: str
    task: int
    stream: str
    values: list[Any]
    time: float  # virtual seconds since the test began


@dataclass(slots=True)
class Execution:
    """The outcome of one tuple that a test gave to a bolt. `acked` and `failed` follow what happens
    later: a bolt that holds a tuple may ack it in a `run_for` or another `execute`."""

    emitted: list[Emitted] = field(default_factory=list)
    acked: bool = False
    failed: bool = False
    errors: list[BaseException] = field(default_factory=list)


class FeederSpout(Spout):
    """A spout that emits what the test feeds it. Derive from it to declare the fields, and feed it
    with `TopologyTest.feed`.

        class Words(FeederSpout):
            outputs = ["word"]
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[Sequence[Any], Any, str]] = deque()

    def feed(
        self, values: Sequence[Any], message_id: Hashable | None, stream: str = DEFAULT_STREAM
    ) -> None:
        """Emit this tuple the next time the engine calls `next_tuple`."""
        self._queue.append((values, message_id, stream))

    @property
    def is_empty(self) -> bool:
        """Whether everything that was fed has been emitted."""
        return not self._queue

    def next_tuple(self) -> None:
        if self._queue:
            values, message_id, stream = self._queue.popleft()
            self.emit(values, message_id=message_id, stream=stream)


class TopologyTest:
    """A topology on a virtual clock. Use it in a `with` statement, outside any event loop.

    `errors` lists the errors that components reported; `died` is the exception that ended the
    topology, or None.

        class Sentences(FeederSpout):
            outputs = ["sentence"]

        builder = TopologyBuilder()
        builder.spout("sentences", Sentences())
        builder.bolt("split", Split()).shuffle("sentences")
        with TopologyTest(builder) as test:
            test.feed("sentences", ["the cow"], message_id=1)
            test.run_until_idle()
            assert [e.values for e in test.emitted("split")] == [["the"], ["cow"]]
            assert test.acked("sentences") == [1]
    """

    def __init__(
        self,
        topology: Topology | TopologyBuilder,
        conf: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        objects: Mapping[str, Any] | None = None,
    ) -> None:
        """`topology` is a built topology, or the builder: then the classes of spouts and bolts may
        be defined inside the test function, as nothing travels to a worker. `objects` are spouts
        and bolts, by component id, that replace those of the topology (each with one task). Raises
        InvalidTopologyError for a builder that does not build."""
        self._classes: Mapping[str, type] = {}  # that no worker could import
        if isinstance(topology, TopologyBuilder):
            topology, self._classes = topology._build_for_test()
        self._submitted = topology
        self._conf = dict(conf or {})
        self._seed = seed
        self._objects = dict(objects or {})
        self.clock = ManualClock()
        self._start = self.clock.monotonic()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._recorder: Any = None
        self._engine: Any = None
        self.errors: list[LocalError] = []
        self.died: BaseException | None = None

    # ---- life ----

    def __enter__(self) -> TopologyTest:
        self._loop = _VirtualLoop(self.clock)
        try:
            self._wait(self._run())
        except BaseException:
            self._close_loop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait(self._engine.stop(0))
        finally:
            self._close_loop()

    async def _run(self) -> None:
        from squall_engine.embed import (
            EmbeddedEngine,
            EngineCallbacks,
            EngineSettings,
            make_user_object,
        )

        base = {**default_conf(), "topology.testing.always.try.serialize": True}
        stored = normalize_topology_conf(
            {**self._conf, "topology.workers": 1},
            base,
            name="test",
            components=self._submitted.component_confs,
        )
        if not self._objects:
            validate_topology(self._submitted, TopologyOptions.read(stored))
        prepared = prepare(self._submitted, stored)
        self._recorder = recorder = _recorder(self._now)

        def make(component: Component, task: int) -> Any:
            given = self._objects.get(component.id)
            if given is None and isinstance(component.object, ShellObject):
                raise SquallError(
                    f"component {component.id!r} is a shell component: its child process does not "
                    "use the test's clock",
                    hint="test it with LocalCluster",
                )
            if given is None and component.id in self._classes:
                assert isinstance(component.object, PythonObject)
                return instantiate(component.object, self._classes[component.id])
            return make_user_object(component, task) if given is None else given

        def make_hook(hook: PythonObject) -> Any:
            return instantiate(hook, self._classes.get(hook.class_path))

        settings = EngineSettings(
            prepared=prepared,
            topology_id="test-1-0",
            slot=WorkerSlot("test", 1),
            executors=prepared.executors,
            daemon_conf=base,
            seed=self._seed,
        )
        callbacks = EngineCallbacks(
            on_reported=self._report,
            on_fatal=self._on_fatal,
            make_object=make,
            make_hook=make_hook,
        )
        self._engine = EmbeddedEngine(settings, callbacks, clock=self.clock, observer=recorder)
        await self._engine.start()
        self._engine.set_active(True)

    def _report(self, component: str, task: int, error: BaseException) -> None:
        self.errors.append(LocalError(component, task, error))
        self._recorder.note("error", component, task, f"{type(error).__name__}: {error}")

    def _on_fatal(self, error: BaseException) -> None:
        self.died = error

    def _now(self) -> float:
        return round(self.clock.monotonic() - self._start, 9)

    def _close_loop(self) -> None:
        assert self._loop is not None
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _wait(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        assert self._loop is not None, "use it in a with statement"
        return self._loop.run_until_complete(coroutine)

    # ---- letting it run ----

    def run_for(self, secs: float) -> None:
        """Let `secs` of virtual time pass."""
        self._wait(asyncio.sleep(secs))

    def run_until(self, condition: Callable[[], bool], timeout_secs: float = 60.0) -> None:
        """Run until `condition()` is true; it is checked every virtual millisecond. Raises
        TimeoutError after `timeout_secs` of virtual time."""

        async def wait() -> None:
            deadline = self.clock.monotonic() + timeout_secs
            while not condition():
                if self.clock.monotonic() >= deadline:
                    raise TimeoutError(
                        f"the condition is still false after {timeout_secs} virtual seconds"
                    )
                await asyncio.sleep(_STEP_SECS)

        self._wait(wait())

    def run_until_idle(self, timeout_secs: float = 60.0) -> None:
        """Run until everything that was fed is emitted, nothing is in flight and nothing has
        happened for twenty virtual milliseconds. Raises TimeoutError after `timeout_secs` of
        virtual time, and SquallError if the topology dies with something in flight."""

        def all_fed() -> bool:
            users = self._engine.users()
            return all(user.is_empty for user in users if isinstance(user, FeederSpout))

        async def wait() -> None:
            async with asyncio.timeout(timeout_secs):
                await self._engine.run_until_drained(
                    all_fed,
                    calm_secs=_CALM_SECS,
                    activity=lambda: len(self._recorder.lines),
                    look_secs=_STEP_SECS,
                )

        try:
            self._wait(wait())
        except TimeoutError as error:
            message = f"the topology is still busy after {timeout_secs} virtual seconds"
            raise TimeoutError(message) from error

    def feed(
        self,
        component: str,
        values: Sequence[Any],
        message_id: Hashable | None = None,
        stream: str = DEFAULT_STREAM,
    ) -> None:
        """Make the FeederSpout `component` emit a tuple."""
        for feeder in self.instances(component):
            feeder.feed(values, message_id, stream)
            feeder.context.wake()
            return

    # ---- what happened ----

    def instances(self, component: str) -> list[Any]:
        """The spout or bolt objects of a component, one per task."""
        users: list[Any] = self._engine.users(component)
        return users

    def emitted(self, component: str, stream: str | None = None) -> list[Emitted]:
        """The tuples that a component emitted, in order (only those on `stream`, if given)."""
        return [
            emitted
            for emitted in self._recorder.emits
            if emitted.component == component and stream in (None, emitted.stream)
        ]

    def acked(self, component: str) -> list[Any]:
        """The message ids for which a spout's `ack` was called, or the tuples that a bolt acked."""
        found: list[Any] = self._recorder.acked.get(component, [])
        return list(found)

    def failed(self, component: str) -> list[Any]:
        """The message ids for which a spout's `fail` was called, or the tuples that a bolt
        failed."""
        found: list[Any] = self._recorder.failed.get(component, [])
        return list(found)

    def metrics(self, component: str) -> dict[str, float]:
        """What a component has recorded with its context's counters, meters, gauges, histograms and
        timers, by name, over all its tasks: `test.metrics("split")["empty-lines"] == 2`. For a
        histogram or a timer it is the number of its values. Raises what a gauge's function
        raises."""
        return dict(self._engine.metric_values(component))

    @property
    def trace(self) -> str:
        """Everything that happened, one event per line; the same for the same seed."""
        return "".join(line + "\n" for line in self._recorder.lines)


class BoltTest:
    """One bolt that the test feeds; nothing consumes its output. Use it in a `with` statement.

        with BoltTest(Split(), {"sentences": ["sentence"]}) as test:
            done = test.execute(["the cow"])
            assert [e.values for e in done.emitted] == [["the"], ["cow"]]
            assert done.acked

    `test.test` is the TopologyTest in which the bolt runs.
    """

    def __init__(
        self,
        bolt: Bolt,
        inputs: Mapping[str, Sequence[str] | Mapping[str, Sequence[str]]],
        conf: Mapping[str, Any] | None = None,
        *,
        seed: int = 0,
        windows: Windows | None = None,
    ) -> None:
        """`inputs` maps each component that the bolt subscribes to, to its fields, or to its
        streams with the fields of each. `windows` are a WindowedBolt's, as for `windowed()`."""
        self._sources = {source: _streams_of(declared) for source, declared in inputs.items()}
        components = {
            source: Component(source, ComponentKind.SPOUT, _GIVEN, streams=streams)
            for source, streams in self._sources.items()
        }
        components["bolt"] = Component(
            "bolt",
            ComponentKind.BOLT,
            _GIVEN,
            inputs={
                GlobalStreamId(source, stream): Grouping(GroupingKind.SHUFFLE)
                for source, streams in self._sources.items()
                for stream in streams
            },
            streams=_streams_of(bolt.outputs),
            conf=dict(bolt.component_conf),
        )
        if isinstance(bolt, WindowedBolt):
            own = windowed_conf(bolt, windows)
            streams = with_late_stream(components["bolt"].streams, own)
            components["bolt"] = replace(components["bolt"], streams=streams, conf=own)
        objects: dict[str, Any] = {source: FeederSpout() for source in self._sources}
        self.test = TopologyTest(
            Topology(components), conf, seed=seed, objects={**objects, "bolt": bolt}
        )
        self._fed = 0

    def __enter__(self) -> BoltTest:
        self.test.__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        self.test.__exit__(*args)

    def execute(
        self,
        values: Sequence[Any],
        *,
        source: str | None = None,
        stream: str = DEFAULT_STREAM,
        wait_secs: float = 0.0,
    ) -> Execution:
        """Give the bolt a tuple, let it run for `wait_secs` of virtual time, and return the
        outcome. `source` may be left out if there is only one."""
        if source is None:
            (source,) = self._sources
        recorder = self.test._recorder
        emits, errors = len(recorder.emits), len(self.test.errors)
        self._fed += 1
        message_id = f"fed-{self._fed}"
        execution = recorder.executions[message_id] = Execution()
        self.test.feed(source, values, message_id, stream)
        self.test.run_until(
            lambda: (
                any(e.component == source for e in recorder.emits[emits:])
                or len(self.test.errors) > errors
            )
        )
        self.test.run_for(max(wait_secs, 2 * _STEP_SECS))
        execution.emitted = [e for e in recorder.emits[emits:] if e.component == "bolt"]
        execution.errors = [e.error for e in self.test.errors[errors:]]
        return execution

    def metrics(self, component: str = "bolt") -> dict[str, float]:
        """What the bolt has recorded: see `TopologyTest.metrics`."""
        return self.test.metrics(component)

    def run_for(self, secs: float) -> list[Emitted]:
        """Let `secs` of virtual time pass. Returns what the bolt emitted meanwhile (on ticks, for
        example)."""
        before = len(self.test._recorder.emits)
        self.test.run_for(secs)
        return [e for e in self.test._recorder.emits[before:] if e.component == "bolt"]


def _streams_of(declared: Any) -> dict[str, StreamInfo]:
    if isinstance(declared, Stream):
        declared = {DEFAULT_STREAM: declared}
    if not isinstance(declared, Mapping):
        declared = {DEFAULT_STREAM: declared} if declared else {}
    return {
        stream: StreamInfo(fields.fields, fields.direct)
        if isinstance(fields, Stream)
        else StreamInfo(tuple(fields))
        for stream, fields in declared.items()
    }


def _recorder(now: Callable[[], float]) -> Any:
    # The engine is imported only when a test runs: users import this module.
    from squall_engine.embed import Observer

    class Recorder(Observer):
        """Keeps the trace."""

        def __init__(self) -> None:
            self.lines: list[str] = []
            self.emits: list[Emitted] = []
            self.acked: dict[str, list[Any]] = {}
            self.failed: dict[str, list[Any]] = {}
            self.executions: dict[Any, Execution] = {}  # by message id

        def note(self, event: str, component: str, task: int, what: object) -> None:
            self.lines.append(f"{now():.6f} {event} {component}:{task} {what}")

        def emitted(self, source: Any, values: Sequence[Any]) -> None:
            self.emits.append(
                Emitted(source.component, source.task, source.stream, list(values), now())
            )
            self.note("emit", source.component, source.task, f"{source.stream} {list(values)!r}")

        def settled(self, component: str, task: int, tup: Tuple, failed: bool) -> None:
            (self.failed if failed else self.acked).setdefault(component, []).append(tup)
            self.note("fail" if failed else "ack", component, task, list(tup.values))

        def completed(self, component: str, task: int, message_id: Any, failed: bool) -> None:
            (self.failed if failed else self.acked).setdefault(component, []).append(message_id)
            if (execution := self.executions.get(message_id)) is not None:
                execution.acked, execution.failed = not failed, failed
            self.note("failed" if failed else "acked", component, task, repr(message_id))

    return Recorder()


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that takes its time from the clock and never sleeps."""

    def __init__(self, clock: ManualClock) -> None:
        self._virtual_clock = clock
        super().__init__(_VirtualSelector(clock))

    def time(self) -> float:
        return self._virtual_clock.monotonic()


class _VirtualSelector(selectors.DefaultSelector):
    """A selector that moves the clock to the next timer instead of sleeping until it."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or timeout == 0:
            return events
        if timeout is None:
            # No timer at all: something waits for a thread, which runs in real time.
            events = super().select(_THREADS_SECS_MAX)
            if not events:
                raise RuntimeError("the test is waiting for something that can never happen")
            return events
        self._clock.advance(timeout)
        return []


__all__ = ["BoltTest", "Emitted", "Execution", "FeederSpout", "TopologyTest"]
