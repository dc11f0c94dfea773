"""The election and its fence, over both stores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from tests.support.stores import Ensemble, States, eventually

from squall_common.cluster import paths
from squall_common.cluster.leader import LeaderElection, Leadership, NotLeaderError, leader_of
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import (
    ConnectionLostError,
    ConnectionState,
    Create,
    NodeExistsError,
    Set,
    Store,
)
from squall_common.cluster.values import StormBase, TopologyStatus

BASE = StormBase("wc", TopologyStatus.INACTIVE, 1)


class Candidate:
    """A Nimbus as the election sees it."""

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self.story: list[str] = []
        self.terms: list[Leadership] = []
        self.election = LeaderElection(
            store, name, on_gained=self._gained, on_lost=lambda: self.story.append("lost")
        )

    def _gained(self, leadership: Leadership) -> None:
        self.story.append("gained")
        self.terms.append(leadership)

    @property
    def leads(self) -> bool:
        return self.election.leadership is not None

    async def wait_leads(self) -> Leadership:
        await eventually(lambda: self.leads)
        leadership = self.election.leadership
        assert leadership is not None
        return leadership


Enter = Callable[..., Awaitable[Candidate]]


@pytest.fixture
async def enter(servers: Ensemble) -> AsyncIterator[Enter]:
    entered: list[Candidate] = []

    async def enter(name: str, *, session_timeout_secs: float = 2.0) -> Candidate:
        candidate = Candidate(await servers.open(session_timeout_secs=session_timeout_secs), name)
        entered.append(candidate)
        await candidate.election.start()
        return candidate

    yield enter
    for candidate in entered:
        await candidate.election.close()


async def test_the_first_leads_and_the_next_follows_when_it_leaves(enter: Enter) -> None:
    a = await enter("a:6627")
    first = await a.wait_leads()
    b = await enter("b:6627")
    await eventually_queued(a.store, 2)
    c = await enter("c:6627")
    await eventually_queued(a.store, 3)
    assert not b.leads
    assert await leader_of(b.store) == "a:6627"
    await a.election.close()
    second = await b.wait_leads()
    assert a.story == ["gained", "lost"]
    assert not c.leads
    assert await c.election.leader() == "b:6627"
    assert second.epoch == first.epoch + 1
    await b.election.close()
    await c.wait_leads()


async def eventually_queued(store: Store, count: int) -> None:
    async def there() -> bool:
        return len(await store.children(paths.LEADER_LOCK)) == count

    await eventually(there)


async def test_an_empty_queue_has_no_leader(servers: Ensemble) -> None:
    store = await servers.open()
    assert await leader_of(store) is None


async def test_a_waiting_candidate_that_leaves_does_not_matter(enter: Enter) -> None:
    a = await enter("a:6627")
    await a.wait_leads()
    b = await enter("b:6627")
    await eventually_queued(a.store, 2)
    c = await enter("c:6627")
    await eventually_queued(a.store, 3)
    await b.election.close()
    await eventually_queued(a.store, 2)
    assert not c.leads
    await a.election.close()
    await c.wait_leads()


async def test_an_expired_leader_is_notified_and_fenced_out(
    enter: Enter, servers: Ensemble
) -> None:
    a, b = await enter("a:6627"), None
    old = await a.wait_leads()
    b = await enter("b:6627")
    await eventually_queued(a.store, 2)
    await old.transaction([Create("/old")])
    await servers.expire(a.store)
    new = await b.wait_leads()
    await eventually(lambda: a.story == ["gained", "lost"])
    assert old.ended
    assert not old.active(time.monotonic())
    with pytest.raises(NotLeaderError):
        await old.transaction([Create("/late")])
    await new.transaction([Create("/new")])
    assert await b.store.exists("/late") is None
    await eventually_queued(b.store, 2)  # a is a candidate again


async def test_the_fence_holds_without_the_leaders_own_clock(enter: Enter) -> None:
    """A leader that was paused between asking `active` and writing: only the epoch stops it."""
    a = await enter("a:6627")
    old = await a.wait_leads()
    await a.store.set(paths.LEADER_EPOCH, b"another")  # as the next winner does
    assert old.active(time.monotonic())
    with pytest.raises(NotLeaderError):
        await old.transaction([Create("/late")])
    assert await a.store.exists("/late") is None
    assert old.ended


async def test_a_leaders_transaction_raises_the_errors_of_its_own_operations(enter: Enter) -> None:
    a = await enter("a:6627")
    leadership = await a.wait_leads()
    await leadership.transaction([])
    await a.store.create("/there")
    with pytest.raises(NodeExistsError) as caught:
        await leadership.transaction([Create("/new"), Create("/there")])
    assert caught.value.index == 1
    assert not leadership.ended


async def test_cluster_state_writes_under_the_leadership(enter: Enter) -> None:
    a = await enter("a:6627")
    old = await a.wait_leads()
    state = ClusterState(a.store)
    await state.start()
    await state.create_topology("wc-1-1", BASE, guard=old)
    await a.store.set(paths.LEADER_EPOCH, b"another")
    with pytest.raises(NotLeaderError):
        await state.put_storm_base("wc-1-1", StormBase("wc", TopologyStatus.KILLED, 1), guard=old)
    for write in (
        state.remove_topology("wc-1-1", guard=old),
        state.create_topology("x-2-1", BASE, guard=old),
        state.setup_heartbeats("y-2-1", guard=old),
    ):
        with pytest.raises(NotLeaderError):
            await write
    assert await state.storm_bases() == {"wc-1-1": BASE}
    assert await state.topologies_with_state() == {"wc-1-1"}


async def test_a_restarted_nimbus_does_not_wait_for_its_own_ghost(enter: Enter) -> None:
    """STORM-3107: the old process was killed, but its session lives for another 4 s."""
    ghost = await enter("a:6627", session_timeout_secs=4)
    await ghost.wait_leads()
    await ghost.election._tasks.close()  # killed: it does nothing more, and leaves nothing
    started = time.monotonic()
    again = await enter("a:6627")
    await again.wait_leads()
    assert time.monotonic() - started < 3.5
    await eventually_queued(again.store, 1)


async def test_two_candidates_of_the_same_name_do_not_evict_each_other(enter: Enter) -> None:
    """The second mistakes the first for its ghost, once; then both stay in the queue."""
    a = await enter("a:6627")
    await a.wait_leads()
    b = await enter("a:6627")
    await eventually(lambda: a.story[:2] == ["gained", "lost"])
    await eventually_queued(a.store, 2)
    leader = await leading([a, b])
    other = b if leader is a else a
    await leader.election.resign()
    await other.wait_leads()
    await eventually_queued(a.store, 2)
    assert sorted(len(one.terms) for one in (a, b)) in ([1, 1], [1, 2])


async def test_a_leader_that_resigns_goes_to_the_end_of_the_queue(enter: Enter) -> None:
    a = await enter("a:6627")
    term = await a.wait_leads()
    b = await enter("b:6627")
    await eventually_queued(a.store, 2)
    await a.election.resign()
    await b.wait_leads()
    assert term.ended
    await eventually_queued(a.store, 2)
    assert not a.leads
    await b.election.resign()
    await a.wait_leads()


async def test_a_leader_whose_queue_node_is_deleted_steps_down(enter: Enter) -> None:
    a = await enter("a:6627")
    await a.wait_leads()
    b = await enter("b:6627")
    await eventually_queued(a.store, 2)
    [first, _] = sorted(await b.store.children(paths.LEADER_LOCK), key=lambda name: name[-10:])
    await b.store.delete(f"{paths.LEADER_LOCK}/{first}")
    await b.wait_leads()
    await eventually(lambda: a.story == ["gained", "lost"])


async def test_queue_nodes_have_curators_format(enter: Enter) -> None:
    a = await enter("a:6627")
    await a.wait_leads()
    [name] = await a.store.children(paths.LEADER_LOCK)
    prefix, _, sequence = name.rpartition("-latch-")
    assert prefix.startswith("_c_")
    assert len(prefix) == len("_c_") + 36
    assert len(sequence) == 10
    assert (await a.store.get(f"{paths.LEADER_LOCK}/{name}"))[0] == b"a:6627"


async def test_many_elections_have_one_leader_at_a_time(enter: Enter, servers: Ensemble) -> None:
    """Every term writes a counter under its fence, while sessions end at random moments: no term
    writes after a later one did."""
    candidates = [await enter(f"n{number}:6627") for number in range(3)]
    store = await servers.open()
    await store.create("/log")
    stop = asyncio.Event()

    async def work(candidate: Candidate) -> None:
        while not stop.is_set():
            leadership = candidate.election.leadership
            if leadership is not None:
                try:
                    await leadership.transaction([Set("/log", b"%d" % leadership.epoch)])
                except (NotLeaderError, ConnectionLostError):
                    pass
            await asyncio.sleep(0)

    seen: list[int] = []

    async def read() -> None:
        while not stop.is_set():
            value, _ = await store.get("/log")
            if value:
                seen.append(int(value))
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(work(one)) for one in candidates]
    tasks.append(asyncio.create_task(read()))
    for _ in range(6):
        leader = await leading(candidates)
        states = States(leader.store)
        await servers.expire(leader.store)
        await states.wait(ConnectionState.LOST, ConnectionState.CONNECTED)
    await leading(candidates)
    stop.set()
    await asyncio.gather(*tasks)
    assert seen == sorted(seen)
    assert len(set(seen)) >= 3
    epochs = [term.epoch for one in candidates for term in one.terms]
    assert len(epochs) == len(set(epochs)) >= 7


async def leading(candidates: list[Candidate]) -> Candidate:
    await eventually(lambda: any(one.leads for one in candidates))
    return next(one for one in candidates if one.leads)
