"""Whether a worker whose spouts are off has anything left to do."""

import asyncio
import threading

from squall import Bolt, Spout, TopologyBuilder
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.embed import EmbeddedEngine, EngineSettings
from squall_engine.observe.drained import RestClock


class Once(Spout):
    """Emits a number, tracked or not."""

    outputs = ["n"]

    def __init__(self, tracked):
        self.tracked = tracked

    def open(self, conf, context):
        self.emitted = False

    def next_tuple(self):
        if not self.emitted:
            self.emitted = True
            self.emit([1], message_id=1 if self.tracked else None)


class Ends(Bolt):
    def execute(self, tup):
        pass


class Holds(Bolt):
    """Keeps a tuple until it is let go."""

    auto_ack = False

    def prepare(self, conf, context):
        self.held = []

    def execute(self, tup):
        self.held.append(tup)

    def let_go(self):
        while self.held:
            self.ack(self.held.pop())


class Waits(Spout):
    """Its thread stays in next_tuple."""

    blocking = True
    outputs = ["n"]

    def open(self, conf, context):
        self.go_on = threading.Event()
        self.asked = threading.Event()

    def next_tuple(self):
        self.asked.set()
        self.go_on.wait(20)


async def running(spout, bolt, **conf):
    builder = TopologyBuilder()
    builder.spout("source", spout)
    builder.bolt("end", bolt).shuffle("source")
    stored = normalize_topology_conf({"topology.workers": 1, **conf}, default_conf(), name="test")
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
    engine.set_active(True)
    return engine


async def until(engine, condition):
    async with asyncio.timeout(60):
        await engine.run_until(condition)


async def test_a_worker_with_active_spouts_is_not_drained():
    engine = await running(Once(tracked=True), Ends())
    try:
        (spout,) = engine.users("source")
        await until(engine, lambda: spout.emitted and engine.is_drained())
        assert engine.work_when_drained() is None
        engine.set_active(False)
        work = engine.work_when_drained()
        assert work is not None
        assert work >= 3  # emitted, executed, acked
        assert engine.work_when_drained() == work
    finally:
        await engine.stop(0)


async def test_an_unacked_tuple_of_an_untracked_message_is_in_flight():
    """The spout has nothing pending, so only the bolt knows of it."""
    engine = await running(Once(tracked=False), Holds())
    try:
        (bolt,) = engine.users("end")
        await until(engine, lambda: bolt.held)  # a list: truth counts, also where it is compiled
        engine.set_active(False)
        assert engine.is_drained()
        assert engine.work_when_drained() is None
        bolt.let_go()
        await until(engine, lambda: engine.work_when_drained() is not None)
    finally:
        await engine.stop(0)


async def test_a_call_on_a_thread_is_in_flight():
    engine = await running(Waits(), Ends())
    (spout,) = engine.users("source")
    try:
        assert await asyncio.to_thread(spout.asked.wait, 60)
        engine.set_active(False)
        assert engine.is_drained()
        assert engine.work_when_drained() is None
        spout.go_on.set()
        await until(engine, lambda: engine.work_when_drained() is not None)
    finally:
        spout.go_on.set()
        await engine.stop(0)


async def test_a_bolt_with_ticks_gets_one_first():
    """It may keep what it has acked until its next tick."""
    engine = await running(Once(tracked=True), Ends(), **{"topology.tick.tuple.freq.secs": 1})
    try:
        (spout,) = engine.users("source")
        await until(engine, lambda: spout.emitted and engine.is_drained())
        engine.set_active(False)
        began = engine.now()
        await until(engine, lambda: engine.work_when_drained() is not None)
        assert engine.now() - began >= 1.0
    finally:
        await engine.stop(0)


async def test_at_the_end_of_a_source_acks_that_wait_for_a_thread_are_in_flight():
    engine = await running(EndsOnThread(tracked=True), Ends())
    (spout,) = engine.users("source")
    try:
        assert await asyncio.to_thread(spout.acking.wait, 60)
        spout.ended = True
        task = next(one.task for one in engine.built if one.task.user is spout)
        assert engine.is_drained()  # the engine has handed the ack on
        assert engine.work_when_drained(at_end=True) is None
        spout.go_on.set()
        await until(engine, lambda: engine.work_when_drained(at_end=True) is not None)
        assert task.active
        assert engine.work_when_drained() is None
    finally:
        spout.go_on.set()
        await engine.stop(0)


class EndsOnThread(Once):
    """Its thread stays in ack."""

    blocking = True

    def open(self, conf, context):
        super().open(conf, context)
        self.ended = False
        self.go_on, self.acking = threading.Event(), threading.Event()

    def ack(self, msg_id):
        self.acking.set()
        self.go_on.wait(20)

    def exhausted(self):
        return self.emitted and self.ended


def test_rest_lasts_as_long_as_the_work_is_the_same():
    clock = RestClock()
    assert clock.read(1.0, None) is None
    assert clock.read(2.0, 7) == 0.0
    assert clock.read(4.5, 7) == 2.5
    assert clock.read(5.0, None) is None  # something is in flight
    assert clock.read(6.0, 9) == 0.0  # and was work
    assert clock.read(7.0, 9) == 1.0
