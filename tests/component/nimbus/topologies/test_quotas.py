"""The quotas of users, over the wire of a secured Nimbus."""

from __future__ import annotations

import asyncio
import functools
import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from tests.support.nimbus_service import eventually, package, topology
from tests.support.secured_nimbus import Certificates, SecuredNimbus, secured_nimbus

from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient

CONF = {
    "nimbus.quotas": {
        "*": {"topologies": 2, "workers": 4, "sessions": 3},
        "alice": {"executors": 30},
    }
}


async def upload(client: ThriftClient) -> str:
    location: str = await client.call("beginFileUpload")
    await client.call("uploadChunk", location, package())
    await client.call("finishFileUpload", location)
    return location


async def submit(client: ThriftClient, name: str, location: str, workers: int = 1) -> None:
    conf = json.dumps({"topology.workers": workers})
    await client.call("submitTopology", name, location, conf, topology())


def running(folder: Path) -> AbstractAsyncContextManager[SecuredNimbus]:
    certificates = Certificates(folder / "certificates").create()
    return secured_nimbus(folder / "nimbus", certificates, CONF)


async def topologies(nimbus: SecuredNimbus) -> list[str]:
    async with nimbus.user("root") as root:
        return sorted(one.name for one in await root.call("getTopologySummaries"))


async def has_only(nimbus: SecuredNimbus, name: str) -> bool:
    return await topologies(nimbus) == [name]


async def test_quotas_hold_for_each_user_over_all_of_their_topologies(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as nimbus,
        nimbus.user("alice") as alice,
        nimbus.user("bob") as bob,
    ):
        package_of = {alice: await upload(alice), bob: await upload(bob)}
        await submit(alice, "a", package_of[alice], workers=3)
        with pytest.raises(
            ThriftApplicationError, match="quota of alice is 4 workers: 3 in use, 2 more"
        ):
            await submit(alice, "b", package_of[alice], workers=2)
        # Several at once: as many as fit, whatever the order.
        outcomes = await asyncio.gather(
            *(submit(alice, f"c{i}", package_of[alice]) for i in range(4)),
            return_exceptions=True,
        )
        assert sum(outcome is None for outcome in outcomes) == 1, outcomes
        await submit(bob, "d", package_of[bob], workers=4)  # another's quota
        with pytest.raises(ThriftApplicationError, match="quota of alice is 2 topologies"):
            await submit(alice, "e", package_of[alice])
        # A rebalance counts, too; and a smaller one is always allowed.
        with pytest.raises(ThriftApplicationError, match="1 in use, 4 more"):
            await alice.call("rebalance", "a", storm.RebalanceOptions(num_workers=4))
        await alice.call("rebalance", "a", storm.RebalanceOptions(wait_secs=0, num_workers=2))
        names = await topologies(nimbus)
        assert len(names) == 3
        assert {"a", "d"} <= set(names)
        # What is killed, and removed, is free again.
        for name in set(names) - {"d"}:
            await alice.call("killTopologyWithOpts", name, storm.KillOptions(wait_secs=0))
        await eventually(functools.partial(has_only, nimbus, "d"), "the others are removed", 60)
        await submit(alice, "f", package_of[alice], workers=4)


async def test_sessions_of_a_user_are_counted_over_all_connections(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as nimbus,
        nimbus.user("alice") as first,
        nimbus.user("alice") as second,
    ):
        open_ones = [await first.call("beginFileUpload") for _ in range(2)]
        meta = storm.SettableBlobMeta(acl=[], replication_factor=1)
        session = await second.call("beginCreateBlob", "words", meta)
        for call in (("beginFileUpload",), ("beginCreateBlob", "more", meta)):
            with pytest.raises(
                ThriftApplicationError, match="quota of alice is 3 uploads and downloads"
            ):
                await second.call(*call)
        async with nimbus.user("bob") as bob:
            await bob.call("beginFileUpload")
        await first.call("finishFileUpload", open_ones[0])
        await second.call("cancelBlobUpload", session)
        await second.call("beginCreateBlob", "more", meta)


async def test_bytes_of_blobs_count_for_who_created_them(tmp_path: Path) -> None:
    limit = len(package()) + 2_000
    conf = {"nimbus.quotas": {"alice": {"blob.bytes": limit}}}
    certificates = Certificates(tmp_path / "certificates").create()
    everyone = storm.AccessControl(type=storm.AccessControlType.OTHER, access=7)
    meta = storm.SettableBlobMeta(acl=[everyone], replication_factor=1)
    async with (
        secured_nimbus(tmp_path / "nimbus", certificates, conf) as nimbus,
        nimbus.user("alice") as alice,
        nimbus.user("bob") as bob,
    ):

        async def put(client: ThriftClient, key: str, size: int, *, new: bool = True) -> None:
            begin = ("beginCreateBlob", key, meta) if new else ("beginUpdateBlob", key)
            session = await client.call(*begin)
            await client.call("uploadBlobChunk", session, bytes(size))
            await client.call("finishBlobUpload", session)

        await put(alice, "one", limit - 500)
        with pytest.raises(ThriftApplicationError, match=f"quota of alice is {limit} bytes"):
            await put(alice, "two", 501)
        with pytest.raises(ThriftApplicationError, match="quota of alice"):
            await put(bob, "one", 501, new=False)  # who created it pays
        await put(bob, "three", 10 * limit)
        # What is being uploaded counts, and what was refused does not.
        under_way = await alice.call("beginCreateBlob", "four", meta)
        await alice.call("uploadBlobChunk", under_way, bytes(400))
        with pytest.raises(ThriftApplicationError, match="101 more"):
            await put(alice, "five", 101)
        await alice.call("cancelBlobUpload", under_way)
        await put(alice, "five", 500)
        with pytest.raises(ThriftApplicationError, match="quota of alice"):
            await submit(alice, "a", await upload(alice))
        for key in ("one", "five"):
            await alice.call("deleteBlob", key)
        await submit(alice, "a", await upload(alice))
        assert nimbus.local.nimbus.blobs.bytes_of("alice") > len(package())
