"""The kinds of component where they go wrong: errors, timeouts, stalls, tuples too large."""

import asyncio
import dataclasses
import threading
import time
from decimal import Decimal
from uuid import UUID

import pytest
from tests.support import engine_components as c
from tests.support.engine_cluster import EngineCluster, Network

from squall import Bolt, LocalCluster, Spout, TopologyBuilder
from squall.testing import TopologyTest
from squall_engine.dataflow.remote import TUPLE_BYTES_MAX


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


def numbers_to(bolt, count=10, *, spout=None):
    builder = TopologyBuilder()
    builder.spout("numbers", spout or c.Numbers(count))
    builder.bolt("bolt", bolt).shuffle("numbers")
    if bolt.outputs:
        builder.bolt("collect", c.Collect()).shuffle("bolt")
    return builder.build()


def across(topology, place, network=None):
    """On two workers, each component where `place` says, its acker on the first."""
    place = {"__acker": 0, **place}
    return EngineCluster(
        topology,
        2,
        {"topology.acker.executors": 1, "topology.max.spout.pending": 4},
        network=network,
        place=lambda executor, component: place[component],
    )


def collected():
    return sorted(values for _, _, values in c.LOG.get("collected", []))


# ---- batches ----


class BreakingBatches(Bolt):
    """Acks the first of a batch itself and breaks at the end of one that has `bad` in it."""

    outputs = ("number",)

    def __init__(self, bad):
        self.bad = bad

    def execute_batch(self, tuples):
        self.ack(tuples[0])
        if any(tup[0] == self.bad for tup in tuples):
            raise ValueError(f"no {self.bad}")


def test_a_batch_that_raises_fails_its_unsettled_tuples_and_the_next_one_runs():
    with TopologyTest(numbers_to(BreakingBatches(5), 100)) as test:
        test.run_until_idle()
        failed, acked = test.failed("numbers"), test.acked("numbers")
        assert sorted(failed + acked) == list(range(100))
        assert 5 in failed
        assert min(failed) - 1 in acked  # the one that it had acked
        assert max(failed) < 99 <= max(acked)
        assert [str(e.error) for e in test.errors] == ["no 5"]


# ---- coroutines ----


class Raises(Bolt):
    """Ends one of its coroutines with an exception that asyncio gives a meaning."""

    outputs = ("number",)

    def __init__(self, kind):
        self.kind = kind

    async def execute(self, tup):
        await asyncio.sleep(0.01)
        if tup[0] == 3:
            raise {"cancelled": asyncio.CancelledError, "timeout": TimeoutError}[self.kind]
        self.emit([tup[0]])


@pytest.mark.parametrize("kind", ["cancelled", "timeout"])
def test_a_coroutine_that_raises_cancelled_error_fails_only_its_tuple(kind):
    with TopologyTest(numbers_to(Raises(kind))) as test:
        test.run_until_idle()
        assert test.failed("numbers") == [3]
        assert collected() == [(n,) for n in range(10) if n != 3]


class Children(Bolt):
    """Emits in tasks of its own, which begin in one coroutine and end while others run."""

    outputs = ("number",)

    async def execute(self, tup):
        async def emit():
            await asyncio.sleep(0.02 * (tup[0] % 3 + 1))
            self.emit([tup[0]])

        await asyncio.gather(asyncio.create_task(emit()), asyncio.create_task(emit()))


def test_emits_of_a_coroutines_tasks_are_anchored_to_its_tuple():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(9))
    builder.bolt("children", Children()).shuffle("numbers")
    builder.bolt("fail", c.FailOn([4, 7], raises=False)).shuffle("children")
    with TopologyTest(builder.build()) as test:
        test.run_until_idle()
        assert sorted(test.failed("numbers")) == [4, 7]
        assert sorted(test.acked("numbers")) == [0, 1, 2, 3, 5, 6, 8]


class OneHangs(Bolt):
    outputs = ("number",)

    async def execute(self, tup):
        await asyncio.sleep(1000 if tup[0] == 2 else 0.01)
        self.emit([tup[0]])


def test_a_timeout_cancels_only_the_coroutine_that_hangs():
    conf = {"topology.message.timeout.secs": 10}
    with TopologyTest(numbers_to(OneHangs(), 5), conf) as test:
        test.run_for(9)
        assert sorted(test.acked("numbers")) == [0, 1, 3, 4]
        assert test.failed("numbers") == []
        test.run_for(3)
        assert test.failed("numbers") == [2]
        test.run_for(1000)  # it ends, and what it emits and acks is of no tree any more
        assert sorted(test.acked("numbers")) == [0, 1, 3, 4]
        assert test.failed("numbers") == [2]
        assert test.errors == []


class BreakingAsync(Spout):
    outputs = ("number",)
    calls = 0

    async def next_tuple(self):
        self.calls += 1
        await asyncio.sleep(0.001)
        if self.calls % 2:
            raise ValueError("no next_tuple")
        self.emit([self.calls], message_id=self.calls)


def test_errors_of_an_async_spout_are_reported_and_it_goes_on():
    spout = BreakingAsync()
    topology = numbers_to(c.Pass(), spout=c.AsyncNumbers(1))
    with TopologyTest(topology, objects={"numbers": spout}) as test:
        test.run_for(5)
        assert {str(e.error) for e in test.errors} == {"no next_tuple"}
        assert len(test.acked("numbers")) >= 10
        assert spout.calls < 5_000  # it backs off


class Waits(Spout):
    """Emits one, then waits for something that never comes."""

    outputs = ("number",)
    calls = 0

    def __init__(self):
        self.notified = []

    async def next_tuple(self):
        self.calls += 1
        if self.calls > 1:
            await asyncio.sleep(1e6)
        self.emit([1], message_id=1)

    def ack(self, msg_id):
        self.notified.append(msg_id)


def test_an_async_spout_that_waits_is_notified_of_its_acks():
    spout = Waits()
    topology = numbers_to(c.Pass(), spout=c.AsyncNumbers(1))
    with TopologyTest(topology, objects={"numbers": spout}) as test:
        test.run_for(1)
        assert spout.calls == 2
        assert spout.notified == [1]


class AsksWhenWoken(Spout):
    outputs = ("number",)

    def __init__(self):
        self.queue = []
        self.emitted_at = 0.0

    def open(self, conf, context):
        self.loop = asyncio.get_running_loop()

    async def next_tuple(self):
        if self.queue:
            self.emitted_at = self.loop.time()
            self.emit([self.queue.pop()])


def test_wake_ends_the_idle_wait_of_an_async_spout():
    spout = AsksWhenWoken()
    topology = numbers_to(c.Pass(), spout=c.AsyncNumbers(1))
    with TopologyTest(topology, objects={"numbers": spout}) as test:
        test.run_for(60)

        def push():
            spout.queue.append(1)
            spout.context.wake()

        at = spout.loop.time() + 0.5
        test._loop.call_at(at, push)
        test.run_for(1)
        assert spout.emitted_at == pytest.approx(at, abs=0.002)


# ---- threads ----


class Stuck(Bolt):
    blocking = True

    def prepare(self, conf, context):
        self.free = threading.Event()
        c.log("stuck", self.free)

    def execute(self, tup):
        c.log("began", tup[0])
        self.free.wait(30)


def test_a_kill_does_not_wait_for_a_thread_that_never_returns():
    with LocalCluster() as cluster:
        cluster.submit_topology("a", {}, numbers_to(Stuck(), 3))
        cluster.wait_until(lambda: "began" in c.LOG)
        start = time.monotonic()
        cluster.kill_topology("a", wait_secs=0.1)
        assert time.monotonic() - start < 15  # it would wait for 30 s
        c.LOG["stuck"][0].set()


def test_a_message_that_hangs_in_a_thread_times_out():
    conf = {"topology.message.timeout.secs": 1}
    with LocalCluster() as cluster:
        cluster.submit_topology("a", conf, numbers_to(Stuck(), 1))
        cluster.wait_until(lambda: cluster.totals("a")["numbers"]["failed"] == 1)
        assert c.LOG["failed"] == [0]
        c.LOG["stuck"][0].set()


# ---- the loop ----


def test_a_stall_fails_no_tuple_whose_acks_are_in_transit(monkeypatch):
    """A worker stands still for ten times the message timeout, as on a paused machine, while
    messages that it has emitted are with the other one."""
    topology = numbers_to(c.Pass(), 30)
    place = {"numbers": 0, "bolt": 0, "collect": 1}
    with across(topology, place, Network(delay_secs=0.05)) as cluster:
        (spout,) = (b.task.user for b in cluster.engines[0].built if b.task.component == "numbers")
        next_tuple, stalls = spout.next_tuple, [6, 15, 25]

        def stall():
            next_tuple()
            if spout.next in stalls:
                stalls.remove(spout.next)
                cluster.clock.advance(300)

        monkeypatch.setattr(spout, "next_tuple", stall)
        notified = ("acked", "failed")
        cluster.run_until(lambda: sum(len(c.LOG.get(what, ())) for what in notified) == 30, 5_000)
        assert not stalls
        assert "failed" not in c.LOG


# ---- what leaves the worker ----


class Sizes(Bolt):
    """Emits strings of so many bytes."""

    outputs = ("text",)

    def __init__(self, *sizes):
        self.sizes = sizes

    def execute(self, tup):
        self.emit(["x" * self.sizes[tup[0]]])


class Measures(Bolt):
    def execute(self, tup):
        c.log("measured", len(tup[0]))


def test_a_stream_that_had_tuples_above_the_limit_encodes_no_more_of_them():
    """To encode one for each replay, and for each task that gets it, holds the loop."""
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(4))
    large = TUPLE_BYTES_MAX + 1
    builder.bolt("sizes", Sizes(large, 1, large, 2)).shuffle("numbers")
    builder.bolt("measures", Measures(), parallelism=2).all("sizes")
    tasks = {"numbers": 0, "sizes": 0, "measures": 1}
    with across(builder.build(), tasks) as cluster:
        cluster.run_until(lambda: len(c.LOG.get("acked", ())) == 2)
        assert sorted(c.LOG["failed"]) == [0, 2]
        assert sorted(c.LOG["measured"]) == [1, 1, 2, 2]
        sizes = [str(error).partition(" cannot ")[0] for _, _, error in cluster.errors]
    # All were in one batch, which was found to be too large.
    assert sizes == 4 * [
        f"component 'sizes', stream 'default': a tuple of at least {large + 1} bytes"
    ]


def test_only_a_tuple_above_the_limit_fails_and_its_size_is_reported():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(4))
    builder.bolt("sizes", Sizes(1, TUPLE_BYTES_MAX + 1, 1_000_000, 2)).shuffle("numbers")
    builder.bolt("measures", Measures()).shuffle("sizes")
    with across(builder.build(), {"numbers": 0, "sizes": 0, "measures": 1}) as cluster:
        cluster.run_until(lambda: len(c.LOG.get("acked", ())) == 3)
        assert c.LOG["failed"] == [1]
        assert sorted(c.LOG["measured"]) == [1, 2, 1_000_000]
        ((component, _, error),) = cluster.errors
        assert component == "sizes"
        for part in ("'sizes'", "'default'", str(TUPLE_BYTES_MAX), "another worker"):
            assert part in str(error)


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: Decimal


THINGS = [
    2**100,
    -1.5,
    b"\x00\xff",
    True,
    None,
    [1, [2]],
    (1, (2,)),
    {1, 2},
    frozenset("ab"),
    {"k": (1,), 2: None},
    Decimal("1.10"),
    UUID(int=7),
    Point(1, Decimal(2)),
]


class Things(Bolt):
    outputs = ("thing",)

    async def execute(self, tup):
        self.emit([THINGS[tup[0]]])


class Keeps(Bolt):
    def execute(self, tup):
        c.log("things", tup[0])


@pytest.mark.parametrize("worker", [0, 1])
def test_values_keep_their_types_within_and_between_workers(worker):
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(len(THINGS)))
    builder.bolt("things", Things()).shuffle("numbers")
    builder.bolt("keeps", Keeps()).shuffle("things")
    with across(builder.build(), {"numbers": 0, "things": 0, "keeps": worker}) as cluster:
        cluster.run_until(lambda: len(c.LOG.get("acked", ())) == len(THINGS))
        assert sorted(map(repr, c.LOG["things"])) == sorted(map(repr, THINGS))
        assert {type(thing) for thing in c.LOG["things"]} == set(map(type, THINGS))
