"""Topologies of other shapes than word count: groupings, coroutines, fan-out, sizes, latency, and a
bolt that stops. On the public API alone, as in `bench.topologies`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bench.topologies import (
    AckedInBatches,
    Count,
    CountingSpout,
    Numbers,
    Sink,
    Split,
    make_lines,
)
from squall import Bolt, CustomGrouping, Spout, Stream, TopologyBuilder, TopologyContext, Tuple
from squall_common.topology.model import Topology

# ---- groupings that are not a shuffle or fields grouping ----


class ByTurns(CustomGrouping):
    """The cost of a user's own grouping that does next to nothing."""

    def prepare(self, context: Any, stream: Any, target_tasks: Sequence[int]) -> None:
        self.lists = [[task] for task in target_tasks]
        self.at = -1

    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        self.at = at = (self.at + 1) % len(self.lists)
        return self.lists[at]


class DirectNumbers(CountingSpout):
    """Names the task that gets each tuple."""

    outputs = {"default": Stream(["n"], direct=True)}  # noqa: RUF012

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().open(conf, context)
        self.tasks = context.component_tasks("sink")

    def next_tuple(self) -> None:
        sent = self.sent
        if sent < self.total:
            self.sent = sent + 1
            self.emit_direct(self.tasks[sent % len(self.tasks)], (7,), message_id=sent)


def routes(kind: str, total: int, tasks: int) -> Topology:
    """`kind`: "all", "direct" or "custom"."""
    builder = TopologyBuilder()
    spout = DirectNumbers if kind == "direct" else Numbers
    builder.spout("numbers", spout(total, True))
    sink = builder.bolt("sink", Sink(), parallelism=tasks)
    if kind == "all":
        sink.all("numbers")
    elif kind == "direct":
        sink.direct("numbers")
    else:
        sink.custom("numbers", ByTurns())
    return builder.build()


# ---- coroutines ----


class Wait(Bolt):
    """Awaits a pause, as a call of a service would."""

    def __init__(self, secs: float) -> None:
        self.secs = secs

    async def execute(self, tup: Tuple) -> None:
        await asyncio.sleep(self.secs)


def waiting(total: int, secs: float) -> Topology:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers(total, True))
    builder.bolt("wait", Wait(secs)).shuffle("numbers")
    return builder.build()


# ---- fan-out and sizes ----


class Fan(Bolt):
    """Emits a given number of tuples for each input tuple."""

    outputs = ("n",)

    def __init__(self, width: int) -> None:
        self.width = width

    def execute(self, tup: Tuple) -> None:
        emit = self.emit
        for n in range(self.width):
            emit((n,))


def fan_out(width: int, total: int) -> Topology:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers(total, True))
    builder.bolt("fan", Fan(width)).shuffle("numbers")
    builder.bolt("sink", Sink()).shuffle("fan")
    return builder.build()


_PAYLOADS = 1_000


class Payloads(AckedInBatches):
    """Strings of a given number of bytes. Neighbours differ, from two bytes on: a column of equal
    strings crosses to another worker as one of them."""

    outputs = ("payload",)

    def __init__(self, total: int, size: int) -> None:
        super().__init__(total, True)
        self.size = size

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().open(conf, context)
        self.payloads = [f"{n:03}".rjust(self.size, "x")[-self.size :] for n in range(_PAYLOADS)]

    def next_tuple(self) -> None:
        sent = self.sent
        if sent < self.total:
            self.sent = sent + 1
            self.emit((self.payloads[sent % _PAYLOADS],), message_id=sent)


class CheckedSink(Bolt):
    def __init__(self, size: int) -> None:
        self.size = size

    def execute(self, tup: Tuple) -> None:
        if len(tup.values[0]) != self.size:
            raise ValueError(f"a payload of {len(tup.values[0])} bytes, not {self.size}")


def payloads(size: int, total: int) -> Topology:
    builder = TopologyBuilder()
    builder.spout("payloads", Payloads(total, size))
    builder.bolt("sink", CheckedSink(size)).shuffle("payloads")
    return builder.build()


# ---- latency ----


class PacedLines(Spout):
    """Lines at a steady rate; remembers how long each took from its emit to its ack."""

    outputs = ("line",)

    def __init__(self, rate: float, total: int, unmeasured: int) -> None:
        """The first `unmeasured` of `total` warm up."""
        self.rate = rate
        self.total = total
        self.unmeasured = unmeasured

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.lines = make_lines(1_000)
        self.sent = 0
        self.done = 0
        self.due = 0.0
        self.latencies: list[float] = []

    def next_tuple(self) -> None:
        now = time.perf_counter()
        if now < self.due or self.sent >= self.total:
            return
        # Delayed lines are not made up for: bursts would measure something else.
        self.due = max(self.due + 1.0 / self.rate, now - 1.0 / self.rate)
        self.sent += 1
        self.emit((self.lines[self.sent % 1_000],), message_id=(self.sent, time.perf_counter()))

    def ack(self, message_id: tuple[int, float]) -> None:
        number, start = message_id
        self.done += 1
        if number > self.unmeasured:
            self.latencies.append(time.perf_counter() - start)

    def is_through(self) -> bool:
        return self.done >= self.total

    def figures(self) -> dict[str, Any]:
        return {"latencies_us": [round(1e6 * secs, 1) for secs in self.latencies]}


def paced_word_count(rate: float, total: int, unmeasured: int, tasks: int = 1) -> Topology:
    builder = TopologyBuilder()
    builder.spout("lines", PacedLines(rate, total, unmeasured))
    builder.bolt("split", Split(), parallelism=tasks).shuffle("lines")
    builder.bolt("count", Count(), parallelism=tasks).fields("split", "word")
    return builder.build()
