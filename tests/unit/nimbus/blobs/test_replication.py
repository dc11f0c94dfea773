"""Several Nimbus nodes, one set of blobs. The scenarios of Storm's own bugs are named by number."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.nimbus_service import LocalNimbus, LocalPeers, eventually, topology
from tests.unit.nimbus.topologies.test_crashes import CONF, Dead, DiesAtWrite, crash

from squall_common.cluster.stores.memory import MemoryEnsemble
from squall_common.cluster.values import BlobMeta, TopologyStatus
from squall_common.names import is_secret_blob
from squall_nimbus.blobs.store import BlobNotFoundError
from squall_nimbus.store.topology_store import topology_blob_keys
from squall_thrift import storm

META = storm.SettableBlobMeta(acl=[])


class Cluster:
    """Nimbus nodes a, b, c ... on folders of their own, over one ensemble in memory."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.ensemble = MemoryEnsemble()
        self.peers = LocalPeers()
        self._stack = stack

    async def nimbus(self, name: str, **conf: Any) -> LocalNimbus:
        one = LocalNimbus(
            self.folder / name,
            ensemble=self.ensemble,
            conf={**CONF, "nimbus.monitor.freq.secs": 0.1, **conf},
            port=7000 + ord(name[0]),
            peers=self.peers,
        )
        return await self._stack.enter_async_context(one)

    async def leader_and_follower(self) -> tuple[LocalNimbus, LocalNimbus]:
        first = await (await self.nimbus("a")).leads()
        return first, await self.nimbus("b")


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        yield Cluster(tmp_path, stack)


async def create(nimbus: LocalNimbus, key: str, data: bytes) -> None:
    session = await nimbus.call("beginCreateBlob", key, META)
    await nimbus.call("uploadBlobChunk", session, data)
    await nimbus.call("finishBlobUpload", session)


async def update(nimbus: LocalNimbus, key: str, data: bytes) -> None:
    session = await nimbus.call("beginUpdateBlob", key)
    await nimbus.call("uploadBlobChunk", session, data)
    await nimbus.call("finishBlobUpload", session)


async def holders(nimbus: LocalNimbus, key: str) -> set[tuple[int, int]]:
    """Port and version of all nodes that announce it."""
    return {(one.port, one.version) for one in await nimbus.state.blob_holders(key)}


async def has(nimbus: LocalNimbus, key: str, data: bytes | None) -> None:
    async def so() -> bool:
        try:
            return nimbus.nimbus.blobs.read(key) == data
        except BlobNotFoundError:
            return data is None

    await eventually(so, f"{key} is {data!r}")


async def test_an_answered_write_is_on_two_nodes(cluster: Cluster) -> None:
    first, second = await cluster.leader_and_follower()
    topology_id = await first.submit("wc")
    await create(first, "words", b"1")
    await update(first, "words", b"2")
    for key in (*topology_blob_keys(topology_id), "words"):
        here, there = first.nimbus.blobs, second.nimbus.blobs
        assert here.meta(key) == there.meta(key)
        assert here.read(key) == there.read(key)
        version = here.meta(key).version
        assert await holders(first, key) == {(first.port, version), (second.port, version)}
        if not is_secret_blob(key):
            assert await first.call("getBlobReplication", key) == 2
        record, _ = await first.state.blob(key)
        assert not record.pending


async def test_a_version_is_fetched_as_soon_as_one_node_has_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record comes first: no node has it then, and those that looked are notified later."""
    monkeypatch.setattr("squall_nimbus.blobs.replication._RETRY_SECS", 1000.0)
    first, second = await cluster.leader_and_follower()
    async with asyncio.timeout(20):
        await create(first, "words", b"1")
        for number in range(5):
            await update(first, "words", b"%d" % number)
            assert second.nimbus.blobs.read("words") == b"%d" % number
        await first.submit("wc")


async def test_a_lone_nimbus_answers_at_once_and_one_that_joins_fetches_all(
    cluster: Cluster,
) -> None:
    first = await (await cluster.nimbus("a")).leads()
    topology_id = await first.submit("wc")
    await create(first, "words", b"1")
    second = await cluster.nimbus("b")
    for key in (*topology_blob_keys(topology_id), "words"):
        await has(second, key, first.nimbus.blobs.read(key))


async def test_changes_and_deletions_reach_all_nodes(cluster: Cluster) -> None:
    first, second = await cluster.leader_and_follower()
    await create(first, "words", b"1")
    acl = [storm.AccessControl(type=storm.AccessControlType.USER, name="anonymous", access=7)]
    await first.call("setBlobMeta", "words", storm.SettableBlobMeta(acl, replication_factor=3))

    async def same() -> bool:
        return second.nimbus.blobs.meta("words") == first.nimbus.blobs.meta("words")

    await eventually(same, "the list is the same on both")
    await first.call("deleteBlob", "words")
    await has(second, "words", None)
    topology_id = await first.submit("wc")
    await first.call("killTopologyWithOpts", "wc", storm.KillOptions(wait_secs=0))
    await has(second, topology_blob_keys(topology_id)[0], None)
    assert await first.state.blob_keys() == []


async def test_the_next_leader_has_everything_and_the_topology_keeps_running(
    cluster: Cluster,
) -> None:
    first, second = await cluster.leader_and_follower()
    supervisor = await first.supervisor("sup-a")
    topology_id = await first.submit("wc")
    before = await first.state.assignment(topology_id)
    await first.crash()
    await second.leads()
    await second.call("deactivate", "wc")
    await second.call("activate", "wc")
    assert await second.state.assignment(topology_id) == before
    await second.submit("another")
    await supervisor.close()


async def test_announcements_are_made_again_in_a_new_session(cluster: Cluster) -> None:
    """STORM-2736, STORM-3308."""
    first, second = await cluster.leader_and_follower()
    await create(first, "words", b"1")
    version = first.nimbus.blobs.meta("words").version
    for one in (second, first):
        cluster.ensemble.expire(one.store)

        async def both() -> bool:
            return await holders(first, "words") == {(first.port, version), (second.port, version)}

        await eventually(both, "both announce it")


async def test_a_restarted_nimbus_replaces_its_ghosts_announcement(cluster: Cluster) -> None:
    """STORM-3107, for blobs: the old session's node would go, and take the announcement along."""
    first = await (await cluster.nimbus("a")).leads()
    await create(first, "words", b"1")
    await first.nimbus.tasks.close()
    cluster.ensemble.suspend(first.store)  # killed: its session lives on for a while
    again = await cluster.nimbus("a")

    async def ours() -> bool:
        for holder in await again.state.blob_holders("words"):
            stat = await again.store.exists(
                f"/blobstore/words/127.0.0.1:{again.port}-{holder.version}"
            )
            if stat is not None and stat.ephemeral_owner == again.store.session_id:
                return True
        return False

    await eventually(ours, "the announcement is the new session's")
    cluster.ensemble.resume(first.store)  # so that it ends without waiting for an answer


async def test_a_leader_without_the_code_deletes_nothing_and_fetches_it(cluster: Cluster) -> None:
    """STORM-1977: b becomes the leader while no node that has the code can be reached."""
    first = await (await cluster.nimbus("a")).leads()
    supervisor = await first.supervisor("sup-a")
    topology_id = await first.submit("wc")
    assignment = await first.state.assignment(topology_id)
    cluster.peers.cut.add(first.port)
    second = await cluster.nimbus("b")
    await first.nimbus.leader_elector.close()  # a steps down, and lives
    await second.leads()
    fence = second.nimbus.leader_elector.leadership()
    for _ in range(3):
        await second.nimbus.cleanup.search(fence)
        await second.nimbus.assigner.judge(fence)
    assert topology_id in await second.state.topology_ids()
    assert await second.state.assignment(topology_id) == assignment
    assert {*topology_blob_keys(topology_id)} <= {*await second.state.blob_keys()}
    cluster.peers.cut.clear()
    await second.call(
        "rebalance", "wc", storm.RebalanceOptions(wait_secs=0, num_executors={"count": 1})
    )
    assert second.nimbus.topology_store.get(topology_id).id == topology_id
    await supervisor.close()


async def test_a_kill_needs_no_code(cluster: Cluster) -> None:
    first = await (await cluster.nimbus("a")).leads()
    topology_id = await first.submit("wc")
    await first.crash()
    second = await (await cluster.nimbus("b")).leads()
    assert topology_blob_keys(topology_id)[0] not in second.nimbus.blobs
    await second.call("killTopologyWithOpts", "wc", storm.KillOptions(wait_secs=0))
    assert await second.state.topologies_with_state() == set()
    assert await second.state.blob_keys() == []


async def test_the_whole_cluster_comes_back_after_a_cold_restart(cluster: Cluster) -> None:
    """STORM-3798: all nodes are down, the sessions have ended, ZooKeeper has its data."""
    first, second = await cluster.leader_and_follower()
    topology_id = await first.submit("wc")
    await create(first, "words", b"1")
    await second.crash()
    await first.crash()
    again = await (await cluster.nimbus("b")).leads()  # the one that did not lead
    assert again.nimbus.topology_store.get(topology_id).id == topology_id
    assert again.nimbus.blobs.read("words") == b"1"
    assert (await again.state.storm_base(topology_id)).status is TopologyStatus.ACTIVE
    third = await cluster.nimbus("c")
    await has(third, "words", b"1")


async def test_what_was_deleted_while_a_node_was_down_does_not_come_back(cluster: Cluster) -> None:
    first, second = await cluster.leader_and_follower()
    await create(first, "words", b"1")
    await second.crash()
    await first.call("deleteBlob", "words")
    again = await cluster.nimbus("b")
    await has(again, "words", None)
    await first.crash()
    await again.leads()
    await create(again, "words", b"2")
    assert again.nimbus.blobs.read("words") == b"2"


async def test_a_lost_record_of_a_live_topology_is_rewritten(cluster: Cluster) -> None:
    first = await (await cluster.nimbus("a")).leads()
    topology_id = await first.submit("wc")
    await create(first, "words", b"1")
    for key in await first.state.blob_keys():
        await first.state.remove_blob(key)

    async def back() -> bool:
        return {*topology_blob_keys(topology_id)} <= {*await first.state.blob_keys()}

    await eventually(back, "the records are there")
    assert first.nimbus.topology_store.get(topology_id).id == topology_id


async def half_written(first: LocalNimbus, key: str, data: bytes) -> None:
    """The leader dies when its write is in ZooKeeper, before another has fetched it."""
    creating = key not in first.nimbus.blobs
    name, args = ("beginCreateBlob", (key, META)) if creating else ("beginUpdateBlob", (key,))
    session = await first.call(name, *args)
    await first.call("uploadBlobChunk", session, data)
    first.peers.cut.add(first.port)

    async def no_copies(meta: BlobMeta, began: float) -> None:
        raise Dead

    first.nimbus.replication._wait_copies = no_copies
    with pytest.raises(Dead):
        await first.call("finishBlobUpload", session)
    record, _ = await first.state.blob(key)
    assert record.pending
    await crash(first)


async def test_a_lost_write_that_was_never_answered_is_taken_back(cluster: Cluster) -> None:
    first, second = await cluster.leader_and_follower()
    await create(first, "words", b"1")
    await half_written(first, "words", b"2")
    await second.leads()

    async def taken_back() -> bool:
        record, _ = await second.state.blob("words")
        return not record.pending and record.meta == second.nimbus.blobs.meta("words")

    await eventually(taken_back, "the first version counts again")
    assert second.nimbus.blobs.read("words") == b"1"
    await update(second, "words", b"3")
    cluster.peers.cut.clear()
    again = await cluster.nimbus("a")  # with the lost version on its disk
    await has(again, "words", b"3")


async def test_the_key_of_a_lost_blob_that_was_never_answered_is_free_again(
    cluster: Cluster,
) -> None:
    first, second = await cluster.leader_and_follower()
    await half_written(first, "words", b"1")
    await second.leads()

    async def free() -> bool:
        return await second.state.blob("words") is None

    await eventually(free, "the key is free")
    await create(second, "words", b"2")


async def test_a_pending_write_that_survives_counts(cluster: Cluster) -> None:
    first, _ = await cluster.leader_and_follower()
    await half_written(first, "words", b"1")
    await cluster.nimbus("c")
    again = await cluster.nimbus("a")
    cluster.peers.cut.clear()

    async def settled() -> bool:
        found = await again.state.blob("words")
        return found is None or not found[0].pending

    await eventually(settled, "it counts everywhere, or nowhere")


async def test_wrong_bytes_are_refused(cluster: Cluster) -> None:
    first = await (await cluster.nimbus("a")).leads()
    await create(first, "words", b"right")
    first.nimbus.blobs.path("words").write_bytes(b"wrong")
    second = await cluster.nimbus("b")
    assert await second.nimbus.replication.sync() is False
    assert "words" not in second.nimbus.blobs
    first.nimbus.blobs.path("words").write_bytes(b"right")
    await has(second, "words", b"right")


async def test_a_copy_that_never_comes_does_not_block_forever(cluster: Cluster) -> None:
    """As in Storm: after topology.max.replication.wait.time.sec it goes on without."""
    conf = {"topology.max.replication.wait.time.sec": 0.2}
    first = await (await cluster.nimbus("a", **conf)).leads()
    cluster.peers.cut.add(first.port)
    await cluster.nimbus("b")
    await create(first, "words", b"1")
    assert await first.call("getBlobReplication", "words") == 1


async def test_an_unreadable_record_harms_nothing(cluster: Cluster) -> None:
    first, second = await cluster.leader_and_follower()
    await create(first, "words", b"1")
    for damage in (b"", b"{", b"[]", b'{"version": "x"}', b"[" * 100_000):
        await first.store.set("/blobstore/words", damage)
        for one in (first, second):
            one.nimbus.replication.request()
            assert await one.nimbus.replication.sync() is False
        assert first.nimbus.blobs.read("words") == second.nimbus.blobs.read("words") == b"1"


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_leader_that_dies_at_any_write_of_a_submit_leaves_all_or_nothing(
    tmp_path: Path, after: bool
) -> None:
    """The standby, on another disk, finds a topology that runs, or none."""
    outcomes = []
    for writes in range(30):
        async with AsyncExitStack() as stack:
            cluster = Cluster(tmp_path / str(writes), stack)
            first = await (await cluster.nimbus("a", **{"nimbus.monitor.freq.secs": 60})).leads()
            second = await cluster.nimbus("b")
            supervisor = await first.supervisor("sup-a")
            handle = await first.upload()
            killer = DiesAtWrite(first, writes, after=after)
            try:
                await first.call("submitTopology", "wc", handle, json.dumps({}), topology())
            except Dead:
                pass
            died = killer.died
            await crash(first)
            await second.leads()

            async def whole(second: LocalNimbus = second) -> bool:
                bases = await second.state.storm_bases()
                for topology_id, base in bases.items():
                    assigned = await second.state.assignment(topology_id)
                    if base.status is not TopologyStatus.ACTIVE or assigned is None:
                        return False
                    if second.nimbus.topology_store.get(topology_id).id != topology_id:
                        return False
                keys = {key for i in bases for key in topology_blob_keys(i)}
                return (
                    await second.state.topologies_with_state() == set(bases)
                    and set(await second.state.blob_keys()) == keys
                )

            await eventually(whole, f"whole or gone after {writes} writes")
            outcomes.append(len(await second.state.topology_ids()))
            if not outcomes[-1]:
                await second.submit("wc")
            await supervisor.close()
        if not died:
            break
    else:
        raise AssertionError("a submit makes more writes than expected")
    assert outcomes[0] == 0 or after
    assert outcomes[-1] == 1
    assert sorted(outcomes) == outcomes  # once it is there, it stays
