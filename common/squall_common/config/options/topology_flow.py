"""Topologies: reliability and flow."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    COMMAND,
    COMPONENT,
    DRPC,
    NIMBUS,
    OURS,
    SUPERVISOR,
    TOPOLOGY,
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
        "How long a message may take to be processed before it fails. (Between one and two "
        "times this.)",
        scope=TOPOLOGY,
        readers=NIMBUS | WORKER | DRPC,
        unit="seconds",
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
        "Most messages that a spout task may have under way; null: no limit.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
    ),
    Option(
        "topology.max.error.report.per.interval",
        POSITIVE,
        5,
        "Most errors that a component reports in one topology.error.throttle.interval.secs.",
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
        "Pause of a spout that had nothing to emit, in milliseconds, at least: it grows to "
        "50 while that goes on. `context.wake()` ends it. A component may have its own.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        unit="milliseconds",
        storm=None,
    ),
    Option(
        "topology.worker.timeout.secs",
        SECS,
        None,
        "A worker that has not been heard of for so long is launched again; null: the "
        "supervisor's supervisor.worker.timeout.secs. At most worker.max.timeout.secs.",
        scope=TOPOLOGY,
        readers=SUPERVISOR,
        unit="seconds",
    ),
    Option(
        "topology.shellbolt.max.pending",
        POSITIVE,
        100,
        "Tuples that wait for one shell bolt at most, between its inbox and its child's stdin.",
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
        "How shell components' messages look: json, msgpack, or the name of a Java class "
        "that does one of these. A component may have its own.",
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
        "Environment variables of a shell component's child, beside topology.environment: "
        "a map of strings (Storm's ShellBolt.setEnv). A component's own affair.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.multilang.linger.micros",
        COUNT,
        50,
        "How long a worker may look for the next message of a shell component's child that "
        "it has just answered, in microseconds, before it goes back to its other work (2 "
        "ms in total); 0: not at all, as on one core.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        unit="microseconds",
        storm=OURS,
    ),
    Option(
        "topology.multilang.log.handler",
        TEXT,
        None,
        "The class (module:Class) that is given what shell components log; null: the "
        "worker's log. So is the name of a Java class. A component may have its own.",
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
        "Choose shuffle targets evenly, without regard to how full their inboxes are.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
    Option(
        "topology.localityaware.higher.bound",
        number(),
        0.8,
        "Load of a worker's own targets, from 0 to 1, above which a local-or-shuffle takes "
        "all targets.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
    Option(
        "topology.localityaware.lower.bound",
        number(),
        0.2,
        "Load of a worker's own targets, from 0 to 1, below which a local-or-shuffle goes "
        "back to its own.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
    Option(
        "topology.min.replication.count",
        whole(1, 1000),
        1,
        "Nimbus nodes that must hold a topology's code before it starts, or as many as are "
        "connected; never fewer than two of them. Nimbus' own value counts, for all blobs.",
        scope=TOPOLOGY,
        readers=NIMBUS,
    ),
    Option(
        "topology.max.replication.wait.time.sec",
        number(-1),
        60,
        "How long Nimbus waits for topology.min.replication.count before it goes on "
        "without; -1: as long as it takes.",
        scope=TOPOLOGY,
        readers=NIMBUS,
        unit="seconds",
    ),
    Option(
        "topology.executor.receive.buffer.size",
        whole(1, INT_MAX),
        32768,
        "Tuples that the inbox of one task may hold, at most; topology.worker.buffer.bytes "
        "limits their size.",
        scope=TOPOLOGY,
        readers=WORKER,
    ),
)
