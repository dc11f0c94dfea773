"""Topologies: options that Storm does not have."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    COMMAND,
    COMPONENT,
    OURS,
    TOPOLOGY,
    WORKER,
    Option,
)
from squall_common.config.options.kinds import COUNT, MILLIS, SECS, YES_NO, whole

OPTIONS = (
    Option(
        "topology.worker.stall.timeout.secs",
        SECS,
        300,
        "Restart a worker in which a call of a component (execute, next_tuple, ack ...) "
        "has not returned for this long; null: never. At topology.message.timeout.secs it "
        "is reported as an error. A component may have its own; `next_tuple` on a thread "
        "(blocking = True) or in a coroutine, which may wait for input, counts only if it "
        "has.",
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
        "Memory for tuples that wait, in bytes a worker: half for what has come from other "
        "workers, half for inboxes. What feeds a full one waits.",
        scope=TOPOLOGY,
        readers=WORKER,
        unit="bytes",
        storm=OURS,
    ),
    Option(
        "topology.bolt.async.concurrency",
        whole(1, 1000000),
        100,
        "Tuples that one task of an `async def execute` bolt works on at once.",
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
        "Fail at once what was under way in a worker that died, instead of at the message timeout.",
        scope=TOPOLOGY,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.max.replays",
        COUNT,
        None,
        "How often a spout's message may be replayed. One that fails once more goes to the "
        "spout's stream __dead_letter, if a bolt consumes that. null: no limit.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.max.worker.kills",
        COUNT,
        3,
        "At so many unexpected ends of a worker may a spout's message have been in hand. "
        "Then it goes to the spout's stream __dead_letter, if a bolt consumes that. 0 or "
        "null: it is emitted for ever.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
        null_is_a_value=True,
    ),
    Option(
        "topology.fall.back.on.pickle",
        YES_NO,
        False,
        "Allow pickle for values that nothing else can carry. Whoever reaches a worker's "
        "port can then run code in it.",
        scope=TOPOLOGY,
        readers=WORKER | COMMAND,
        storm=OURS,
    ),
    Option(
        "topology.spout.batch",
        whole(1, 1000000),
        None,
        "Calls of next_tuple in one turn of the run loop, at most. null: 256, or as many "
        "as the worker has tasks.",
        scope=TOPOLOGY | COMPONENT,
        readers=WORKER,
        storm=OURS,
    ),
    Option(
        "topology.run.turn.ms",
        MILLIS,
        2,
        "How long one turn of the run loop lasts, in milliseconds, at most.",
        scope=TOPOLOGY,
        readers=WORKER,
        unit="milliseconds",
        storm=OURS,
    ),
)
