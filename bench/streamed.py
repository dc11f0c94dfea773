"""Word counts and chains of steps, as bolts that are written by hand and as streams."""

from __future__ import annotations

from bench.topologies import CountingSpout, Lines, Split
from squall import Bolt, StatefulBolt, StreamBuilder, TopologyBuilder, Tuple
from squall_common.topology.model import Topology

_CHAIN = 4


class RunningCount(StatefulBolt):
    """Each word with its count so far, as `KeyedStream.count` has it."""

    outputs = ("word", "count")

    def execute(self, tup: Tuple) -> None:
        word = tup.values[0]
        state = self.state
        count = state.get(word, 0) + 1
        state.put(word, count)
        self.emit((word, count))


class Numbers(CountingSpout):
    outputs = ("n",)

    def next_tuple(self) -> None:
        sent = self.sent
        if sent < self.total:
            self.sent = sent + 1
            self.emit((sent,), message_id=sent)


def add_one(n: int) -> int:
    return n + 1


class AddOne(Bolt):
    outputs = ("n",)

    def execute(self, tup: Tuple) -> None:
        self.emit((add_one(tup.values[0]),))


def word_count(kind: str, lines: int, rounds: int) -> Topology:
    """`kind`: "bolts" or "streams"."""
    spout = Lines(lines, rounds, True)
    if kind == "bolts":
        topology = TopologyBuilder()
        topology.spout("lines", spout)
        topology.bolt("split", Split()).shuffle("lines")
        topology.bolt("count", RunningCount()).fields("split", "word")
        return topology.build()
    builder = StreamBuilder()
    words = builder.source("lines", spout, of=str).flat_map(str.split).named("split")
    words.key_by().count().named("count")
    return builder.build()


def chain(kind: str, total: int) -> Topology:
    """A function of each number, four times."""
    if kind == "bolts":
        topology = TopologyBuilder()
        topology.spout("numbers", Numbers(total, True))
        source = "numbers"
        for place in range(_CHAIN):
            topology.bolt(f"add{place}", AddOne()).shuffle(source)
            source = f"add{place}"
        return topology.build()
    builder = StreamBuilder()
    stream = builder.source("numbers", Numbers(total, True), of=int)
    for _ in range(_CHAIN):
        stream = stream.map(add_one)
    stream.named("add3")
    return builder.build()
