"""Contexts: what a component (`self.context`) and a worker hook can learn about their topology."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from squall_common.component.metrics.instruments import (
    INSTRUMENTS_MAX,
    NAME_CHARS_MAX,
    Counter,
    CounterLike,
    Gauge,
    Histogram,
    Instrument,
    Meter,
    Timer,
)
from squall_common.component.metrics.shell_metrics import ShellMetric
from squall_common.component.shared_threads import SharedThreads
from squall_common.errors import SquallError
from squall_common.names import topology_name_of
from squall_common.outside.held import HeldTokens
from squall_common.topology.model import Component, GlobalStreamId, Grouping, Topology
from squall_common.topology.serialization import Registry

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from squall_common.component.state import KeyValueState

_Metric = TypeVar("_Metric")


class Cancellable(Protocol):
    """A timer that is running."""

    def cancel(self) -> None:
        """Do not call. Does nothing once the call was made."""


def _no_timers(task: int, secs: float, call: Callable[[], Any]) -> Cancellable:
    raise RuntimeError("timers need an engine")


class AnyTaskHook(Protocol):
    """A `squall.TaskHook`, as far as its context knows it."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None: ...

    def cleanup(self) -> None: ...


class CurrentCredentials:
    """The newest credentials of a topology: `values` is replaced when there are others."""

    __slots__ = ("values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self.values: Mapping[str, str] = MappingProxyType(dict(values or {}))

    def __repr__(self) -> str:
        return f"CurrentCredentials({sorted(self.values)})"


@dataclass(frozen=True)
class WorkerContext:
    """The values that the tasks of one worker share."""

    topology_id: str
    topology: Topology
    conf: Mapping[str, Any]
    task_to_component: Mapping[int, str]
    worker_tasks: tuple[int, ...]
    worker_port: int
    code_dir: Path | None
    pid_dir: Path | None
    wake: Callable[[], None]
    serialization: Registry = field(default_factory=Registry)
    resources: dict[str, Any] = field(default_factory=dict)  # shared by the worker's tasks
    now: Callable[[], float] = time.monotonic  # for timers: seconds
    time: Callable[[], float] = time.time  # seconds since the epoch
    # (task, seconds, call): see `TopologyContext.call_later`.
    call_later: Callable[[int, float, Callable[[], Any]], Cancellable] = _no_timers
    shared_threads: SharedThreads = field(default_factory=SharedThreads)
    make_counter: Callable[[], CounterLike] = Counter  # a faster one with the compiled core
    credentials: CurrentCredentials = field(default_factory=CurrentCredentials)
    identity_tokens: HeldTokens = field(default_factory=HeldTokens)
    # (component, task): the state of a task; None: in memory.
    open_state: Callable[[str, int], KeyValueState | None] | None = None

    @cached_property
    def tasks_of(self) -> Mapping[str, Sequence[int]]:
        """All tasks of each component, in every worker, sorted: found once for all tasks of this
        worker, since each of them asks for its own place among them."""
        found: dict[str, list[int]] = {}
        for task in sorted(self.task_to_component):
            found.setdefault(self.task_to_component[task], []).append(task)
        return found


class WorkerTopologyContext:
    """What a worker knows about its topology: the context of a worker hook. The names are those of
    Storm's WorkerTopologyContext, spelled in Python's style."""

    def __init__(self, worker: WorkerContext) -> None:
        self._worker = worker

    @property
    def topology_id(self) -> str:
        """The id of the topology: name, number and time of its submit ("words-1-1795499762")."""
        return self._worker.topology_id

    @property
    def topology_name(self) -> str:
        """The name under which the topology was submitted."""
        return topology_name_of(self._worker.topology_id)

    @property
    def topology(self) -> Topology:
        """The running topology, including system components."""
        return self._worker.topology

    @property
    def task_to_component(self) -> Mapping[int, str]:
        """The component id of every task, in all workers, system components included."""
        return self._worker.task_to_component

    @property
    def this_worker_port(self) -> int:
        """The port of this worker's slot, which is unique on its node."""
        return self._worker.worker_port

    @property
    def this_worker_tasks(self) -> Sequence[int]:
        """The tasks that run in this worker."""
        return self._worker.worker_tasks

    @property
    def code_dir(self) -> Path | None:
        """The folder in which the package is unpacked; None in local mode and in the test kit."""
        return self._worker.code_dir

    @property
    def pid_dir(self) -> Path | None:
        """The folder in which shell components leave files named by their process ids; None in
        local mode and in the test kit."""
        return self._worker.pid_dir

    @property
    def serialization(self) -> Registry:
        """The topology's registered types."""
        return self._worker.serialization

    @property
    def credentials(self) -> Mapping[str, str]:
        """The topology's credentials, by name (`storm upload-credentials`, `submit_topology(...,
        credentials=...)`); empty if it has none. Read it again after `credentials_updated`, or each
        time: it is the newest version that has reached this worker."""
        return self._worker.credentials.values

    def identity_token(self, audience: str) -> str:
        """A token by which this topology proves to a foreign party who it is: a JWT of the cluster,
        for one of the audiences that `topology.identity.audiences` lists. It names the topology and
        its owner, and lives for an hour at the most; ask for it at each login, since the worker
        renews it. Never waits, and may be called from any thread.

            def log_in(self):
                token = self.context.identity_token("https://vault.example.org")
                self.vault.auth.jwt.jwt_login(role="words", jwt=token)

        Raises IdentityTokenError where there is none: the topology does not declare the audience,
        Nimbus has issued none yet, or it is away and the last one has ended; and outside secured
        clusters, also in local mode."""
        return self._worker.identity_tokens.get(audience)

    @property
    def resources(self) -> dict[str, Any]:
        """A dict that all tasks of this worker share. They run on one thread, except those of
        `blocking` components."""
        return self._worker.resources

    def component(self, component_id: str) -> Component:
        """The component with this id. Raises KeyError for an unknown id."""
        return self._worker.topology.components[component_id]

    def component_of(self, task: int) -> str:
        """The id of a task's component. Raises KeyError for an unknown task."""
        return self._worker.task_to_component[task]

    def component_tasks(self, component_id: str) -> list[int]:
        """All tasks of a component, in every worker, sorted."""
        return list(self._worker.tasks_of.get(component_id, ()))

    def output_fields(self, component_id: str, stream: str = "default") -> tuple[str, ...]:
        """The fields of a stream. Raises KeyError if the component or stream is not declared."""
        return self.component(component_id).streams[stream].fields

    def targets(self, component_id: str) -> dict[str, dict[str, Grouping]]:
        """The consumers of a component: stream -> consumer -> grouping."""
        found: dict[str, dict[str, Grouping]] = {}
        for consumer in self._worker.topology.components.values():
            for source, grouping in consumer.inputs.items():
                if source.component == component_id:
                    found.setdefault(source.stream, {})[consumer.id] = grouping
        return found

    def wake(self) -> None:
        """End the idle wait of this worker's spouts now, because there is something to emit. May be
        called from any thread."""
        self._worker.wake()

    @property
    def shared_executor(self) -> ThreadPoolExecutor:
        """A pool of `topology.worker.shared.thread.pool.size` threads that all tasks of this worker
        share, made at the first use. The worker ends it after `close` and `cleanup`.

            async def execute(self, tup):
                loop = asyncio.get_running_loop()
                pool = self.context.shared_executor
                self.emit([await loop.run_in_executor(pool, download, tup["url"])])

        What runs there must not call the component's `emit`, `ack` or `fail`, which belong to its
        own thread. Raises RuntimeError once the worker has ended it."""
        return self._worker.shared_threads.executor()


class TopologyContext(WorkerTopologyContext):
    """What one task knows about its topology and worker. The names are those of Storm's
    TopologyContext, spelled in Python's style.

        class Shard(Bolt):
            def prepare(self, conf, context):
                tasks = context.component_tasks(context.this_component_id)
                self.shard, self.shards = context.this_task_index, len(tasks)
    """

    def __init__(self, worker: WorkerContext, task: int, conf: Mapping[str, Any]) -> None:
        super().__init__(worker)
        self.conf = conf
        """The topology's configuration, overridden by the component's own."""
        self.this_task_id = task
        self.this_component_id = worker.task_to_component[task]
        self.this_task_index = self.component_tasks(self.this_component_id).index(task)
        """The index of this task among the component's tasks, from 0."""
        self.shell_metrics: dict[str, ShellMetric] = {}
        """The metrics that the child of a shell component has reported, by name."""
        self.metrics: dict[str, tuple[Any, float | None]] = {}
        """The registered metrics: name -> (metric, interval in seconds or None)."""
        self.instruments: dict[str, Instrument] = {}
        """The counters, meters, gauges, histograms and timers that were made, by name."""
        self._add_hook: Callable[[AnyTaskHook], None] | None = None  # while the component opens

    def open_state(self) -> KeyValueState | None:
        """The state that is stored for this task, or None if none is stored. A StatefulBolt then
        keeps its state in memory."""
        opened = self._worker.open_state
        return None if opened is None else opened(self.this_component_id, self.this_task_id)

    @property
    def this_output_streams(self) -> list[str]:
        """The names of the streams that this component declares, sorted."""
        return sorted(self.component(self.this_component_id).streams)

    @property
    def this_sources(self) -> Mapping[GlobalStreamId, Grouping]:
        """The streams that this component consumes."""
        return self.component(self.this_component_id).inputs

    @property
    def this_targets(self) -> dict[str, dict[str, Grouping]]:
        """The consumers of this component: stream -> consumer -> grouping."""
        return self.targets(self.this_component_id)

    def add_task_hook(self, hook: AnyTaskHook) -> None:
        """Add a hook to this task, and call its `prepare` now. For a hook of every task, use
        `topology.auto.task.hooks`. Call this only in `open` or `prepare`; the hook does not see
        what was emitted before. Raises SquallError later, and for an object that is not a
        TaskHook."""
        if self._add_hook is None:
            raise SquallError(
                f"{self.this_component_id!r}: a task hook can only be added in open() or prepare()"
            )
        self._add_hook(hook)

    def register_metric(
        self, name: str, metric: _Metric, interval_secs: float | None = None
    ) -> _Metric:
        """Register a metric, and return it. It is read every `interval_secs` seconds (None:
        `topology.builtin.metrics.bucket.size.secs`) and passed to the topology's metrics consumers.
        Call this only in `open` or `prepare`. Raises ValueError if the name is in use or the
        interval is not positive, and TypeError if `metric` has no `get_value_and_reset`."""
        if name in self.metrics or name in self.instruments:
            raise ValueError(f"{self.this_component_id!r} already has a metric {name!r}")
        if not callable(getattr(metric, "get_value_and_reset", None)):
            raise TypeError(f"metric {name!r} has no get_value_and_reset(): {metric!r}")
        if interval_secs is not None and interval_secs <= 0:
            raise ValueError(
                f"metric {name!r}: the interval must be positive, not {interval_secs} s"
            )
        self.metrics[name] = (metric, interval_secs)
        return metric

    def counter(self, name: str) -> Counter:
        """The counter of this name, made at the first call: `inc()` and `dec()`. Like the methods
        below, it may be called at any time, on the component's thread. Raises ValueError for a name
        that is in use for another kind of metric, is empty, longer than 200 characters or not
        printable, and when this task has 1,000 already."""
        counter: Counter = self._instrument(name, "counter", self._worker.make_counter)
        return counter

    def meter(self, name: str) -> Meter:
        """The meter of this name, which reports how often something happens: `mark()`. Raises
        ValueError as `counter` does."""
        meter: Meter = self._instrument(name, "meter", Meter)
        return meter

    def gauge(self, name: str, read: Callable[[], float] | None = None) -> Gauge:
        """The gauge of this name, whose value `read` returns when it is asked for; without `read`
        it is the value that was `set` last. Raises ValueError as `counter` does."""
        gauge: Gauge = self._instrument(name, "gauge", lambda: Gauge(read))
        return gauge

    def histogram(self, name: str) -> Histogram:
        """The histogram of this name, which reports how values are distributed: `update(value)`.
        Raises ValueError as `counter` does."""
        histogram: Histogram = self._instrument(name, "histogram", Histogram)
        return histogram

    def timer(self, name: str) -> Timer:
        """The timer of this name, a histogram of durations: `with timer.time():`, or
        `update(secs)`. Raises ValueError as `counter` does."""
        timer: Timer = self._instrument(name, "timer", lambda: Timer(self._worker.now))
        return timer

    def _instrument(self, name: str, kind: str, make: Callable[[], Any]) -> Any:
        found = self.instruments.get(name)
        if found is not None and found.kind == kind:
            return found
        mine = f"{self.this_component_id!r}"
        if found is not None or name in self.metrics:
            what = "metric" if found is None else found.kind
            raise ValueError(f"{mine} already has a {what} {name!r}, so it cannot be a {kind}")
        if not (isinstance(name, str) and 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()):
            raise ValueError(
                f"{mine}: the name of a {kind} must be printable text of 1 to {NAME_CHARS_MAX} "
                f"characters, not {name!r:.250}"
            )
        if len(self.instruments) >= INSTRUMENTS_MAX:
            raise ValueError(
                f"{mine}, task {self.this_task_id}, already has {INSTRUMENTS_MAX} metrics; put "
                "values such as user ids into a tuple or the log, not into names of metrics"
            )
        made = self.instruments[name] = make()
        return made

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps; only differences mean anything. In the test kit, the
        test's clock."""
        return self._worker.now()

    def time(self) -> float:
        """Seconds since the epoch. In the test kit, the test's clock."""
        return self._worker.time()

    def call_later(self, secs: float, call: Callable[[], Any]) -> Cancellable:
        """Call `call()` once, `secs` seconds from now, where the component's other methods are
        called: between two of them. An exception is reported as the component's. Nothing is called
        after the worker's end, and nothing on Spark, where time has no meaning. What it emits must
        name its `anchors`. Returns the timer, which can be cancelled.

            def prepare(self, conf, context):
                self.timer = context.call_later(0.25, self.write_rows)
        """
        return self._worker.call_later(self.this_task_id, secs, call)
