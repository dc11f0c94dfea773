"""Mistakes that a type checker must find: each line that ends in `# wrong` has one."""

from collections.abc import Mapping, Sequence
from typing import Any

from squall import (
    Bolt,
    Columns,
    CustomGrouping,
    LocalCluster,
    ReplayingSpout,
    Spout,
    StreamBuilder,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    WindowedBolt,
    submit_topology,
)
from squall.testing import BoltTest
from squall.windows import EventTime, TupleWindow, sliding, tumbling
from squall_connectors.base import AsyncSource
from squall_connectors.kafka import KafkaSpout


class Numbers(Spout):
    outputs = 3  # wrong
    blocking = "yes"  # wrong

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        context.wakeup()  # wrong

    def next_tuple(self) -> None:
        self.emit(1)  # wrong
        self.emit([1], 7)  # wrong
        tasks: str = self.emit([1])  # wrong
        self.emit([1], message_id=[1])  # wrong


class Lines(ReplayingSpout):
    def next_message(self) -> int:  # wrong
        return 1


class Split(Bolt):
    component_conf = ["topology.tick.tuple.freq.secs"]  # wrong
    auto_ack = None  # wrong

    def __init__(self, least: int) -> None:
        self.least = least

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.word])  # wrong
        self.emit([1], anchors="tup")  # wrong
        self.ack(tup, tup)  # wrong
        self.ack("tup")  # wrong
        tup["word"] = 1  # wrong


class Batch(Bolt):
    def execute_batch(self, tuples: dict[str, Tuple]) -> None: ...  # wrong


class Fast(Bolt):
    def execute_columns(self, columns: Columns) -> int:  # wrong
        return columns.rows


class First(CustomGrouping):
    def choose_tasks(self, task: int, values: Sequence[Any]) -> str:  # wrong
        return "first"


class Window(WindowedBolt):
    windows = 60  # wrong

    def execute_window(self, window: list[Tuple]) -> None:  # wrong
        self.emit(window)


class Other(WindowedBolt):
    windows = sliding(secs="60", every_secs=10)  # wrong

    def execute_window(self, window: TupleWindow) -> None:
        self.emit([window.keys])  # wrong


class Timer(Bolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        context.call_later("1", print)  # wrong
        context.counter("looks").increase()  # wrong


class Rows(AsyncSource):
    async def fetch(self, limit: str) -> list[tuple[int, list[str]]]:  # wrong
        return []


def build() -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers(), parallelism="2")  # wrong
    builder.spout("split", Split(1))  # wrong
    builder.bolt("numbers", Numbers())  # wrong
    builder.bolt("split", Split("one"))  # wrong
    builder.bolt("split", Split(1)).fields("numbers", 1)  # wrong
    builder.bolt("split", Split(1)).shuffle(3)  # wrong
    builder.spout("numbers", Numbers()).shuffle("split")  # wrong
    builder.bolt("window", Other()).windowed(60)  # wrong
    builder.bolt("window", Other()).windowed(tumbling(secs=1, event_time="at"))  # wrong
    builder.spout("rows", KafkaSpout("broker:9092", topics=["orders"], in_flight_max="1"))  # wrong
    EventTime("at", lag="5s")  # wrong
    builder.add_worker_hook(print)  # wrong
    submit_topology("words", {}, builder)  # wrong
    submit_topology("words", {}, builder.build(), initial_status="PAUSED")  # wrong
    with LocalCluster() as cluster:
        cluster.totals(3)  # wrong
    with BoltTest(Split(1), ["line"]) as test:  # wrong
        done: int = test.execute(["to be"])  # wrong


def double(n: int) -> int:
    return n * 2


def shout(word: str) -> str:
    return word.upper()


def larger(a: str, b: str) -> str:
    return max(a, b)


async def ask(n: int) -> str:
    return str(n)


def streams() -> None:
    numbers = StreamBuilder().source("numbers", Numbers(), of=int)
    numbers.map(shout)  # wrong
    numbers.map(double).filter(shout)  # wrong
    numbers.map(str).map(double)  # wrong
    numbers.key_by().reduce(larger)  # wrong
    numbers.flat_map(double)  # wrong
    numbers.map_async(double)  # wrong
    numbers.map_async(ask).map(double)  # wrong
    numbers.count()  # wrong
    numbers.key_by().window(60)  # wrong
    numbers.key_by(str).count().map(shout)  # wrong
    numbers.key_by().window(tumbling(secs=1)).count().map(shout)  # wrong
    numbers.merge(numbers.map(str)).map(shout)  # wrong
    numbers.to("split")  # wrong
