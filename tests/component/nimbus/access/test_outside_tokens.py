"""Identity tokens at the port of a secured Nimbus: who gets which, and who does not."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.nimbus_service import LocalNimbus, eventually, package, topology
from tests.support.secured_nimbus import Certificates, SecuredNimbus, secured_nimbus

from squall_common.outside.published import Publication
from squall_common.security.identity import Role
from squall_common.security.jws import parse
from squall_common.security.signing import Trust
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient

ISSUER = "https://id.example.org/test"
VAULT, CLOUD = "https://vault.example.org", "sts.example.org"
AUDIENCES = "topology.identity.audiences"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


@pytest.fixture
async def nimbus(tmp_path: Path, certificates: Certificates) -> AsyncIterator[SecuredNimbus]:
    conf = {"storm.identity.issuer": ISSUER, "nimbus.identity.audiences": [VAULT, CLOUD]}
    async with secured_nimbus(tmp_path / "nimbus", certificates, conf) as running:
        yield running


async def submit(client: ThriftClient, name: str, conf: dict[str, Any]) -> str:
    location = await client.call("beginFileUpload")
    await client.call("uploadChunk", location, package())
    await client.call("finishFileUpload", location)
    await client.call("submitTopology", name, location, json.dumps(conf), topology())
    topology_id: str = (await client.call("getTopologySummaryByName", name)).id
    return topology_id


@contextlib.asynccontextmanager
async def worker(nimbus: SecuredNimbus, topology_id: str) -> AsyncIterator[ThriftClient]:
    """A worker of the topology, once it has a slot on node-1."""

    async def token() -> str | None:
        async with nimbus.daemon(Role.SUPERVISOR, "node-1") as client:
            found = await client.call("getWorkerTokens", "node-1", [topology_id])
            return next(iter(found.values()), None)

    own = await eventually(token, "the topology has a slot on node-1")
    async with nimbus.client(nimbus.certificates.by_token(own)) as client:
        yield client


async def got(client: ThriftClient, topology_id: str, audience: str) -> dict[str, Any]:
    return dict(parse(await client.call("getIdentityToken", topology_id, audience)).payload)


async def test_a_worker_gets_a_token_of_its_topology_for_a_declared_audience(
    nimbus: SecuredNimbus,
) -> None:
    state = await nimbus.local.supervisor("node-1", signed=nimbus.signed("node-1"))
    async with nimbus.user("alice") as alice:
        count = await submit(alice, "count", {AUDIENCES: [VAULT]})
    async with nimbus.user("bob") as bob:
        other = await submit(bob, "other", {AUDIENCES: [VAULT]})
    async with worker(nimbus, count) as client:
        claims = await got(client, count, VAULT)
        assert (claims["iss"], claims["aud"]) == (ISSUER, VAULT)
        assert claims["sub"] == "test/alice/count"
        assert claims["exp"] - claims["iat"] == 3600
        # All workers of a topology have one.
        assert (await got(client, count, VAULT))["jti"] == claims["jti"]
        for audience in (CLOUD, "https://other", "", "squall:test"):
            with pytest.raises(ThriftApplicationError, match="does not list"):
                await client.call("getIdentityToken", count, audience)
        for topology_id in (other, "none-1-1"):
            with pytest.raises(storm.NotAliveException):
                await client.call("getIdentityToken", topology_id, VAULT)
        [text] = await client.call("getIdentityKeys")
        trusted = nimbus.certificates.trusted(Role.NIMBUS, "n1")
        published = Publication.verify(text, Trust(trusted.cluster, trusted.ca))
        assert published.issuer == ISSUER
        head = parse(await client.call("getIdentityToken", count, VAULT)).header
        assert head["kid"] in {one.kid for one in published.keys}
    for role, name in (
        (Role.USER, "alice"),
        (Role.USER, "root"),
        (Role.SUPERVISOR, "node-1"),
        (Role.NIMBUS, "n2"),
        (Role.UI, "ui1"),
    ):
        async with nimbus.daemon(role, name) as client:
            with pytest.raises((storm.AuthorizationException, storm.NotAliveException)):
                await client.call("getIdentityToken", count, VAULT)
    log = Path(nimbus.local.conf["storm.local.dir"]) / "logs" / "nimbus-audit.log"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    issued = [one for one in lines if one["action"] == "getIdentityToken"]
    # One for each that was signed, however often it was asked for.
    [line] = [one for one in issued if one["decision"] == "allowed"]
    assert line["principal"].startswith(f"worker:{count}/node-1:")
    assert (line["object"], line["reason"]) == (count, f"issued: a token for {VAULT}")
    assert {one["principal"] for one in issued if one["decision"] == "refused"} >= {
        "user:alice",
        "user:root",
        "supervisor:node-1",
    }
    await state.close()


async def test_it_follows_the_slot_the_signed_owner_and_the_configuration(
    nimbus: SecuredNimbus,
) -> None:
    state = await nimbus.local.supervisor("node-1", signed=nimbus.signed("node-1"))
    async with nimbus.user("alice") as alice:
        count = await submit(alice, "count", {AUDIENCES: [VAULT]})
    async with worker(nimbus, count) as client:
        assert await got(client, count, VAULT)
        running = nimbus.local.nimbus
        stored = running.topology_store.get(count)
        signed = running.signed
        assert signed is not None
        # What is on this Nimbus' disk counts only if it is what was signed.
        forged = {**stored.conf, AUDIENCES: [CLOUD]}
        await running.topology_store.store_conf(count, forged)
        with pytest.raises(ThriftApplicationError, match="is not the signed one"):
            await client.call("getIdentityToken", count, CLOUD)
        await running.topology_store.store_conf(count, stored.conf)
        assert (await got(client, count, VAULT))["owner"] == "alice"
        async with nimbus.user("alice") as alice:
            overrides = json.dumps({AUDIENCES: [CLOUD]})
            options = storm.RebalanceOptions(wait_secs=0, topology_conf_overrides=overrides)
            await alice.call("rebalance", "count", options)

            async def other() -> bool:
                try:
                    return (await got(client, count, CLOUD))["aud"] == CLOUD
                except (ThriftApplicationError, storm.AuthorizationException):
                    return False  # the rebalance is under way

            await eventually(other, "the topology declares another audience")
            with pytest.raises(ThriftApplicationError, match="does not list"):
                await client.call("getIdentityToken", count, VAULT)
            await alice.call("killTopologyWithOpts", "count", storm.KillOptions(wait_secs=0))

        async def refused() -> bool:
            try:
                await client.call("getIdentityToken", count, CLOUD)
            except (storm.AuthorizationException, storm.NotAliveException):
                return True
            return False

        await eventually(refused, "a worker of a topology that has ended gets none")
    await state.close()


async def test_an_audience_that_the_site_does_not_allow_is_refused_at_the_submit(
    nimbus: SecuredNimbus,
) -> None:
    async with nimbus.user("alice") as alice:
        with pytest.raises(storm.InvalidTopologyException, match=r"nimbus\.identity\.audiences"):
            await submit(alice, "count", {AUDIENCES: ["https://other"]})
        await submit(alice, "count", {})
        options = storm.RebalanceOptions(
            wait_secs=0, topology_conf_overrides=json.dumps({AUDIENCES: ["https://other"]})
        )
        with pytest.raises(storm.InvalidTopologyException, match=r"nimbus\.identity\.audiences"):
            await alice.call("rebalance", "count", options)


async def test_without_an_issuer_a_topology_that_declares_audiences_is_refused(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with (
        secured_nimbus(tmp_path / "secured", certificates) as nimbus,
        nimbus.user("alice") as alice,
    ):
        with pytest.raises(storm.InvalidTopologyException, match=r"storm\.identity\.issuer"):
            await submit(alice, "count", {AUDIENCES: [VAULT]})
        assert await alice.call("getIdentityKeys") == []
    async with LocalNimbus(tmp_path / "open") as opened:
        await opened.leads()
        with pytest.raises(storm.InvalidTopologyException, match=r"storm\.identity\.issuer"):
            await opened.submit("count", {AUDIENCES: [VAULT]})
