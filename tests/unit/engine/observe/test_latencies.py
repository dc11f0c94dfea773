"""Latencies and waits as an executor reports them: percentiles within windows, queues, blocked time
by cause."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.support.engine_cluster import EngineCluster

from squall import Bolt, Spout, TopologyBuilder
from squall_common.cluster.values import BoltStats, ExecutorStats, SpoutStats
from squall_common.history.histogram import bucket_of, pack, percentile, unpack
from squall_engine.observe.latencies import LatencyWindows, TimedCounts

PLACE = ("execute", ("words", "default"))


def test_a_window_has_the_tuples_since_its_beginning() -> None:
    windows = LatencyWindows(0.0)
    before = {PLACE: pack({5: 10})}
    now = {PLACE: pack({5: 10, 9: 3})}
    windows.tick(700.0, lambda: before)
    windows.tick(1400.0, lambda: before)  # the last ten minutes begin here
    found = windows.values(now)
    assert unpack(found["600"][PLACE]) == {9: 3}
    assert unpack(found["10800"][PLACE]) == unpack(found[":all-time"][PLACE]) == {5: 10, 9: 3}
    assert windows.values(before)["600"] == {}


def test_tuples_count_with_the_mean_of_their_slice() -> None:
    counts = TimedCounts()
    counts.executed_many("in", 10, 0.010, processed=10)
    counts.executed_many("in", 1, 0.5)
    counts.processed("in", 0.2, 2)
    found = dict(counts.buckets())

    def histogram(what: str) -> dict[int, int]:
        return {bucket: n for bucket, n in enumerate(found[what, "in"]) if n}

    assert histogram("execute") == {bucket_of(0.001): 10, bucket_of(0.5): 1}
    assert histogram("process") == {bucket_of(0.001): 10, bucket_of(0.1): 2}


@given(some.floats(min_value=0, max_value=1e12, allow_subnormal=False))
def test_a_latency_counts_in_its_bucket(secs: float) -> None:
    counts = TimedCounts()
    counts.executed_many("in", 1, secs)
    counts.processed("in", secs)
    for _, buckets in counts.buckets():
        # (Rounding may put one that lies on a bound to either side.)
        assert 1 in (buckets[bucket_of(secs * (1 - 1e-12))], buckets[bucket_of(secs * (1 + 1e-12))])


class Numbers(Spout):
    outputs: ClassVar[list[str]] = ["n"]

    def open(self, conf: Any, context: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        self.next += 1
        self.emit([self.next], message_id=self.next)


class Middle(Bolt):
    outputs: ClassVar[list[str]] = ["n"]

    def execute(self, tup: Any) -> None:
        self.emit([tup["n"]])


class Slow(Bolt):
    """Keeps what it gets, so that its inbox fills."""

    outputs: ClassVar[list[str]] = []
    auto_ack = False
    clock: ClassVar[Any] = None

    def execute(self, tup: Any) -> None:
        Slow.clock.advance(0.02)
        self.ack(tup)


def stats_of(cluster: EngineCluster, component: str) -> ExecutorStats:
    for engine in cluster.engines:
        for executor, stats in engine.stats().items():
            if cluster.tasks[executor.task_start] == component:
                return stats
    raise AssertionError(component)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_slow_bolt_is_named_by_all_that_wait_for_it(workers: int) -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("middle", Middle()).shuffle("numbers")
    builder.bolt("slow", Slow()).shuffle("middle")
    conf = {"topology.executor.receive.buffer.size": 64, "topology.max.spout.pending": 1000}

    def place(executor: Any, component: str) -> int:
        return workers - 1 if component == "slow" else 0

    cluster = EngineCluster(builder.build(), workers, conf, place=place)
    Slow.clock = cluster.clock
    with cluster:
        cluster.run_for(30)
        slow = stats_of(cluster, "slow")
        assert isinstance(slow.specific, BoltStats)
        key = ("middle", "default")
        execute = unpack(slow.specific.execute_histograms[":all-time"][key])
        assert sum(execute.values()) == slow.specific.executed[":all-time"][key]
        assert percentile(execute, 0.5) == pytest.approx(0.02, rel=0.05)
        assert slow.queue_tuples
        assert slow.queue_bytes
        assert not slow.blocked_secs

        numbers = stats_of(cluster, "numbers")
        assert isinstance(numbers.specific, SpoutStats)
        complete = unpack(numbers.specific.complete_histograms[":all-time"]["default"])
        assert sum(complete.values()) == numbers.specific.acked[":all-time"]["default"]
        assert numbers.queue_tuples
        if workers == 1:
            assert numbers.blocked_secs[":all-time"].keys() == {"slow"}
            middle = stats_of(cluster, "middle")
            assert middle.blocked_secs[":all-time"]["slow"] > 10
            assert middle.credit_bytes == middle.sent_bytes == {}
        else:
            middle = stats_of(cluster, "middle")
            assert middle.credit_bytes["slow"] >= 0
            # A number takes a few bytes, with what the acker needs, and what waits was sent, too.
            taken = slow.specific.executed[":all-time"][key] + slow.queue_tuples
            assert 4 * taken < middle.sent_bytes["slow"] < 64 * taken
            assert numbers.sent_bytes == slow.sent_bytes == {}
