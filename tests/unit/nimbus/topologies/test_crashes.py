"""Nimbus dies at each write in turn: the next leader finds a topology that runs, or none at all."""

import json
from pathlib import Path

import pytest
from tests.support.nimbus_service import LocalNimbus, eventually, topology

from squall_common.cluster.store import Op, StoreError
from squall_common.cluster.values import TopologyStatus
from squall_common.names import curve_blob_key
from squall_thrift import storm

CONF = {"nimbus.topology.blobstore.deletion.delay.ms": 0, "nimbus.monitor.freq.secs": 0.05}


class Dead(BaseException):
    """The process is gone: no handler of ours may catch this."""


class DiesAtWrite:
    """Lets this many transactions through, and none after."""

    def __init__(self, nimbus: LocalNimbus, writes: int, *, after: bool) -> None:
        self.left = writes
        self.died = False
        store = nimbus.store
        real = store.transaction

        async def transaction(ops: list[Op]) -> None:
            if self.died or (self.left == 0 and not after):
                self.died = True
                raise Dead
            if self.left == 0:
                await real(ops)  # it happened, and nobody heard of it
                self.died = True
                raise Dead
            await real(ops)
            self.left -= 1

        store.transaction = transaction


async def settled(nimbus: LocalNimbus) -> dict[str, TopologyStatus]:
    """Wait until ZooKeeper and the disk have the same topologies, each of them active and assigned;
    return them."""
    found = {}

    async def consistent() -> bool:
        found.clear()
        for topology_id, base in (await nimbus.state.storm_bases()).items():
            found[topology_id] = base.status
            assignment = await nimbus.state.assignment(topology_id)
            if base.status is not TopologyStatus.ACTIVE or base.prev_status is not None:
                return False
            if assignment is None or not assignment[0].executor_slot:
                return False
        return (
            await nimbus.state.topologies_with_state() == set(found)
            and nimbus.nimbus.topology_store.ids() == set(found)
            and all(len(nimbus.nimbus.topology_store.get(i).task_to_component) == 4 for i in found)
            and {key for key in await nimbus.state.blob_keys() if key.endswith("-curve.key")}
            == {key for key in nimbus.nimbus.blobs.all_keys() if key.endswith("-curve.key")}
            == {curve_blob_key(i) for i in found}
        )

    await eventually(consistent, "everything is whole, or gone")
    return found


async def crash(nimbus: LocalNimbus) -> None:
    try:
        await nimbus.crash()
    except Dead:
        pass


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_submit_that_dies_at_any_write_is_complete_or_gone(
    tmp_path: Path, after: bool
) -> None:
    outcomes = []
    for writes in range(20):
        folder = tmp_path / str(writes)
        first = await LocalNimbus(folder, conf=CONF | {"nimbus.monitor.freq.secs": 60}).__aenter__()
        await first.leads()
        supervisor = await first.supervisor("sup-a")
        handle = await first.upload()
        options = storm.SubmitOptions(
            initial_status=storm.TopologyInitialStatus.ACTIVE,
            creds=storm.Credentials(creds={"a": "b"}),
        )
        killer = DiesAtWrite(first, writes, after=after)
        try:
            await first.call(
                "submitTopologyWithOpts", "wc", handle, json.dumps({}), topology(), options
            )
        except Dead:
            pass
        died = killer.died
        await crash(first)
        async with LocalNimbus(folder, ensemble=first.ensemble, conf=CONF) as second:
            outcomes.append(len(await settled(second)))
            if not outcomes[-1]:  # the name is free
                await second.submit("wc")
        await supervisor.close()
        if not died:
            break
    else:
        raise AssertionError("a submit makes more writes than expected")
    assert outcomes == sorted(outcomes)  # gone as long as it dies early, there from then on
    assert outcomes[0] == 0 if not after else True
    assert outcomes[-1] == 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_kill_that_dies_at_any_write_is_finished_by_the_next_leader(
    tmp_path: Path, after: bool
) -> None:
    for writes in range(12):
        folder = tmp_path / str(writes)
        first = await LocalNimbus(folder, conf=CONF | {"nimbus.monitor.freq.secs": 60}).__aenter__()
        await first.leads()
        supervisor = await first.supervisor("sup-a")
        topology_id = await first.submit("wc")
        killer = DiesAtWrite(first, writes, after=after)
        try:
            await first.call("killTopologyWithOpts", "wc", storm.KillOptions(wait_secs=0))
        except Dead:
            pass
        died = killer.died
        await crash(first)
        async with LocalNimbus(folder, ensemble=first.ensemble, conf=CONF) as second:
            alive = await settled(second)
            # Before its first write nothing was promised; from then on the topology goes.
            assert alive == (
                {topology_id: TopologyStatus.ACTIVE} if writes == 0 and not after else {}
            )
            if not alive:
                assert (await second.call("getTopologyHistory", "")).topo_ids == [topology_id]
        await supervisor.close()
        if not died:
            break
    else:
        raise AssertionError("a kill makes more writes than expected")


async def test_a_leader_that_was_replaced_writes_nothing(tmp_path: Path) -> None:
    async with LocalNimbus(tmp_path / "a") as first:
        await first.leads()
        topology_id = await first.submit("wc")
        term = first.nimbus.leader_elector.leadership()
        assert term is not None
        # Another has won, and this one has not heard of it.
        await first.store.set("/leader-epoch", b"other")
        with pytest.raises(Exception, match="no longer the leader"):
            await first.call("deactivate", "wc")
        assert (await first.state.storm_base(topology_id)).status is TopologyStatus.ACTIVE
        with pytest.raises(StoreError):
            await term.transaction([])


async def test_state_that_cannot_be_read_deletes_nothing(tmp_path: Path) -> None:
    async with LocalNimbus(tmp_path, conf=CONF) as nimbus:
        await nimbus.leads()
        topology_id = await nimbus.submit("wc")
        await nimbus.store.set(f"/storms/{topology_id}", b"\x00garbage")
        term = nimbus.nimbus.leader_elector.leadership()
        await nimbus.nimbus.cleanup.search(term)
        await nimbus.nimbus.cleanup.search(term)
        assert topology_id in await nimbus.state.topologies_with_state()
        assert nimbus.nimbus.topology_store.get(topology_id).id == topology_id


async def test_leftovers_are_removed(tmp_path: Path) -> None:
    async with LocalNimbus(tmp_path, conf=CONF) as nimbus:
        await nimbus.leads()
        live = await nimbus.submit("wc")
        await nimbus.store.create("/workerbeats/dead-1-17")
        await nimbus.store.create("/workerbeats/dead-1-17/node-6700")
        await nimbus.store.create("/workerbeats/not an id")
        (tmp_path / "nimbus" / "stormdist" / "dead-2-17").mkdir()

        async def clean() -> bool:
            return await nimbus.state.topologies_with_state() == {
                live,
                "not an id",
            } and nimbus.nimbus.topology_store.ids() == {live}

        await eventually(clean, "the leftovers are removed")
