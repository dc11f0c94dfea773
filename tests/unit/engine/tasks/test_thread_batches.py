"""`execute_batch` in its three modes: on the loop, as a coroutine, and on the bolt's own thread."""

import asyncio
import threading
import time

import pytest
from tests.support import engine_components as c

from squall import Bolt, Spout, TopologyBuilder
from squall.testing import TopologyTest
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.embed import EmbeddedEngine, EngineSettings


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


class OnLoop(Bolt):
    """Doubles the numbers; fails 3, and breaks at the end of a batch that has 7 in it."""

    outputs = ("number",)

    def execute_batch(self, tuples):
        c.log("batches", len(tuples), threading.current_thread().name)
        for tup in tuples:
            if tup[0] == 3:
                self.fail(tup)
            else:
                self.emit([2 * tup[0]], anchors=tup)
        if any(tup[0] == 7 for tup in tuples):
            raise ValueError("no 7")


class Awaited(OnLoop):
    async def execute_batch(self, tuples):
        await asyncio.sleep(0.001)
        super().execute_batch(tuples)


class OnThread(OnLoop):
    blocking = True


MODES = pytest.mark.parametrize("bolt", [OnLoop, Awaited, OnThread])


def numbers_to(bolt, count):
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(count))
    builder.bolt("double", bolt).shuffle("numbers")
    builder.bolt("collect", c.Collect()).shuffle("double")
    return builder.build()


@MODES
def test_a_batch_acks_what_it_did_not_fail_and_fails_the_rest_when_it_raises(bolt):
    with TopologyTest(numbers_to(bolt(), 100)) as test:
        test.run_until_idle()
        failed, acked = test.failed("numbers"), test.acked("numbers")
        assert sorted(failed + acked) == list(range(100))  # each once
        assert {3, 7} <= set(failed)
        assert [str(e.error) for e in test.errors] == ["no 7"]
    sizes = [size for size, _ in c.LOG["batches"]]
    assert sum(sizes) == 100
    assert max(sizes) > 1
    on_own_thread = {name.startswith("double:") for _, name in c.LOG["batches"]}
    assert on_own_thread == {bolt is OnThread}


class Sink(Bolt):
    """Acks half of a batch at once, and the rest with the next one."""

    blocking = True
    auto_ack = False

    def prepare(self, conf, context):
        self.held = []

    def execute_batch(self, tuples):
        half = (len(tuples) + 1) // 2
        for tup in [*self.held, *tuples[:half]]:
            self.ack(tup)
        self.held = tuples[half:]


def test_a_batch_on_a_thread_may_be_acked_later():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(50))
    builder.bolt("sink", Sink()).shuffle("numbers")
    conf = {"topology.max.spout.pending": 10}
    with TopologyTest(builder.build(), conf) as test:
        deadline = time.monotonic() + 30
        while len(test.acked("numbers")) < 40 and time.monotonic() < deadline:
            test.run_for(0.01)  # virtual time, which does not wait for threads
            time.sleep(0.001)
        assert len(test.acked("numbers")) >= 40
        assert test.failed("numbers") == []


class Ten(Spout):
    outputs = ("number",)

    def open(self, conf, context):
        self.next = 0

    def next_tuple(self):
        if self.next < 10:
            self.emit([self.next], message_id=self.next)
            self.next += 1


class Stuck(Bolt):
    blocking = True

    def prepare(self, conf, context):
        self.entered, self.leave = threading.Event(), threading.Event()

    def execute_batch(self, tuples):
        self.entered.set()
        self.leave.wait(20)


async def test_a_batch_that_does_not_return_fails_with_what_waits_behind_it():
    builder = TopologyBuilder()
    builder.spout("ten", Ten())
    builder.bolt("stuck", Stuck(), parallelism=1).shuffle("ten")
    stored = normalize_topology_conf({"topology.workers": 1}, default_conf(), name="test")
    prepared = prepare(builder.build(), stored)
    engine = EmbeddedEngine(
        EngineSettings(
            prepared=prepared,
            topology_id="test-1-1",
            slot=WorkerSlot("test", 1),
            executors=prepared.executors,
            daemon_conf=default_conf(),
        )
    )
    await engine.start()
    (spout,), (bolt,) = engine.users("ten"), engine.users("stuck")
    engine.set_active(True)
    try:
        async with asyncio.timeout(60):
            await engine.run_until(lambda: spout.next == 10 and bolt.entered.is_set())
        assert not engine.is_drained()
        assert not await engine.stop(0)
        assert engine.failed_tuples() == 10
    finally:
        bolt.leave.set()
