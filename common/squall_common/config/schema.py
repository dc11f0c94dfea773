"""What each option may be: a type and a range for every key of defaults.yaml.

A `Kind` says what it expects in words and checks a value. Keys whose default is null take null as
well, and so does every other key where that means "the default".

Every number has both ends, every text and container a length: a submitter may write anything into
these keys, and a daemon counts, allocates and waits by them. Where no smaller bound makes sense it
is that of Storm's own type, a signed 32-bit number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Most tasks of one topology, the system's own included: Nimbus and each worker keep a table of
# them.
TASKS_MAX = 65_536

_PORT_MAX = 65_535
_INT_MAX = 2**31 - 1
_TEXT_CHARS_MAX = 4096  # a path's length on Linux
_VALUE_CHARS_MAX = 131_072  # of one environment variable on Linux
_ITEMS_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of value. `check` is true for values that are of it; `read` turns other spellings of
    the same value (2.0 for 2) into one."""

    expected: str
    check: Callable[[Any], bool]
    read: Callable[[Any], Any] = lambda value: value
    bounds: tuple[float, float] | None = None  # of a number: its least and its greatest value


def _is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    # Not by isfinite: a whole number may be larger than any float.
    return isinstance(value, int) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    # JSON made by clients that know no integers has 2.0 for 2.
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _read_whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def whole(minimum: int, maximum: int = _INT_MAX) -> Kind:
    """A whole number in a range, both ends included."""
    return Kind(
        f"a whole number from {minimum} to {maximum}",
        lambda v: _is_whole(v) and minimum <= v <= maximum,
        _read_whole,
        (minimum, maximum),
    )


def number(minimum: float = 0.0, maximum: float = _INT_MAX, *, above: bool = False) -> Kind:
    """A number from `minimum`, or above it, to `maximum`."""
    first = f"above {minimum:g} and at most" if above else f"from {minimum:g} to"
    return Kind(
        f"a number {first} {maximum:.10g}",
        lambda v: _is_number(v) and (v > minimum if above else v >= minimum) and v <= maximum,
        bounds=(minimum, maximum),
    )


def either(*values: str) -> Kind:
    """One of some texts."""
    return Kind("one of " + ", ".join(values), lambda v: v in values)


def list_of(kind: Kind, *, empty: bool = True) -> Kind:
    """A list whose items are all of one kind."""
    return Kind(
        f"a list, each item {kind.expected}" + ("" if empty else ", at least one"),
        lambda v: (
            isinstance(v, (list, tuple))
            and (empty or len(v) > 0)
            and len(v) <= _ITEMS_MAX
            and all(map(kind.check, v))
        ),
        lambda v: [kind.read(item) for item in v],
    )


def map_of(kind: Kind) -> Kind:
    """A map from text to values that are all of one kind."""
    return Kind(
        f"a map from text to {kind.expected}",
        lambda v: (
            isinstance(v, dict)
            and len(v) <= _ITEMS_MAX
            and all(
                isinstance(key, str) and len(key) <= _TEXT_CHARS_MAX and kind.check(value)
                for key, value in v.items()
            )
        ),
        lambda v: {key: kind.read(value) for key, value in v.items()},
    )


TEXT = Kind(
    f"text of at most {_TEXT_CHARS_MAX} characters",
    lambda v: isinstance(v, str) and 0 < len(v) <= _TEXT_CHARS_MAX,
)
YES_NO = Kind("true or false", lambda v: isinstance(v, bool))
COUNT = whole(0)
POSITIVE = whole(1)
TASKS = whole(1, TASKS_MAX)
PORT = whole(0, _PORT_MAX)  # 0: any free one
FIXED_PORT = whole(1, _PORT_MAX)
SECS = number(above=True)
MILLIS = number(above=True)
_BYTES_MAX = 2**62  # the kernel's limits are 64-bit numbers
MEGABYTES = number(0.0, _BYTES_MAX >> 20)
FRAME = whole(1024)  # its length is a signed 32-bit number on the wire
PERCENT_OF_CORES = number(0.0, 10_000_000)  # 100 is one core
ANY_MAP = map_of(Kind("anything", lambda v: True))
SCALAR = Kind(
    "text, a number, or true or false",
    lambda v: (
        len(v) <= _VALUE_CHARS_MAX
        if isinstance(v, str)
        else isinstance(v, bool) or (_is_number(v) and (isinstance(v, float) or abs(v) < 2**63))
    ),
)
HOSTS = list_of(TEXT, empty=False)
ZNODE = Kind(
    "a ZooKeeper path such as /storm",
    lambda v: (
        isinstance(v, str)
        and len(v) <= _TEXT_CHARS_MAX
        and v.startswith("/")
        and (v == "/" or not v.endswith("/"))
        and "//" not in v
    ),
)
CLASS_PATH = Kind("a class path (module:Class)", lambda v: TEXT.check(v) and v.count(":") == 1)
_REGISTRATION = Kind(
    "a class path, or a map from class path to codec path",
    lambda v: (
        TEXT.check(v)
        or (
            isinstance(v, dict)
            and len(v) <= _ITEMS_MAX
            and all(TEXT.check(key) and (x is None or TEXT.check(x)) for key, x in v.items())
        )
    ),
)

SCHEMA: dict[str, Kind] = {
    "storm.local.dir": TEXT,
    "storm.log.dir": TEXT,
    "storm.log.level": either("DEBUG", "INFO", "WARNING", "ERROR"),
    "storm.workers.artifacts.dir": TEXT,
    "storm.history.dir": TEXT,
    "storm.history.retention.hours": number(),
    "storm.local.hostname": TEXT,
    "storm.cluster.mode": either("distributed", "local"),
    "storm.bind.host": TEXT,
    "storm.http.hosts": HOSTS,
    "storm.security.insecure": YES_NO,
    "storm.messaging.curve": Kind(
        "true, false or auto", lambda v: isinstance(v, bool) or v == "auto"
    ),
    "storm.thrift.socket.timeout.ms": MILLIS,
    "storm.nimbus.retry.times": COUNT,
    "storm.nimbus.retry.interval.millis": COUNT,
    "storm.nimbus.retry.intervalceiling.millis": COUNT,
    "storm.zookeeper.servers": HOSTS,
    "storm.zookeeper.port": FIXED_PORT,
    "storm.zookeeper.root": ZNODE,
    "storm.zookeeper.session.timeout": POSITIVE,
    "storm.zookeeper.connection.timeout": POSITIVE,
    "storm.zookeeper.operation.timeout.ms": POSITIVE,
    "storm.zookeeper.retry.times": COUNT,
    "storm.zookeeper.retry.interval": COUNT,
    "storm.zookeeper.retry.intervalceiling.millis": COUNT,
    "dev.zookeeper.path": TEXT,
    "nimbus.seeds": HOSTS,
    "nimbus.thrift.port": PORT,
    "nimbus.thrift.max_buffer_size": FRAME,
    "nimbus.task.timeout.secs": SECS,
    "nimbus.task.launch.secs": SECS,
    "nimbus.supervisor.timeout.secs": SECS,
    "nimbus.monitor.freq.secs": SECS,
    "nimbus.cleanup.inbox.freq.secs": SECS,
    "nimbus.inbox.jar.expiration.secs": SECS,
    "nimbus.upload.bytes.max": whole(1, _BYTES_MAX),
    "nimbus.disk.reserve.mb": COUNT,
    "nimbus.file.copy.expiration.secs": SECS,
    "nimbus.blobstore.expiration.secs": SECS,
    "nimbus.topology.blobstore.deletion.delay.ms": COUNT,
    "nimbus.code.sync.freq.secs": SECS,
    "nimbus.admins": list_of(TEXT),
    "nimbus.supervisor.users": list_of(TEXT),
    "nimbus.executors.perTopology": POSITIVE,
    "nimbus.slots.perTopology": POSITIVE,
    "supervisor.slots.ports": list_of(FIXED_PORT),
    "supervisor.thrift.port": PORT,
    "supervisor.thrift.max_buffer_size": FRAME,
    "supervisor.thrift.socket.timeout.ms": MILLIS,
    "supervisor.enable": YES_NO,
    "supervisor.worker.start.timeout.secs": SECS,
    "supervisor.worker.timeout.secs": SECS,
    "supervisor.worker.shutdown.sleep.secs": number(),
    "supervisor.monitor.frequency.secs": SECS,
    "supervisor.heartbeat.frequency.secs": SECS,
    "supervisor.assignment.sync.secs": SECS,
    "supervisor.worker.min.uptime.secs": number(),
    "supervisor.worker.backoff.max.secs": number(),
    "supervisor.blobstore.download.thread.count": whole(1, 1_000),
    "supervisor.blobstore.download.max_retries": COUNT,
    "supervisor.localizer.update.blob.interval.secs": SECS,
    "supervisor.localizer.cleanup.interval.ms": MILLIS,
    "supervisor.localizer.cache.target.size.mb": MEGABYTES,
    "supervisor.memory.capacity.mb": MEGABYTES,
    "supervisor.cpu.capacity": PERCENT_OF_CORES,
    "supervisor.scheduler.meta": map_of(TEXT),
    "supervisor.worker.conf.keys": list_of(TEXT),
    "supervisor.worker.limit.open.files": whole(64, 2**31 - 1),
    "supervisor.worker.limit.processes": whole(16, 2**31 - 1),
    "supervisor.worker.limit.core.mb": whole(0, _BYTES_MAX >> 20),
    "supervisor.worker.limit.file.mb": whole(1, _BYTES_MAX >> 20),
    "supervisor.worker.limit.address.space.mb": whole(64, _BYTES_MAX >> 20),
    "storm.supervisor.memory.limit.tolerance.margin.mb": MEGABYTES,
    "storm.supervisor.hard.memory.limit.multiplier": number(1.0, 1_000_000),
    "storm.worker.min.cpu.pcore.percent": PERCENT_OF_CORES,
    "supervisor.run.worker.as.user": YES_NO,
    "supervisor.run.worker.as.user.choices": list_of(TEXT),
    "supervisor.run.worker.as.user.default": TEXT,
    "supervisor.run.worker.as.user.min.uid": POSITIVE,
    "storm.resource.isolation.plugin.enable": YES_NO,
    "storm.resource.isolation.plugin": TEXT,
    "storm.cgroup.hierarchy.dir": TEXT,
    "storm.cgroup.resources": list_of(either("cpu", "memory"), empty=False),
    "storm.supervisor.cgroup.rootdir": TEXT,
    "worker.heap.memory.mb": number(0.0, _BYTES_MAX >> 20, above=True),
    "worker.heartbeat.frequency.secs": SECS,
    "worker.max.timeout.secs": SECS,
    "worker.profiler.enabled": YES_NO,
    "worker.profiler.command": TEXT,
    "task.heartbeat.frequency.secs": SECS,
    "task.refresh.poll.secs": SECS,
    "task.credentials.poll.secs": SECS,
    "executor.metrics.frequency.secs": SECS,
    "num.stat.buckets": whole(1, 10_000),
    "ui.host": TEXT,
    "ui.port": PORT,
    "ui.title": TEXT,
    "ui.actions.enabled": YES_NO,
    "logviewer.port": PORT,
    "logviewer.cleanup.age.mins": SECS,
    "logviewer.cleanup.interval.secs": number(),
    "logviewer.max.sum.worker.logs.size.mb": MEGABYTES,
    "logviewer.max.per.worker.logs.size.mb": MEGABYTES,
    "drpc.servers": HOSTS,
    "drpc.port": PORT,
    "drpc.invocations.port": PORT,
    "drpc.http.port": PORT,
    "drpc.max_buffer_size": FRAME,
    "drpc.request.timeout.secs": SECS,
    "drpc.requests.max": POSITIVE,
    "drpc.function.requests.max": POSITIVE,
    "drpc.requests.bytes.max": whole(1024),
    "drpc.peer.percent.max": whole(1, 100),
    "drpc.worker.timeout.secs": SECS,
    "topology.name": TEXT,
    "topology.workers": TASKS,
    "topology.tasks": TASKS,
    "topology.max.task.parallelism": TASKS,
    "topology.acker.executors": whole(0, TASKS_MAX),
    "topology.eventlogger.executors": whole(0, TASKS_MAX),
    "topology.priority": COUNT,
    "topology.version": TEXT,
    "topology.submitter.user": TEXT,
    "topology.submitter.principal": TEXT,
    "topology.users": list_of(TEXT),
    "topology.groups": list_of(TEXT),
    "topology.readonly.users": list_of(TEXT),
    "topology.readonly.groups": list_of(TEXT),
    "topology.component.resources.onheap.memory.mb": MEGABYTES,
    "topology.component.resources.offheap.memory.mb": MEGABYTES,
    "topology.component.cpu.pcore.percent": PERCENT_OF_CORES,
    "topology.run.as.user": TEXT,
    "topology.worker.max.heap.size.mb": number(0.0, _BYTES_MAX >> 20, above=True),
    "topology.message.timeout.secs": SECS,
    "topology.enable.message.timeouts": YES_NO,
    "topology.max.spout.pending": POSITIVE,
    "topology.max.error.report.per.interval": POSITIVE,
    "topology.error.throttle.interval.secs": SECS,
    "topology.tick.tuple.freq.secs": SECS,
    "topology.sleep.spout.wait.strategy.time.ms": number(),
    "topology.worker.timeout.secs": SECS,
    "topology.shellbolt.max.pending": POSITIVE,
    "topology.subprocess.timeout.secs": SECS,
    "topology.multilang.serializer": TEXT,
    "topology.multilang.change.child.cwd": YES_NO,
    "topology.multilang.message.bytes.max": whole(1_024),
    "topology.multilang.environment": map_of(SCALAR),
    "topology.multilang.linger.micros": COUNT,
    "topology.multilang.log.handler": TEXT,
    "topology.disable.loadaware.messaging": YES_NO,
    "topology.localityaware.higher.bound": number(),
    "topology.localityaware.lower.bound": number(),
    "topology.min.replication.count": whole(1, 1_000),
    "topology.max.replication.wait.time.sec": number(-1),
    "topology.debug": YES_NO,
    "topology.environment": map_of(SCALAR),
    "topology.blobstore.map": map_of(ANY_MAP),
    "topology.auto.task.hooks": list_of(CLASS_PATH),
    "topology.metrics.consumer.register": list_of(ANY_MAP),
    "topology.builtin.metrics.bucket.size.secs": SECS,
    "topology.history.enable": YES_NO,
    "topology.history.interval.secs": SECS,
    "topology.history.rotation.secs": SECS,
    "topology.history.rotation.bytes": whole(65_536, 2**40),
    "topology.history.key.sampling.rate": number(0.0, 1.0),
    "topology.kryo.register": list_of(_REGISTRATION),
    "topology.testing.always.try.serialize": YES_NO,
    "topology.worker.shared.thread.pool.size": whole(1, 10_000),
    "topology.stats.sample.rate": number(0.0, 1.0, above=True),
    "topology.worker.stall.timeout.secs": SECS,
    "topology.worker.buffer.bytes": whole(65_536, 2**40),
    "topology.bolt.async.concurrency": whole(1, 1_000_000),
    "topology.bolt.die.on.error": YES_NO,
    "topology.fail.on.worker.loss": YES_NO,
    "topology.max.replays": COUNT,
    "topology.max.worker.kills": COUNT,
    "topology.fall.back.on.pickle": YES_NO,
    "topology.spout.batch": whole(1, 1_000_000),
    "topology.run.turn.ms": MILLIS,
}

# The options of a topology that one component may have to itself, as Storm allows it (those of
# Executor.normalizedComponentConf), and ours of the same nature.
COMPONENT_KEYS = frozenset(
    {
        "topology.debug",
        "topology.max.spout.pending",
        "topology.max.task.parallelism",
        "topology.tick.tuple.freq.secs",
        "topology.sleep.spout.wait.strategy.time.ms",
        "topology.bolt.async.concurrency",
        "topology.bolt.die.on.error",
        "topology.component.cpu.pcore.percent",
        "topology.component.resources.offheap.memory.mb",
        "topology.component.resources.onheap.memory.mb",
        "topology.max.replays",
        "topology.max.worker.kills",
        "topology.multilang.change.child.cwd",
        "topology.multilang.environment",
        "topology.multilang.linger.micros",
        "topology.multilang.log.handler",
        "topology.multilang.message.bytes.max",
        "topology.multilang.serializer",
        "topology.shellbolt.max.pending",
        "topology.spout.batch",
        "topology.subprocess.timeout.secs",
        "topology.worker.stall.timeout.secs",
    }
)

# Options that may stand in a component's own conf and count for the whole topology: the number of
# its tasks is read where tasks are numbered, and serializers are gathered at the submit.
GATHERED_KEYS = frozenset({"topology.tasks", "topology.kryo.register"})


def counts_for_component(key: str) -> bool:
    """Whether a key has an effect in a component's own conf. Keys that are not options are the
    user's own, and do."""
    return key not in SCHEMA or key in COMPONENT_KEYS or key in GATHERED_KEYS


# Storm's options that steer a JVM or its libraries: a site file of Storm's may hold them, and they
# mean nothing here.
_JVM_ENDS = (".childopts", ".classpath", ".transport", "_worker_threads", ".thrift.threads")
_JVM_BEGINS = ("java.", "storm.log4j2.", "storm.messaging.netty.", "storm.cgroup.", "storm.oci.")


def is_jvm_key(key: str) -> bool:
    """Whether a key of Storm's has no meaning outside the JVM."""
    return key.startswith(_JVM_BEGINS) or key.endswith(_JVM_ENDS)


def show_value(value: object, chars_max: int = 80) -> str:
    """A value as messages quote it: short, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a whole number of more than 4,300 digits
        return f"a {type(value).__name__} too large to show"
    return text if len(text) <= chars_max else text[: chars_max - 3] + "..."
