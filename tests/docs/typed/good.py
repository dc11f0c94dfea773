"""What users write, with types: no checker may complain."""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import squall.tracing
from squall import (
    AggregateBolt,
    Bolt,
    Columns,
    CustomGrouping,
    FanOut,
    LocalCluster,
    ReplayingSpout,
    ShellBolt,
    Spout,
    StatefulBolt,
    Stream,
    StreamBuilder,
    TaskHook,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    WindowedBolt,
    WorkerHook,
    submit_topology,
)
from squall.metrics import CountMetric, DataPoint, MetricsConsumer, TaskInfo
from squall.streams import KeyedStream, KeyState, Windowed, WindowedStream
from squall.streams import Stream as Values
from squall.testing import BoltTest, TopologyTest
from squall.testing.connectors import SourceContract
from squall.windows import EventTime, JoinBolt, TupleWindow, session, sliding, tumbling
from squall_connectors.base import AsyncSource, Sink
from squall_connectors.kafka import KafkaSpout
from squall_drpc import BatchBolt, DRPCClient, LinearDRPCTopologyBuilder


class Numbers(Spout):
    outputs = {"default": ["n"], "odd": Stream(["n"], direct=True)}

    def __init__(self, limit: int) -> None:
        self.limit = limit

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.n = 0

    def next_tuple(self) -> None:
        self.n += 1
        tasks: Sequence[int] = self.emit([self.n], message_id=self.n)
        self.log.info("to %s of %s", tasks, self.context.topology_name)

    def fail(self, msg_id: int) -> None:
        self.emit([msg_id], message_id=msg_id)


class Lines(ReplayingSpout):
    outputs = ["line"]

    def next_message(self) -> list[str] | None:
        return ["to be"]

    def acked(self, values: Sequence[Any]) -> None:
        print(values[0])


class Split(Bolt):
    outputs = ["word"]

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.seen = context.register_metric("seen", CountMetric(), 10)

    def execute(self, tup: Tuple) -> None:
        self.seen.incr()
        for word in tup["line"].split():
            self.emit([word], anchors=tup)


class Ask(Bolt):
    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None: ...

    async def execute(self, tup: Tuple) -> None: ...

    async def cleanup(self) -> None: ...


class Store(Bolt):
    blocking = True
    auto_ack = False

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.database = sqlite3.connect(conf["database"])

    def execute_batch(self, tuples: list[Tuple]) -> None:
        for tup in tuples:
            self.ack(tup)


class Fast(Bolt):
    outputs = ["word"]

    def execute_columns(self, columns: Columns) -> None:
        words = [word.upper() for word in columns["word"]]
        self.emit_columns([words], origins=range(columns.rows))
        self.emit_columns([words], origins=FanOut([1] * columns.rows))


class Count(StatefulBolt):
    outputs = ["word", "count"]
    component_conf = {"topology.tick.tuple.freq.secs": 5}

    def execute(self, tup: Tuple) -> None:
        self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)


class Average(WindowedBolt):
    outputs = ["key", "mean"]
    windows = sliding(secs=60, every_secs=10, key="key", event_time=EventTime("at", lag_secs=5))

    def execute_window(self, window: TupleWindow) -> None:
        values: list[float] = [tup["value"] for tup in window]
        self.emit([window.key, sum(values) / len(window)])


class Total(AggregateBolt):
    outputs = ["total"]
    windows = tumbling(count=100)

    def init(self) -> int:
        return 0

    def add(self, total: int, tup: Tuple) -> int:
        return total + int(tup["n"])

    def merge(self, first: int, second: int) -> int:
        return first + second

    def result(self, total: int, window: TupleWindow) -> None:
        self.emit([total])


class Later(Bolt):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        context.call_later(0.5, self.look)
        context.counter("looks").inc()

    def look(self) -> None:
        self.log.info("at %.3f", self.context.time())

    def execute(self, tup: Tuple) -> None:
        headers: dict[str, str] = squall.tracing.outgoing()
        with squall.tracing.incoming(headers):
            self.emit([1], anchors=[tup])


class Slow(TaskHook):
    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.slow = context.counter("slow")


class Database(WorkerHook):
    def __init__(self, url: str) -> None:
        self.url = url


class Rows(AsyncSource):
    outputs = ["row"]

    async def fetch(self, limit: int) -> list[tuple[int, list[str]]]:
        return [(1, ["x"])]

    async def settle(self, message_ids: Sequence[Any]) -> None: ...


class Table(Sink):
    async def write(self, tuples: Sequence[Tuple]) -> None:
        print([tup["row"] for tup in tuples])


class TestRows(SourceContract):
    def make_source(self, **options: Any) -> Rows:
        return Rows(**options)


class First(CustomGrouping):
    def choose_tasks(self, task: int, values: Sequence[Any]) -> Sequence[int]:
        return self.target_tasks[:1]


class Print(MetricsConsumer):
    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        print(Counter(point.name for point in data_points))


class Sum(BatchBolt):
    outputs = ["id", "sum"]

    def execute(self, tup: Tuple) -> None: ...

    def finish_batch(self) -> None:
        self.emit([self.request_id, 1])


def build() -> TopologyBuilder:
    builder = TopologyBuilder()
    numbers = builder.spout("numbers", Numbers(limit=3), parallelism=2, tasks=4)
    builder.bolt("split", Split(), 2).shuffle(numbers).fields("lines", "line").all("x")
    builder.bolt("shell", ShellBolt("ruby", "x.rb", outputs=["a"])).custom("split", First())
    builder.bolt("count", Count(), conf={"a": 1}).partial_key("split", "word").memory_load(64)
    builder.spout("rows", KafkaSpout("broker:9092", "orders", fields=["value"]))
    builder.bolt("average", Average(), tasks=8).windowed(session(gap_secs=5, key="n")).shuffle("x")
    join = JoinBolt("a", "k").join("b", "k", "a").select("a:k, b:v")
    builder.bolt("join", join).windowed(tumbling(secs=1)).fields("a", "k").fields("b", "k")
    builder.add_worker_hook(Database("postgresql://x"))
    return builder


def run() -> None:
    with LocalCluster() as cluster:
        identifier: str = cluster.submit_topology("words", {}, build().build())
        print(identifier, cluster.totals("words")["split"]["acked"])
    with BoltTest(Split(), {"lines": ["line"]}) as test:
        values: list[Any] = test.execute(["to be"]).emitted[0].values
        print(values)
    with TopologyTest(build(), seed=3) as whole:
        whole.run_for(3.5)
    with DRPCClient("host", 3772) as client:
        answer: str = client.execute("f", "x")
        print(answer)
    linear = LinearDRPCTopologyBuilder("sum")
    linear.add_bolt(Sum(), 2).fields("id")
    submit_topology("words", {"topology.workers": 2}, build().build(), initial_status="INACTIVE")


@dataclass(frozen=True)
class Order:
    user: str
    cents: int
    at: int


def cents_of(order: Order) -> int:
    return order.cents


def at_of(order: Order) -> int:
    return order.at


def user_of(order: Order) -> str:
    return order.user


def is_large(order: Order) -> bool:
    return order.cents > 1000


def spent(total: int, order: Order) -> int:
    return total + order.cents


def add(a: int, b: int) -> int:
    return a + b


def average(cents: list[int]) -> float:
    return sum(cents) / len(cents)


def first(user: str, order: Order, state: KeyState[bool]) -> Iterator[Order]:
    if state.get() is None:
        state.put(True)
        yield order


def shown(counted: Windowed[str, int]) -> str:
    return f"{counted.key.upper()}: {counted.value + 1} until {counted.end_ms}"


async def rate(order: Order) -> float:
    return order.cents / 100


def streams() -> None:
    builder = StreamBuilder()
    orders: Values[Order] = builder.source("orders", Numbers(3), of=Order)
    by_user: KeyedStream[str, Order] = orders.event_time(at_of).key_by(user_of)
    windows: WindowedStream[str, Order] = by_user.window(tumbling(secs=60))
    counts: Values[Windowed[str, int]] = windows.count()
    lines: Values[str] = counts.map(shown).named("lines", parallelism=2)
    totals: Values[tuple[str, int]] = by_user.aggregate(int, spent)
    texts: Values[tuple[str, str]] = by_user.aggregate(int, spent, str)
    cents: Values[int] = orders.map(cents_of)
    largest: Values[tuple[int, int]] = cents.key_by().reduce(max)
    means: Values[Windowed[None, float]] = cents.window(tumbling(count=5)).apply(average)
    sums: Values[Windowed[str, int]] = windows.aggregate(int, spent, add)
    rates: Values[float] = orders.map_async(rate, concurrency=10)
    firsts: Values[Order] = by_user.process(first)
    states: Values[tuple[str, int]] = by_user.update_state_by_key(spent, int)
    large, small = orders.branch(is_large, bool)
    both: Values[Order] = large.merge(small)
    words: Values[str] = lines.flat_map(str.split)
    pairs: Values[Windowed[str, tuple[Order, Order]]] = by_user.join(by_user, tumbling(secs=1))
    left: Values[Windowed[str, tuple[Order, Order | None]]] = by_user.left_join(
        by_user, tumbling(secs=1)
    )
    scores: Values[float] = orders.through("score", Split(), of=float, fields=["user", "cents"])
    for stream in (totals, texts, largest, means, sums, rates, firsts, states, both, words):
        stream.print()
    pairs.to("store", Store())
    left.output("left")
    scores.print()
    print(builder.plan())
    submit_topology("orders", None, builder.build())
