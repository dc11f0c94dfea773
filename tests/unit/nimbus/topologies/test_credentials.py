"""Credentials at Nimbus: kept, sealed, populated, renewed and replaced; never in ZooKeeper."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.nimbus_service import LocalNimbus, LocalPeers, eventually

from squall_common.cluster import codec, paths
from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import BlobRecord, Credentials, SupervisorInfo
from squall_common.errors import ConfigError, SquallError
from squall_common.names import credentials_blob_key
from squall_common.security.credentials import TopologyCredentials
from squall_common.security.sealing import META_KEY, Receiver, SealError, supervisor_name
from squall_nimbus.topologies.credentials import load_plugins
from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError

CANARY = "canary-d41d8cd98f"
KEEPER = "tests.unit.nimbus.topologies.test_credentials"


class Ticket:
    """A plug-in of both kinds."""

    def populate_credentials(self, credentials: dict[str, str], conf: Any, owner: str) -> None:
        if conf.get("my.refuse"):
            raise RuntimeError(CANARY)
        if conf.get("my.timeout"):
            raise TimeoutError(CANARY)  # of its own: what it asks has not answered
        credentials["ticket"] = f"{owner}-0"

    def renew(self, credentials: dict[str, str], conf: Any, owner: str) -> None:
        if conf.get("my.raise"):
            credentials["ticket"] = "half done"
            raise RuntimeError(CANARY)
        if "ticket" in credentials:
            name, number = credentials["ticket"].rsplit("-", 1)
            credentials["ticket"] = f"{name}-{int(number) + 1}"


PLUGINS = {
    "nimbus.monitor.freq.secs": 0.05,
    "nimbus.autocredential.plugins.classes": [f"{KEEPER}:Ticket"],
    "nimbus.credential.renewers.classes": [f"{KEEPER}:Ticket"],
}


@pytest.fixture
async def nimbus(tmp_path: Path) -> AsyncIterator[LocalNimbus]:
    async with LocalNimbus(tmp_path, conf=PLUGINS) as running:
        yield await running.leads()


def options(**values: str) -> storm.SubmitOptions:
    status = storm.TopologyInitialStatus.ACTIVE
    return storm.SubmitOptions(initial_status=status, creds=storm.Credentials(creds=values))


async def renew(nimbus: LocalNimbus) -> None:
    one = nimbus.nimbus
    await one.credentials.renew(one.lifecycle.locks, one.leader_elector.require)


async def test_a_plugin_fills_them_in_and_renews_them(nimbus: LocalNimbus) -> None:
    topology_id = await nimbus.submit(options=options(user="ann"))
    read = nimbus.nimbus.credentials.read
    assert read(topology_id).values == {"user": "ann", "ticket": "anonymous-0"}
    before = read(topology_id).number
    await renew(nimbus)
    assert read(topology_id).values == {"user": "ann", "ticket": "anonymous-1"}
    assert read(topology_id).number > before
    await nimbus.call("uploadNewCredentials", "wordcount", storm.Credentials(creds={"user": "x"}))
    await renew(nimbus)
    assert read(topology_id).values == {"user": "x"}, "nothing to renew"


async def test_a_plugin_that_raises_changes_nothing_and_its_text_is_in_no_log(
    nimbus: LocalNimbus, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ThriftApplicationError, match="Ticket raised RuntimeError") as caught:
        await nimbus.submit("refused", conf={"my.refuse": True})
    assert CANARY not in str(caught.value)
    with pytest.raises(ThriftApplicationError, match="Ticket raised TimeoutError"):
        await nimbus.submit("slow", conf={"my.timeout": True})
    topology_id = await nimbus.submit("kept", conf={"my.raise": True})
    await renew(nimbus)
    assert nimbus.nimbus.credentials.read(topology_id).values == {"ticket": "anonymous-0"}
    out, err = capfd.readouterr()
    assert CANARY not in out + err


async def test_a_plugin_that_does_not_return_holds_no_one_up(
    nimbus: LocalNimbus, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology_id = await nimbus.submit()
    monkeypatch.setattr("squall_nimbus.topologies.credentials._PLUGIN_SECS", 0.05)
    ends = asyncio.Event()
    loop = asyncio.get_running_loop()
    done = asyncio.run_coroutine_threadsafe

    def renews(self: Ticket, credentials: dict[str, str], conf: Any, owner: str) -> None:
        done(ends.wait(), loop).result()

    monkeypatch.setattr(Ticket, "renew", renews)
    began = time.monotonic()
    await renew(nimbus)
    await renew(nimbus)  # the first call is still under way: no second one beside it
    assert time.monotonic() - began < 10
    ends.set()
    assert nimbus.nimbus.credentials.read(topology_id).values == {"ticket": "anonymous-0"}


def test_a_plugin_that_cannot_be_made_stops_the_start() -> None:
    for path in ("nowhere:Ticket", f"{KEEPER}:Nothing", "", "builtins:dict"):
        with pytest.raises(ConfigError, match=r"some\.key"):
            load_plugins("some.key", [path], "renew")


async def test_a_supervisor_gets_them_sealed_if_it_runs_the_topology(nimbus: LocalNimbus) -> None:
    receiver = Receiver()
    state = ClusterState(MemoryStore(nimbus.ensemble))
    await state.start()
    meta = {META_KEY: receiver.public}
    info = SupervisorInfo(0, "sup-a", "sup-a", meta=(6700,), version="1", scheduler_meta=meta)
    await state.register_supervisor("sup-a", info)
    topology_id = await nimbus.submit(options=options(password=CANARY))

    async def is_assigned() -> bool:
        found = await nimbus.state.assignment(topology_id)
        return found is not None and bool(found[0].executor_slot)

    await eventually(is_assigned, "it is assigned")
    sealed = await nimbus.call("getTopologyCredentials", topology_id, supervisor_name("sup-a"))
    assert CANARY.encode() not in sealed
    found = TopologyCredentials.from_bytes(receiver.open(sealed), topology_id)
    assert found.values["password"] == CANARY
    with pytest.raises(SealError):
        Receiver().open(sealed)
    with pytest.raises(storm.AuthorizationException):
        await nimbus.call("getTopologyCredentials", topology_id, supervisor_name("idle"))
    with pytest.raises(storm.KeyNotFoundException):
        await nimbus.call("getTopologyCredentials", "none-1-1", supervisor_name("sup-a"))
    for method in ("getBlobMeta", "beginBlobDownload", "deleteBlob", "getBlobReplication"):
        with pytest.raises(storm.AuthorizationException, match=r"for supervisors only|only Nimbus"):
            await nimbus.call(method, credentials_blob_key(topology_id))
    await state.close()


async def test_a_leader_without_the_newest_ones_renews_no_older_ones_and_takes_a_replacement(
    nimbus: LocalNimbus,
) -> None:
    topology_id = await nimbus.submit(options=options(user="ann"))
    one, key = nimbus.nimbus, credentials_blob_key(topology_id)
    # The leader before had a newer version, and has died before others had it.
    here = one.blobs.meta(key)
    newer = BlobRecord(replace(here, version=here.version + 1, sha256="0" * 64))
    found = await one.state.blob(key)
    assert found is not None
    await one.state.put_blobs([(newer, found[1])], guard=await one.fence())
    await renew(nimbus)
    found = await one.state.blob(key)
    assert found is not None
    assert found[0] == newer, "it still counts"
    assert one.blobs.meta(key) == here
    await nimbus.call("uploadNewCredentials", "wordcount", storm.Credentials(creds={"user": "x"}))
    found = await one.state.blob(key)
    assert found is not None
    assert found[0].meta.version > newer.meta.version
    assert found[0].meta.sha256 == one.blobs.meta(key).sha256
    assert one.credentials.read(topology_id).values == {"user": "x"}


async def test_they_end_with_their_topology(nimbus: LocalNimbus) -> None:
    topology_id = await nimbus.submit(options=options(user="ann"))
    key = credentials_blob_key(topology_id)
    assert nimbus.nimbus.blobs.path(key).stat().st_mode & 0o077 == 0
    assert key in nimbus.nimbus.blobs
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=0))

    async def is_gone() -> bool:
        return key not in nimbus.nimbus.blobs and key not in await nimbus.state.blob_keys()

    await eventually(is_gone, "they are removed")


async def test_what_an_earlier_version_left_in_zookeeper_is_taken_out(nimbus: LocalNimbus) -> None:
    topology_id = await nimbus.submit()
    left = codec.encode_credentials(Credentials({"password": CANARY}, "anonymous"))
    one = nimbus.nimbus
    for expected in ({"password": CANARY}, {"user": "ann"}):
        await one.state.store.create(paths.credentials(topology_id), left)
        await one.replication.delete([credentials_blob_key(topology_id)], await one.fence())
        if "user" in expected:  # newer ones stay
            await nimbus.call(
                "uploadNewCredentials", "wordcount", storm.Credentials(creds={"user": "ann"})
            )
        await one.credentials.adopt([topology_id], one.lifecycle.locks, await one.fence())
        assert await nimbus.state.credentials(topology_id) is None
        assert one.credentials.read(topology_id).values == expected


async def test_bad_ones_are_refused_and_the_old_ones_stay(nimbus: LocalNimbus) -> None:
    topology_id = await nimbus.submit(options=options(user="ann"))
    huge = storm.Credentials(creds={"password": CANARY + "x" * 210_000})
    with pytest.raises(ThriftApplicationError, match="at most 200000") as caught:
        await nimbus.call("uploadNewCredentials", "wordcount", huge)
    assert CANARY not in str(caught.value)
    with pytest.raises(ThriftApplicationError, match="at most 200000"):
        await nimbus.submit(
            "other",
            options=storm.SubmitOptions(
                initial_status=storm.TopologyInitialStatus.ACTIVE, creds=huge
            ),
        )
    assert nimbus.nimbus.credentials.read(topology_id).values["user"] == "ann"
    nimbus.nimbus.blobs.path(credentials_blob_key(topology_id)).write_bytes(b"{}")
    with pytest.raises(SquallError, match="damaged"):
        nimbus.nimbus.credentials.read(topology_id)
    await nimbus.call("uploadNewCredentials", "wordcount", storm.Credentials(creds={"user": "b"}))
    assert nimbus.nimbus.credentials.read(topology_id).values == {"user": "b"}


async def test_the_next_leader_has_them_and_gives_newer_ones_a_higher_number(
    tmp_path: Path,
) -> None:
    ensemble, peers = MemoryEnsemble(), LocalPeers()
    first = LocalNimbus(tmp_path / "a", ensemble=ensemble, port=6627, peers=peers)
    second = LocalNimbus(tmp_path / "b", ensemble=ensemble, port=6628, peers=peers)
    async with second, first:
        await second.leads()

        async def both() -> bool:
            return len(await second.state.nimbuses()) == 2

        await eventually(both, "both are announced")
        topology_id = await second.submit(options=options(password=CANARY))
        key = credentials_blob_key(topology_id)
        assert first.nimbus.blobs.path(key).stat().st_mode & 0o777 == 0o600
        for password in ("second", "third"):
            creds = storm.Credentials(creds={"password": password})
            await second.call("uploadNewCredentials", "wordcount", creds)
            # The answer came after the other Nimbus had them.
            assert first.nimbus.credentials.read(topology_id).values["password"] == password
        before = first.nimbus.credentials.read(topology_id).number
        await second.nimbus.close()
        await second.state.close()
        await first.leads()
        creds = storm.Credentials(creds={"password": "fourth"})
        await first.call("uploadNewCredentials", "wordcount", creds)
        found = first.nimbus.credentials.read(topology_id)
        assert (found.values["password"], found.number > before) == ("fourth", True)
