"""The keys of topologies: made and deleted with them, and given only to daemons."""

import json

import pytest
from tests.support.nimbus_service import LocalNimbus, LocalPeers, eventually

from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import SupervisorInfo
from squall_common.names import curve_blob_key
from squall_common.security.curve import CURVE, CurveKey
from squall_common.security.sealing import META_KEY, Receiver, SealError, supervisor_name
from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError
from squall_thrift.serving.authorization import Call


@pytest.fixture
async def nimbus(tmp_path):
    async with LocalNimbus(tmp_path, conf={"nimbus.monitor.freq.secs": 0.05}) as nimbus:
        yield await nimbus.leads()


async def join(nimbus: LocalNimbus, name: str, receiver: Receiver | None) -> ClusterState:
    """A supervisor that publishes a key."""
    state = ClusterState(MemoryStore(nimbus.ensemble))
    await state.start()
    meta = {} if receiver is None else {META_KEY: receiver.public}
    info = SupervisorInfo(0, name, name, meta=(6700, 6701), version="1", scheduler_meta=meta)
    await state.register_supervisor(name, info)
    return state


async def assigned(nimbus: LocalNimbus, topology_id: str, node: str) -> None:
    async def so() -> bool:
        found = await nimbus.state.assignment(topology_id)
        return found is not None and node in {one.node for one in found[0].executor_slot.values()}

    await eventually(so, f"{topology_id} is assigned to {node}")


async def test_a_supervisor_gets_the_key_of_what_is_assigned_to_it(nimbus) -> None:
    receiver = Receiver()
    supervisor = await join(nimbus, "sup-a", receiver)
    ids = [await nimbus.submit(name) for name in ("one", "two")]
    keys = []
    for topology_id in ids:
        await assigned(nimbus, topology_id, "sup-a")
        sealed = await nimbus.call("getTopologyKey", topology_id, supervisor_name("sup-a"))
        keys.append(CurveKey.from_bytes(receiver.open(sealed), topology_id))
        assert keys[-1].secret not in sealed
        with pytest.raises(SealError):
            Receiver().open(sealed)
    assert keys[0].secret != keys[1].secret, "each topology has its own"
    await supervisor.close()


async def test_a_receiver_that_may_not_have_the_key_does_not_get_it(nimbus) -> None:
    receiver = Receiver()
    supervisor = await join(nimbus, "sup-a", receiver)
    topology_id = await nimbus.submit("one")
    await assigned(nimbus, topology_id, "sup-a")
    others = [await join(nimbus, "idle", receiver), await join(nimbus, "old", None)]
    for name, why in {
        "supervisor/idle": "not assigned",
        "supervisor/old": "not assigned",
        "supervisor/nobody": "not connected",
        "supervisor/": "not connected",
        "supervisor/../nimbuses": "not connected",
        "nimbus/elsewhere:6627": "no daemon",
        "sup-a": "no daemon",
        "": "no daemon",
    }.items():
        with pytest.raises(storm.AuthorizationException) as caught:
            await nimbus.call("getTopologyKey", topology_id, name)
        assert why in caught.value.msg, name
    with pytest.raises(ThriftApplicationError, match="receiver is missing"):
        await nimbus.call("getTopologyKey", topology_id, None)
    for unknown in ("none-1-1", "../../etc/passwd", ""):
        with pytest.raises(storm.KeyNotFoundException):
            await nimbus.call("getTopologyKey", unknown, supervisor_name("sup-a"))
    await supervisor.close()
    for one in others:
        await one.close()


async def test_a_supervisor_without_its_own_key_gets_none(nimbus) -> None:
    supervisor = await join(nimbus, "old", None)
    topology_id = await nimbus.submit("one")
    await assigned(nimbus, topology_id, "old")
    with pytest.raises(storm.AuthorizationException, match="not published a public key"):
        await nimbus.call("getTopologyKey", topology_id, supervisor_name("old"))
    await supervisor.close()


@pytest.mark.parametrize("principal", [None, "admin"])
async def test_no_call_of_the_blob_interface_reveals_it(tmp_path, principal: str | None) -> None:
    """Not even to an administrator."""
    async with LocalNimbus(tmp_path, conf={"nimbus.admins": ["admin"]}) as nimbus:
        await nimbus.leads()
        topology_id = await nimbus.submit("one")
        key = curve_blob_key(topology_id)
        assert key in nimbus.nimbus.blobs
        everybody = storm.SettableBlobMeta(
            acl=[storm.AccessControl(type=storm.AccessControlType.OTHER, name=None, access=7)]
        )
        for method, *arguments in (
            ("getBlobMeta",),
            ("setBlobMeta", everybody),
            ("beginBlobDownload",),
            ("beginUpdateBlob",),
            ("deleteBlob",),
            ("getBlobReplication",),
            ("updateBlobReplication", 2),
            ("isRemoteBlobExists",),
            ("createStateInZookeeper",),
            ("beginCreateBlob", everybody),
        ):
            call = Call(method, "here:1", principal)
            with pytest.raises(storm.AuthorizationException):
                await getattr(nimbus.service, method)(call, key, *arguments)
        listed = await nimbus.service.listBlobs(Call("listBlobs", "here:1", principal), "")
        assert f"{topology_id}-stormcode.ser" in listed.keys
        assert key not in listed.keys


async def test_a_topology_cannot_name_the_key_of_another(nimbus) -> None:
    """A worker would find it in its folder."""
    topology_id = await nimbus.submit("one")
    conf = {"topology.blobstore.map": {curve_blob_key(topology_id): {"localname": "key"}}}
    with pytest.raises(storm.InvalidTopologyException, match="does not exist"):
        await nimbus.submit("thief", conf=conf)


async def test_it_is_private_on_the_disk_and_goes_with_the_topology(nimbus) -> None:
    topology_id = await nimbus.submit("one")
    path = nimbus.nimbus.blobs.path(curve_blob_key(topology_id))
    assert path.stat().st_mode & 0o777 == 0o600
    secret = json.loads(path.read_bytes())["secret"].encode()
    # Nowhere else on Nimbus' disk, and not in ZooKeeper.
    folder = path.parents[3]
    holders = [one for one in folder.rglob("*") if one.is_file() and secret in one.read_bytes()]
    assert holders == [path]
    await nimbus.call("killTopologyWithOpts", "one", storm.KillOptions(wait_secs=0))

    async def gone() -> bool:
        return not path.exists() and await nimbus.state.blob_keys() == []

    await eventually(gone, "the key is deleted")


async def test_no_key_is_made_if_the_cluster_wants_none(tmp_path) -> None:
    async with LocalNimbus(tmp_path, conf={CURVE: False}) as nimbus:
        await nimbus.leads()
        topology_id = await nimbus.submit("one")
        assert curve_blob_key(topology_id) not in nimbus.nimbus.blobs
        asked = await nimbus.submit("two", conf={CURVE: True})
        assert curve_blob_key(asked) in nimbus.nimbus.blobs


async def test_a_rebalance_gives_a_key_to_a_topology_that_has_none(tmp_path) -> None:
    async with LocalNimbus(tmp_path, conf={CURVE: False}) as nimbus:
        await nimbus.leads()
        receiver = Receiver()
        supervisor = await join(nimbus, "sup-a", receiver)
        topology_id = await nimbus.submit("one")
        key = curve_blob_key(topology_id)

        async def rebalance(mode: object) -> None:
            conf = json.dumps({CURVE: mode})
            options = storm.RebalanceOptions(wait_secs=0, topology_conf_overrides=conf)
            await nimbus.call("rebalance", "one", options)

            async def done() -> bool:
                return nimbus.nimbus.topology_store.get(topology_id).conf.get(CURVE) == mode

            await eventually(done, f"{CURVE} is {mode}")

        await rebalance("auto")
        first = nimbus.nimbus.blobs.read(key)
        await assigned(nimbus, topology_id, "sup-a")
        sealed = await nimbus.call("getTopologyKey", topology_id, supervisor_name("sup-a"))
        assert receiver.open(sealed) == first
        await rebalance(False)
        await rebalance(True)
        assert nimbus.nimbus.blobs.read(key) == first, "it keeps the one that it has"
        await supervisor.close()


async def test_without_curve_a_submit_is_refused(nimbus, monkeypatch) -> None:
    monkeypatch.setattr("zmq.has", lambda feature: False)
    with pytest.raises(ThriftApplicationError, match="without CURVE"):
        await nimbus.submit("one")
    assert nimbus.nimbus.topology_store.ids() == set()
    assert await nimbus.state.topology_ids() == []
    await nimbus.submit("one", conf={CURVE: False})


async def test_another_nimbus_also_has_it_and_hands_it_out(tmp_path) -> None:
    ensemble, peers = MemoryEnsemble(), LocalPeers()
    first = LocalNimbus(tmp_path / "a", ensemble=ensemble, port=6627, peers=peers)
    second = LocalNimbus(tmp_path / "b", ensemble=ensemble, port=6628, peers=peers)
    async with first:
        await first.leads()
        async with second:

            async def both() -> bool:
                return len(await first.state.nimbuses()) == 2

            await eventually(both, "both are announced")
            topology_id = await first.submit("one")
            key = curve_blob_key(topology_id)
            assert second.nimbus.blobs.read(key) == first.nimbus.blobs.read(key)
            assert second.nimbus.blobs.path(key).stat().st_mode & 0o777 == 0o600
