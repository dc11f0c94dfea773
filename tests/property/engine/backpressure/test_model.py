"""Random topologies over one to three workers, with slow bolts, tiny buffers, links that lose,
repeat and swap frames, and workers that die: everything comes through in the end, the bounds hold
all the time, and without a death nothing is lost or done twice, although nothing is acked."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support import pressure_components as p
from tests.support.effort import examples
from tests.support.engine_cluster import EngineCluster
from tests.support.link_network import LinkNetwork

from squall import TopologyBuilder
from squall_common.topology.model import WorkerSlot
from squall_engine.backpressure.credit import FLOOR_BYTES, Inflow, Outflow, window_bytes
from squall_engine.transport import Grant

PEER = WorkerSlot("peer", 1)
SLICE = 2_048
COUNT = 60


class World:
    """A random topology. `expected` is how often each bolt sees each number."""

    def __init__(self, seed: int, acked: bool) -> None:
        self.rng = rng = random.Random(seed)
        self.builder = TopologyBuilder()
        self.builder.spout("spout", p.Fast(COUNT, width=rng.choice([0, 0, 300]), acked=acked))
        self.workers = rng.randint(1, 3)
        self.place = {"spout": 0}
        times = {"spout": 1}
        self.expected: dict[str, int] = {}
        for i in range(rng.randint(1, 6)):
            name = f"bolt{i}"
            kind = rng.choice(["relay", "relay", "double", "slow", "sink", "stuck"])
            bolt = {
                "relay": p.Relay(), "double": p.Relay(2), "slow": p.Slow(rng.choice([0.05, 0.5])),
                "sink": p.Sink(), "stuck": p.StuckCoroutine(),
            }[kind]  # fmt: skip
            tasks = rng.choice([1, 1, 2, 3])
            declared = self.builder.bolt(name, bolt, parallelism=tasks)
            seen = 0
            sources = rng.sample(sorted(times), rng.randint(1, min(2, len(times))))
            for source in sources:
                grouping = rng.choice(["shuffle", "fields", "all", "local_or_shuffle"])
                if times[source] * tasks > 12:
                    grouping = "shuffle"
                if grouping == "fields":
                    declared.fields(source, "number")
                else:
                    getattr(declared, grouping)(source)
                seen += times[source] * (tasks if grouping == "all" else 1)
            if kind in ("slow", "sink", "stuck"):
                self.expected[name] = seen
            if kind != "sink":
                times[name] = seen * (2 if kind == "double" else 1)
        self.conf = {
            "topology.worker.buffer.bytes": rng.choice([65_536, 300_000]),
            "topology.executor.receive.buffer.size": rng.choice([1, 16, 256]),
            "topology.message.timeout.secs": 10 if acked else 100_000,
            "topology.acker.executors": self.workers if acked else 0,
        }
        self.network = LinkNetwork(
            seed,
            lose=rng.choice([0.0, 0.1]),
            repeat=rng.choice([0.0, 0.1]),
            delay_secs=rng.choice([0.0, 0.01]),
        )
        self.stuck = [name for name in self.expected if rng.random() < 0.5]

    def cluster(self) -> EngineCluster:
        places: dict[str, int] = {}

        def place(executor: object, component: str) -> int:
            if component == "spout":
                return 0
            places[component] = places.get(component, self.rng.randrange(self.workers)) + 1
            return places[component] % self.workers

        return EngineCluster(
            self.builder.build(), self.workers, self.conf, place=place, network=self.network
        )


def check_bounds(cluster: EngineCluster) -> None:
    for engine in cluster.engines:
        for _, accounts in engine._flow._inflow.accounts():
            for account in accounts:
                # The tuple that is permitted whatever its size, by each task that sends.
                assert account.waiting <= account.window + 1_500
        for bolt in engine._flow.bolts:
            assert bolt.inbox.local <= bolt.hard + SLICE


def total(world: World) -> int:
    return sum(sum(p.SEEN.get(name, Counter()).values()) for name in world.expected)


@settings(max_examples=examples(15), deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_everything_is_delivered_once_although_nothing_is_acked(seed: int) -> None:
    p.clear()
    world = World(seed, acked=False)
    p.STUCK.update(world.stuck)
    with world.cluster() as cluster:
        for _ in range(10):
            cluster.run_for(0.2)
            check_bounds(cluster)
        p.STUCK.clear()
        wanted = COUNT * sum(world.expected.values())
        cluster.run_until(lambda: total(world) >= wanted, 3_000)
        cluster.run_until(lambda: all(engine.is_drained() for engine in cluster.engines))
        for name, times in world.expected.items():
            assert p.SEEN[name] == Counter(dict.fromkeys(range(COUNT), times)), name
        assert cluster.errors == []


@settings(max_examples=examples(4), deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_work_lost_with_a_worker_is_done_again(seed: int) -> None:
    p.clear()
    world = World(seed, acked=True)
    p.STUCK.update(world.stuck)
    with world.cluster() as cluster:
        for _ in range(3):
            cluster.run_for(world.rng.random())
            check_bounds(cluster)
            if world.workers > 1:
                cluster.restart(world.rng.randrange(1, world.workers))
        p.STUCK.clear()
        cluster.run_until(lambda: len(p.ACKED) == COUNT, 6_000)
        check_bounds(cluster)
        for name in world.expected:
            assert set(p.SEEN[name]) == set(range(COUNT)), name


class Pair:
    """The two ends of the credit for some tasks, with grants lost, repeated and swapped."""

    def __init__(self, rng: random.Random, tasks: int, budget: int) -> None:
        self.rng = rng
        self.out, self.into = Outflow(), Inflow()
        self.grants: list[list[Grant]] = []
        self.waiting: list[tuple[int, object, int]] = []  # task, account, bytes
        self.tasks = range(tasks)
        self.window = window_bytes(budget, tasks)
        self.session = 0
        self.restart()

    def restart(self) -> None:
        self.session += 1
        self.grants.clear()
        self.out.session_began(PEER, [])
        self.into.session_began(PEER, self.session)
        self.into.set_windows({PEER: dict.fromkeys(self.tasks, self.window)})

    def send(self) -> None:
        task = self.rng.choice(self.tasks)
        allowance = self.out.allowance(PEER, task)
        while allowance.left > 0 and self.rng.random() < 0.9:
            size = self.rng.choice([1, 100, 5_000, 300_000])
            allowance.sent += size
            account = self.into.accounts_of(PEER, self.session)[task]
            account.received += size
            assert account.waiting < self.window + size
            self.waiting.append((task, account, size))

    def take(self) -> None:
        for _ in range(self.rng.randint(0, 5)):
            if self.waiting:
                _, account, size = self.waiting.pop(0)
                account.take(size)
        for _, accounts in self.into.due():
            self.grants.append([account.grant(0) for account in accounts])

    def deliver_grants(self) -> None:
        self.rng.shuffle(self.grants)
        for grants in self.grants[: self.rng.randint(0, len(self.grants))]:
            if self.rng.random() < 0.5:
                self.out.granted(PEER, grants)
        del self.grants[: self.rng.randint(0, len(self.grants))]

    def repeat(self) -> None:
        for _, accounts in self.into.accounts():
            self.out.granted(PEER, [Grant(a.task, a.granted, 0) for a in accounts])


@settings(max_examples=examples(100), deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.sampled_from(["send", "send", "take", "deliver_grants", "restart"]), max_size=60),
    st.integers(1, 5),
    st.sampled_from([0, 100_000, 10**8]),
)
def test_credit_is_never_beyond_the_window_and_always_comes_back(
    seed: int, steps: list[str], tasks: int, budget: int
) -> None:
    pair = Pair(random.Random(seed), tasks, budget)
    for step in steps:
        getattr(pair, step)()
        for task in pair.tasks:
            allowance = pair.out.allowance(PEER, task)
            account = pair.into.accounts_of(PEER, pair.session)[task]
            assert allowance.limit <= max(account.granted, FLOOR_BYTES)
            assert account.granted <= max(FLOOR_BYTES, account.taken + pair.window)
    while pair.waiting:
        pair.take()
    pair.repeat()
    for task in pair.tasks:
        assert pair.out.allowance(PEER, task).left > 0
