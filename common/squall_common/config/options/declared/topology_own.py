"""Topologies: options that Storm does not have."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    COMMAND,
    COMPONENT,
    NIMBUS,
    OURS,
    TOPOLOGY,
    UI,
    WORKER,
    Option,
)
from squall_common.config.options.kinds import COUNT, MILLIS, SECS, TEXT, YES_NO, number, whole

OPTIONS = (
    Option(
        "topology.worker.stall.timeout.secs",
        SECS,
        300,
        "Restart a worker in which a call of a component (execute, next_tuple, ack ...) "
        "has not returned for this long; null: never. At topology.message.timeout.secs it "
        "is reported as an error. A component may have its own; `next_tuple` on a thread "
        "(blocking = True) or in a coroutine may wait for input, so it counts only for a component "
        "that sets this option.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        unit="seconds",
        storm=OURS,
        null_is_a_value=True,
    ),
    Option(
        "topology.worker.buffer.bytes",
        whole(65536, 2**40),
        33554432,
        "Memory for waiting tuples, in bytes per worker: half for tuples from other workers, half "
        "for inboxes. Tasks that feed a full one wait.",
        scope=TOPOLOGY,
        readers=WORKER,
        unit="bytes",
        storm=OURS,
    ),
    Option(
        "topology.worker.busy.poll.ms",
        number(0, 60_000),
        0,
        "How long a worker goes on asking for tuples of other workers, without sleeping, after it "
        "has received or sent some, in milliseconds. 0: it sleeps at once, and a tuple that comes "
        "then has to wake it. Longer than the pause between tuples: the latency between workers "
        "falls, and each worker takes a whole core while tuples come.",
        scope=TOPOLOGY,
        readers=WORKER | COMMAND | UI,
        unit="milliseconds",
        storm=OURS,
    ),
    Option(
        "topology.bolt.async.concurrency",
        whole(1, 1000000),
        100,
        "Number of tuples that one task of an `async def execute` bolt processes concurrently.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.bolt.die.on.error",
        YES_NO,
        False,
        "Let the worker die when a bolt or a spout raises (Storm's way). Otherwise the "
        "error is reported; a bolt's tuple fails, and a spout is called again after a "
        "pause. A component may have its own.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.fail.on.worker.loss",
        YES_NO,
        True,
        "Fail messages that were in flight in a worker that died at once, instead of at the "
        "message timeout.",
        scope=TOPOLOGY,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.max.replays",
        COUNT,
        None,
        "How often a spout's message may be replayed. If it then fails again, it goes to the "
        "spout's stream __dead_letter, or to the file dead-letters.jsonl beside the worker's log "
        "if no bolt consumes that stream. null: no limit.",
        scope=TOPOLOGY | COMPONENT,
        readers=NIMBUS | WORKER,
        storm=OURS,
    ),
    Option(
        "topology.max.worker.kills",
        COUNT,
        3,
        "A spout's message that was in hand at this many unexpected exits of a worker goes to the "
        "spout's stream __dead_letter, if a bolt consumes that stream. 0 or null: it is replayed "
        "forever.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
        null_is_a_value=True,
    ),
    Option(
        "topology.fall.back.on.pickle",
        YES_NO,
        False,
        "Allow pickle for values that cannot be encoded otherwise. Anyone who can reach a worker's "
        "port can then run code in it.",
        scope=TOPOLOGY,
        readers=WORKER | COMMAND,
        storm=OURS,
    ),
    Option(
        "topology.spout.batch",
        whole(1, 1000000),
        None,
        "Largest number of calls of next_tuple in one turn of the run loop. null: 512, or one "
        "for each edge out of the worker's tasks, and up to four for each while its bolts keep up.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.run.turn.ms",
        MILLIS,
        2,
        "How long the spouts, and after them the bolts, may take in one turn of the run loop, in "
        "milliseconds. Each bolt that has tuples works on some of them all the same, so a turn of "
        "many bolts takes longer; spouts emit more in a turn only while the bolts take less than "
        "20 times as long as this.",
        scope=TOPOLOGY,
        readers=WORKER,
        unit="milliseconds",
        storm=OURS,
    ),
    Option(
        "topology.tracing.enabled",
        YES_NO,
        False,
        "Trace sampled tuple trees with OpenTelemetry: one span for each execution of a component. "
        "Needs `squall[tracing]` on the workers' nodes.",
        scope=TOPOLOGY,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.tracing.sample.rate",
        number(0.0, 1.0),
        0.01,
        "The share of spouts' messages that begin a trace. A message that is emitted while a "
        "sampled span is current continues that span's trace, whatever the rate.",
        scope=TOPOLOGY,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.tracing.exporter",
        TEXT,
        "otlp",
        "Where spans go: otlp (over HTTP), console (the worker's log), or the class path of a "
        "SpanExporter in the topology's package (module:Class).",
        scope=TOPOLOGY,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.tracing.otlp.endpoint",
        TEXT,
        "http://127.0.0.1:4318/v1/traces",
        "The address that the otlp exporter posts spans to.",
        scope=TOPOLOGY,
        readers=WORKER,
        storm=OURS,
    ),
)
