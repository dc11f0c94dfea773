"""Topologies with windows, on the public API alone: the same count by a plain bolt, by windows of
tuples and by aggregates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def counting(kind: str, total: int) -> Topology:
    """A spout and one bolt that counts its tuples."""
    cls, windows = _KINDS[kind]
    builder = TopologyBuilder()
    builder.spout("readings", Readings(total, True))
    bolt = builder.bolt("counted", cls()).fields("readings", "sensor")
    if windows is not None:
        bolt.windowed(windows)
    return builder.build()
