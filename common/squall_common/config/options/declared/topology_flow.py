"""Topologies: reliability and flow."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    COMMAND,
    COMPONENT,
    DAEMON,
    DRPC,
    NIMBUS,
    OURS,
    SUPERVISOR,
    TOPOLOGY,
    UI,
    WORKER,
    Option,
)
from squall_common.config.options.kinds import (
    COUNT,
    INT_MAX,
    POSITIVE,
    SCALAR,
    SECS,
    TEXT,
    YES_NO,
    map_of,
    number,
    whole,
)

OPTIONS = (
    Option(
        "topology.message.timeout.secs",
        SECS,
        30,
        "How long the processing of a message may take before the message fails: between one and "
        "two times this.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | DRPC | COMMAND | UI,
        unit="seconds",
    ),
    Option(
        "topology.checkpoint.interval.secs",
        SECS,
        None,
        "With it, state, positions and rows of transactional sinks take effect exactly once: how "
        "often a checkpoint is taken; null: never. Needs topology.state.url.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | COMMAND,
        unit="seconds",
        storm=OURS,
    ),
    Option(
        "topology.checkpoint.savepoint",
        TEXT,
        None,
        "The savepoint that a topology starts from: its place (a URL or path), or its name in the "
        "folder of the topology's own. `storm jar --from-savepoint` sets it.",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | COMMAND,
        storm=OURS,
    ),
    Option(
        "topology.checkpoint.allow.non.restored.state",
        YES_NO,
        False,
        "Whether a topology may go on from a checkpoint or savepoint with state of components that "
        "it does not have any more; that state is dropped.",
        scope=TOPOLOGY,
        readers=WORKER | COMMAND,
        storm=OURS,
    ),
    Option(
        "topology.checkpoint.tries",
        whole(1, 100),
        3,
        "How often a tuple is tried in place, with checkpoints, before it goes to the bolt's "
        "stream __dead_letter. If no bolt consumes that stream, the topology ends.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.enable.message.timeouts",
        YES_NO,
        True,
        "Whether messages time out at all.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
    Option(
        "topology.max.spout.pending",
        POSITIVE,
        None,
        "Largest number of pending messages of a spout task; null: no limit.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER | COMMAND | UI,
    ),
    Option(
        "topology.max.error.report.per.interval",
        POSITIVE,
        5,
        "Largest number of errors that a component reports in one "
        "topology.error.throttle.interval.secs.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
    Option(
        "topology.error.throttle.interval.secs",
        SECS,
        10,
        "Length of the interval in which topology.max.error.report.per.interval counts.",
        scope=TOPOLOGY,
        readers=WORKER,
        unit="seconds",
    ),
    Option(
        "topology.tick.tuple.freq.secs",
        SECS,
        None,
        "How often a component gets a tick tuple; null: never.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER | DRPC | COMMAND,
        unit="seconds",
    ),
    Option(
        "topology.sleep.spout.wait.strategy.time.ms",
        number(),
        1,
        "Shortest pause of a spout that had nothing to emit, in milliseconds; the pause grows to "
        "50 while there is still nothing. `context.wake()` ends it. A component may have its own.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        unit="milliseconds",
        storm=None,
    ),
    Option(
        "topology.worker.timeout.secs",
        SECS,
        None,
        "A worker whose heartbeat is older than this is restarted; null: the supervisor's "
        "supervisor.worker.timeout.secs. At most worker.max.timeout.secs.",
        scope=TOPOLOGY,
        readers=SUPERVISOR,
        unit="seconds",
    ),
    Option(
        "topology.shellbolt.max.pending",
        POSITIVE,
        100,
        "Largest number of tuples that wait for one shell bolt between its inbox and its child's "
        "stdin.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
    ),
    Option(
        "topology.subprocess.timeout.secs",
        SECS,
        None,
        "How long a shell component's child may be silent before it is killed and "
        "replaced; null: supervisor.worker.timeout.secs. A component may have its own.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        unit="seconds",
    ),
    Option(
        "topology.multilang.serializer",
        TEXT,
        "json",
        "Format of shell components' messages: json, msgpack, or the name of a Java class "
        "that implements one of these. A component may have its own.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm="org.apache.storm.multilang.JsonSerializer",
    ),
    Option(
        "topology.multilang.change.child.cwd",
        YES_NO,
        True,
        "Run the children of shell components in resources/ of the package; false: in the "
        "worker's own working directory (Storm's changeChildCWD). A component may have its "
        "own.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.multilang.environment",
        map_of(SCALAR),
        None,
        "Environment variables of a shell component's child, in addition to "
        "topology.environment: a map of strings (Storm's ShellBolt.setEnv). Usually set for a "
        "component.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.multilang.linger.micros",
        COUNT,
        50,
        "How long a worker may wait for the next message of a shell component's child that "
        "it has just answered, in microseconds, before it goes back to its other work (2 "
        "ms in total); 0: not at all, as on a machine with one core.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        unit="microseconds",
        storm=OURS,
    ),
    Option(
        "topology.multilang.log.handler",
        TEXT,
        None,
        "The class (module:Class) that receives the log messages of shell components; null, or "
        "the name of a Java class: the worker's log. A component may have its own.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
    ),
    Option(
        "topology.multilang.message.bytes.max",
        whole(1024),
        33554432,
        "The longest message that a shell component's child may send, in bytes.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        unit="bytes",
        storm=OURS,
    ),
    Option(
        "topology.disable.loadaware.messaging",
        YES_NO,
        False,
        "Choose shuffle targets evenly, regardless of how full their inboxes are.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
    Option(
        "topology.localityaware.higher.bound",
        number(),
        0.8,
        "Load of a worker's own targets, from 0 to 1, above which a local-or-shuffle grouping uses "
        "all targets.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
    Option(
        "topology.localityaware.lower.bound",
        number(),
        0.2,
        "Load of a worker's own targets, from 0 to 1, below which a local-or-shuffle grouping "
        "returns to its own targets.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
    Option(
        "topology.min.replication.count",
        whole(1, 1000),
        1,
        "Nimbus nodes that must hold a topology's code before it starts, or as many as are "
        "connected; never fewer than two of them. Nimbus' own value counts, for all blobs.",
        scope=DAEMON,
        readers=NIMBUS,
    ),
    Option(
        "topology.max.replication.wait.time.sec",
        number(-1),
        60,
        "How long Nimbus waits for topology.min.replication.count before it continues "
        "without it; -1: as long as it takes.",
        scope=DAEMON,
        readers=NIMBUS,
        unit="seconds",
    ),
    Option(
        "topology.executor.receive.buffer.size",
        whole(1, INT_MAX),
        32768,
        "Largest number of tuples in the inbox of one task; topology.worker.buffer.bytes "
        "limits their size.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
)
