"""Shuffles that heed the load of their targets."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.support import engine_components as c
from tests.support.engine_cluster import EngineCluster
from tests.unit.engine.test_engine_workers import spouts

from squall import TopologyBuilder
from squall_common.config.options.typed import TopologyOptions
from squall_engine.core import Edge, RoundRobin, Source
from squall_engine.grouping.load_balancing import WEIGHT_MAX, Balance
from squall_engine.grouping.routing import Balancers, Targets


def balance(targets=(1, 2, 3), near=(), **bounds):
    return Balance(targets, near, random.Random(1), **{"higher": 0.8, "lower": 0.2, **bounds})


def test_equal_loads_need_no_ring():
    one = balance()
    assert one.update({}) is None
    assert one.update({1: 0.5, 2: 0.5, 3: 0.54}) is None
    assert set(one.weights.values()) == {WEIGHT_MAX}


def test_a_loaded_target_is_chosen_less_and_less_and_comes_back_slowly():
    one = balance()
    ring = one.update({2: 0.9})
    assert one.weights == {1: 100, 2: 90, 3: 100}
    assert Counter(ring) == {1: 344, 2: 310, 3: 344}
    for _ in range(20):
        ring = one.update({2: 0.9})
    assert one.weights[2] == 0
    assert set(ring) == {1, 3}
    for _ in range(99):
        ring = one.update({})
    assert one.weights[2] == 99
    assert one.update({}) == (1, 2, 3), "all the same again: no ring, they take turns"
    assert one.update({}) is None


def test_local_or_shuffle_widens_when_its_own_are_loaded_and_goes_back():
    one = balance((1, 2, 3, 4), near={3, 4})
    assert one.update({3: 0.7, 4: 0.7}) is None
    assert one.stays_near
    ring = one.update({3: 0.9, 4: 0.9})
    assert not one.stays_near
    assert Counter(ring)[1] > Counter(ring)[3] > 0
    one.update({3: 0.5, 4: 0.5})
    assert not one.stays_near
    assert one.update({3: 0.1}) in ((3, 4), None) or one.stays_near
    assert set(one.update({3: 0.1}) or one._ring) == {3, 4}


@given(st.lists(st.dictionaries(st.integers(1, 5), st.floats(0, 1)), max_size=30), st.booleans())
def test_some_target_is_always_taken_and_only_from_its_own(steps, near):
    one = balance(range(1, 6), near={2, 3} if near else ())
    ring = [2, 3] if near else range(1, 6)
    for loads in steps:
        ring = one.update(loads) or ring
        assert ring
        assert set(ring) <= set(range(1, 6))
        scope = one.weights
        least = min(scope, key=lambda target: loads.get(target, 0.0))
        assert least in ring


def test_a_ring_takes_the_place_of_the_turns():
    source = Source("a", 1, "default", ["x"])
    edges = [Edge(task, source, local=True) for task in (1, 2, 3)]
    shuffle = RoundRobin(edges, random.Random(1))
    balancers = Balancers(TopologyOptions(), random.Random(1))
    balancers.add(shuffle, Targets(edges, ()), near=False)
    assert Counter(shuffle.choose([1])[0].task for _ in range(30)) == {1: 10, 2: 10, 3: 10}
    for _ in range(10):
        balancers.update({2: 1.0})
    assert set(Counter(shuffle.choose([1])[0].task for _ in range(1_000))) == {1, 3}


class Rings:
    """A shuffle that counts the rings that it gets."""

    def __init__(self):
        self.rings = []
        self.orders = []

    def set_ring(self, edges, start, step):
        self.rings.append(edges)
        self.orders.append((start, step))


def test_many_tasks_to_many_share_one_ring_and_differ_in_their_order():
    """2,500 tasks that shuffle to 5,000 would take seconds of every second to copy it."""
    source = Source("a", 1, "default", ["x"])
    targets = Targets([Edge(task, source, local=True) for task in range(1, 2_001)], ())
    balancers = Balancers(TopologyOptions(), random.Random(1))
    shuffles = [Rings() for _ in range(40)]
    for shuffle in shuffles:
        balancers.add(shuffle, targets, near=False)
    for turn in range(1, 6):
        balancers.update({7: 0.9})
        assert [len(one.rings) for one in shuffles] == [turn] * 40
        assert len({id(one.rings[-1]) for one in shuffles}) == 1, "one ring, which is not copied"
        assert len({one.orders[-1] for one in shuffles}) == 40, "each in an order of its own"
    first, last = (Counter(edge.task for edge in shuffles[0].rings[i]) for i in (0, -1))
    assert first[7] > last[7]
    assert first[8] >= 4


@given(st.integers(1, 200), st.integers(0, 1_000))
def test_an_order_comes_by_every_target_once_a_round(count, seed):
    source = Source("a", 1, "default", ["x"])
    edges = tuple(Edge(task, source, local=True) for task in range(count))
    shuffle = RoundRobin(edges, random.Random(seed))
    for _ in range(2):
        assert {shuffle.choose(["x"])[0].task for _ in edges} == set(range(count))


def shuffled(workers, slow_on, disabled=False):
    """How many tuples of a spout the slow one and the quick one of two tasks have got, after ten
    seconds of more than the slow one can do."""
    c.LOG.clear()
    builder = TopologyBuilder()
    builder.spout("numbers", c.Paced(per_sec=1_000))
    builder.bolt("work", c.Uneven(slow_task=0, ms=4), parallelism=2).shuffle("numbers")
    conf = {
        "topology.acker.executors": 0,
        "topology.disable.loadaware.messaging": disabled,
        "topology.executor.receive.buffer.size": 32_768,
    }
    seen = iter([slow_on, 0])

    def place(executor, component):
        return next(seen) if component == "work" else 0

    with EngineCluster(builder.build(), workers, conf, place=place) as cluster:
        (spout,) = spouts(cluster)
        cluster.run_for(10)
        assert spout.calls.emitted() > 9_000
        return Counter(task for task in c.LOG["worked"])


def test_a_slow_task_gets_fewer_tuples_here_and_elsewhere():
    """It does 250 a second of 500."""
    for slow_on in (0, 1):
        counts = shuffled(2, slow_on)
        slow, quick = min(counts.values()), max(counts.values())
        assert quick > 2 * slow
        counts = shuffled(2, slow_on, disabled=True)
        assert max(counts.values()) < 5_100, "half each"
