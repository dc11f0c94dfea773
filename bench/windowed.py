"""Topologies with windows, on the public API alone: the same count by a plain bolt, by windows of
tuples and by aggregates."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import psutil

from bench.topologies import CountingSpout
from squall import AggregateBolt, Bolt, TopologyBuilder, TopologyContext, Tuple, WindowedBolt
from squall.windows import EventTime, TupleWindow, Windows, sliding, tumbling
from squall_common.topology.model import Topology

_KEYS = [f"sensor-{n}" for n in range(100)]
_STEP_MS = 1  # of event time, from one tuple to the next


class Readings(CountingSpout):
    """Readings of a hundred sensors, with timestamps that rise."""

    outputs = ("sensor", "at")

    def next_tuple(self) -> None:
        sent = self.sent
        if sent < self.total:
            self.sent = sent + 1
            self.emit((_KEYS[sent % 100], 1 + sent * _STEP_MS), message_id=sent)


class PlainCount(Bolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.counts: dict[str, int] = {}

    def execute(self, tup: Tuple) -> None:
        sensor = tup["sensor"]
        self.counts[sensor] = self.counts.get(sensor, 0) + 1


class WindowCount(WindowedBolt):
    outputs = ("sensor", "count")

    def execute_window(self, window: TupleWindow) -> None:
        self.emit((window.key, len(window)), anchors=())


class AggregateCount(AggregateBolt):
    outputs = ("sensor", "count")

    def init(self) -> int:
        return 0

    def add(self, total: int, tup: Tuple) -> int:
        return total + 1

    def merge(self, first: int, second: int) -> int:
        return first + second

    def result(self, total: int, window: TupleWindow) -> None:
        self.emit((window.key, total), anchors=())


class AggregateCountWithoutHolding(AggregateCount):
    hold = False


_AT = EventTime("at", watermark_interval_secs=0.05)
_KINDS: Mapping[str, tuple[type[Bolt], Windows | None]] = {
    "plain": (PlainCount, None),
    "tuples_count": (WindowCount, tumbling(count=1_000)),
    "aggregate_count": (AggregateCount, tumbling(count=1_000)),
    "sliding_2": (AggregateCountWithoutHolding, sliding(count=1_000, every_count=500)),
    "sliding_100": (AggregateCountWithoutHolding, sliding(count=1_000, every_count=10)),
    "event_2": (
        AggregateCountWithoutHolding,
        sliding(secs=10, every_secs=5, key="sensor", event_time=_AT),
    ),
    "event_100": (
        AggregateCountWithoutHolding,
        sliding(secs=10, every_secs=0.1, key="sensor", event_time=_AT),
    ),
}


_LARGE_BYTES = 120 * 1024 * 1024


class Blobs(CountingSpout):
    """Tuples of so many bytes, each of its own."""

    outputs = ("blob",)

    def __init__(self, total: int, size: int) -> None:
        super().__init__(total, True)
        self.size = size

    def next_tuple(self) -> None:
        if self.sent < self.total:
            self.sent += 1
            self.emit((os.urandom(self.size),), message_id=self.sent)


class ReadWhole(WindowedBolt):
    """Reads a window once, and knows by how much its process has grown by then."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.before_mb, self.grown_mb, self.read_mb = _rss_mb(), 0.0, 0.0

    def execute_window(self, window: TupleWindow) -> None:
        self.read_mb = sum(len(tup["blob"]) for tup in window) / 1e6
        self.grown_mb = _rss_mb() - self.before_mb

    def figures(self) -> dict[str, float]:
        return {"grown_mb": round(self.grown_mb, 1), "read_mb": round(self.read_mb, 1)}


def _rss_mb() -> float:
    return float(psutil.Process().memory_info().rss / 1e6)


def large_count(size: int) -> int:
    """How many tuples of this size `large` has."""
    return _LARGE_BYTES // size


def large(size: int, in_memory: int | None) -> Topology:
    """One window of 126 MB."""
    total = large_count(size)
    builder = TopologyBuilder()
    builder.spout("blobs", Blobs(total, size))
    conf = {"topology.bolts.window.tuples.in.memory.max": in_memory}
    builder.bolt("read", ReadWhole(), conf=conf).windowed(tumbling(count=total)).global_("blobs")
    return builder.build()


def counting(kind: str, total: int) -> Topology:
    """A spout and one bolt that counts its tuples."""
    cls, windows = _KINDS[kind]
    builder = TopologyBuilder()
    builder.spout("readings", Readings(total, True))
    bolt = builder.bolt("counted", cls()).fields("readings", "sensor")
    if windows is not None:
        bolt.windowed(windows)
    return builder.build()
