"""What the history has of the engine: exact counts and histograms, and sampled keys, over two
workers (so that edges lead to both)."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, ClassVar

import pytest
from tests.support.engine_cluster import EngineCluster

from squall import Bolt, Spout, TopologyBuilder
from squall_common.history.schema import Row, from_parquet, to_parquet

COUNT = 3_000


class Numbers(Spout):
    outputs = ["key", "n"]
    go = False

    def open(self, conf: Any, context: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if Numbers.go and self.next < COUNT:
            key = "hot" if self.next % 2 else f"key {self.next % 100}"
            self.emit([key, self.next], message_id=self.next)
            self.next += 1


class Count(Bolt):
    outputs = ["n"]

    def execute(self, tup: Any) -> None:
        if tup["n"] % 10 == 0:
            raise ValueError("tenth")
        self.emit([tup["n"]])


class Sink(Bolt):
    outputs: ClassVar[list[str]] = []

    def execute(self, tup: Any) -> None:
        pass


def topology() -> Any:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("count", Count(), parallelism=4).fields("numbers", "key")
    builder.bolt("pairs", Sink(), parallelism=2).fields("numbers", "key", "n")
    builder.bolt("sink", Sink()).shuffle("count")
    return builder.build()


def record(rate: float) -> list[Row]:
    """All rows of both workers, read twice."""
    Numbers.go = False
    with EngineCluster(topology(), 2) as cluster:
        recorders = []
        for engine in cluster.engines:
            recorders.append(engine.record_history(rate, clock=cluster.clock, rng=random.Random(7)))
        Numbers.go = True
        cluster.run_for(0.01)
        rows = [row for recorder in recorders for row in recorder.read()]
        cluster.run_for(30)
        assert all(engine.is_drained() for engine in cluster.engines)
        rows += [row for recorder in recorders for row in recorder.read()]
        assert not [r for r in recorders[0].read() if r.kind in ("count", "latency", "key")]
        return rows


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return record(1.0)


def test_counts_are_exact(rows: list[Row]) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.kind == "count":
            found[row.component, row.name] += row.n
    assert found["numbers", "emitted"] == COUNT
    assert found["numbers", "transferred"] == 2 * COUNT
    assert found["numbers", "failed"] == COUNT // 10
    assert found["numbers", "acked"] == COUNT - COUNT // 10
    assert found["count", "executed"] == found["pairs", "executed"] == COUNT
    assert found["sink", "executed"] == found["sink", "acked"] == COUNT - COUNT // 10


def test_histograms_count_every_event_once(rows: list[Row]) -> None:
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row.kind == "latency":
            assert row.buckets is not None
            assert sum(row.buckets.values()) == row.n
            found[row.component, row.name] += row.n
    assert found["count", "execute"] == COUNT
    assert found["numbers", "complete"] == COUNT - COUNT // 10


def test_every_task_has_a_row_in_every_interval(rows: list[Row]) -> None:
    gauges = Counter((r.component, r.task) for r in rows if r.kind == "gauge")
    assert set(gauges.values()) == {2}
    assert len(gauges) == 8
    assert {r.name for r in rows if r.kind == "worker"} == {"cpu_secs", "rss_bytes"}


def test_with_a_rate_of_one_keys_are_counted_exactly(rows: list[Row]) -> None:
    totals = {r.name: r for r in rows if r.kind == "keys"}
    assert set(totals) == {"count by key", "pairs by key, n"}
    assert sum(r.n for r in rows if r.kind == "keys" and r.name == "count by key") == COUNT
    keys = Counter({r.text: 0 for r in rows if r.kind == "key" and r.name == "count by key"})
    tasks: dict[str, set[int]] = {}
    for row in rows:
        if row.kind == "key" and row.name == "count by key":
            keys[row.text] += row.n
            tasks.setdefault(row.text, set()).add(row.task)
    assert keys["hot"] == COUNT // 2
    assert keys["key 2"] == COUNT // 100
    assert all(len(of) == 1 for of in tasks.values()), "a key has one task"


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.03])
def test_a_sample_is_proportional_for_every_key(rate: float) -> None:
    found: Counter[str] = Counter()
    for row in record(rate):
        if row.kind == "key" and row.name == "count by key":
            found[row.text] += row.n
    total = found.total()
    # Gaps are even between 0 and twice the mean: the spread is far below that of coin tosses.
    assert abs(total - rate * COUNT) < 4 * (rate * COUNT) ** 0.5
    assert abs(found["hot"] / total - 0.5) < 4 * (0.25 / total) ** 0.5


def test_a_recording_can_be_written(rows: list[Row]) -> None:
    table = from_parquet(to_parquet(rows, worker="h:1", incarnation="1.1"), "x")
    assert table.num_rows == len(rows)
