"""Topologies with keyed state, on the public API alone, for `bench.checkpoints`: the same with and
without checkpoints. Only the spout differs: with checkpoints it can be read again from a position,
and without it has its messages acked."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any

from bench.topologies import Count, CountingSpout, LineColumns, Lines, Split, SplitColumns
from squall import (
    Bolt,
    Columns,
    RewindableSpout,
    StatefulBolt,
    TopologyBuilder,
    TopologyContext,
    Tuple,
)
from squall_common.topology.model import Topology

_SPLIT = "all"


def _keys(count: int) -> list[str]:
    """In an order in which neighbours lie far from each other in a dictionary."""
    keys = [f"key-{number:09}" for number in range(count)]
    random.Random(1).shuffle(keys)
    return keys


class Keys(CountingSpout):
    """Each of so many keys by turns."""

    outputs = ("key",)

    def __init__(self, total: int, keys: int) -> None:
        super().__init__(total, True)
        self.count = keys

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().open(conf, context)
        self.keys = _keys(self.count)

    def next_tuple(self) -> None:
        sent = self.sent
        if sent < self.total:
            self.sent = sent + 1
            self.emit((self.keys[sent % self.count],), message_id=sent)


class _Rewindable(RewindableSpout):
    """What a `CountingSpout` is, for the engine's process: nothing is acked."""

    def __init__(self, total: int) -> None:
        self.total = total

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.sent = 0

    def seek(self, positions: Mapping[Any, Any]) -> None:
        self.sent = positions.get(_SPLIT, 0)

    @property
    def done(self) -> int:
        return self.sent

    def is_through(self) -> bool:
        return self.sent >= self.total


class RewindableKeys(_Rewindable):
    outputs = ("key",)

    def __init__(self, total: int, keys: int) -> None:
        super().__init__(total)
        self.count = keys

    def seek(self, positions: Mapping[Any, Any]) -> None:
        super().seek(positions)
        # Not where all have been emitted: a restart would take the time.
        self.keys = [] if self.is_through() else _keys(self.count)

    def next_tuple(self) -> None:
        sent = self.sent
        if sent < self.total:
            self.sent = sent + 1
            self.emit((self.keys[sent % self.count],), position=(_SPLIT, sent + 1))


class _RewindableLines(_Rewindable):
    outputs = ("line",)

    def __init__(self, lines: int, rounds: int) -> None:
        super().__init__(lines * rounds)
        self.inner = Lines(lines, rounds, False)

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().open(conf, context)
        self.inner.open(conf, context)
        self.lines = self.inner.lines


class RewindableLines(_RewindableLines):
    def next_tuple(self) -> None:
        line = next(self.lines, None)
        if line is not None:
            self.sent = sent = self.sent + 1
            self.emit((line,), position=(_SPLIT, sent))


class RewindableLineColumns(_RewindableLines):
    def next_tuple(self) -> None:
        lines = list(islice(self.lines, 1_000))
        if lines:
            self.sent += len(lines)
            self.emit_columns([lines], position=(_SPLIT, self.sent))


class _Counted(StatefulBolt):
    def figures(self) -> dict[str, int]:
        counts = [count for _, count in self.state.iterate()]
        return {"keys": len(counts), "counted": sum(counts)}


class CountKeys(_Counted):
    def execute(self, tup: Tuple) -> None:
        key, state = tup.values[0], self.state
        state.put(key, state.get(key, 0) + 1)


class CountKeysInBatches(_Counted):
    def execute_batch(self, tuples: list[Tuple]) -> None:
        state = self.state
        get, put = state.get, state.put
        for tup in tuples:
            key = tup.values[0]
            put(key, get(key, 0) + 1)


class CountInBatches(Count):
    """Counts that no checkpoint has."""

    def execute_batch(self, tuples: list[Tuple]) -> None:
        counts = self.counts
        for tup in tuples:
            word = tup.values[0]
            counts[word] = counts.get(word, 0) + 1


class CountInColumns(Bolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: Counter[str] = Counter()

    def execute_columns(self, columns: Columns) -> None:
        self.counts.update(columns[0])


def keys(total: int, keys: int, *, batches: bool, checkpoints: bool) -> Topology:
    """A bolt counts by key, in its state."""
    builder = TopologyBuilder()
    builder.spout("keys", (RewindableKeys if checkpoints else Keys)(total, keys))
    bolt = CountKeysInBatches() if batches else CountKeys()
    builder.bolt("counted", bolt).fields("keys", "key")
    return builder.build()


def words(style: str, lines: int, rounds: int, *, checkpoints: bool) -> Topology:
    """Word count. `style`: "state" counts in the state of its tasks, "batches" and "columns" in a
    dictionary."""
    builder = TopologyBuilder()
    if style == "columns":
        spout = (
            RewindableLineColumns(lines, rounds)
            if checkpoints
            else LineColumns(lines, rounds, True)
        )
        split: Bolt = SplitColumns()
        count: Bolt = CountInColumns()
    else:
        spout = RewindableLines(lines, rounds) if checkpoints else Lines(lines, rounds, True)
        split, count = Split(), CountKeys() if style == "state" else CountInBatches()
    builder.spout("lines", spout)
    builder.bolt("split", split).shuffle("lines")
    builder.bolt("count", count).fields("split", "word")
    return builder.build()


# ---- latency, and a bolt that is too slow ----


class PacedKeys(RewindableKeys):
    """Each key once as fast as can be; then a steady rate, with the time of each emit."""

    outputs = ("key", "at")

    def __init__(self, keys: int, rate: float, total: int) -> None:
        super().__init__(keys + total, keys)
        self.rate = rate

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().open(conf, context)
        self.due = 0.0

    def next_tuple(self) -> None:
        sent, at = self.sent, 0.0
        if sent >= self.total:
            return
        if sent >= self.count:
            at = time.perf_counter()
            if at < self.due:
                return
            self.due = max(self.due + 1.0 / self.rate, at - 1.0 / self.rate)
        self.sent = sent + 1
        self.emit((self.keys[sent % self.count], at), position=(_SPLIT, sent + 1))


class TimedCount(CountKeys):
    """Remembers how long each tuple took from its emit until it was counted."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.latencies: list[float] = []

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        if tup.values[1]:
            self.latencies.append(time.perf_counter() - tup.values[1])

    def figures(self) -> dict[str, Any]:
        return {**super().figures(), "latencies_us": [round(1e6 * s, 1) for s in self.latencies]}


class SlowCount(CountKeys):
    def __init__(self, secs: float) -> None:
        self.secs = secs

    def execute(self, tup: Tuple) -> None:
        super().execute(tup)
        end = time.perf_counter() + self.secs
        while time.perf_counter() < end:
            pass


def paced(keys: int, rate: float, total: int) -> Topology:
    builder = TopologyBuilder()
    builder.spout("keys", PacedKeys(keys, rate, total))
    builder.bolt("counted", TimedCount()).fields("keys", "key")
    return builder.build()


def slow(total: int, keys: int, secs: float) -> Topology:
    """The bolt takes `secs` for each tuple, and the spout knows nothing of that."""
    builder = TopologyBuilder()
    builder.spout("keys", RewindableKeys(total, keys))
    builder.bolt("counted", SlowCount(secs)).fields("keys", "key")
    return builder.build()
