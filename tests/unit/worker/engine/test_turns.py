"""Short turns and whole ones: what a turn may leave out, and what must not be left out with it."""

import asyncio
import threading

import pytest
from tests.support import engine_components as c
from tests.support.engine_cluster import EngineCluster

from squall import Spout, TopologyBuilder


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


class Idle(Spout):
    """Emits when it is told to, not when it is asked."""

    outputs = ["n"]
    asked = 0

    def next_tuple(self):
        self.asked += 1


def idle_topology():
    builder = TopologyBuilder()
    builder.spout("numbers", Idle())
    builder.bolt("pass", c.Pass()).shuffle("numbers")
    return builder.build()


def whole_turns(engine):
    """Counts the whole turns of an engine, from now on."""
    turns = []
    settle = engine._desk.settle
    engine._desk.settle = lambda: turns.append(1) or settle()
    return turns


def user_of(engine, component):
    (user,) = [one.task.user for one in engine.built if one.task.component == component]
    return user


def test_the_turns_of_an_idle_worker_end_after_the_spouts():
    with EngineCluster(idle_topology(), 1) as cluster:
        cluster.run_for(30)
        engine = cluster.engines[0]
        spout, turns = user_of(engine, "numbers"), whole_turns(engine)
        asked = spout.asked
        cluster.run_for(10)
        assert 150 < spout.asked - asked < 250  # every 50 ms
        assert len(turns) <= 20  # one a second, and another after it


def test_what_a_spout_emits_unasked_leaves_at_its_next_idle_poll():
    with EngineCluster(idle_topology(), 1) as cluster:
        cluster.run_for(30)
        engine = cluster.engines[0]
        spout = user_of(engine, "numbers")

        async def emit():
            spout.emit([7], message_id=7)

        cluster.run(emit())
        cluster.run_for(0.06)
        assert engine._flow.spouts[0].counts.acked["default"] == 1


def test_a_thread_that_wakes_the_worker_gets_a_whole_turn_though_a_short_one_is_due():
    with EngineCluster(idle_topology(), 1) as cluster:
        cluster.run_for(30)
        engine = cluster.engines[0]

        async def wake():
            engine._stirred = False
            engine._call_turn()
            assert engine._scheduled
            turns = whole_turns(engine)
            thread = threading.Thread(target=engine.wake)
            thread.start()
            thread.join()
            for _ in range(5):
                await asyncio.sleep(0)
            assert turns

        cluster.run(wake())


def test_a_timer_that_stands_is_kept_when_the_next_turn_is_due_later():
    with EngineCluster(idle_topology(), 1) as cluster:
        cluster.run_for(30)
        engine = cluster.engines[0]

        async def turn():
            timer = engine._timer
            engine._schedule()
            for _ in range(5):
                await asyncio.sleep(0)
            assert engine._timer is timer
            engine._wake_spouts()  # due sooner: idle for a millisecond only
            for _ in range(5):
                await asyncio.sleep(0)
            assert engine._timer is not timer
            assert engine._timer_at < engine.now() + 0.01

        cluster.run(turn())
