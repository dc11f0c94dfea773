"""Tasks of a component in one worker share the edges that lead out of it (in the compiled core):
what each has emitted stays its own."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support import engine_components as c
from tests.support import pressure_components as p
from tests.support.engine_cluster import EngineCluster

from squall import Bolt, TopologyBuilder

COUNT, RELAYS = 200, 5
SMALL = {"topology.worker.buffer.bytes": 65_536, "topology.executor.receive.buffer.size": 256}


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()
    p.clear()
    yield
    p.FREE.set()


class Signs(Bolt):
    """Passes a number on, with the task that has done it; some are emitted for two anchors."""

    outputs = ("number", "task")
    auto_ack = False

    def prepare(self, conf, context):
        self.task = context.this_task_id
        self.kept = None

    def execute(self, tup):
        if tup[0] % 10:
            self.emit((tup[0], self.task))
            self.ack(tup)
        elif self.kept is None:
            self.kept = tup
        else:
            for one in (self.kept, tup):
                self.emit((one[0], self.task), anchors=(self.kept, tup))
            self.ack(self.kept)
            self.ack(tup)
            self.kept = None


def note(tup):
    c.log("seen", (tup[0], tup[1], tup.source_task))


class OneByOne(Bolt):
    def execute(self, tup):
        note(tup)


class Keeps(Bolt):
    """Acks late, so that no tuple object can be used again."""

    auto_ack = False

    def prepare(self, conf, context):
        self.kept = []

    def execute(self, tup):
        self.kept.append(tup)
        if len(self.kept) == 4:
            for one in self.kept:
                note(one)
                self.ack(one)
            self.kept = []


class InBatches(Bolt):
    def execute_batch(self, tuples):
        for tup in tuples:
            note(tup)


class InColumns(Bolt):
    def execute_columns(self, columns):
        c.log("columns", columns.rows)
        for number, task in zip(*columns, strict=True):
            c.log("seen", (number, task, columns.source_task))


class Coroutine(Bolt):
    async def execute(self, tup):
        note(tup)


class OnThread(Bolt):
    blocking = True

    def execute(self, tup):
        note(tup)


def relayed(sink, relay=None, relays=RELAYS):
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(COUNT))
    builder.bolt("relay", relay or Signs(), parallelism=relays).fields("numbers", "number")
    builder.bolt("sink", sink, parallelism=2).fields("relay", "number")
    return builder.build()


def run_on(topology, workers, conf=None):
    """The sinks on the last worker, the others on the first."""
    return EngineCluster(
        topology,
        workers,
        {"topology.acker.executors": 1, **(conf or {})},
        place=lambda executor, component: workers - 1 if component == "sink" else 0,
    )


def through():
    return len(c.LOG.get("acked", ())) == COUNT


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("sink", [OneByOne, Keeps, InBatches, InColumns, Coroutine, OnThread])
def test_a_tuple_knows_the_task_that_emitted_it(sink, workers):
    with run_on(relayed(sink()), workers) as cluster:
        # A relay may be left with one that waits for another, and a sink with three.
        cluster.run_until(lambda: len(c.LOG.get("seen", ())) >= COUNT - RELAYS - 6)
        cluster.run_for(1)
        seen = list(c.LOG["seen"])
        assert {said == task for _, said, task in seen} == {True}
        assert len({task for _, _, task in seen}) == RELAYS
        assert len({number for number, _, _ in seen}) == len(seen)
        assert cluster.errors == []
        by_task = Counter(task for _, task, _ in seen)
        held = COUNT - len(seen)
        for executor, one in cluster.engines[0].stats().items():
            if cluster.tasks[executor.task_start] == "relay":
                emitted = one.emitted[":all-time"]["default"]
                assert one.transferred[":all-time"] == {"default": emitted}
                assert 0 <= emitted - by_task[executor.task_start] <= held


def test_emits_of_several_tasks_go_in_one_batch():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(COUNT))
    builder.bolt("relay", c.Pass(), parallelism=RELAYS).shuffle("numbers")
    builder.bolt("sink", c.Collect()).shuffle("relay")
    with EngineCluster(builder.build(), 1, {"topology.acker.executors": 1}) as cluster:
        flow = cluster.engines[0]._flow
        groups = {id(flow._group_of[task]) for task in flow.bolts if task.component == "relay"}
        assert len(groups) == 1
        cluster.run_until(through)
        assert sorted(row[2][0] for row in c.LOG["collected"]) == list(range(COUNT))


class Refuses(Bolt):
    """Emits, for one number, what cannot travel."""

    outputs = ("number", "thing")

    def execute(self, tup):
        if tup[0] == 77:
            c.log("refused by", self.context.this_task_id)
        self.emit((tup[0], object() if tup[0] == 77 else "x" * 10))


def test_a_value_that_cannot_be_sent_is_blamed_on_its_own_task():
    topology = relayed(c.Collect(), Refuses())
    with run_on(topology, 2) as cluster:
        cluster.run_until(lambda: len(c.LOG.get("acked", ())) == COUNT - 1)
        assert c.LOG["failed"] == [77]
        ((component, task, error),) = cluster.errors
        assert (component, task) == ("relay", c.LOG["refused by"][0])
        assert "field 'thing'" in str(error)


@pytest.mark.parametrize("workers", [1, 2])
def test_many_tasks_together_wait_for_a_stuck_bolt(workers):
    """What they share does not let them emit more than each for itself."""
    relays, count = 40, 8_000
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(count, acked=True))
    builder.bolt("relay", p.Relay(), parallelism=relays).shuffle("fast")
    builder.bolt("sink", p.StuckCoroutine()).shuffle("relay")
    p.STUCK.add("sink")
    conf = {**SMALL, "topology.message.timeout.secs": 100_000}
    with run_on(builder.build(), workers, conf) as cluster:
        (spout,) = cluster.engines[0]._flow.spouts
        before = -1
        while before != spout.calls.emitted():
            before = spout.calls.emitted()
            cluster.run_for(1)
            for engine in cluster.engines:
                for bolt in engine._flow.bolts:
                    assert bolt.inbox.local <= bolt.hard + 2_048
        assert 0 < before < count / 2
        p.STUCK.clear()
        p.FREE.set()
        cluster.run_until(lambda: len(p.ACKED) == count, 6_000)
        assert set(p.ACKED.values()) == {1}
        assert cluster.errors == []
