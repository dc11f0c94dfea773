"""A bolt that is slow, or does nothing at all: who waits, who goes on, what is kept, and that it
goes on by itself."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support import pressure_components as p
from tests.support.engine_cluster import EngineCluster, Network
from tests.support.link_network import LinkNetwork

from squall import TopologyBuilder
from squall_engine.dataflow.flow import CycleOverflowError

SMALL = {"topology.worker.buffer.bytes": 65_536, "topology.executor.receive.buffer.size": 256}
# A tuple in the credit, and what a turn's last slice may emit beyond the mark of an inbox.
TUPLE = 300
SLICE = 2_048


@pytest.fixture(autouse=True)
def _clear():
    p.clear()
    yield
    p.FREE.set()


def cluster_of(builder, workers, place, conf=None, network=None):
    conf = {"topology.acker.executors": workers, **SMALL, **(conf or {})}
    ackers = iter(range(workers))

    def placed(executor, component):
        return next(ackers) if component == "__acker" else place[component]

    return EngineCluster(
        builder.build(), workers, conf, place=placed, network=network or LinkNetwork()
    )


def emitted(cluster, component="fast"):
    (spout,) = [
        spout
        for engine in cluster.engines
        for spout in engine._flow.spouts
        if spout.component == component
    ]
    return spout.calls.emitted()


def check_bounds(cluster):
    """No inbox is fuller than it may be."""
    for engine in cluster.engines:
        flow = engine._flow
        for _, accounts in flow._inflow.accounts():
            for account in accounts:
                assert account.waiting <= account.window + TUPLE
        for bolt in flow.bolts:
            assert bolt.inbox.local <= bolt.hard + SLICE


def wait_for_standstill(cluster, component="fast"):
    """Until the spout emits no more; the bounds hold at every look."""
    before = -1
    while before != emitted(cluster, component):
        before = emitted(cluster, component)
        cluster.run_for(1)
        check_bounds(cluster)
    return before


def all_seen(component, count, first=0):
    order = list(p.ORDER.get(component, ()))  # threads append to it
    return len(order) >= count and sorted(order) == list(range(first, first + count))


STUCK_BOLTS = {"coroutine": p.StuckCoroutine, "thread": p.StuckThread}


@pytest.mark.parametrize("acked", [False, True])
@pytest.mark.parametrize(
    ("kind", "elsewhere"),
    [
        ("coroutine", False),
        ("coroutine", True),
        ("thread", False),
        ("thread", True),
        ("worker", True),
    ],
)
def test_a_stuck_bolt_blocks_only_the_tasks_that_feed_it(kind, elsewhere, acked):
    count = 4_000
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(count, acked=acked))
    builder.bolt("relay", p.Relay()).shuffle("fast")
    builder.bolt("stuck", STUCK_BOLTS.get(kind, p.Sink)()).shuffle("relay")
    builder.spout("other", p.Fast(count, first=1_000_000, acked=acked))
    builder.bolt("healthy", p.Sink()).shuffle("other")
    place = {"fast": 0, "relay": 0, "stuck": int(elsewhere), "other": 0, "healthy": 0}
    p.STUCK.add("stuck")
    conf = {"topology.message.timeout.secs": 100_000}
    cluster = cluster_of(builder, 2, place, conf)
    engine = cluster.engines[1]
    if kind == "worker":
        may_turn, engine._may_turn = engine._may_turn, lambda: False
    with cluster:
        stopped_at = wait_for_standstill(cluster)
        assert 0 < stopped_at < count / 2
        cluster.run_until(lambda: all_seen("healthy", count, 1_000_000))
        assert emitted(cluster) == stopped_at
        p.STUCK.clear()
        p.FREE.set()
        if kind == "worker":
            engine._may_turn = may_turn
        cluster.run_until(lambda: all_seen("stuck", count), 6_000)
        if acked:
            cluster.run_until(lambda: len(p.ACKED) == 2 * count)
            assert set(p.ACKED.values()) == {1}
        assert cluster.errors == []


@pytest.mark.parametrize("acked", [False, True])
def test_a_chain_that_alternates_between_two_workers(acked):
    """A -> B -> C -> D with B and D in one worker, and A and C: one pool for a worker would be used
    up by B's tuples and leave none for D's."""
    count = 3_000
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(count, acked=acked))
    builder.bolt("b", p.Relay(2)).shuffle("fast")
    builder.bolt("c", p.Relay()).shuffle("b")
    builder.bolt("d", p.Slow(0.2)).shuffle("c")
    with cluster_of(builder, 2, {"fast": 0, "b": 1, "c": 0, "d": 1}) as cluster:
        while sum(p.SEEN.get("d", Counter()).values()) < 2 * count:
            cluster.run_for(0.1)
            check_bounds(cluster)
        assert p.SEEN["d"] == Counter(dict.fromkeys(range(count), 2))
        assert p.ORDER["d"] == sorted(p.ORDER["d"])
        if acked:
            cluster.run_until(lambda: len(p.ACKED) == count)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("acked", [False, True])
def test_a_cycle_does_not_block_itself(workers, acked):
    count = 1_000
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(count, first=20_000, acked=acked))
    builder.bolt("a", p.Hop()).shuffle("fast").shuffle("b")
    builder.bolt("b", p.Relay()).shuffle("a")
    conf = {"topology.executor.receive.buffer.size": 32}
    with cluster_of(builder, workers, {"fast": 0, "a": 0, "b": workers - 1}, conf) as cluster:
        cluster.run_until(lambda: all_seen("a", 1_000), 600)
        if acked:
            cluster.run_until(lambda: len(p.ACKED) == count)
        assert cluster.errors == []


@pytest.mark.parametrize("workers", [1, 2])
def test_a_cycle_that_multiplies_fails_tuples_and_says_why(workers):
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(3, first=60_000, acked=True))
    builder.bolt("a", p.Hop(2)).shuffle("fast").shuffle("b")
    builder.bolt("b", p.Relay()).shuffle("a")
    builder.spout("other", p.Fast(5_000, first=1_000_000))
    builder.bolt("healthy", p.Sink()).shuffle("other")
    place = {"fast": 0, "a": 0, "b": workers - 1, "other": 0, "healthy": 0}
    with cluster_of(builder, workers, place) as cluster:

        def overflowed():
            return any(isinstance(error, CycleOverflowError) for _, _, error in cluster.errors)

        # The cycle would go on for 2 ** 60 tuples: no virtual time passes while it does.
        def stop_the_spout():
            for engine in cluster.engines:
                for spout in engine._flow.spouts:
                    if spout.component == "fast":
                        spout.user.again.clear()
                        spout.active = False

        for engine in cluster.engines:
            reject = engine._exchange.reject

            def rejected(*args, reject=reject):
                reject(*args)
                stop_the_spout()

            engine._exchange.reject = rejected
        cluster.run_until(overflowed, 600)
        (message,) = {str(error).split(":")[0] for _, _, error in cluster.errors}
        assert message == "the cycle of 'a', 'b' makes more tuples than it finishes"
        for engine in cluster.engines:
            for bolt in engine._flow.bolts:
                assert bolt.inbox.local <= bolt.hard_max + 8 * SLICE
        cluster.run_until(lambda: all_seen("healthy", 5_000, 1_000_000))


def test_a_slow_bolt_behind_a_fan_out_slows_all_of_it():
    """Every tuple goes to all: the fast ones see as many as the slow one lets through."""
    count = 2_000
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(count))
    builder.bolt("relay", p.Relay()).shuffle("fast")
    for i in range(4):
        builder.bolt(f"sink{i}", p.Sink(), parallelism=2).all("relay")
    builder.bolt("slow", p.Slow()).all("relay")
    place = {"fast": 0, "relay": 0, "slow": 1, "sink0": 0, "sink1": 1, "sink2": 0, "sink3": 1}
    with cluster_of(builder, 2, place) as cluster:
        ahead = 0
        while not all_seen("slow", count):
            cluster.run_for(0.1)
            check_bounds(cluster)
            seen = len(p.ORDER.get("sink0", ())) // 2
            ahead = max(ahead, seen - len(p.ORDER.get("slow", ())))
        assert ahead < count / 2
        twice = Counter(dict.fromkeys(range(count), 2))
        cluster.run_until(lambda: all(p.SEEN[f"sink{i}"] == twice for i in range(4)))


def test_any_tuple_can_be_sent_whatever_its_size():
    """One of a megabyte through a window of 16 KiB; one after the other."""
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(20, width=1_000_000))
    builder.bolt("slow", p.Slow()).shuffle("fast")
    with cluster_of(builder, 2, {"fast": 0, "slow": 1}) as cluster:
        while not all_seen("slow", 20):
            cluster.run_for(0.001)
            for _, accounts in cluster.engines[1]._flow._inflow.accounts():
                for account in accounts:
                    assert account.waiting < account.window + 1_001_000


def test_large_tuples_fill_an_inbox_sooner():
    """Local inboxes are bounded in bytes, too."""
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(10**6, width=100_000))
    builder.bolt("stuck", p.StuckCoroutine()).shuffle("fast")
    p.STUCK.add("stuck")
    conf = {
        "topology.executor.receive.buffer.size": 32_768,
        "topology.worker.buffer.bytes": 33_554_432,
    }
    with cluster_of(builder, 1, {"fast": 0, "stuck": 0}, conf) as cluster:
        assert wait_for_standstill(cluster) < 2_000
        (bolt,) = cluster.engines[0]._flow.bolts
        assert 100 < bolt.inbox.local < 600


def test_a_worker_that_comes_back_has_credit_again():
    """Unacked: what the dead one held is lost, nothing else is, and nothing stops for good."""
    count = 5_000
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(count))
    builder.bolt("stuck", p.StuckCoroutine()).shuffle("fast")
    p.STUCK.add("stuck")
    with cluster_of(builder, 2, {"fast": 0, "stuck": 1}) as cluster:
        wait_for_standstill(cluster)
        cluster.restart(1)
        wait_for_standstill(cluster)
        assert not p.SEEN
        p.STUCK.clear()
        cluster.run_until(lambda: p.SEEN.get("stuck", Counter())[count - 1] == 1)
        assert set(p.SEEN["stuck"].values()) == {1}
        cluster.run_until(lambda: len(p.SEEN["stuck"]) == count - min(p.SEEN["stuck"]))


def test_an_inbox_that_is_empty_again_is_reported():
    """The worker has nothing more to do. Who goes on to think that it is loaded sends elsewhere, so
    that it will have nothing to do."""
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(3_000, width=1_000))
    builder.bolt("slow", p.Slow()).shuffle("fast")
    conf = {"topology.worker.buffer.bytes": 1_000_000}
    place = {"fast": 0, "slow": 1}
    # (A link in memory wakes its worker for every frame, that of `transport.zmq` does not.)
    with cluster_of(builder, 2, place, conf, network=Network()) as cluster:
        (slow,) = cluster.engines[1]._flow.bolts
        allowance = cluster.engines[0]._flow._outflow.allowance(cluster.slots[1], slow.task)
        cluster.run_until(lambda: allowance.load > 0)
        cluster.run_until(lambda: all_seen("slow", 3_000))
        cluster.run_for(3)
        assert allowance.load == 0


def test_an_idle_link_repeats_its_grants():
    """The frame that carried a grant is lost, and nothing else goes that way."""
    count = 2_000
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(count))
    builder.bolt("slow", p.Slow(0.1)).shuffle("fast")
    network = LinkNetwork(seed=4, lose=0.5)
    with cluster_of(builder, 2, {"fast": 0, "slow": 1}, network=network) as cluster:
        cluster.run_until(lambda: all_seen("slow", count), 600)
        assert p.ORDER["slow"] == list(range(count))


@pytest.mark.parametrize("acked", [True, False])
def test_tuples_are_not_dropped_even_if_too_much_waits_for_a_peer(acked):
    """They were, and the credit that they had used did not come back: nothing flowed any more."""
    count = 50
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(count, width=30_000, acked=acked))
    builder.bolt("slow", p.Slow(), parallelism=4).shuffle("fast")
    network = LinkNetwork()
    network.backlog_bytes_max = 20_000
    with cluster_of(builder, 2, {"fast": 0, "slow": 1}, network=network) as cluster:
        cluster.run_until(lambda: all_seen("slow", count))
        assert set(p.SEEN["slow"].values()) == {1}
        cluster.run_until(lambda: not acked or len(p.ACKED) == count)


def test_metrics_and_logged_events_are_dropped_and_counted(monkeypatch):
    monkeypatch.setattr(
        "squall_engine.dataflow.outgoing.is_system_id", lambda name: name == "default"
    )
    monkeypatch.setattr("squall_engine.plan.downstream", lambda edges, component: set())
    builder = TopologyBuilder()
    builder.spout("fast", p.Fast(50_000))
    builder.bolt("stuck", p.StuckCoroutine()).shuffle("fast")
    p.STUCK.add("stuck")
    for worker in (0, 1):
        with cluster_of(builder, 2, {"fast": 0, "stuck": worker}) as cluster:
            cluster.run_until(lambda cluster=cluster: emitted(cluster) == 50_000)
            flow = cluster.engines[0]._flow
            (bolt,) = cluster.engines[worker]._flow.bolts
            cluster.run_for(1)
            assert flow.dropped["default"] + bolt.inbox.queued + 100 == 50_000
            check_bounds(cluster)
