"""The port for Storm's Java clients, in bytes: DIGEST-MD5 in Storm's SASL framing, without TLS."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.legacy import DIGEST, DigestClient, jaas_file
from tests.support.nimbus_service import eventually
from tests.support.secured_nimbus import Certificates, SecuredNimbus, secured_nimbus
from tests.support.servers import free_port

from squall_common.security.identity import Role
from squall_thrift import storm
from squall_thrift.client import ThriftClient, ThriftTransportError
from squall_thrift.protocol import sasl
from squall_thrift.protocol.sasl import Status

USERS = {"user_alice": "a", "user_bob": "b", "user_root": "r", "user_ops": "o"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


@pytest.fixture
async def nimbus(tmp_path: Path, certificates: Certificates) -> AsyncIterator[SecuredNimbus]:
    conf = {
        "nimbus.legacy.thrift.port": free_port(),
        "storm.thrift.transport": DIGEST,
        "java.security.auth.login.config": jaas_file(tmp_path / "jaas", "StormServer", USERS),
        "nimbus.admins.groups": ["admins"],
        "nimbus.impersonation.acl": {"alice": {"hosts": ["*"], "groups": ["*"]}},
        "storm.group.mapping.service.params": {"storm.fixed.group.mapping": {"ops": ["admins"]}},
    }
    async with secured_nimbus(tmp_path / "nimbus", certificates, conf) as running:
        yield running


def port(nimbus: SecuredNimbus) -> int:
    return int(nimbus.local.conf["nimbus.legacy.thrift.port"])


def reasons(nimbus: SecuredNimbus) -> list[str]:
    """Why strangers were refused, one of each minute and address."""
    folder = Path(nimbus.local.conf["storm.local.dir"])
    lines = (folder / "logs" / "nimbus-audit.log").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [one["reason"] for one in found if one["action"] == "authenticate"]


async def refusal(nimbus: SecuredNimbus, client: DigestClient, **changed: Any) -> None:
    """The client is refused, in the one way in which all are."""
    await hung_up(client, await client.log_in(**changed))


async def hung_up(client: DigestClient, answer: tuple[Status, bytes]) -> None:
    assert answer == (Status.BAD, b"refused")
    assert await client.reader.read() == b""  # by then the audit log has its line
    await client.close()


async def test_a_user_calls_and_learns_the_port_to_go_on_at(nimbus: SecuredNimbus) -> None:
    async with DigestClient(port(nimbus), "alice", "a") as client:
        assert await client.log_in() == (Status.COMPLETE, client.expected)
        leader = await client.call("getLeader")
        assert leader.port == port(nimbus)
        info = await client.call("getClusterInfo")
        assert [one.port for one in info.nimbuses] == [port(nimbus)]
        assert await client.call("getTopologySummaries") == []
    async with nimbus.user("alice") as usual:
        assert (await usual.call("getLeader")).port == nimbus.local.port


async def test_a_wrong_password_and_a_wrong_name_look_alike(nimbus: SecuredNimbus) -> None:
    await refusal(nimbus, await DigestClient(port(nimbus), "mallory", "a").connect())
    await refusal(nimbus, await DigestClient(port(nimbus), "alice", "b").connect())
    assert reasons(nimbus) == ["DIGEST-MD5: there is no user 'mallory'"]


@pytest.mark.parametrize("user", ["root", "ops"])
async def test_administrators_do_not_come_in(nimbus: SecuredNimbus, user: str) -> None:
    """By name and by group, with the right password."""
    await refusal(nimbus, await DigestClient(port(nimbus), user, user[0]).connect())
    assert "is an administrator" in reasons(nimbus)[0]


async def test_no_one_acts_for_others(nimbus: SecuredNimbus) -> None:
    """Not even who may by the cluster's lists."""
    client = await DigestClient(port(nimbus), "alice", "a").connect()
    await refusal(nimbus, client, authzid="bob")
    assert "may not act for others" in reasons(nimbus)[0]


async def test_a_response_is_for_one_connection(nimbus: SecuredNimbus) -> None:
    """What was overheard opens nothing: neither in a new exchange nor as its first message."""
    async with DigestClient(port(nimbus), "alice", "a") as client:
        await client.log_in()
        heard = client.sent
    again = await DigestClient(port(nimbus), "alice", "a").connect()
    await again.challenge()
    again.send(Status.OK, heard)
    await hung_up(again, await again.receive())
    first = await DigestClient(port(nimbus), "alice", "a").connect()
    first.send(Status.START, b"DIGEST-MD5")
    first.send(Status.OK, heard)
    await hung_up(first, await first.receive())
    assert "an old response was sent again" in reasons(nimbus)[0]


@pytest.mark.parametrize(
    "changed",
    [
        {"nc": "00000002"},
        {"qop": "auth-conf"},
        {"digest-uri": '"storm_thrift_server/other.example.org"'},
        {"realm": '"another"'},
    ],
)
async def test_other_terms_are_refused(nimbus: SecuredNimbus, changed: dict[str, str]) -> None:
    await refusal(nimbus, await DigestClient(port(nimbus), "alice", "a").connect(), **changed)


@pytest.mark.parametrize("mechanism", [b"EXTERNAL", b"OAUTHBEARER", b"PLAIN", b"GSSAPI", b"\xff"])
async def test_the_port_has_one_mechanism(nimbus: SecuredNimbus, mechanism: bytes) -> None:
    """Certificates and tokens would travel in the clear here."""
    client = await DigestClient(port(nimbus), "alice", "a").connect()
    client.send(Status.START, mechanism)
    client.send(Status.OK, b"alice\0alice\0a")
    await hung_up(client, await client.receive())


async def test_daemons_and_bare_frames_are_strangers(nimbus: SecuredNimbus) -> None:
    with pytest.raises(ThriftTransportError):
        async with ThriftClient(storm.Nimbus, "127.0.0.1", port(nimbus)) as bare:
            await bare.call("getLeader")
    supervisor = nimbus.certificates.credentials(Role.SUPERVISOR, "node-1")
    with pytest.raises(ThriftTransportError):
        async with ThriftClient(
            storm.Nimbus, "127.0.0.1", port(nimbus), credentials=supervisor
        ) as daemon:
            await daemon.call("getLeader")


async def test_a_message_beyond_the_bound_is_not_read(nimbus: SecuredNimbus) -> None:
    client = await DigestClient(port(nimbus), "alice", "a").connect()
    client.send(Status.START, b"DIGEST-MD5")
    client.writer.write(b"\x02" + (sasl.PAYLOAD_BYTES_MAX + 1).to_bytes(4))
    assert await client.reader.read() == b""
    await client.close()


async def test_no_token_is_made_on_a_wire_that_others_read(nimbus: SecuredNimbus) -> None:
    async with DigestClient(port(nimbus), "alice", "a") as client:
        await client.log_in()
        with pytest.raises(storm.AuthorizationException):
            await client.call("createToken", "alice", 60)


async def test_a_secret_that_is_changed_ends_what_it_opened(nimbus: SecuredNimbus) -> None:
    """On open connections, too; that of another user stays."""
    path = Path(nimbus.local.conf["java.security.auth.login.config"])
    async with (
        DigestClient(port(nimbus), "alice", "a") as alice,
        DigestClient(port(nimbus), "bob", "b") as bob,
    ):
        await alice.log_in()
        await bob.log_in()
        assert await alice.call("getTopologySummaries") == []
        jaas_file(path, "StormServer", {**USERS, "user_alice": "another"})
        with pytest.raises(storm.AuthorizationException):
            await alice.call("getTopologySummaries")
        assert await bob.call("getTopologySummaries") == []
        jaas_file(path, "StormServer", {"user_alice": "another"})
        with pytest.raises(storm.AuthorizationException):
            await bob.call("getTopologySummaries")


async def test_a_silent_peer_is_hung_up_on(
    nimbus: SecuredNimbus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("squall_thrift.serving.server.AUTHENTICATION_SECS", 0.2)
    client = await DigestClient(port(nimbus), "alice", "a").connect()
    await client.challenge()
    async with asyncio.timeout(30):
        assert await client.reader.read() == b""
    await client.close()

    async def noted() -> bool:
        return bool(reasons(nimbus))

    await eventually(noted, "the refusal is in the audit log")
