"""Local mode: the engine on a thread, in real time."""

import asyncio
import logging
import runpy
import sys
import threading
import time
from collections import Counter

import pytest
from tests.support import engine_components as c
from tests.support.engine_cluster import EngineCluster

from squall import Bolt, LocalCluster, ReplayingSpout, Spout, SquallError, TopologyBuilder
from squall.local import LocalTopologies


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


def word_count(lines):
    builder = TopologyBuilder()
    builder.spout("lines", c.Lines(lines))
    builder.bolt("split", c.Split(), parallelism=2).shuffle("lines")
    builder.bolt("count", c.Count(), parallelism=3).fields("split", "word")
    return builder.build()


def numbers_to(bolt, count, *, spout=None, conf=None):
    builder = TopologyBuilder()
    builder.spout("numbers", spout or c.Numbers(count))
    builder.bolt("bolt", bolt, conf=conf).shuffle("numbers")
    if bolt.outputs:
        builder.bolt("collect", c.Collect()).shuffle("bolt")
    return builder.build()


LINES = ["the cow jumped over the moon", "the end", "cow cow cow"] * 100


@pytest.mark.parametrize("serialize", [True, False])
def test_word_count_runs_to_exact_counts(serialize):
    with LocalCluster() as cluster:
        conf = {"topology.testing.always.try.serialize": serialize}
        cluster.submit_topology("wordcount", conf, word_count(LINES))
        cluster.wait_drained("wordcount")
        assert sum(c.LOG["counters"], Counter()) == Counter(" ".join(LINES).split())
        totals = cluster.totals("wordcount")
        assert totals["lines"] == {"emitted": 300, "transferred": 300, "acked": 300, "failed": 0}
        assert totals["count"]["executed"] == totals["split"]["emitted"] == 1_100
        cluster.kill_topology("wordcount")
        assert cluster.names() == []
    assert not [t for t in threading.enumerate() if t.name == "local-cluster"]


def test_a_name_runs_once_and_an_unknown_one_is_refused():
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, word_count(LINES), initial_status="INACTIVE")
        with pytest.raises(SquallError, match="is already running"):
            cluster.submit_topology("a", {}, word_count(LINES))
        with pytest.raises(SquallError, match="is not running here"):
            cluster.kill_topology("b")
        with pytest.raises(SquallError, match="may not contain"):
            cluster.submit_topology("a/b", {}, word_count(LINES))


def test_activate_deactivate():
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, word_count(LINES), initial_status="INACTIVE")
        assert cluster.totals("a")["lines"]["emitted"] == 0
        cluster.activate("a")
        cluster.wait_until(lambda: cluster.totals("a")["lines"]["acked"] == 300)
        cluster.deactivate("a")


def test_errors_are_kept():
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, numbers_to(c.FailOn([3]), 5))
        cluster.wait_until(lambda: cluster.totals("a")["numbers"]["acked"] == 4)
        assert [(e.component, str(e.error)) for e in cluster.errors("a")] == [("bolt", "no 3")]


def test_wait_reports_a_topology_that_died():
    with LocalCluster() as cluster:
        conf = {"topology.bolt.die.on.error": True}
        cluster.submit_topology("a", conf, numbers_to(c.FailOn([3]), 5))
        with pytest.raises(SquallError, match="'a' died: ValueError: no 3"):
            cluster.wait(10)


class KeepsOne(Bolt):
    auto_ack = False

    def execute(self, tup):
        if tup[0] > 0:
            raise ValueError("the second")


def test_wait_drained_reports_a_topology_that_died_with_something_in_flight():
    with LocalCluster() as cluster:
        conf = {"topology.bolt.die.on.error": True}
        cluster.submit_topology("a", conf, numbers_to(KeepsOne(), 2))
        with pytest.raises(SquallError, match="'a' died: ValueError: the second"):
            cluster.wait_drained("a", 10)


def test_a_topology_that_does_not_start_leaves_nothing():
    with LocalCluster() as cluster:
        with pytest.raises(SquallError, match="no prepare"):
            cluster.submit_topology("a", {}, numbers_to(c.Breaks("prepare"), 1))
        assert cluster.names() == []


async def test_it_runs_on_a_loop_of_ones_own():
    topologies = LocalTopologies()
    await topologies.submit_topology("a", {}, word_count(LINES))
    await topologies.wait_drained("a")
    assert topologies.totals("a")["lines"]["acked"] == 300
    await topologies.shutdown()


def test_a_blocking_spout_and_bolt_run_on_threads():
    with LocalCluster() as cluster:
        builder = TopologyBuilder()
        builder.spout("numbers", c.BlockingNumbers(50))
        builder.bolt("bolt", c.BlockingDouble(0.0, fail_on=7), parallelism=2).shuffle("numbers")
        builder.bolt("collect", c.Collect()).shuffle("bolt")
        cluster.submit_topology("a", {}, builder.build())
        cluster.wait_until(lambda: cluster.totals("a")["numbers"]["acked"] == 49)
        assert cluster.totals("a")["numbers"]["failed"] == 1
        assert cluster.totals("a")["bolt"]["executed"] == 50
        cluster.wait_until(lambda: len(c.LOG.get("acked", ())) == 49)
        assert all(c.LOG["threads"])  # every call on the component's own thread
        assert len(set(c.LOG["bolt_threads"])) == 2
        assert sorted(v[0] for _, _, v in c.LOG["collected"]) == [
            2 * n for n in range(50) if n != 7
        ]
    names = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith(("numbers:", "bolt:")) for name in names)


def test_the_tuples_that_wait_for_a_slow_bolt_are_bounded():
    """A spout without end, a bolt that takes 5 ms: the spout is stopped, memory stays bounded, and
    the bolt goes on."""
    conf = {"topology.testing.always.try.serialize": False}
    with LocalCluster() as cluster:
        cluster.submit_topology("a", conf, numbers_to(c.BlockingDouble(0.005), 10**9))
        cluster.wait_until(lambda: cluster.totals("a")["bolt"]["executed"] > 40)
        totals = cluster.totals("a")
        assert totals["numbers"]["emitted"] - totals["bolt"]["executed"] < 4_000
        cluster.kill_topology("a", wait_secs=0)


def test_a_kill_drains_tuples_in_flight():
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, numbers_to(c.Sleeps(0.02), 20))
        cluster.wait_until(lambda: cluster.totals("a")["numbers"]["emitted"] == 20)
        cluster.kill_topology("a", wait_secs=10)
    assert len(c.LOG["acked"]) == 20


def test_a_kill_waits_no_longer_than_requested():
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, numbers_to(c.Sleeps(1000), 3))
        cluster.wait_until(lambda: cluster.totals("a")["numbers"]["emitted"] == 3)
        start = time.monotonic()
        cluster.kill_topology("a", wait_secs=0.2)
        assert time.monotonic() - start < 5


def test_an_idle_spout_is_asked_twenty_times_a_second():
    """What an idle topology costs is its wake-ups: `bench idle` measures them in CPU time."""
    conf = {"topology.tick.tuple.freq.secs": 1}
    spout = c.NothingToEmit()
    with EngineCluster(numbers_to(c.Pass(), 0, spout=spout), 1, conf) as engines:
        engines.run_until(lambda: len(c.LOG["asked"]) > 720)  # past the quick polls
        calls = len(c.LOG["asked"])
        engines.run_for(10)
        rate = (len(c.LOG["asked"]) - calls) / 10
    assert 18 < rate < 22


def test_a_component_that_holds_the_loop_is_named(caplog):
    topology = numbers_to(c.Held(0.12), 2)
    with caplog.at_level(logging.WARNING), LocalCluster() as cluster:
        cluster.submit_topology("a", {}, topology)
        cluster.wait_until(lambda: cluster.totals("a")["bolt"]["executed"] == 2)
    warnings = [r.getMessage() for r in caplog.records if "component_holds_loop" in r.getMessage()]
    assert len(warnings) == 1
    assert "component=bolt" in warnings[0]


def test_context_wake_ends_an_idle_wait_at_once():
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, numbers_to(c.Pass(), 0, spout=c.Woken()))
        cluster.wait_until(lambda: "woken" in c.LOG)
        (spout,) = c.LOG["woken"]
        time.sleep(0.3)  # now it is asked every 10 ms only
        times = []
        for _ in range(20):
            start = time.monotonic()
            spout.push()
            cluster.wait_until(lambda: not spout.queue)
            times.append(spout.emitted_at - start)
        assert sorted(times)[10] < 0.005


def test_submitting_inside_a_running_loop_works_from_a_thread():
    async def main():
        return await asyncio.to_thread(run)

    def run():
        with LocalCluster() as cluster:
            cluster.submit_topology("a", {}, word_count(LINES))
            cluster.wait_drained("a")
            return cluster.totals("a")["lines"]["acked"]

    assert asyncio.run(main()) == 300


class DeadLetters(Spout):
    """Emits two messages, and replays those that fail, the first one only."""

    outputs = ["n"]

    def open(self, conf, context):
        self.waiting = [1, 2]

    def next_tuple(self):
        if self.waiting:
            number = self.waiting.pop()
            self.emit([number], message_id=[number])  # ids need not be hashable

    def fail(self, msg_id):
        if msg_id == [1]:
            self.waiting.append(1)


class FailsOnce(Bolt):
    def prepare(self, conf, context):
        self.seen = set()

    def execute(self, tup):
        if tup["n"] not in self.seen:
            self.seen.add(tup["n"])
            raise ValueError(tup["n"])


def test_a_message_that_a_replay_saves_has_not_failed_for_good():
    builder = TopologyBuilder()
    builder.spout("numbers", DeadLetters())
    builder.bolt("once", FailsOnce()).shuffle("numbers")
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, builder.build())
        cluster.wait_until(lambda: cluster.totals("a")["numbers"]["acked"] == 1)
        assert cluster.totals("a")["numbers"]["failed"] == 2
        assert cluster.failed_messages("a") == 1


UNGUARDED = """
from squall import Spout, TopologyBuilder
from squall.local import LocalCluster


class Words(Spout):
    outputs = ["word"]

    def next_tuple(self):
        pass


builder = TopologyBuilder()
builder.spout("words", Words())
with LocalCluster() as cluster:
    cluster.submit_topology("words", {}, builder.build())
"""


@pytest.mark.timeout(120)
def test_a_program_without_a_main_guard_fails_and_names_it(tmp_path, monkeypatch):
    """The worker imports the program for its components, which would start it again and wait."""
    program = tmp_path / "unguarded_program.py"
    program.write_text(UNGUARDED)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        with pytest.raises(SquallError, match='if __name__ == "__main__":'):
            runpy.run_path(str(program), run_name="__main__")
    finally:
        sys.modules.pop("unguarded_program", None)


class Ending(ReplayingSpout):
    """Emits `count` numbers, then says that its source has ended."""

    outputs = ["n"]

    def __init__(self, count, ends=True):
        self.count, self.ends = count, ends

    def open(self, conf, context):
        self.left = self.count

    def next_message(self):
        if not self.left:
            return None
        self.left -= 1
        return [self.left]

    def exhausted(self):
        return (self.left == 0) if self.ends else None


class FailsFirst(Bolt):
    """Fails each number once."""

    def prepare(self, conf, context):
        self.seen = set()

    def execute(self, tup):
        if tup["n"] not in self.seen:
            self.seen.add(tup["n"])
            raise ValueError("not yet")
        c.LOG.setdefault("taken", []).append(tup["n"])


class SlowUnanchored(Bolt):
    outputs = ["n"]

    async def execute(self, tup):
        await asyncio.sleep(0.5)
        self.emit([tup["n"]], anchors=())


def ending(*spouts, bolt=None):
    builder = TopologyBuilder()
    into = builder.bolt("bolt", bolt or FailsFirst())
    for number, spout in enumerate(spouts):
        into.shuffle(builder.spout(f"spout{number}", spout))
    return builder.build()


def test_a_job_has_finished_once_all_that_failed_was_replayed():
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, ending(Ending(50)))
        assert cluster.wait(30.0, until_finished=True) is True
        assert sorted(c.LOG["taken"]) == list(range(50))
        assert cluster.failed_messages("a") == 0
        assert cluster.has_finished("a") is True
        cluster.wait_finished("a", 0.0)
        assert cluster.wait(0.01) is False


def test_one_that_is_inactive_has_not_finished():
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, ending(Ending(0)), initial_status="INACTIVE")
        assert cluster.wait(0.3, until_finished=True) is False
        with pytest.raises(TimeoutError, match=r"'a' has not finished in 0\.1 s"):
            cluster.wait_finished("a", 0.1)
        cluster.activate("a")
        cluster.wait_finished("a", 30.0)


@pytest.mark.parametrize("endless", [Ending(0, ends=False), c.Numbers(0)])
def test_a_topology_with_a_source_without_an_end_never_finishes(endless):
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, ending(Ending(3), endless, bolt=c.Collect()))
        cluster.submit_topology("b", {}, ending(Ending(3), bolt=c.Collect()))
        cluster.wait_finished("b", 30.0)
        cluster.wait_until(lambda: cluster.has_finished("a") is None)
        assert cluster.wait(0.3, until_finished=True) is False
        with pytest.raises(SquallError, match="does not say whether its source ends"):
            cluster.wait_finished("a")


def test_it_has_not_finished_while_an_async_bolt_works_on_its_last_tuple():
    builder = TopologyBuilder()
    builder.spout("source", Ending(1))
    builder.bolt("slow", SlowUnanchored()).shuffle("source")
    builder.bolt("collect", c.Collect()).shuffle("slow")
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, builder.build())
        cluster.wait_finished("a", 30.0)
        assert cluster.totals("a")["collect"]["executed"] == 1


def test_waiting_for_the_end_reports_a_topology_that_died():
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, ending(Ending(1), bolt=c.Collect()))
        cluster.wait_finished("a", 30.0)
        cluster._topologies._died("a", ValueError("gone"))
        with pytest.raises(SquallError, match="'a' died: ValueError: gone"):
            cluster.wait(until_finished=True)
