"""What users write, with types: no checker may complain."""

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from squall import (
    Bolt,
    Columns,
    CustomGrouping,
    LocalCluster,
    ReplayingSpout,
    ShellBolt,
    Spout,
    StatefulBolt,
    Stream,
    TopologyBuilder,
    TopologyContext,
    Tuple,
    submit_topology,
)
from squall.metrics import CountMetric, DataPoint, MetricsConsumer, TaskInfo
from squall.testing import BoltTest, TopologyTest
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


class Count(StatefulBolt):
    outputs = ["word", "count"]
    component_conf = {"topology.tick.tuple.freq.secs": 5}

    def execute(self, tup: Tuple) -> None:
        self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)


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
