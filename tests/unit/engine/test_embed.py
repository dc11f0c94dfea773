"""The door for programs that run tasks."""

import asyncio
import sys
import time
from types import SimpleNamespace

import pytest

from squall import Bolt, Spout, StatefulBolt, TopologyBuilder, WindowedBolt
from squall.windows import tumbling
from squall_common.component.collector import DelegatingBoltCollector, DelegatingSpoutCollector
from squall_common.component.state import MemoryState
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine import timing
from squall_engine.embed import (
    ComponentStartError,
    EmbeddedEngine,
    EngineCallbacks,
    EngineEndedError,
    EngineSettings,
)
from squall_engine.switch_interval import SwitchInterval


class Numbers(Spout):
    outputs = ["n"]

    def __init__(self, count):
        self.count = count

    def open(self, conf, context):
        self.next, self.acked = 0, []

    def next_tuple(self):
        if self.next < self.count:
            self.emit([self.next], message_id=self.next)
            self.next += 1

    def ack(self, msg_id):
        self.acked.append(msg_id)


class Pauses(Numbers):
    def next_tuple(self):
        if self.next < self.count and time.monotonic() >= self.until:
            super().next_tuple()
            self.until = time.monotonic() + 0.02

    def open(self, conf, context):
        super().open(conf, context)
        self.until = 0.0


class Collects(Bolt):
    def execute(self, tup):
        pass


class CollectsWindows(WindowedBolt):
    def execute_window(self, window):
        pass


class Unreadable(Spout):
    outputs = ["n"]

    def next_tuple(self):
        raise OSError("no such file")


class Remembers(StatefulBolt):
    def execute(self, tup):
        self.state.put(tup["n"], True)


class FailsToPrepare(Collects):
    def prepare(self, conf, context):
        raise RuntimeError("boom")


class Slow(Bolt):
    blocking = True

    def execute(self, tup):
        time.sleep(0.001)


def engine_of(spout, bolt, *, near=frozenset(), windows=None, **callbacks):
    builder = TopologyBuilder()
    builder.spout("numbers", spout)
    declarer = builder.bolt("end", bolt, parallelism=1).shuffle("numbers")
    if windows is not None:
        declarer.windowed(windows)
    stored = normalize_topology_conf({"topology.workers": 1}, default_conf(), name="test")
    prepared = prepare(builder.build(), stored)
    settings = EngineSettings(
        prepared=prepared,
        topology_id="test-1-1",
        slot=WorkerSlot("test", 1),
        executors=prepared.executors,
        daemon_conf=default_conf(),
        near=near,
    )
    return EmbeddedEngine(settings, EngineCallbacks(**callbacks))


async def running(engine):
    await engine.start()
    engine.set_active(True)
    return engine


@pytest.mark.parametrize("bolt", [Collects, Slow], ids=["on the loop", "on a thread"])
async def test_run_until_drained_returns_when_every_message_is_settled(bolt):
    engine = await running(engine_of(Numbers(50), bolt()))
    try:
        (spout,) = engine.users("numbers")
        async with asyncio.timeout(30):
            await engine.run_until_drained(lambda: len(spout.acked) == 50)
        assert engine.is_drained()
    finally:
        await engine.stop(0)


@pytest.fixture
def no_wishes(monkeypatch):
    """Engines of other tests may not have ended."""
    monkeypatch.setattr(timing, "SWITCH_INTERVAL", SwitchInterval())


async def test_other_threads_ask_for_the_interpreter_within_a_turn(no_wishes):
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)  # Python's default, which is longer than a turn
        engine = await running(engine_of(Numbers(1), Collects()))
        try:
            assert sys.getswitchinterval() == pytest.approx(0.0005)
        finally:
            await engine.stop(0)
        assert sys.getswitchinterval() == pytest.approx(0.005)
        sys.setswitchinterval(0.0002)  # a program has asked for less
        engine = await running(engine_of(Numbers(1), Collects()))
        try:
            assert sys.getswitchinterval() == pytest.approx(0.0002)
        finally:
            await engine.stop(0)
    finally:
        sys.setswitchinterval(before)


async def test_a_program_has_its_switch_interval_again_when_its_last_engine_has_ended(no_wishes):
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.004)
        first = await running(engine_of(Numbers(1), Collects()))
        second = await running(engine_of(Numbers(1), Collects()))
        await first.stop(0)
        assert sys.getswitchinterval() == pytest.approx(0.0005)
        await second.stop(0)
        assert sys.getswitchinterval() == pytest.approx(0.004)
        # One that never ran, and one that died.
        with pytest.raises(ComponentStartError):
            await engine_of(Numbers(1), FailsToPrepare()).start()
        assert sys.getswitchinterval() == pytest.approx(0.004)
        third = await running(engine_of(Numbers(1), Collects()))
        third.die(RuntimeError("boom"))
        with pytest.raises(EngineEndedError):
            await third.run_until(lambda: False)
        assert sys.getswitchinterval() == pytest.approx(0.004)
        await third.stop(0)
    finally:
        sys.setswitchinterval(before)


async def test_a_condition_that_raises_ends_the_wait_but_not_the_engine():
    def refuse():
        raise ValueError("enough")

    engine = await running(engine_of(Numbers(3), Collects()))
    try:
        with pytest.raises(ValueError, match="enough"):
            await engine.run_until(refuse)
        async with asyncio.timeout(30):
            await engine.run_until_drained()
    finally:
        await engine.stop(0)


async def test_a_wait_ends_when_the_engine_has_died():
    died = []
    engine = await running(engine_of(Numbers(3), Collects(), on_fatal=died.append))
    try:
        asyncio.get_running_loop().call_later(0.05, engine.die, RuntimeError("a fault"))
        async with asyncio.timeout(30):
            with pytest.raises(EngineEndedError, match="test-1-1 has ended"):
                await engine.run_until(lambda: False)
        assert [str(error) for error in died] == ["a fault"]
    finally:
        await engine.stop(0)


async def test_an_error_of_next_tuple_reaches_the_embedder():
    raised, reported = [], []
    engine = await running(
        engine_of(
            Unreadable(),
            Collects(),
            on_asking_raised=lambda *what: raised.append(what),
            on_reported=lambda *what: reported.append(what),
        )
    )
    try:
        async with asyncio.timeout(30):
            await engine.run_until(lambda: bool(raised))
        component, _, error = raised[0]
        assert (component, str(error)) == ("numbers", "no such file")
        assert raised[0] in reported
    finally:
        await engine.stop(0)


async def test_a_bolt_gets_the_state_that_the_embedder_opens():
    states = {}

    def open_state(component, task):
        return states.setdefault(component, MemoryState())

    engine = await running(engine_of(Numbers(3), Remembers(), open_state=open_state))
    try:
        (spout,) = engine.users("numbers")
        async with asyncio.timeout(30):
            await engine.run_until_drained(lambda: len(spout.acked) == 3)
        assert len(states["end"]) == 3
    finally:
        await engine.stop(0)


async def test_several_waits_at_once_each_end_with_their_own_condition():
    engine = await running(engine_of(Numbers(50), Collects()))
    try:
        seen = []

        async def wait(name, needs):
            await engine.run_until(lambda: needs in seen)
            seen.append(name)

        async with asyncio.timeout(30):
            waits = asyncio.gather(wait("third", "second"), wait("second", "first"))
            await asyncio.sleep(0.05)
            assert seen == []
            seen.append("first")
            await waits
        assert seen == ["first", "second", "third"]
    finally:
        await engine.stop(0)


async def test_with_calm_secs_an_engine_has_drained_only_when_it_has_been_quiet_for_that_long():
    engine = await running(engine_of(Pauses(5), Collects()))
    try:
        (spout,) = engine.users("numbers")
        async with asyncio.timeout(30):
            await engine.run_until_drained(calm_secs=0.5)
        assert len(spout.acked) == 5
        assert engine.emitted_tuples() == 5
    finally:
        await engine.stop(0)


async def test_the_silence_of_a_checkpoint_does_not_count_as_quiet(monkeypatch):
    """Spouts that a checkpoint holds back may have more to emit, however long it takes."""
    engine = await running(engine_of(Numbers(3), Collects()))
    try:
        checkpoint = SimpleNamespace(under_way=True, turn=lambda: False)
        with monkeypatch.context() as patch:
            patch.setattr(engine, "epochs", checkpoint)
            waiting = asyncio.create_task(engine.run_until_drained(calm_secs=0.05))
            done, _ = await asyncio.wait({waiting}, timeout=0.5)
            assert not done
            checkpoint.under_way = False
            async with asyncio.timeout(30):
                await waiting
    finally:
        await engine.stop(0)


async def test_components_are_bound_to_the_collector_that_the_embedder_returns():
    class Loud(DelegatingSpoutCollector):
        def emit(self, values, message_id=None, stream="default"):
            emitted.append(values)
            return super().emit(values, message_id, stream)

    emitted = []

    def wrap(component, collector):
        return Loud(collector) if component == "numbers" else collector

    engine = await running(engine_of(Numbers(3), Collects(), wrap_collector=wrap))
    try:
        (spout,) = engine.users("numbers")
        async with asyncio.timeout(30):
            await engine.run_until_drained(lambda: len(spout.acked) == 3)
        assert emitted == [[0], [1], [2]]
    finally:
        await engine.stop(0)


async def test_a_collector_of_the_embedder_gets_each_ack_of_windows():
    class Notes(DelegatingBoltCollector):
        def ack(self, tup):
            noted.append(tup["n"])
            super().ack(tup)

    noted = []

    def wrap(component, collector):
        return Notes(collector) if component == "end" else collector

    windows = tumbling(count=2)
    engine = await running(
        engine_of(Numbers(4), CollectsWindows(), windows=windows, wrap_collector=wrap)
    )
    try:
        (spout,) = engine.users("numbers")
        async with asyncio.timeout(30):
            await engine.run_until_drained(lambda: len(spout.acked) == 4)
        assert noted == [0, 1, 2, 3]
    finally:
        await engine.stop(0)
