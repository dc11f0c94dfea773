"""What leaves a tuple behind: threads that end, calls from outside of execute, workers that stop
with something in hand, sections that come to the wrong worker. Nothing may wait forever, and what
can be failed now must not wait for the message timeout."""

import asyncio
import dataclasses
import sys
import threading
import time

import pytest
from tests.support import engine_components as c
from tests.support.engine_cluster import EngineCluster
from tests.support.validated_engine import replaces_methods

from squall import Bolt, Spout, TopologyBuilder
from squall.testing import TopologyTest
from squall_engine.embed import ComponentStartError


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


class ExitingBolt(Bolt):
    blocking = True

    def execute(self, tup):
        sys.exit(3)


class ExitingSpout(c.Numbers):
    blocking = True

    def next_tuple(self):
        sys.exit(3)


@pytest.mark.parametrize("where", ["spout", "bolt"])
def test_a_thread_that_exits_ends_the_worker(where):
    """On the loop SystemExit ends the worker; a thread that just ended would be silent forever."""
    builder = TopologyBuilder()
    builder.spout("numbers", ExitingSpout(5) if where == "spout" else c.Numbers(5))
    builder.bolt("end", ExitingBolt() if where == "bolt" else c.Collect()).shuffle("numbers")
    with TopologyTest(builder.build()) as test:
        deadline = time.monotonic() + 10
        while test.died is None and time.monotonic() < deadline:
            test.run_for(0.01)
            time.sleep(0.001)  # the thread's time is real
        assert isinstance(test.died, SystemExit)


class Later(Bolt):
    """Emits and acks when nothing is executed any more."""

    outputs = ("number",)
    auto_ack = False

    def execute(self, tup):
        def done():
            self.emit(list(tup.values), anchors=tup)
            self.ack(tup)

        asyncio.get_running_loop().call_later(0.01, done)


class BatchLater(Later):
    def execute_batch(self, tuples):
        for tup in tuples:
            self.execute(tup)


class LaterUnanchored(Later):
    auto_anchor = False


class ColumnsLater(Bolt):
    outputs = ("number",)
    auto_ack = False

    def execute_columns(self, columns):
        def done():
            self.emit_columns(list(columns))
            columns.ack()

        asyncio.get_running_loop().call_later(0.01, done)


class ColumnsLaterRowByRow(Bolt):
    outputs = ("number",)
    auto_ack = False

    def execute_columns(self, columns):
        def done():
            for row, number in enumerate(columns[0]):
                self.emit([number], anchors=())
                columns.ack(row)

        asyncio.get_running_loop().call_later(0.01, done)


class LaterFromPrepare(c.Pass):
    def prepare(self, conf, context):
        self.emit(["first"])
        asyncio.get_running_loop().call_later(0.01, self.emit, ["second"])


@pytest.mark.parametrize(
    "bolt", [Later, BatchLater, LaterUnanchored, ColumnsLater, ColumnsLaterRowByRow]
)
def test_emits_and_acks_of_a_callback_leave_at_once(bolt):
    """It lay in a buffer until the bolt ran again: with one message pending, forever."""
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(5))
    builder.bolt("later", bolt()).shuffle("numbers")
    builder.bolt("end", c.Collect()).shuffle("later")
    with TopologyTest(builder.build(), {"topology.max.spout.pending": 1}) as test:
        test.run_for(1)
        assert c.LOG["acked"] == [0, 1, 2, 3, 4]
        assert [values for _, _, values in c.LOG["collected"]] == [(n,) for n in range(5)]


@pytest.mark.parametrize("serialize", [True, False])
def test_emits_of_prepare_and_its_callbacks_leave_at_once(serialize):
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(0))
    builder.bolt("later", LaterFromPrepare()).shuffle("numbers")
    builder.bolt("end", c.Collect()).shuffle("later")
    conf = {"topology.testing.always.try.serialize": serialize}
    with TopologyTest(builder.build(), conf) as test:
        test.run_for(0.1)
        assert [values for _, _, values in c.LOG["collected"]] == [("first",), ("second",)]


class Sleepy(Bolt):
    """Holds each tuple for long."""

    async def execute(self, tup):
        await asyncio.sleep(3600)


class Forgetful(Bolt):
    """Neither acks nor fails; acks on its way out what it was told to."""

    auto_ack = False

    def __init__(self, acks=False):
        self.acks = acks

    def prepare(self, conf, context):
        self.held = []

    def execute(self, tup):
        self.held.append(tup)

    def cleanup(self):
        if self.acks:
            for tup in self.held:
                self.ack(tup)


def two_workers(bolt, acker, conf=None, settings=None):
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(5))
    builder.bolt("end", bolt).shuffle("numbers")
    place = {"numbers": 0, "end": 1, "__acker": acker}
    return EngineCluster(
        builder.build(),
        2,
        {"topology.acker.executors": 1, **(conf or {})},
        place=lambda executor, component: place[component],
        settings=settings,
    )


def stop(cluster, worker):
    cluster.run(cluster.engines[worker].stop(0.1))
    cluster.run_for(0.1)  # much less than the message timeout


@pytest.mark.parametrize("acker", [0, 1])
@pytest.mark.parametrize("concurrency", [2, 100])
def test_a_stop_at_its_deadline_fails_the_remaining_tuples(acker, concurrency):
    """In an inbox or in a coroutine: the spout elsewhere hears of it at once."""
    conf = {"topology.bolt.async.concurrency": concurrency}
    with two_workers(Sleepy(), acker, conf) as cluster:
        cluster.run_for(0.2)
        assert "failed" not in c.LOG
        stop(cluster, 1)
        assert sorted(c.LOG["failed"]) == [0, 1, 2, 3, 4]


def test_an_acker_that_stops_fails_its_trees():
    """Its table ends with it: they could never complete."""
    with two_workers(Forgetful(), acker=1) as cluster:
        cluster.run_for(0.2)
        stop(cluster, 1)
        assert sorted(c.LOG["failed"]) == [0, 1, 2, 3, 4]


def test_acks_in_cleanup_are_sent():
    with two_workers(Forgetful(acks=True), acker=0) as cluster:
        cluster.run_for(0.2)
        stop(cluster, 1)
        assert sorted(c.LOG["acked"]) == [0, 1, 2, 3, 4]


@replaces_methods
def test_tuples_that_arrive_as_a_worker_stops_are_left_to_the_next():
    """Taken and not executed it would be lost until its timeout."""
    with two_workers(c.Collect(), acker=0) as cluster:
        inbox = cluster.network.ends[cluster.slots[1]].inbox
        engine = cluster.engines[1]
        receive, engine._receive = engine._receive, lambda: False

        async def stop():
            await asyncio.sleep(0.2)  # the spout's five lie in the transport
            engine._receive = receive
            await engine.stop(0)

        cluster.run(stop())
        assert inbox, "taken by a worker that had ended"


# -- components that do not end when they should --------------------------------------------------


class WaitingSpout(Spout):
    """Waits in next_tuple, as one may on a thread."""

    outputs = ["n"]
    blocking = True

    def open(self, conf, context):
        self.message = threading.Event()
        c.log("messages", self.message)

    def next_tuple(self):
        self.message.wait(60)


def test_waiting_threads_are_ended_concurrently():
    """One after the other, two of them took longer than the supervisor waits for a worker."""
    builder = TopologyBuilder()
    builder.spout("waiting", WaitingSpout(), parallelism=8)
    builder.bolt("end", c.Collect()).shuffle("waiting")
    with EngineCluster(builder.build(), 1) as cluster:
        try:
            cluster.run_for(0.1)
            began = cluster.clock.monotonic()
            cluster.run(cluster.engines[0].stop(0))
            assert cluster.clock.monotonic() - began < 2
        finally:
            for message in c.LOG["messages"]:
                message.set()


class Deaf(Bolt):
    """Goes on when it is cancelled, until it may end."""

    async def execute(self, tup):
        while "may end" not in c.LOG:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                c.log("cancelled")


class DeafSpout(Spout):
    outputs = ["n"]

    async def next_tuple(self):
        await Deaf.execute(self, None)


@pytest.mark.parametrize("where", ["spout", "bolt"])
def test_a_coroutine_that_does_not_end_does_not_delay_the_worker(where):
    builder = TopologyBuilder()
    builder.spout("numbers", DeafSpout() if where == "spout" else c.Numbers(5))
    builder.bolt("end", Deaf() if where == "bolt" else c.Collect()).shuffle("numbers")
    place = {"numbers": 0, "end": 1, "__acker": 0}
    with EngineCluster(builder.build(), 2, place=lambda _, component: place[component]) as cluster:
        cluster.run_for(0.1)
        worker = 0 if where == "spout" else 1
        cluster.run(asyncio.wait_for(cluster.engines[worker].stop(0), 20))
        assert c.LOG["cancelled"]
        if where == "bolt":
            cluster.run_for(0.1)
            assert sorted(c.LOG["failed"]) == [0, 1, 2, 3, 4]
        c.log("may end")
        for task in asyncio.all_tasks(cluster.loop):
            task.cancel()
        cluster.run_for(0.1)


class EndsItsTask(Bolt):
    """Ends a task of its own, and does not catch what comes of that."""

    async def prepare(self, conf, context):
        self.helper = asyncio.get_running_loop().create_task(asyncio.sleep(3600))

    def execute(self, tup):
        pass

    async def cleanup(self):
        self.helper.cancel()
        await self.helper


class NeverEnds(EndsItsTask):
    async def cleanup(self):
        self.helper.cancel()
        await asyncio.sleep(100_000)


class Tidy(c.Collect):
    def cleanup(self):
        c.log("cleaned up")


@pytest.mark.parametrize("bolt", [EndsItsTask, NeverEnds])
def test_a_cleanup_that_is_cancelled_or_never_ends_does_not_prevent_others(bolt):
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(1))
    builder.bolt("first", bolt()).shuffle("numbers")
    builder.bolt("second", Tidy()).shuffle("numbers")
    with EngineCluster(builder.build(), 1) as cluster:
        cluster.run_for(0.1)
        cluster.run(cluster.engines[0].stop(0))
        assert c.LOG["cleaned up"]
        assert c.LOG["spout"][-1] == "close"
        assert [component for component, _, _ in cluster.errors] == ["first"]


class Held(Bolt):
    """Holds the first tuple on its thread until it is let go."""

    blocking = True

    def prepare(self, conf, context):
        self.go = threading.Event()
        c.log("held", self.go)

    def execute(self, tup):
        c.log("executing", tup.values[0])
        self.go.wait(60)


def until(cluster, condition):
    """Threads and children live in real time."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        cluster.run_for(0.001)
        time.sleep(0.001)


# While a thread is waited for the virtual time flies.
NO_TIMEOUTS = {"topology.message.timeout.secs": 10_000_000}


@pytest.mark.parametrize("ends", [True, False])
def test_tuples_that_a_thread_has_not_executed_fail_when_the_worker_ends(ends):
    with two_workers(Held(), 0, NO_TIMEOUTS) as cluster:
        until(cluster, lambda: c.LOG.get("executing"))
        (go,) = c.LOG["held"]
        try:
            if ends:
                join = cluster.engines[1].built[0].task.join
                cluster.engines[1].built[0].task.join = lambda secs: go.set() or join(20)
            stop(cluster, 1)
            assert c.LOG["executing"] == [0]
            assert sorted(c.LOG["failed"]) == ([1, 2, 3, 4] if ends else [0, 1, 2, 3, 4])
            assert c.LOG.get("acked", []) == ([0] if ends else [])
        finally:
            go.set()


def test_a_worker_whose_time_is_up_waits_only_briefly_for_its_components():
    """It would be killed before it could tell the others that it ends."""
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(5))
    builder.bolt("end", Held()).shuffle("numbers")
    with EngineCluster(builder.build(), 1) as cluster:
        until(cluster, lambda: c.LOG.get("executing"))
        try:
            began = cluster.clock.monotonic()
            assert not cluster.run(cluster.engines[0].stop(0.5))
            assert cluster.clock.monotonic() - began < 1
        finally:
            c.LOG["held"][0].set()


# -- coroutines that meet with a cancellation ------------------------------------------------------


class AwaitsTheCancelled(Bolt):
    async def execute(self, tup):
        helper = asyncio.get_running_loop().create_future()
        helper.cancel()
        await helper


class AsksTheCancelled(Spout):
    outputs = ["n"]

    async def next_tuple(self):
        c.log("asked", 1)
        await AwaitsTheCancelled.execute(self, None)


class PreparesWithTheCancelled(Bolt):
    async def prepare(self, conf, context):
        await AwaitsTheCancelled.execute(self, None)

    def execute(self, tup):
        pass


def test_a_cancellation_in_user_code_is_an_error_of_execute():
    """The tuple failed without a reported reason."""
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(2))
    builder.bolt("end", AwaitsTheCancelled()).shuffle("numbers")
    with EngineCluster(builder.build(), 1) as cluster:
        cluster.run_for(0.1)
        assert c.LOG["failed"] == [0, 1]
        assert [(where, type(error)) for where, _, error in cluster.errors] == [
            ("end", asyncio.CancelledError)
        ] * 2


def test_a_cancellation_in_user_code_is_an_error_of_next_tuple():
    """It was asked again at once, forever, without a report."""
    builder = TopologyBuilder()
    builder.spout("numbers", AsksTheCancelled())
    builder.bolt("end", c.Collect()).shuffle("numbers")
    with EngineCluster(builder.build(), 1) as cluster:

        async def turns():
            for _ in range(1_000):
                await asyncio.sleep(0)

        cluster.run(turns())
        assert len(c.LOG["asked"]) < 100
        assert cluster.errors


def test_a_cancellation_in_user_code_is_an_error_of_prepare():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(2))
    builder.bolt("end", PreparesWithTheCancelled()).shuffle("numbers")
    cluster = EngineCluster(builder.build(), 1)
    try:
        with pytest.raises(ComponentStartError, match=r"prepare\(\) failed: CancelledError"):
            cluster.run(cluster.engines[0].start())
    finally:
        cluster.loop.close()


# -- sections that do not reach their task ---------------------------------------------------------


def chain(place):
    """numbers -> pass -> end, on three workers."""
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(5))
    builder.bolt("pass", c.Pass()).shuffle("numbers")
    builder.bolt("end", c.Collect()).shuffle("pass")
    return EngineCluster(
        builder.build(),
        3,
        {"topology.acker.executors": 1},
        place=lambda executor, component: place[component],
    )


def fail_soon(cluster):
    cluster.run_until(lambda: len(c.LOG.get("failed", ())) == 5, 1)  # the timeout is 30 s
    assert sorted(c.LOG["failed"]) == [0, 1, 2, 3, 4]


@replaces_methods
@pytest.mark.parametrize("moved", ["end", "__acker"])
def test_tuples_for_the_wrong_worker_fail_at_once(moved):
    """A route was stale: who sent it will not send it again."""
    place = {"numbers": 0, "pass": 1, "end": 2, "__acker": 0 if moved == "end" else 2}
    cluster = chain(place)
    (task,) = [task for task, component in cluster.tasks.items() if component == moved]
    stale = {**cluster.routes, task: cluster.slots[0 if moved == "end" else 1]}
    engine = cluster.engines[1 if moved == "end" else 0]
    set_routes = engine.set_routes
    engine.set_routes = lambda routes: set_routes(stale)
    with cluster:
        fail_soon(cluster)


@dataclasses.dataclass
class Order:
    number: int


class Orders(c.Numbers):
    def emit(self, values, **more):
        return super().emit([Order(values[0])], **more)


def test_values_of_an_unknown_class_fail_at_once_and_are_reported_for_their_bolt(monkeypatch):
    """It names the class and the remedy; the message timeout is not waited for."""
    builder = TopologyBuilder()
    builder.spout("orders", Orders(3))
    builder.bolt("end", c.Collect()).shuffle("orders")
    place = {"orders": 0, "end": 1, "__acker": 0}
    monkeypatch.setattr("squall_engine.core.known_classes.loaded_class", lambda path: None)
    cluster = EngineCluster(builder.build(), 2, place=lambda executor, name: place[name])
    with cluster:
        cluster.run_until(lambda: len(c.LOG.get("failed", ())) == 3, 5)
    component, task, error = cluster.errors[0]
    assert (component, cluster.tasks[task]) == ("end", "end")
    assert "Order is not known here" in str(error)
    assert "topology.kryo.register" in str(error)


@pytest.mark.parametrize("lost", ["end", "__acker"])
def test_sections_dropped_between_two_bolts_fail_at_once(lost):
    """The spout's worker may have heard of the new incarnation, and emitted again, before the
    worker in between has dropped what it had for the old one."""
    place = {"numbers": 0, "pass": 1, "end": 2, "__acker": 2 if lost == "__acker" else 0}
    if lost == "__acker":
        place["end"] = 1
    with chain(place) as cluster:
        dead = cluster.network.ends.pop(cluster.slots[2])
        middle = cluster.engines[1]
        sent = []
        carry = middle._transport.send
        middle._transport.send = lambda peer, sections, credited=0: (
            sent.extend(sections) if peer == dead.slot else carry(peer, sections)
        )
        cluster.run_for(0.1)
        assert sent
        assert "failed" not in c.LOG
        del middle._transport.send
        cluster.network.ends[dead.slot] = dead
        middle.sections_dropped([*sent, b"no section"])
        fail_soon(cluster)
