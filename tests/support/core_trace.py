"""A cluster of engines whose every section, execution and ack is traced, to compare the two cores.

    SQUALL_CORE=pure python -c "from tests.support.core_trace import main; main()" 1 2 3

prints a line for each seed: a digest of its trace, and how much of what was seen.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections import Counter
from typing import Any

from tests.support.engine_cluster import EngineCluster, Network

from squall import Bolt, Spout, Stream, TopologyBuilder
from squall_engine import core

COUNT = 60


class Trace:
    """Everything that happened, as a digest and as counts by kind."""

    def __init__(self) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self.counts: Counter[str] = Counter()

    def add(self, kind: str, *what: object) -> None:
        self.counts[kind] += 1
        self._digest.update(repr((kind, *what)).encode())

    def __str__(self) -> str:
        counts = " ".join(f"{kind}={n}" for kind, n in sorted(self.counts.items()))
        return f"{self._digest.hexdigest()} {counts}"


TRACE = Trace()


class Traced(Bolt):
    """Traces each tuple that it executes."""

    def seen(self, tup: Any) -> None:
        name = self.context.this_component_id
        TRACE.add("executed", name, self.context.this_task_id, tup.source_task, tup.id, tup.root)


class Source(Spout):
    """Numbers on two streams, replayed twice when they fail."""

    outputs = {"default": ["number", "text"], "side": ["number"]}

    def open(self, conf: Any, context: Any) -> None:
        self.waiting = [*range(COUNT)]
        self.failures: Counter[int] = Counter()

    def next_tuple(self) -> None:
        if self.waiting:
            number = self.waiting.pop(0)
            if number % 5 == 0:
                self.emit_columns([[number], [f"t{number % 7}"]], message_ids=[number])
            else:
                self.emit([number, f"t{number % 7}"], message_id=number)
            self.emit([number], stream="side", message_id=None if number % 2 else -1 - number)

    def ack(self, msg_id: Any) -> None:
        TRACE.add("acked", self.context.this_task_id, msg_id)

    def fail(self, msg_id: Any) -> None:
        TRACE.add("failed", self.context.this_task_id, msg_id)
        self.failures[msg_id] += 1
        if msg_id >= 0 and self.failures[msg_id] < 3:
            self.waiting.append(msg_id)


class Spread(Traced):
    """Emits to a direct stream and to two groupings; raises now and then."""

    outputs = {"default": ["number", "text"], "direct": Stream(["number"], direct=True)}

    def prepare(self, conf: Any, context: Any) -> None:
        self.targets = context.component_tasks("sink")
        self.calls = 0

    def execute(self, tup: Any) -> None:
        self.seen(tup)
        self.calls += 1
        for _ in range(tup[0] % 3):
            self.emit([tup[0], tup["text"]])
        self.emit_direct(self.targets[tup[0] % len(self.targets)], [tup[0]], stream="direct")
        if self.calls % 37 == 0:
            raise ValueError("now and then")


class Join(Traced):
    """Emits one tuple that is anchored to several, and acks them in another order."""

    outputs = ("number", "text")
    auto_ack = False

    def prepare(self, conf: Any, context: Any) -> None:
        self.held: list[Any] = []

    def execute(self, tup: Any) -> None:
        self.seen(tup)
        self.held.append(tup)
        if len(self.held) < 3 and tup[0] < COUNT - 10:
            self.reset_timeout(tup)
            return
        self.emit([tup[0], "joined"], anchors=self.held)
        self.emit([tup[0], "joined again"], anchors=self.held[::-1])
        for one in reversed(self.held):
            self.fail(one) if one[0] % 41 == 7 else self.ack(one)
        self.held.clear()


class ByColumns(Bolt):
    outputs = ("number", "text")

    def execute_columns(self, columns: Any) -> None:
        numbers, texts = columns
        rows = [row for row in range(columns.rows) for _ in range(numbers[row] % 2 + 1)]
        TRACE.add("columns", self.context.this_task_id, columns.source_task, list(numbers))
        self.emit_columns(
            [[numbers[row] for row in rows], [texts[row] for row in rows]], origins=rows
        )


class InBatches(Bolt):
    outputs = ("number", "text")

    def execute_batch(self, tuples: Any) -> None:
        TRACE.add("batch", self.context.this_task_id, [tup[0] for tup in tuples])
        for tup in tuples:
            self.emit([tup[0], tup["text"]], anchors=tup)


class Sink(Traced):
    def execute(self, tup: Any) -> None:
        self.seen(tup)
        if len(tup.values) == 1 and tup[0] % 50 == 3:
            self.fail(tup)


class TracedNetwork(Network):
    """Traces the bytes of every section."""

    def carry(self, slot: Any, peer: Any, sections: Any) -> None:
        for section in sections:
            TRACE.add("section", slot.port, peer.port, section)
        super().carry(slot, peer, sections)


def trace(seed: int) -> Trace:
    """Run the topology on one to three workers, over a network that may lose and repeat."""
    global TRACE
    TRACE = Trace()
    rng = random.Random(seed)
    builder = TopologyBuilder()
    builder.spout("source", Source(), parallelism=rng.randint(1, 2))

    def tasks() -> int:
        return rng.randint(1, 3)

    builder.bolt("spread", Spread(), parallelism=tasks()).shuffle("source")
    builder.bolt("join", Join(), parallelism=tasks()).fields("spread", "text")
    builder.bolt("columns", ByColumns(), parallelism=tasks()).shuffle("spread").fields(
        "join", "number"
    )
    builder.bolt("batches", InBatches(), parallelism=tasks()).local_or_shuffle("join")
    sink = builder.bolt("sink", Sink(), parallelism=tasks()).fields("columns", "number", "text")
    sink.all("batches").direct("spread", stream="direct").global_("source", stream="side")
    workers = rng.randint(1, 3)
    conf = {
        "topology.acker.executors": rng.choice([1, workers]),
        "topology.message.timeout.secs": 5,
        "topology.max.spout.pending": rng.choice([10, 1000]),
    }
    faults = rng.choice([0.0, 0.05])
    network = TracedNetwork(seed, lose=faults, repeat=faults, delay_secs=rng.choice([0.0, 0.01]))
    with EngineCluster(builder.build(), workers, conf, network=network, seed=seed) as cluster:
        cluster.run_for(8.0)
        for engine in cluster.engines:
            TRACE.add("stats", sorted(map(repr, engine.stats().items())))
    return TRACE


def main() -> None:
    print(core.NAME)
    for seed in map(int, sys.argv[1:]):
        print(seed, trace(seed), flush=True)
