"""Rebalances with tuples in flight, over a network that loses, repeats and reorders.

Real engines in virtual time: a topology moves between one, two and four workers, with one acker for
all of them, while messages flow. Workers that lose or get tasks are stopped well or killed. The
source and the sink lie outside. What must hold:

- a message that its spout is told is acked took effect, all of it (always);
- once the faults end, every message is acked, and its effects are what was sent, at least once;
- nothing is kept forever: the tables of ackers and trees empty themselves.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples
from tests.support.engine_cluster import MemoryTransport, Network
from tests.support.validated_engine import ValidatedEngine, contradictions_of

from squall import Bolt, Spout, TopologyBuilder
from squall.testing.topologies import _VirtualLoop
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.daemon.clock import ManualClock
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.embed import EmbeddedEngine, EngineSettings

CHILDREN = 3
MESSAGES = 120


class Outside:
    """What no worker's end touches: the source that keeps messages, and the sink."""

    def __init__(self) -> None:
        self.waiting = list(range(MESSAGES))
        self.held: dict[int, Any] = {}  # number -> the spout that has it
        self.done: set[int] = set()
        self.effects: Counter[tuple[int, int]] = Counter()
        self.violations: list[str] = []

    def release(self, spout: Any) -> None:
        """A spout is gone: its messages are to be had again."""
        for number in [n for n, holder in self.held.items() if holder is spout]:
            del self.held[number]
            self.waiting.append(number)


OUTSIDE = Outside()


class Source(Spout):
    outputs = ["number"]

    def open(self, conf: Any, context: Any) -> None:
        self.alive = True

    def next_tuple(self) -> None:
        if OUTSIDE.waiting and self.alive:
            number = OUTSIDE.waiting.pop(0)
            OUTSIDE.held[number] = self
            self.emit([number], message_id=number)

    def ack(self, msg_id: Any) -> None:
        if self.alive:
            missing = [c for c in range(CHILDREN) if not OUTSIDE.effects[msg_id, c]]
            if missing:
                OUTSIDE.violations.append(f"{msg_id} is acked without {missing}")
            OUTSIDE.held.pop(msg_id, None)
            OUTSIDE.done.add(msg_id)

    def fail(self, msg_id: Any) -> None:
        if self.alive and OUTSIDE.held.pop(msg_id, None) is not None:
            OUTSIDE.waiting.append(msg_id)


class Fan(Bolt):
    outputs = ["number", "child"]

    def execute(self, tup: Any) -> None:
        for child in range(CHILDREN):
            self.emit([tup["number"], child])


class Effect(Bolt):
    """Does its work a little later, so that tuples are in flight at every moment."""

    def prepare(self, conf: Any, context: Any) -> None:
        self.alive = True

    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0.002 * (1 + tup["number"] % 7))
        if self.alive:
            OUTSIDE.effects[tup["number"], tup["child"]] += 1


class Cluster:
    """One topology whose executors move."""

    def __init__(self, seed: int, network: Network) -> None:
        builder = TopologyBuilder()
        builder.spout("source", Source(), parallelism=2)
        builder.bolt("fan", Fan(), parallelism=3).shuffle("source")
        builder.bolt("effect", Effect(), parallelism=4).fields("fan", "number", "child")
        conf = {
            "topology.workers": 4,
            "topology.acker.executors": 1,
            "topology.max.spout.pending": 20,
            "topology.message.timeout.secs": 5,
        }
        base = default_conf()
        stored = normalize_topology_conf(conf, base, name="test")
        self.prepared = prepare(builder.build(), stored)
        self.executors = self.prepared.executors
        self.network = network
        self.seed = seed
        self.clock = ManualClock()
        self.loop = _VirtualLoop(self.clock)
        self.engines: dict[WorkerSlot, EmbeddedEngine] = {}
        self.placed: dict[WorkerSlot, list[Executor]] = {}
        self.starts = 0

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    async def move(self, workers: int, *, well: bool) -> None:
        """Spread the executors over so many workers. Only those with other tasks than before are
        stopped (`well`: drained; else they just vanish) and started."""
        placed: dict[WorkerSlot, list[Executor]] = {}
        for number, executor in enumerate(self.executors):
            slot = WorkerSlot("node", 6700 + number % workers)
            placed.setdefault(slot, []).append(executor)
        changed = [slot for slot, mine in self.placed.items() if placed.get(slot) != mine]
        await asyncio.gather(*(self._end(slot, well=well) for slot in changed))
        self.placed = placed
        for slot in placed:
            if slot not in self.engines:
                await self._start(slot)
        routes = {t: slot for slot, mine in placed.items() for e in mine for t in e.tasks}
        for engine in self.engines.values():
            engine.set_routes(routes)
            engine.set_ready(True)
            engine.set_active(True)

    async def _start(self, slot: WorkerSlot) -> None:
        self.starts += 1
        end = self.network.ends[slot] = MemoryTransport(self.network, slot)
        settings = EngineSettings(
            prepared=self.prepared,
            topology_id="test-1-0",
            slot=slot,
            executors=self.placed[slot],
            daemon_conf=default_conf(),
            seed=self.seed + self.starts,
        )
        engine = self.engines[slot] = ValidatedEngine(settings, transport=end, clock=self.clock)
        await engine.start()

    async def _end(self, slot: WorkerSlot, *, well: bool) -> None:
        engine = self.engines.pop(slot)
        if well:
            await engine.stop(0.2)
        users = engine.users()
        for user in users:
            user.alive = False
        found = contradictions_of(engine)
        assert not found, found[0]
        end = self.network.ends.pop(slot)  # what is on its way to it is lost
        if not well:
            end.send = _nowhere  # type: ignore[method-assign]
            await engine.stop(0)  # its coroutines must end; nobody hears of it
            lost = [task for executor in self.placed[slot] for task in executor.tasks]
            for other in self.engines.values():
                other.worker_lost(lost)
        for user in users:
            OUTSIDE.release(user)

    async def stop(self) -> None:
        for slot in list(self.engines):
            await self._end(slot, well=True)


def _nowhere(peer: WorkerSlot, sections: Any, credited: int = 0) -> None:
    """The network of a worker that has vanished."""


MOVES = st.lists(
    st.tuples(st.sampled_from([1, 2, 4]), st.booleans(), st.floats(0.0, 0.1)),
    min_size=1,
    max_size=6,
)
FAULTS = st.floats(0, 0.2)


def check(moves: Any, seed: int, lose: float, repeat: float, delay_secs: float) -> Cluster:
    global OUTSIDE
    OUTSIDE = Outside()
    network = Network(seed, lose=lose, repeat=repeat, delay_secs=delay_secs)
    cluster = Cluster(seed, network)

    async def run() -> None:
        await cluster.move(2, well=True)
        for workers, well, secs in moves:
            await asyncio.sleep(secs)
            await cluster.move(workers, well=well)
        network.lose = network.repeat = network.delay_secs = 0.0
        deadline = cluster.clock.monotonic() + 120
        while len(OUTSIDE.done) < MESSAGES and cluster.clock.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.05)  # virtual time
        await asyncio.sleep(80)  # longer than anything is kept
        kept = sum(len(engine._coordinator) for engine in cluster.engines.values())
        await cluster.stop()
        assert not OUTSIDE.violations
        assert OUTSIDE.done == set(range(MESSAGES))
        expected = {(n, c) for n in range(MESSAGES) for c in range(CHILDREN)}
        assert set(OUTSIDE.effects) == expected
        assert kept == 0

    try:
        cluster.run(run())
    finally:
        cluster.run(cluster.loop.shutdown_default_executor())
        cluster.loop.close()
    return cluster


EXAMPLES = examples(int(os.environ.get("SQUALL_REBALANCE_EXAMPLES", "12")))


@settings(deadline=None, max_examples=EXAMPLES)
@given(MOVES, st.integers(0, 2**32), FAULTS, FAULTS, st.floats(0, 0.02))
def test_nothing_is_lost_wherever_tasks_move(moves, seed, lose, repeat, delay_secs):
    check(moves, seed, lose, repeat, delay_secs)


@pytest.mark.parametrize("well", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_from_two_workers_to_four_and_back(well: bool, seed: int) -> None:
    """With tuples in flight at each move, and one acker for all."""
    cluster = check([(4, well, 0.02), (2, well, 0.02)] * 2, seed, 0.0, 0.0, 0.002)
    assert cluster.starts > 4


def test_the_model_sees_an_ack_that_comes_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bolt that forgets a part of its work."""

    def forgetful(self: Any, tup: Any) -> None:
        for child in range(CHILDREN - (tup["number"] == 7)):
            self.emit([tup["number"], child])

    monkeypatch.setattr(Fan, "execute", forgetful)
    with pytest.raises(AssertionError, match="7 is acked without"):
        check([], 1, 0.0, 0.0, 0.0)
