"""Access lists, on the memory store and on a real ZooKeeper."""

from __future__ import annotations

import pytest
from tests.support.stores import Ensemble, States, eventually

from squall_common.cluster import paths
from squall_common.cluster.access.digests import Digests, StoreAccess, new_payload, worker_access
from squall_common.cluster.access.lists import OPEN, is_open
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import (
    AccessDeniedError,
    BadVersionError,
    Check,
    ConnectionState,
    Create,
    Delete,
    NodeExistsError,
    Set,
    Store,
)
from squall_common.cluster.values import ErrorInfo

A, B = "a-1-17", "b-2-17"
DIGESTS = Digests((new_payload(),))


def of_worker(topology_id: str, digests: Digests = DIGESTS) -> StoreAccess:
    return worker_access(topology_id, digests.payloads_of(topology_id), digests.daemons())


async def closed(servers: Ensemble) -> Store:
    """A daemon's session with a closed cluster of two topologies."""
    store = await servers.open(access=DIGESTS.for_daemon())
    await ClusterState(store).start()
    for topology_id in (A, B):
        for parent in paths.OF_TOPOLOGY:
            await store.create(f"{parent}/{topology_id}", b"1")
    return store


async def test_the_first_daemon_closes_what_it_makes(servers: Ensemble) -> None:
    daemon = await closed(servers)
    assert daemon.makes_lists
    for path in ("/", *paths.LAYOUT, paths.storm(A)):
        assert await daemon.access_list(path) == DIGESTS.for_daemon().lists.of(path)
        assert not is_open(await daemon.access_list(path))


async def test_who_shows_nothing_gets_nothing(servers: Ensemble) -> None:
    await closed(servers)
    stranger = await servers.open(is_worker=True)
    for attempt in (
        stranger.get("/"),
        stranger.children(paths.STORMS),
        stranger.get(paths.storm(A)),
        stranger.set(paths.storm(A), b"2"),
        stranger.delete(paths.storm(A)),
        stranger.create(f"{paths.STORMS}/c"),
        stranger.access_list("/"),
        stranger.set_access_list("/", OPEN),
        stranger.transaction([Check(paths.LEADER_EPOCH)]),
    ):
        with pytest.raises(AccessDeniedError):
            await attempt


async def test_a_right_is_asked_for_before_a_version_and_a_transaction_is_undone(
    servers: Ensemble,
) -> None:
    daemon = await closed(servers)
    worker = await servers.open(access=of_worker(A), is_worker=True)
    with pytest.raises(AccessDeniedError):
        await worker.set(paths.storm(A), b"2", 99)
    with pytest.raises(AccessDeniedError):
        await worker.delete(paths.storm(A), 99)
    with pytest.raises(AccessDeniedError):
        await worker.create(paths.storm(A))  # it exists, too
    with pytest.raises(NodeExistsError):
        await daemon.create(paths.storm(A))
    with pytest.raises(BadVersionError):
        await daemon.set(paths.storm(A), b"2", 99)
    beat = f"{paths.workerbeats(A)}/n-1"
    with pytest.raises(AccessDeniedError) as caught:
        await worker.transaction([Create(beat), Set(paths.storm(A), b"2"), Delete(beat)])
    assert caught.value.index == 1
    assert await daemon.exists(beat) is None


async def test_a_list_is_replaced_where_its_version_is_the_expected_one(servers: Ensemble) -> None:
    daemon = await closed(servers)
    path = paths.storm(A)
    before = await daemon.exists(path)
    assert before is not None
    assert before.acl_version == 0
    await daemon.set_access_list(path, OPEN, before.acl_version)
    await daemon.set(path, b"2")
    with pytest.raises(BadVersionError):
        await daemon.set_access_list(path, DIGESTS.for_daemon().lists.of(path), 0)
    assert await daemon.access_list(path) == OPEN
    await daemon.set_access_list(path, OPEN)
    after = await daemon.exists(path)
    assert after is not None
    assert (after.acl_version, after.version) == (2, 1)


async def test_a_worker_reads_and_writes_its_own_topology_alone(servers: Ensemble) -> None:
    daemon = await closed(servers)
    worker = await servers.open(access=of_worker(A), is_worker=True)
    assert (await worker.get(paths.storm(A)))[0] == b"1"
    state = ClusterState(worker)
    assert await state.report_error(A, "bolt", ErrorInfo("boom", 1))
    worker.put_nowait(f"{paths.workerbeats(A)}/n-1", b"beat")

    async def written() -> bool:
        return await daemon.exists(f"{paths.workerbeats(A)}/n-1") is not None

    await eventually(written)
    assert [one.error for one in await ClusterState(daemon).errors(A, "bolt")] == ["boom"]
    for path in (f"{paths.workerbeats(A)}/n-1", paths.last_error(A, "bolt")):
        assert await daemon.access_list(path) == DIGESTS.for_daemon().lists.of(path)
    for attempt in (
        worker.get(paths.storm(B)),
        worker.create(f"{paths.workerbeats(B)}/n-1"),
        worker.create(f"{paths.errors(B)}/bolt"),
        worker.set(paths.workerbeats(A), b"forged"),
        worker.delete(f"{paths.workerbeats(A)}/n-1"),
        worker.create(f"{paths.CHECKPOINTS}/x"),
        worker.get(paths.credentials(A)),
        worker.children(paths.SUPERVISORS),
    ):
        with pytest.raises(AccessDeniedError):
            await attempt


async def test_what_a_worker_makes_first_is_closed(servers: Ensemble) -> None:
    daemon = await closed(servers)
    path = f"{paths.errors(A)}/bolt"
    for _ in range(5):  # a session of its own reports an error of a hung worker, and ends
        worker = await servers.open(access=of_worker(A), is_worker=True)
        await worker.create(path)
        assert await daemon.access_list(path) == DIGESTS.for_daemon().lists.of(path)
        await daemon.delete(path)
        await worker.close()


async def test_a_new_session_proves_who_it_is_again(servers: Ensemble) -> None:
    daemon = await closed(servers)
    states = States(daemon)
    await servers.expire(daemon)
    await states.wait(ConnectionState.CONNECTED)
    assert (await daemon.get(paths.storm(A)))[0] == b"1"
    await daemon.create(f"{paths.SUPERVISORS}/n", ephemeral=True)
    assert not is_open(await daemon.access_list(f"{paths.SUPERVISORS}/n"))


async def test_a_worker_shows_another_digest_while_it_runs(servers: Ensemble) -> None:
    daemon = await closed(servers)
    worker = await servers.open(is_worker=True)
    with pytest.raises(AccessDeniedError):
        await worker.get(paths.storm(A))
    worker.authenticate(of_worker(A))
    assert (await worker.get(paths.storm(A)))[0] == b"1"
    states = States(worker)
    await servers.expire(worker)
    await states.wait(ConnectionState.CONNECTED)
    assert (await worker.get(paths.storm(A)))[0] == b"1"
    assert daemon.makes_lists


async def test_a_daemon_with_another_digest_is_told_what_to_do(servers: Ensemble) -> None:
    await closed(servers)
    with pytest.raises(AccessDeniedError):
        await servers.open(access=Digests((new_payload(),)).for_daemon())


async def test_two_digests_are_accepted_for_a_while(servers: Ensemble) -> None:
    await closed(servers)
    both = Digests((new_payload(), *DIGESTS.payloads))
    between = await servers.open(access=both.for_daemon())
    await between.set_access_list("/", both.for_daemon().lists.of("/"))
    after = await servers.open(access=Digests(both.payloads[:1]).for_daemon())
    assert after.makes_lists


async def test_in_an_open_cluster_nodes_stay_open_until_it_is_closed(servers: Ensemble) -> None:
    other = await servers.open()
    await ClusterState(other).start()
    daemon = await servers.open(access=DIGESTS.for_daemon())
    await daemon.create(f"{paths.SUPERVISORS}/n")
    assert (await other.get(f"{paths.SUPERVISORS}/n"))[0] == b""
    daemon.begin_lists()
    await daemon.create(f"{paths.SUPERVISORS}/m")
    with pytest.raises(AccessDeniedError):
        await other.get(f"{paths.SUPERVISORS}/m")


async def test_what_a_worker_has_closed_to_others_keeps_no_one_from_the_rest(
    servers: Ensemble,
) -> None:
    daemon = await closed(servers)
    hostile = Digests((new_payload(),)).for_daemon()
    payloads = (*of_worker(A).payloads, *hostile.payloads)
    worker = await servers.open(
        access=StoreAccess(payloads, hostile.lists, marker="/none"), is_worker=True
    )
    for path in (paths.component_errors(A, "x"), f"{paths.component_errors(A, 'x')}/e0000000000"):
        await worker.create(path)
        await worker.set_access_list(path, hostile.lists.of("/"))
    state = ClusterState(daemon)
    assert await state.errors(A, "x") == []
    assert await state.all_errors(A) == {}
    assert not await state.remove_topology(A)
    assert await state.topology_ids() == [B]
