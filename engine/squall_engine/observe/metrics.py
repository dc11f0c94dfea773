"""The metrics of a worker's tasks, read at the end of each interval and given to the consumers.

They are read on the loop, where the tasks are, and handed to a thread a consumer through a queue
with a bound. Nothing waits for a consumer: what does not fit is dropped and counted, and the next
data points say so (`__dropped-data-points`). In Storm consumers are bolts, and their tuples go
through the topology's own queues; see decision 0021.

A consumer with a `parallelism.hint` is a component of the system with that many tasks, which get
the data points of all workers (decision 0080). They travel as sections of their own, not as tuples.
"""

from __future__ import annotations

import asyncio
import itertools
import queue
import random
import re
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from squall_common.component.metrics.consumers import (
    ConsumerContext,
    DataPoint,
    MetricsConsumer,
    TaskInfo,
)
from squall_common.component.metrics.instruments import InstrumentReader
from squall_common.config.options.typed import TopologyOptions
from squall_common.config.schema import TASKS_MAX
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError, describe
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK
from squall_common.topology.import_paths import import_stored_module
from squall_common.topology.model import WorkerSlot
from squall_common.topology.system import consumer_ids
from squall_engine.core.codec import CodecError
from squall_engine.core.wire_format import Kind
from squall_engine.observe.readings import Gains, key_name, waiting
from squall_engine.tasks.bolt import BoltTask
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask

log = get_logger(__name__)

Report = Callable[[str, int, BaseException], None]
_QUEUE_MAX = 1_000  # of one consumer: tasks' data points that wait
_INTERVAL_SECS_MIN = 0.1
_CLOSE_SECS = 1.0
_SECTION_BYTES_MAX = 256 * 1024  # the data points of one task and interval

_KIND = bytes([Kind.METRICS])
_Head = tuple[str, int, str, int, int, float]
_encoder = msgspec.msgpack.Encoder(enc_hook=repr)
_decoder = msgspec.msgpack.Decoder(tuple[int, _Head, list[tuple[str, Any]]])
# Storm's own consumer, as topologies that come from there name it.
_ALIASES = {
    "org.apache.storm.metric.LoggingMetricsConsumer": "squall.metrics.LoggingMetricsConsumer"
}


@dataclass(frozen=True, slots=True)
class Registration:
    """One entry of `topology.metrics.consumer.register`."""

    class_path: str
    argument: Any
    whitelist: tuple[re.Pattern[str], ...]
    blacklist: tuple[re.Pattern[str], ...]
    expand_maps: bool
    separator: str

    @classmethod
    def parse(cls, entry: Mapping[str, Any]) -> Registration:
        """Raises SquallError for an entry that means nothing."""
        path = entry.get("class")
        where = f"topology.metrics.consumer.register: {path!r}"
        if not isinstance(path, str) or "." not in path:
            raise SquallError(f"{where}: `class` must be MODULE.CLASS")
        hint = entry.get("parallelism.hint", 1)
        if type(hint) is not int or not 0 < hint <= TASKS_MAX:
            raise SquallError(
                f"{where}: parallelism.hint: expected a whole number from 1 to {TASKS_MAX}, "
                f"not {hint!r:.80}"
            )
        patterns = {}
        for key in ("whitelist", "blacklist"):
            given = entry.get(key) or ()
            try:
                patterns[key] = tuple(
                    re.compile(one) for one in ([given] if isinstance(given, str) else given)
                )
            except (re.error, TypeError) as error:
                raise SquallError(f"{where}: {key}: not a regular expression: {error}") from error
        if patterns["whitelist"] and patterns["blacklist"]:
            raise SquallError(f"{where}: has both a whitelist and a blacklist; use only one")
        return cls(
            class_path=_ALIASES.get(path, path),
            argument=entry.get("argument"),
            whitelist=patterns["whitelist"],
            blacklist=patterns["blacklist"],
            expand_maps=bool(entry.get("expandMapType")),
            separator=str(entry.get("metricNameSeparator") or "."),
        )

    def make(self) -> MetricsConsumer:
        """Import and construct the consumer. Raises SquallError."""
        module, _, name = self.class_path.rpartition(".")
        try:
            consumer = getattr(import_stored_module(module), name)()
        except Exception as error:
            raise SquallError(
                f"metrics consumer {self.class_path} cannot be created: {describe(error)}"
            ) from error
        if not isinstance(consumer, MetricsConsumer):
            raise SquallError(f"{self.class_path} is not a squall.metrics.MetricsConsumer")
        return consumer

    def select(self, points: Iterable[DataPoint]) -> list[DataPoint]:
        """The part of some data points that the consumer gets. Patterns match from the beginning of
        a name, as Storm's do."""
        found = []
        for point in points:
            if self.expand_maps and isinstance(point.value, Mapping):
                found += [
                    DataPoint(f"{point.name}{self.separator}{key}", value)
                    for key, value in point.value.items()
                ]
            else:
                found.append(point)
        return [point for point in found if self._wants(point.name)]

    def _wants(self, name: str) -> bool:
        if self.whitelist:
            return any(pattern.match(name) for pattern in self.whitelist)
        return not any(pattern.match(name) for pattern in self.blacklist)


class _ConsumerThread:
    """One consumer and its thread."""

    def __init__(
        self, registration: Registration, conf: Mapping[str, Any], context: ConsumerContext,
        report: Report, *, task: int | None = None,
    ) -> None:  # fmt: skip
        """`task`: of the consumer's component, which gets selected data points; None: it is the
        one of this worker."""
        self._registration = registration
        self._task = task
        self._consumer = registration.make()
        self._conf = conf
        self._context = context
        self._report = report
        self._queue: queue.Queue[tuple[TaskInfo, list[DataPoint]] | None] = queue.Queue(_QUEUE_MAX)
        self.dropped = 0
        self._dropped_reported = 0
        name = f"metrics:{registration.class_path.rpartition('.')[2]}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def offer(self, info: TaskInfo, points: Sequence[DataPoint]) -> None:
        """Hand over the data points of a task; drop them when the consumer is behind."""
        selected = self._registration.select(points) if self._task is None else list(points)
        if self.dropped > self._dropped_reported:
            selected.append(
                DataPoint("__dropped-data-points", self.dropped - self._dropped_reported)
            )
        if not selected:
            return
        try:
            self._queue.put_nowait((info, selected))
        except queue.Full:
            if not self.dropped:
                log.warning("metrics_dropped", consumer=self._registration.class_path)
            self.dropped += len(selected)
        else:
            self._dropped_reported = self.dropped

    def _run(self) -> None:
        consumer = self._consumer
        try:
            consumer.prepare(self._conf, self._registration.argument, self._context)
        except Exception as error:
            self._report(SYSTEM_COMPONENT, SYSTEM_TASK, error)
            return
        while (work := self._queue.get()) is not None:
            try:
                consumer.handle_data_points(*work)
            except Exception as error:
                self._report(SYSTEM_COMPONENT, SYSTEM_TASK, error)
        try:
            consumer.cleanup()
        except Exception as error:
            self._report(SYSTEM_COMPONENT, SYSTEM_TASK, error)

    def stop(self) -> None:
        """No more comes."""
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            pass  # it hangs: it dies with the process

    def join(self, secs: float) -> None:
        self._thread.join(secs)
        if self._thread.is_alive():  # it dies with the process
            log.warning("metrics_consumer_stuck", consumer=self._registration.class_path)


class Peers(Protocol):
    """The way to the tasks of other workers (`dataflow.remote.Exchange`)."""

    @property
    def routes(self) -> Mapping[int, WorkerSlot]: ...

    def send(self, slot: WorkerSlot, section: bytes) -> None: ...

    def flush(self) -> None: ...


class _ConsumerTasks:
    """The tasks of one consumer that gets the data points of all workers."""

    def __init__(
        self,
        registration: Registration,
        tasks: Sequence[int],
        local: Mapping[int, _ConsumerThread],
        peers: Peers,
    ) -> None:
        self._registration = registration
        self._tasks = itertools.cycle(random.sample(tasks, len(tasks)))
        self._local = local
        self._peers = peers
        self.dropped = 0

    def offer(self, info: TaskInfo, points: Sequence[DataPoint]) -> None:
        """Hand the data points of a task to the next task of the consumer. They are lost while it
        has no worker."""
        selected = self._registration.select(points)
        if not selected:
            return
        target = next(self._tasks)
        thread = self._local.get(target)
        if thread is not None:
            thread.offer(info, selected)
            return
        slot = self._peers.routes.get(target)
        if slot is None:
            self.dropped += len(selected)
            return
        data = serialize_points(target, info, selected)
        if len(data) > _SECTION_BYTES_MAX:
            self.dropped += len(selected)
            log.warning("data_points_too_large", task=info.src_task_id, bytes=len(data))
            return
        self._peers.send(slot, data)


def serialize_points(target: int, info: TaskInfo, points: Sequence[DataPoint]) -> bytes:
    """A METRICS section for a task of a consumer. A value that cannot travel becomes text."""
    head = (
        info.src_worker_host, info.src_worker_port, info.src_component_id, info.src_task_id,
        info.timestamp, info.update_interval_secs,
    )  # fmt: skip
    pairs = [(one.name, one.value) for one in points]
    try:
        return _KIND + _encoder.encode((target, head, pairs))
    except Exception:  # whole numbers beyond 64 bits, half a surrogate pair, an error in a `repr`
        return _KIND + _encoder.encode((target, head, [*map(_that_travels, pairs)]))


def _that_travels(pair: tuple[str, Any]) -> tuple[str, Any]:
    name, value = pair
    try:
        _encoder.encode(pair)
    except Exception:
        return _encodable(name), _text_of(value)
    return pair


def _text_of(value: Any) -> str:
    try:
        return _encodable(repr(value))
    except Exception as error:
        return f"<{type(value).__name__}: {type(error).__name__} in its repr>"


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()


def parse_points(section: bytes) -> tuple[int, TaskInfo, list[DataPoint]]:
    """The inverse: the task that it is for. Raises CodecError."""
    try:
        target, head, points = _decoder.decode(memoryview(section)[1:])
    except msgspec.MsgspecError as error:
        raise CodecError(f"a section of {len(section)} bytes cannot be read: {error}") from error
    return target, TaskInfo(*head), [DataPoint(name, value) for name, value in points]


class MetricsObserver(Protocol):
    """Gets the data points of all tasks, on the loop."""

    def offer(self, info: TaskInfo, points: Sequence[DataPoint]) -> None: ...


class TaskMetrics:
    """The built-in metrics of one task: what its counts gained in an interval. Names and shapes
    are Storm's (`BuiltinMetrics`): maps by stream, of bolts' inputs by `component:stream`."""

    def __init__(self, built: Built) -> None:
        self._task = built.task
        self._gains = Gains(built.task)
        self._shell = built.context.shell_metrics
        self._shell_totals: dict[str, float] = {}

    def points(self) -> list[DataPoint]:
        task = self._task
        gained = self._gains.read()

        def of(measure: str) -> dict[str, Any]:
            return {
                key_name(key): value for (name, key), value in gained.items()
                if name == measure and value
            }  # fmt: skip

        def mean_ms(what: str) -> dict[str, float]:
            secs = of(f"{what}_secs")
            events = of(f"{what}_events").items()
            return {key: 1000.0 * secs.get(key, 0.0) / count for key, count in events}

        found = {
            "__emit-count": of("emitted"),
            "__transfer-count": of("transferred"),
            "__ack-count": of("acked"),
            "__fail-count": of("failed"),
        }
        if isinstance(task, SpoutTask):
            found["__complete-latency"] = mean_ms("process")
        elif isinstance(task, BoltTask):
            found["__execute-count"] = of("executed")
            found["__execute-latency"] = mean_ms("execute")
            found["__process-latency"] = mean_ms("process")
        if (held := waiting(task)) is not None:
            found[f"__{held[0]}"] = {"population": held[1]}
        return [DataPoint(name, value) for name, value in found.items()] + self._shell_points()

    def _shell_points(self) -> list[DataPoint]:
        """A child's reports: its numbers as the sum of the interval, all else as it came."""
        found = []
        for name, metric in self._shell.items():
            gained = metric.total - self._shell_totals.get(name, 0.0)
            self._shell_totals[name] = metric.total
            plain = metric.last is None or isinstance(metric.last, int | float)
            found.append(DataPoint(name, gained if plain else metric.last))
        return found


class InstrumentPoints:
    """What the counters, meters, gauges, histograms and timers of one task gained in an interval:
    those that it has made by then."""

    def __init__(self, built: Built, now: float) -> None:
        self._instruments = built.context.instruments
        self._readers: dict[str, InstrumentReader] = {}
        self._began = now
        self._failing: set[str] = set()

    def points(self, now: float) -> list[DataPoint]:
        found = []
        for name, instrument in list(self._instruments.items()):
            reader = self._readers.get(name)
            if reader is None:
                reader = self._readers[name] = InstrumentReader(name, instrument, self._began)
            try:
                values = reader.read(now)
            except Exception as error:  # of a gauge's function
                if name not in self._failing:
                    self._failing.add(name)
                    log.warning("metric_not_read", metric=name, error=error)
                continue
            found += [DataPoint(one, value) for one, value in values.items()]
        return found


@dataclass(slots=True)
class _Due:
    """An item that is read every `secs`."""

    built: Built
    secs: float
    at: float
    read: Callable[[], list[DataPoint]]


class Metrics:
    """Reads what is due, on the loop. `start` once the components are prepared."""

    def __init__(
        self,
        built: Sequence[Built],
        conf: Mapping[str, Any],
        options: TopologyOptions,
        context: ConsumerContext,
        *,
        clock: Clock,
        report: Report,
        observer: MetricsObserver | None = None,
        tasks_of: Mapping[str, Sequence[int]],
        local_tasks: Container[int],
        peers: Peers,
    ) -> None:
        """Create the consumers. One that cannot be created is reported, and the others are fed.
        `tasks_of` has the tasks of each component, `local_tasks` are those of this worker."""
        self._of_task: dict[int, _ConsumerThread] = {}  # of consumers' components
        self._all: list[_ConsumerTasks] = []
        self._observer = observer
        self._peers = peers
        self._built = built
        self._context = context
        self._clock = clock
        self._threads: list[_ConsumerThread] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due: list[_Due] = []
        entries = options.topology_metrics_consumer_register
        for entry, component in zip(entries, consumer_ids(options), strict=True):
            try:
                registration = Registration.parse(entry)
                if component is None:
                    self._threads.append(_ConsumerThread(registration, conf, context, report))
                    continue
                tasks = tasks_of.get(component, ())
                local = {
                    task: _ConsumerThread(registration, conf, context, report, task=task)
                    for task in tasks
                    if task in local_tasks
                }
                self._of_task |= local
                if tasks:
                    self._all.append(_ConsumerTasks(registration, tasks, local, peers))
            except SquallError as error:
                report(SYSTEM_COMPONENT, SYSTEM_TASK, error)
        self._bucket_secs = options.topology_builtin_metrics_bucket_size_secs

    @classmethod
    def of(
        cls,
        built: Sequence[Built],
        conf: Mapping[str, Any],
        options: TopologyOptions,
        *,
        topology_id: str,
        host: str,
        port: int,
        log_dir: Path | None,
        clock: Clock,
        report: Report,
        observer: MetricsObserver | None = None,
        tasks_of: Mapping[str, Sequence[int]],
        local_tasks: Container[int],
        peers: Peers,
    ) -> Metrics | None:
        """None when the topology has no consumers and no observer: then nothing is read."""
        if not options.topology_metrics_consumer_register and observer is None:
            return None
        context = ConsumerContext(topology_id, host, port, log_dir)
        return cls(
            built, conf, options, context, clock=clock, report=report, observer=observer,
            tasks_of=tasks_of, local_tasks=local_tasks, peers=peers,
        )  # fmt: skip

    @property
    def dropped(self) -> int:
        """Data points that no consumer had time for."""
        threads = (*self._threads, *self._of_task.values())
        return sum(one.dropped for one in threads) + sum(one.dropped for one in self._all)

    def receive(self, section: bytes) -> None:
        """Take a METRICS section from another worker; one for a task that is not here (a stale
        route) is dropped. Raises CodecError."""
        target, info, points = parse_points(section)
        thread = self._of_task.get(target)
        if thread is not None:
            thread.offer(info, points)

    def start(self) -> None:
        now = self._clock.monotonic()
        for one in self._built:
            own = TaskMetrics(one)  # an observer alone gets its shell metrics this way
            self._due.append(_Due(one, self._bucket_secs, now + self._bucket_secs, own.points))
            made = InstrumentPoints(one, now)
            self._due.append(
                _Due(one, self._bucket_secs, now + self._bucket_secs, partial(self._points, made))
            )
            for name, (metric, secs) in one.context.metrics.items():
                every = max(_INTERVAL_SECS_MIN, secs or self._bucket_secs)
                read = _reader(name, metric)
                self._due.append(_Due(one, every, now + every, read))
        self._wait()

    def _points(self, made: InstrumentPoints) -> list[DataPoint]:
        return made.points(self._clock.monotonic())

    def _wait(self) -> None:
        if self._due and (self._threads or self._all or self._observer is not None):
            secs = max(0.01, min(due.at for due in self._due) - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(secs, self._on_timer)

    def _on_timer(self) -> None:
        try:
            self._read(self._clock.monotonic())
        finally:
            self._wait()

    def _read(self, now: float, *, all_of_it: bool = False) -> None:
        stamp = int(self._clock.time())
        for due in self._due:
            if due.at > now and not all_of_it:
                continue
            # After a stall one interval is longer; none is made up for.
            due.at = max(due.at + due.secs, now)
            task = due.built.task
            info = TaskInfo(
                self._context.worker_host, self._context.worker_port,
                task.component, task.task, stamp, due.secs,
            )  # fmt: skip
            with task.lock:
                points = due.read()
            for thread in self._threads:
                thread.offer(info, points)
            for tasks in self._all:
                tasks.offer(info, points)
            if self._observer is not None:
                self._observer.offer(info, points)
        if self._all:
            self._peers.flush()  # also after the last turn

    async def close(self) -> None:
        """Give the consumers what there is since the last interval, and end them."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            self._read(self._clock.monotonic(), all_of_it=True)
        finally:
            for thread in (*self._threads, *self._of_task.values()):
                thread.stop()
        if self._threads or self._of_task:
            await asyncio.to_thread(self._join)

    def _join(self) -> None:
        deadline = time.monotonic() + _CLOSE_SECS
        for thread in (*self._threads, *self._of_task.values()):
            thread.join(max(0.0, deadline - time.monotonic()))


def _reader(name: str, metric: Any) -> Callable[[], list[DataPoint]]:
    def read() -> list[DataPoint]:
        try:
            value = metric.get_value_and_reset()
        except Exception as error:
            log.warning("metric_not_read", metric=name, error=error)
            return []
        return [] if value is None else [DataPoint(name, value)]

    return read
