"""How the leading Nimbus closes ZooKeeper."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any

import pytest

from squall_common.cluster import paths
from squall_common.cluster.access.digests import Digests, new_payload
from squall_common.cluster.access.lists import OPEN, AccessList, is_open
from squall_common.cluster.access.opened import META_KEY
from squall_common.cluster.leader import NotLeaderError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import AccessDeniedError, Op, Store
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import Assignment, StormBase, SupervisorInfo, TopologyStatus
from squall_common.daemon.clock import ManualClock
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.access.zookeeper_lists import AGAIN_SECS, WALK_SECS, ZooKeeperLists
from squall_nimbus.blobs.store import BlobNotFoundError

A = "words-1-17"
CHECKPOINTS = {"topology.checkpoint.interval.secs": 10, "topology.state.url": "s3://bucket/x"}
RECORD = paths.checkpoints("words", "s3://bucket/x")


class Term:
    """A term of a leader, which is paused for `then` after its next transaction."""

    def __init__(self, store: Store) -> None:
        self.over = False
        self.confirmations = 0
        self.then: Callable[[], Awaitable[None]] | None = None
        self._store = store

    async def transaction(self, ops: Sequence[Op]) -> None:
        if self.over:
            raise NotLeaderError("the term is over")
        if ops:
            await self._store.transaction(ops)
        else:
            self.confirmations += 1
        if self.then is not None:
            self.over, then = True, self.then
            self.then = None
            await then()


class Nimbus:
    """A Nimbus that leads, over an ensemble that may have been open before."""

    def __init__(self, ensemble: MemoryEnsemble, digests: Digests) -> None:
        access = digests.for_daemon()
        self.digests, self.store_lists = digests, access.lists
        self.clock = ManualClock()
        self.store = MemoryStore(ensemble, access=access)
        self.state = ClusterState(self.store)
        self.confs: dict[str, dict[str, Any]] = {}
        self.submitting: set[str] = set()
        self.term = Term(self.store)
        self.lists = ZooKeeperLists(
            self.store,
            access,
            self.state,
            conf_of=self.conf_of,
            submitting=self.submitting,
            clock=self.clock,
        )

    def conf_of(self, topology_id: str) -> dict[str, Any]:
        if topology_id not in self.confs:
            raise BlobNotFoundError(topology_id)
        return self.confs[topology_id]

    async def settle(self) -> None:
        await self.lists.settle(self.term)

    async def submit(self, topology_id: str, conf: dict[str, Any], *nodes: str) -> None:
        self.confs[topology_id] = conf
        await self.lists.prepare(topology_id, conf, self.term)
        await create(self.state, topology_id, *nodes)

    def wanted(self, path: str) -> AccessList:
        """The list of a node in a cluster without old workers."""
        lists = self.digests.for_daemon().lists
        lists.records = {RECORD: A}
        return lists.of(path)


async def create(state: ClusterState, topology_id: str, *nodes: str) -> None:
    base = StormBase("words", TopologyStatus.ACTIVE, 1)
    await state.create_topology(topology_id, base)
    places = {Executor(i, i): WorkerSlot(node, 1) for i, node in enumerate(nodes)}
    await state.put_assignment(topology_id, Assignment("", executor_slot=places))


async def supervisor(state: ClusterState, node: str, without: Collection[str] | None) -> None:
    meta = {} if without is None else {META_KEY: json.dumps(sorted(without))}
    await state.register_supervisor(node, SupervisorInfo(0, "host", node, scheduler_meta=meta))


async def tree(store: Store, path: str = "/") -> list[str]:
    found = [path]
    for name in await store.children(path):
        found += await tree(store, f"{path.rstrip('/')}/{name}")
    return found


@pytest.fixture
async def ensemble() -> MemoryEnsemble:
    return MemoryEnsemble()


@pytest.fixture
async def stranger(ensemble: MemoryEnsemble) -> AsyncIterator[ClusterState]:
    """An old Nimbus of the open cluster, or anyone."""
    state = ClusterState(MemoryStore(ensemble))
    await state.start()
    yield state
    await state.close()


async def begin(ensemble: MemoryEnsemble, digests: Digests | None = None) -> Nimbus:
    nimbus = Nimbus(ensemble, digests or Digests((new_payload(),)))
    await nimbus.state.start()
    return nimbus


async def assert_closed(nimbus: Nimbus) -> None:
    for path in await tree(nimbus.store):
        assert await nimbus.store.access_list(path) == nimbus.wanted(path), path


async def test_an_open_cluster_is_closed_when_every_supervisor_shows_a_digest(
    ensemble: MemoryEnsemble, stranger: ClusterState
) -> None:
    await create(stranger, A, "one", "two")
    await supervisor(stranger, "one", [])
    await supervisor(stranger, "two", None)
    nimbus = await begin(ensemble)
    nimbus.confs[A] = {}
    await nimbus.settle()
    assert await stranger.storm_base(A) is not None  # nothing is closed to anyone yet
    await supervisor(stranger, "two", [])
    await nimbus.settle()
    await assert_closed(nimbus)
    with pytest.raises(AccessDeniedError):
        await stranger.storm_base(A)


async def test_an_open_cluster_waits_for_supervisors_that_are_away(
    ensemble: MemoryEnsemble, stranger: ClusterState
) -> None:
    await create(stranger, A, "one")
    nimbus = await begin(ensemble)
    nimbus.confs[A] = {}
    await nimbus.settle()  # as after an outage of ZooKeeper, which ended all sessions
    await supervisor(stranger, "one", None)
    await nimbus.settle()
    assert await stranger.storm_base(A) is not None
    await supervisor(stranger, "one", [])
    await nimbus.settle()
    await assert_closed(nimbus)


async def test_old_workers_are_not_locked_out_while_their_code_is_not_here(
    ensemble: MemoryEnsemble, stranger: ClusterState
) -> None:
    await create(stranger, A, "one")
    await stranger.store.create(RECORD, b"record")
    await supervisor(stranger, "one", [A])
    nimbus = await begin(ensemble)
    for _ in range(2):
        await nimbus.settle()
        assert await stranger.storm_base(A) is not None
        assert (await stranger.store.get(RECORD))[0] == b"record"
    nimbus.confs[A] = CHECKPOINTS
    nimbus.clock.advance(AGAIN_SECS)
    await nimbus.settle()
    assert await stranger.storm_base(A) is not None
    await supervisor(nimbus.state, "one", [])
    await nimbus.settle()
    await assert_closed(nimbus)


async def test_a_node_that_is_left_open_later_is_closed_within_ten_minutes(
    ensemble: MemoryEnsemble,
) -> None:
    nimbus = await begin(ensemble)
    await create(nimbus.state, A, "one")
    for _ in range(2):
        await nimbus.settle()
        nimbus.clock.advance(AGAIN_SECS)
    await nimbus.state.store.set_access_list(paths.storm(A), OPEN)
    nimbus.clock.advance(WALK_SECS)
    await nimbus.settle()
    await assert_closed(nimbus)


async def test_a_record_stays_with_its_topology_while_its_code_is_not_here(
    ensemble: MemoryEnsemble,
) -> None:
    digests = Digests((new_payload(),))
    first = await begin(ensemble, digests)
    await supervisor(first.state, "one", [])
    await first.submit(A, CHECKPOINTS, "one")
    second = await begin(ensemble, digests)
    for _ in range(3):
        await second.settle()
        assert await second.store.access_list(RECORD) == second.wanted(RECORD)
        second.clock.advance(AGAIN_SECS)
    second.confs[A] = CHECKPOINTS
    await second.settle()
    await assert_closed(second)


async def test_a_rebalance_may_put_state_elsewhere(ensemble: MemoryEnsemble) -> None:
    nimbus = await begin(ensemble)
    await supervisor(nimbus.state, "one", [])
    await nimbus.submit(A, {}, "one")
    await nimbus.settle()
    nimbus.confs[A] = CHECKPOINTS
    await nimbus.settle()
    assert (await nimbus.store.get(RECORD))[0] == paths.NO_RECORD
    await assert_closed(nimbus)


async def test_a_record_that_nobody_made_is_made_when_the_code_comes_late(
    ensemble: MemoryEnsemble,
) -> None:
    nimbus = await begin(ensemble)
    await supervisor(nimbus.state, "one", [])
    await create(nimbus.state, A, "one")  # as by a Nimbus that showed no digest yet
    for _ in range(3):
        await nimbus.settle()
        nimbus.clock.advance(AGAIN_SECS)
    nimbus.confs[A] = CHECKPOINTS
    await nimbus.settle()
    assert (await nimbus.store.get(RECORD))[0] == paths.NO_RECORD
    await assert_closed(nimbus)


async def test_a_submission_that_failed_leaves_nothing_open(ensemble: MemoryEnsemble) -> None:
    nimbus = await begin(ensemble)
    await supervisor(nimbus.state, "old", None)
    nimbus.submitting.add(A)
    await nimbus.lists.prepare(A, CHECKPOINTS, nimbus.term)
    await nimbus.settle()
    assert nimbus.store_lists.of(paths.CHECKPOINTS) == OPEN  # it is not over yet
    nimbus.submitting.discard(A)
    await nimbus.settle()
    await assert_closed(nimbus)
    assert nimbus.store_lists.of(RECORD) == nimbus.store_lists.of(paths.CHECKPOINTS) != OPEN


async def test_a_topology_with_old_workers_stays_open_until_they_are_gone(
    ensemble: MemoryEnsemble, stranger: ClusterState
) -> None:
    await create(stranger, A, "one")
    await supervisor(stranger, "one", [A])
    nimbus = await begin(ensemble)
    nimbus.confs[A] = CHECKPOINTS
    await nimbus.settle()
    assert await stranger.storm_base(A) is not None
    await stranger.store.create(f"{paths.workerbeats(A)}/one-1", b"beat")
    await stranger.store.create(RECORD, b"record")
    with pytest.raises(AccessDeniedError):
        await stranger.supervisors()
    # Another leader finds it as it is.
    nimbus.term = Term(nimbus.store)
    await nimbus.settle()
    assert await nimbus.store.access_list(paths.storm(A)) == OPEN
    await supervisor(nimbus.state, "one", [])
    await nimbus.settle()
    await assert_closed(nimbus)
    assert (await nimbus.store.get(RECORD))[0] == b"record"


async def test_nodes_that_others_made_meanwhile_are_closed_a_little_later(
    ensemble: MemoryEnsemble, stranger: ClusterState
) -> None:
    await supervisor(stranger, "one", [])
    nimbus = await begin(ensemble)
    await nimbus.settle()
    # As a daemon does that has not seen yet that the cluster is closed.
    late = f"{paths.NIMBUSES}/late"
    await nimbus.store.create(late)
    await nimbus.store.set_access_list(late, OPEN)
    await nimbus.settle()
    assert is_open(await nimbus.store.access_list(late))
    nimbus.clock.advance(AGAIN_SECS)
    await nimbus.settle()
    await assert_closed(nimbus)


async def test_a_walk_that_was_cut_short_is_done_again(
    ensemble: MemoryEnsemble, stranger: ClusterState
) -> None:
    await create(stranger, A, "one")
    await supervisor(stranger, "one", [])
    digests = Digests((new_payload(),))
    first = await begin(ensemble, digests)
    # Killed after the root.
    await first.store.set_access_list("/", first.wanted("/"))
    await first.state.close()
    second = await begin(ensemble, digests)
    second.confs[A] = {}
    await second.settle()
    await supervisor(second.state, "one", [])
    await second.settle()
    await assert_closed(second)


async def test_a_leader_whose_term_is_over_writes_no_lists(
    ensemble: MemoryEnsemble, stranger: ClusterState
) -> None:
    """It was paused: another one leads, for whom the topology of this name is another one."""
    await create(stranger, A, "one")
    await supervisor(stranger, "one", [])
    digests = Digests((new_payload(),))
    stale = await begin(ensemble, digests)
    stale.confs[A] = CHECKPOINTS
    await stale.settle()
    lists = {path: await stale.store.access_list(path) for path in await tree(stale.store)}
    assert RECORD in lists
    # The next leader has given the record to another topology.
    moved = digests.for_daemon().lists
    moved.records = {RECORD: "words-2-18"}
    await stale.store.set_access_list(RECORD, moved.of(RECORD))
    stale.term.over = True
    stale.clock.advance(WALK_SECS)
    with pytest.raises(NotLeaderError):
        await stale.settle()
    with pytest.raises(NotLeaderError):
        await stale.lists.prepare("words-3-19", CHECKPOINTS, stale.term)
    await stale.state.remove_topology(A)
    with pytest.raises(NotLeaderError):
        await stale.settle()
    assert await stale.store.access_list(RECORD) == moved.of(RECORD)


@pytest.mark.parametrize("had_record", [True, False])
async def test_a_leader_that_is_paused_before_it_writes_a_list_leaves_no_wrong_one(
    had_record: bool, ensemble: MemoryEnsemble
) -> None:
    """It gives the record to a topology that is never created, since another wins meanwhile."""
    digests = Digests((new_payload(),))
    stale, new = await begin(ensemble, digests), await begin(ensemble, digests)
    await supervisor(stale.state, "one", [])
    if had_record:
        await stale.submit(A, CHECKPOINTS, "one")
        await stale.settle()
        await stale.state.remove_topology(A)
    await stale.settle()
    stale.term.then = new.settle
    with contextlib.suppress(NotLeaderError):
        await stale.lists.prepare("words-2-18", CHECKPOINTS, stale.term)
    assert stale.term.over
    assert await new.store.access_list(RECORD) == new.wanted(paths.CHECKPOINTS)


async def test_a_leader_that_is_paused_closes_no_topology_that_another_leaves_open(
    ensemble: MemoryEnsemble, stranger: ClusterState
) -> None:
    await create(stranger, A, "one")
    await supervisor(stranger, "one", [A])
    digests = Digests((new_payload(),))
    stale, new = await begin(ensemble, digests), await begin(ensemble, digests)
    stale.confs[A] = new.confs[A] = {}
    await stale.settle()

    async def another_leads() -> None:
        await supervisor(new.state, "one", [A])  # a worker of an earlier version came back
        await new.settle()

    await supervisor(new.state, "one", [])
    stale.term.then = another_leads
    with pytest.raises(NotLeaderError):
        await stale.settle()
    for path in (paths.CHECKPOINTS, paths.storm(A), paths.workerbeats(A)):
        assert await new.store.access_list(path) == OPEN


async def test_a_list_that_was_replaced_meanwhile_is_written_all_the_same(
    ensemble: MemoryEnsemble,
) -> None:
    """As after an answer that was lost."""
    nimbus = await begin(ensemble)
    nimbus.confs[A] = {}
    await create(nimbus.state, A, "one")
    await nimbus.settle()

    async def replaced() -> None:
        nimbus.term.over = False
        await nimbus.store.set_access_list(paths.storm(A), OPEN)

    await nimbus.store.set_access_list(paths.storm(A), OPEN)
    nimbus.term.then = replaced
    nimbus.clock.advance(WALK_SECS)
    await nimbus.settle()
    await assert_closed(nimbus)


async def test_a_new_leader_confirms_its_term_once_for_many_lists(ensemble: MemoryEnsemble) -> None:
    """A confirmation is a transaction, which the servers write to their disks."""
    digests = Digests((new_payload(),))
    old, new = await begin(ensemble, digests), await begin(ensemble, digests)
    await old.settle()
    records = {}
    for number in range(40):
        topology_id = f"many{number}-{number}-17"
        await old.submit(topology_id, CHECKPOINTS, "one")
        records[paths.checkpoints(f"many{number}", "s3://bucket/x")] = topology_id
    new.confs = old.confs
    versions = [(await old.store.exists(path)).acl_version for path in records]  # type: ignore[union-attr]
    await new.settle()
    assert new.term.confirmations <= 5  # the records, and each level of the tree
    for path, version in zip(records, versions, strict=True):
        stat = await new.store.exists(path)
        assert stat is not None
        assert stat.acl_version == version + 1
    new.store_lists.records = records
    for path in await tree(new.store):
        assert await new.store.access_list(path) == new.store_lists.of(path), path


async def test_a_record_that_could_not_be_handed_over_is_in_the_next_round(
    ensemble: MemoryEnsemble,
) -> None:
    nimbus = await begin(ensemble)
    await nimbus.settle()
    nimbus.clock.advance(AGAIN_SECS)
    await nimbus.settle()  # the next walk is far away
    await create(nimbus.state, A, "one")
    nimbus.confs[A] = CHECKPOINTS
    nimbus.term.over = True
    with pytest.raises(NotLeaderError):
        await nimbus.settle()
    nimbus.term.over = False
    await nimbus.settle()
    assert await nimbus.store.access_list(RECORD) == nimbus.wanted(RECORD)


async def test_a_topology_of_a_closed_cluster_is_closed_from_the_start(
    ensemble: MemoryEnsemble,
) -> None:
    nimbus = await begin(ensemble)
    await supervisor(nimbus.state, "one", [])
    await nimbus.submit(A, CHECKPOINTS, "one")
    await assert_closed(nimbus)
    assert (await nimbus.store.get(RECORD))[0] == paths.NO_RECORD


async def test_a_topology_that_may_come_to_an_old_supervisor_is_open(
    ensemble: MemoryEnsemble,
) -> None:
    nimbus = await begin(ensemble)
    await supervisor(nimbus.state, "old", None)
    await nimbus.submit(A, CHECKPOINTS, "old")
    assert await nimbus.store.access_list(paths.storm(A)) == OPEN
    await nimbus.settle()
    assert await nimbus.store.access_list(paths.storm(A)) == OPEN


async def test_a_record_of_checkpoints_passes_to_the_next_topology_of_the_name(
    ensemble: MemoryEnsemble,
) -> None:
    nimbus = await begin(ensemble)
    await supervisor(nimbus.state, "one", [])
    await nimbus.submit(A, CHECKPOINTS, "one")
    await nimbus.store.set(RECORD, b"record")
    await nimbus.settle()
    await nimbus.state.remove_topology(A)
    await nimbus.settle()
    daemons_only = nimbus.digests.for_daemon().lists.of(paths.CHECKPOINTS)
    assert await nimbus.store.access_list(RECORD) == daemons_only
    await nimbus.submit("words-2-18", CHECKPOINTS, "one")
    own = nimbus.digests.for_daemon().lists
    own.records = {RECORD: "words-2-18"}
    assert await nimbus.store.access_list(RECORD) == own.of(RECORD) != daemons_only
    assert (await nimbus.store.get(RECORD))[0] == b"record"


async def test_a_digest_is_replaced(ensemble: MemoryEnsemble) -> None:
    old, new = new_payload(), new_payload()
    for payloads in ((old,), (new, old), (new,)):
        nimbus = await begin(ensemble, Digests(payloads))
        await supervisor(nimbus.state, "one", [])
        if payloads == (old,):
            await nimbus.submit(A, CHECKPOINTS, "one")
        nimbus.confs[A] = CHECKPOINTS
        await nimbus.settle()
        await assert_closed(nimbus)
        await nimbus.state.close()
    with pytest.raises(AccessDeniedError):
        await begin(ensemble, Digests((old,)))
