"""A secured Nimbus behind its real port: TLS, certificates, tokens, and every method."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.nimbus_service import eventually, package, topology
from tests.support.secured_nimbus import Certificates, SecuredNimbus, secured_nimbus

from squall_cli.secure.rotation import Rotation
from squall_common.security.access import SecuredAccess
from squall_common.security.acl import (
    ADMIN,
    READ,
    WRITE,
    Blob,
    ClusterAcl,
    Members,
    Node,
    Object,
    OwnToken,
    Topology,
    TopologyAcl,
)
from squall_common.security.actions import ACTIONS, Kind
from squall_common.security.authorize import Allowed, authorize
from squall_common.security.identity import Channel, Principal, Role
from squall_common.security.jws import parse
from squall_common.topology.model import WorkerSlot
from squall_nimbus.service import NimbusService
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient, ThriftTransportError
from squall_thrift.serving.authorization import permission_of


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


@pytest.fixture
async def nimbus(tmp_path: Path, certificates: Certificates) -> AsyncIterator[SecuredNimbus]:
    async with secured_nimbus(tmp_path / "nimbus", certificates) as running:
        yield running


async def submit(client: ThriftClient, name: str, conf: dict[str, Any] | None = None) -> None:
    location = await client.call("beginFileUpload")
    await client.call("uploadChunk", location, package())
    await client.call("finishFileUpload", location)
    await client.call("submitTopology", name, location, json.dumps(conf or {}), topology())


async def names(client: ThriftClient) -> list[str]:
    return [one.name for one in await client.call("getTopologySummaries")]


async def test_a_topology_is_for_whom_its_lists_name(nimbus: SecuredNimbus) -> None:
    """The owner is who submitted. Others do not learn that it exists."""
    lists = {"topology.groups": ["ops"], "topology.readonly.users": ["carol"]}
    async with nimbus.user("alice") as alice:
        await submit(alice, "count", lists)
        [summary] = await alice.call("getTopologySummaries")
        assert summary.owner == "alice"
        conf = json.loads(await alice.call("getTopologyConf", summary.id))
        assert conf["topology.submitter.user"] == "alice"
    async with nimbus.user("eve") as eve:
        assert await names(eve) == []
        assert (await eve.call("getClusterInfo")).topologies == []
        assert (await eve.call("getTopologyHistory", "alice")).topo_ids == []
        assert await eve.call("getOwnerResourceSummaries") == []
        absent = []
        for name in ("count", "none"):
            with pytest.raises(storm.NotAliveException) as refused:
                await eve.call("killTopology", name)
            absent.append(refused.value.msg.replace(name, "NAME"))
        assert absent[0] == absent[1]
        with pytest.raises(storm.NotAliveException):
            await eve.call("getTopologyConf", summary.id)
        with pytest.raises(storm.AlreadyAliveException):  # what a name taken cannot hide
            await submit(eve, "count")
    async with nimbus.user("carol") as carol:
        assert await names(carol) == ["count"]
        assert await carol.call("getTopologyConf", summary.id)
        with pytest.raises(storm.AuthorizationException) as denied:
            await carol.call("killTopology", "count")
        assert denied.value.msg == "killTopology is not allowed"
    async with nimbus.user("bob") as bob:
        await bob.call("deactivate", "count")
    async with nimbus.user("root") as root:
        await root.call("activate", "count")
        await root.call("killTopologyWithOpts", "count", storm.KillOptions(wait_secs=0))
    lines = audit(nimbus)
    assert [(one["action"], one["principal"]) for one in lines if one["decision"] == "allowed"] == [
        ("submitTopology", "user:alice"),
        ("submitTopology", "user:eve"),
        ("deactivate", "user:bob"),
        ("activate", "user:root"),
        ("killTopology", "user:root"),
    ]
    refusal = next(one for one in lines if one["decision"] == "refused")
    assert refusal["action"] == "killTopology"
    assert refusal["principal"] == "user:eve"
    assert refusal["object"] == summary.id
    assert refusal["host"].startswith("127.0.0.1:")


def audit(nimbus: SecuredNimbus) -> list[dict[str, Any]]:
    folder = Path(nimbus.local.conf["storm.local.dir"])
    text = (folder / "logs" / "nimbus-audit.log").read_text()
    return [json.loads(line) for line in text.splitlines()]


async def test_every_method_answers_as_the_matrix_says(nimbus: SecuredNimbus) -> None:
    """The reviewed matrix is about decisions; this is about what comes over the wire: no handler
    forgets to ask."""
    lists = {"topology.groups": ["ops"], "topology.readonly.users": ["carol"]}
    async with nimbus.user("alice") as alice:
        await submit(alice, "count", lists)
        [summary] = await alice.call("getTopologySummaries")
        session = await alice.call(
            "beginCreateBlob", "words", storm.SettableBlobMeta(acl=[], replication_factor=1)
        )
        await alice.call("finishBlobUpload", session)
    host = "127.0.0.1"
    callers = [
        (nimbus.user("frank"), user("frank")),
        (nimbus.user("carol"), user("carol")),
        (nimbus.user("bob"), user("bob", "ops")),
        (nimbus.user("root"), user("root")),
        (nimbus.daemon(Role.SUPERVISOR, "node-1"), daemon(Role.SUPERVISOR, "node-1")),
        (nimbus.daemon(Role.SUPERVISOR, "node-2"), daemon(Role.SUPERVISOR, "node-2")),
        (nimbus.daemon(Role.UI, "ui"), daemon(Role.UI, "ui")),
    ]
    acls = ClusterAcl(admins=Members(frozenset({"root"})))
    slots = frozenset({"node-1"})
    wrong = []
    for connection, caller in callers:
        async with connection as client:
            for name, method in storm.Nimbus.methods.items():
                action = str(permission_of(getattr(NimbusService, name)))
                if action in ("killTopology", "deleteBlob"):
                    continue  # the last ones, below
                arguments = [
                    argument(name, field.name, summary.id, host) for field in method.args.fields
                ]
                if name == "revokeToken":
                    arguments = [await a_token_of_alice(nimbus)]
                thing = an_object(action, name, summary.id, slots)
                expected = isinstance(authorize(caller, action, thing, acls, 0.0), Allowed)
                if await allowed(client, name, arguments) != expected:
                    wrong.append(f"{caller}: {name} is {'refused' if expected else 'allowed'}")
    assert not wrong, "\n".join(wrong)


# What ends what the others act on comes last.
_LAST = ("killTopology", "deleteBlob")


async def test_every_change_has_one_line_in_the_audit_log_allowed_or_refused(
    nimbus: SecuredNimbus,
) -> None:
    async with nimbus.user("alice") as alice:
        await submit(alice, "count")
        [summary] = await alice.call("getTopologySummaries")
        session = await alice.call(
            "beginCreateBlob", "words", storm.SettableBlobMeta(acl=[], replication_factor=1)
        )
        await alice.call("finishBlobUpload", session)
    methods: dict[str, Any] = {}  # one for each action that changes something
    for name, method in storm.Nimbus.methods.items():
        action = str(permission_of(getattr(NimbusService, name)))
        if action in ACTIONS and ACTIONS[action].changes:
            methods.setdefault(action, method)
    assert len(methods) >= 15
    order = sorted(methods, key=lambda action: action in _LAST)
    wrong = []
    for who in ("eve", "alice"):
        async with nimbus.user(who) as client:
            for action in order:
                method = methods[action]
                arguments = [
                    argument(method.name, field.name, summary.id, "127.0.0.1")
                    for field in method.args.fields
                ]
                if action == "setBlobMeta":  # she keeps her rights
                    rights = storm.AccessControl(
                        type=storm.AccessControlType.USER, name="alice", access=7
                    )
                    arguments = ["words", storm.SettableBlobMeta(acl=[rights])]
                if action == "revokeToken":
                    arguments = [await a_token_of_alice(nimbus)]
                before = len(audit(nimbus))
                await allowed(client, method.name, arguments)
                lines = audit(nimbus)[before:]
                thing = an_object(action, method.name, summary.id, frozenset())
                may = isinstance(authorize(user(who), action, thing, ClusterAcl(), 0.0), Allowed)
                expected = ["allowed" if may else "refused", action, f"user:{who}"]
                found = [[one["decision"], one["action"], one["principal"]] for one in lines]
                if found != [expected]:
                    wrong.append(f"{expected}: {found}")
                assert all(one["host"].startswith("127.0.0.1:") for one in lines)
                assert all(one["time"].endswith("Z") for one in lines)
    assert not wrong, "\n".join(wrong)


async def a_token_of_alice(nimbus: SecuredNimbus) -> str:
    """Its id."""
    async with nimbus.user("alice") as client:
        await client.call("createToken", None, 3600, "", None, None)
        listed = await client.call("listTokens", None)
        return str(listed[-1].id)


def user(name: str, *groups: str) -> Principal:
    return Principal(Role.USER, name, Channel.CERTIFICATE, frozenset(groups))


def daemon(role: Role, name: str) -> Principal:
    return Principal(role, name, Channel.CERTIFICATE)


def an_object(action: str, method: str, topology_id: str, nodes: frozenset[str]) -> Object:
    match ACTIONS[action].kind:
        case Kind.TOPOLOGY:
            # It has no slot yet.
            acl = TopologyAcl.of("alice", groups=["ops"], readonly_users=["carol"])
            return Topology(topology_id, "count", acl)
        case Kind.BLOB:
            bits = {"setBlobMeta": ADMIN, "beginUpdateBlob": WRITE, "updateBlobReplication": WRITE}
            rights = (storm.AccessControl(type=2, name="alice", access=7),)
            return Blob("words", rights, bits.get(method, READ))  # type: ignore[arg-type]
        case Kind.NODE:
            return Node("node-1")
        case Kind.TOKEN:
            return OwnToken("alice")
        case _:
            return None


def argument(method: str, name: str, topology_id: str, host: str) -> Any:
    """An argument that names alice's topology, her blob or node-1."""
    by_id = {
        "setWorkerProfiler", "getComponentPendingProfileActions", "getTopologySummary",
        "getTopologyInfo", "getTopologyInfoWithOpts", "getTopologyPageInfo", "getTopologyConf",
        "getTopology", "getUserTopology",
    }  # fmt: skip
    beat = storm.SupervisorWorkerHeartbeat(storm_id=topology_id, executors=[], time_secs=1)
    return {
        "name": "count",
        "id": topology_id if method in by_id else "none",
        "meta": storm.SettableBlobMeta(acl=[], replication_factor=1),
        "replication": 1,
        "topology_id": topology_id,
        "topologyId": topology_id,
        "key": "words",
        "blobKey": "words",
        "node": "node-1",
        "receiver": "supervisor/node-1",
        "heartbeats": storm.SupervisorWorkerHeartbeats(
            supervisor_id="node-1", worker_heartbeats=[]
        ),
        "heatbeat": beat,
        "metrics": storm.WorkerMetrics(
            topologyId=topology_id,
            port=1,
            hostname=host,
            metricList=storm.WorkerMetricList(metrics=[]),
        ),
        "user": "alice",
        "window": "600",
        "host": host,
    }.get(name)


async def allowed(client: ThriftClient, method: str, arguments: list[Any]) -> bool:
    """Whether a call was let through, whatever it then did."""
    try:
        await client.call(method, *arguments)
    except storm.AuthorizationException as error:
        return not error.msg.endswith(" is not allowed")  # what a handler refuses for its reasons
    except storm.NotAliveException:
        return False
    except ThriftApplicationError as error:
        text = str(error)
        return not ("is not allowed" in text or "is not alive" in text or "no token" in text)
    except (storm.KeyNotFoundException, storm.InvalidTopologyException):
        return True
    except storm.KeyAlreadyExistsException:
        return True
    return True


async def test_a_token_counts_until_it_is_revoked_or_rolled_back(nimbus: SecuredNimbus) -> None:
    state = nimbus.local.state
    async with nimbus.user("alice") as alice:
        token = await alice.call("createToken", None, 3600, "laptop", None, None)
        with pytest.raises(storm.AuthorizationException):
            await alice.call("createToken", "bob", 3600, "", None, None)
    before = await state.token_register()
    assert before is not None
    assert token.encode() not in before
    credentials = nimbus.certificates.by_token(token)
    async with nimbus.client(credentials) as client:
        await submit(client, "by-token")
        [summary] = await client.call("getTopologySummaries")
        assert summary.owner == "alice"
        with pytest.raises(storm.AuthorizationException):  # no token makes a token
            await client.call("createToken", None, 3600, "", None, None)
        [listed] = await client.call("listTokens", None)
        assert (listed.user, listed.label) == ("alice", "laptop")
        async with nimbus.user("eve") as eve:
            assert await eve.call("listTokens", None) == []
            with pytest.raises(ThriftApplicationError, match=f"no token '{listed.id}' was found"):
                await eve.call("revokeToken", listed.id)
        await client.call("revokeToken", listed.id)
        with pytest.raises(storm.AuthorizationException):  # the connection is open
            await client.call("getTopologySummaries")
    with pytest.raises(ThriftTransportError, match="its log says why"):
        async with nimbus.client(credentials):
            pass
    # ZooKeeper is rolled back.
    await state.put_token_register(before)
    await nimbus.local.nimbus.tokens.refresh()  # type: ignore[union-attr]
    with pytest.raises(ThriftTransportError, match="its log says why"):
        async with nimbus.client(credentials):
            pass
    assert "was revoked" in audit(nimbus)[-1]["reason"]


async def test_a_nimbus_that_starts_again_knows_what_was_revoked(
    tmp_path: Path, certificates: Certificates
) -> None:
    folder = tmp_path / "nimbus"
    async with secured_nimbus(folder, certificates) as running, running.user("alice") as alice:
        token = await alice.call("createToken", None, 3600, "", None, None)
        await alice.call("revokeTokens", None)
    # A ZooKeeper that is empty.
    async with secured_nimbus(folder, certificates) as running:
        with pytest.raises(ThriftTransportError, match="its log says why"):
            async with running.client(certificates.by_token(token)):
                pass


async def test_a_limited_token_does_what_it_lists(nimbus: SecuredNimbus) -> None:
    async with nimbus.user("alice") as alice:
        await submit(alice, "count")
        await submit(alice, "sum")
        token = await alice.call(
            "createToken", None, 86_400 * 30, "ci", ["activate", "getLeader"], ["count"]
        )
        with pytest.raises(ThriftApplicationError, match="must list"):
            await alice.call("createToken", None, 86_400, "", None, None)
    async with nimbus.client(nimbus.certificates.by_token(token)) as client:
        await client.call("getLeader")
        await client.call("activate", "count")
        for method, arguments in (
            ("deactivate", ["count"]),
            ("activate", ["sum"]),
            ("getTopologySummaries", []),
        ):
            assert not await allowed(client, method, arguments)


async def test_a_token_for_some_topologies_submits_no_others(nimbus: SecuredNimbus) -> None:
    actions = ["submitTopology", "fileUpload", "getLeader"]
    async with nimbus.user("alice") as alice:
        token = await alice.call("createToken", None, 3600, "ci", actions, ["count"])
    async with nimbus.client(nimbus.certificates.by_token(token)) as client:
        with pytest.raises(storm.AuthorizationException, match="not allowed"):
            await submit(client, "sum")
        await submit(client, "count")
    refusals = [line for line in audit(nimbus) if "sum" in line.get("reason", "")]
    assert [line["action"] for line in refusals] == ["submitTopology"]


@pytest.mark.parametrize("method", ["killTopology", "deactivate"])
async def test_a_call_acts_on_the_topology_for_which_it_was_allowed(
    nimbus: SecuredNimbus, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Another user takes its name between the decision and the act."""
    one = nimbus.local.nimbus
    async with nimbus.user("alice") as alice, nimbus.user("bob") as bob:
        await submit(alice, "count")
        first, _ = await one.lifecycle.find("count")
        require = one.leader_elector.require
        replaced: list[str] = []

        async def replace_first() -> Any:
            if not replaced:
                replaced.append(first)
                await one.state.remove_topology(first)
                await submit(bob, "count")
            return await require()

        monkeypatch.setattr(one.leader_elector, "require", replace_first)
        with pytest.raises(storm.NotAliveException):
            await alice.call(method, "count")
        assert replaced
        second, base = await one.lifecycle.find("count")
        assert (second != first, base.owner) == (True, "bob")
        with pytest.raises(storm.NotAliveException):  # alice may not even look at it
            await alice.call(method, "count")
        await bob.call(method, "count")


async def test_who_may_only_write_a_blob_announces_it(nimbus: SecuredNimbus) -> None:
    access = [
        storm.AccessControl(type=storm.AccessControlType.USER, name="bob", access=WRITE),
    ]
    async with nimbus.user("alice") as alice:
        meta = storm.SettableBlobMeta(acl=access)
        session = await alice.call("beginCreateBlob", "shared", meta)
        await alice.call("finishBlobUpload", session)
    async with nimbus.user("bob") as bob:
        await bob.call("createStateInZookeeper", "shared")
    async with nimbus.user("eve") as eve:
        with pytest.raises(ThriftApplicationError, match="is not allowed"):
            await eve.call("createStateInZookeeper", "shared")


async def test_what_a_revoked_nimbus_has_signed_keeps_no_one_from_starting(
    tmp_path: Path,
) -> None:
    certificates = Certificates(tmp_path / "certificates").create()
    folder = tmp_path / "nimbus"
    async with secured_nimbus(folder, certificates) as running, running.user("alice") as alice:
        token = await alice.call("createToken", None, 3600, "", None, None)
        await alice.call("revokeTokens", None)
        signed = await running.local.state.token_register()
        number = running.local.nimbus.tokens.tokens().number  # type: ignore[union-attr]
    assert signed is not None
    certificates.authority.revoke(certificates.folder / "nimbus-n1.pem")
    other = certificates.conf(Role.NIMBUS, "n2")
    for disk in (folder, tmp_path / "empty"):  # the register is known here, and is not
        async with secured_nimbus(disk, certificates, other) as running:
            tokens = running.local.nimbus.tokens
            assert tokens is not None
            await running.local.state.put_token_register(signed)
            await tokens.refresh()
            published = await running.local.state.token_register()
            assert published not in (None, signed), "the leader has signed it anew"
            assert tokens.tokens().number > number
            with pytest.raises(ThriftTransportError, match="its log says why"):
                async with running.client(certificates.by_token(token)):
                    pass
            async with running.user("alice") as alice:
                again = await alice.call("createToken", None, 3600, "", None, None)
                assert again


async def test_a_certificate_that_the_ca_has_revoked_ends(
    tmp_path: Path,
) -> None:
    certificates = Certificates(tmp_path / "certificates").create()
    async with secured_nimbus(tmp_path / "nimbus", certificates) as running:
        async with running.user("mallory") as mallory:
            await mallory.call("getLeader")
            certificates.authority.revoke(str(certificates.folder / "user-mallory.pem"))
            await running.local.nimbus.tokens.refresh()  # type: ignore[union-attr]
            with pytest.raises(storm.AuthorizationException):
                await mallory.call("getLeader")
        with pytest.raises(ThriftTransportError):
            async with running.user("mallory"):
                pass
        async with running.user("alice") as alice:
            await alice.call("getLeader")


async def test_what_stands_on_a_ca_that_is_gone_ends(tmp_path: Path) -> None:
    """Connections from before the rotation, by a certificate and by a token: one that waits is
    closed, and a call in between is refused."""
    certificates = Certificates(tmp_path / "certificates").create()
    async with secured_nimbus(tmp_path / "nimbus", certificates) as running:
        tokens, access = running.local.nimbus.tokens, running.local.nimbus.access
        assert tokens is not None
        assert isinstance(access, SecuredAccess)
        async with contextlib.AsyncExitStack() as stack:
            mallory = await stack.enter_async_context(running.user("mallory"))
            token = await mallory.call("createToken", None, 3600, "", None, None)
            program = await stack.enter_async_context(running.client(certificates.by_token(token)))
            certificates.turn(certificates.folder / "nimbus-n1.pem")
            await tokens.refresh()
            for one in (mallory, program):  # both CAs are trusted
                running.server.end_stale(access.ended, calls=False)
                await one.call("getLeader")
            Rotation(certificates.authority).end()
            await tokens.refresh()
            for one in (mallory, program):
                with pytest.raises(storm.AuthorizationException):
                    await one.call("getLeader")
            assert "is trusted no longer" in audit(running)[-1]["reason"]
            running.server.end_stale(access.ended, calls=False)
            for one in (mallory, program):
                with pytest.raises(ThriftTransportError, match="closed the connection"):
                    await one.call("getLeader")
            assert running.server.connections == 0


@pytest.fixture
def looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients look at the files of their credentials before each call."""
    monkeypatch.setattr("squall_thrift.client._LOOK_SECS", 0.0)
    monkeypatch.setattr("squall_common.authentication.files._FOLLOW_SECS", 0.0)


@pytest.mark.usefixtures("looks_at_once")
async def test_a_client_connects_again_when_its_files_have_changed(tmp_path: Path) -> None:
    """So what it holds open does not end with the old CA, and it goes on with no server of that."""
    certificates = Certificates(tmp_path / "certificates").create()
    async with secured_nimbus(tmp_path / "nimbus", certificates) as running:
        tokens, access = running.local.nimbus.tokens, running.local.nimbus.access
        assert tokens is not None
        assert isinstance(access, SecuredAccess)
        async with running.user("alice") as alice:
            await alice.call("getLeader")
            streams = alice._streams
            await alice.call("getLeader")
            assert alice._streams is streams
            folder = certificates.folder
            certificates.turn(folder / "nimbus-n1.pem", folder / "user-alice.pem")
            await tokens.refresh()
            await alice.call("getLeader")
            assert alice._streams is not streams
            Rotation(certificates.authority).end()
            # Nimbus goes by both CAs still, so for whom it is known by the new one nothing changes.
            await alice.call("getLeader")


@pytest.mark.usefixtures("looks_at_once")
async def test_a_client_leaves_a_server_that_only_the_old_ca_stands_for(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates").create()
    async with secured_nimbus(tmp_path / "nimbus", certificates) as running:
        async with running.user("alice") as alice:
            token = await alice.call("createToken", None, 3600, "", None, None)
        async with running.client(certificates.by_token(token)) as client:
            certificates.turn()
            await client.call("getLeader")
            Rotation(certificates.authority).end()
            with pytest.raises(ThriftTransportError, match="its certificate is not accepted"):
                await client.call("getLeader")


@pytest.mark.usefixtures("looks_at_once")
async def test_a_client_connects_again_with_a_token_that_has_replaced_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a worker is replaced in a rotation. The server may hear of the end of the old CA
    before the client does: it then ends what the old token has proved, and no good client."""
    certificates = Certificates(tmp_path / "certificates").create()
    async with secured_nimbus(tmp_path / "nimbus", certificates) as running:
        tokens = running.local.nimbus.tokens
        assert tokens is not None
        async with running.user("alice") as alice:
            token = await alice.call("createToken", None, 3600, "", None, None)
            async with running.client(certificates.by_token(token)) as client:
                folder = certificates.folder
                certificates.turn(folder / "nimbus-n1.pem", folder / "user-alice.pem")
                await tokens.refresh()
                await client.call("getLeader")
                monkeypatch.setattr("squall_common.authentication.files._FOLLOW_SECS", 3600.0)
                await client.call("getLeader")
                certificates.by_token(await alice.call("createToken", None, 3600, "", None, None))
                streams = client._streams
                await client.call("getLeader")
                assert client._streams is not streams
                Rotation(certificates.authority).end()
                await tokens.refresh()
                await client.call("getLeader")


async def test_who_may_act_for_others_does_so_as_them(
    tmp_path: Path, certificates: Certificates
) -> None:
    conf = {"nimbus.impersonation.acl": {"ci": {"hosts": ["127.0.0.1"], "groups": ["dev"]}}}
    async with secured_nimbus(tmp_path / "nimbus", certificates, conf) as running:
        async with running.user("ci", act_for="alice") as client:
            await submit(client, "count")
            [summary] = await client.call("getTopologySummaries")
            assert summary.owner == "alice"
        assert audit(running)[-1]["principal"] == "user:alice (by user:ci)"
        for who, whom in (("ci", "bob"), ("eve", "alice"), ("ci", "anonymous")):
            with pytest.raises(ThriftTransportError, match="its log says why"):
                async with running.user(who, act_for=whom):
                    pass


async def test_strangers_are_refused_with_a_reason_in_the_log_alone(
    nimbus: SecuredNimbus, tmp_path: Path
) -> None:
    foreign = Certificates(tmp_path / "foreign", "test").create()
    # A certificate of another CA: each side refuses the other's.
    with pytest.raises(ThriftTransportError, match="certificate"):
        async with nimbus.client(foreign.credentials(Role.USER, "alice")):
            pass
    # A bare frame, as clients of an open cluster send it.
    with pytest.raises(ThriftTransportError):
        async with nimbus.client(None) as client:
            await client.call("getLeader", timeout_secs=5.0)
    # Neither a certificate nor a token.
    with pytest.raises(ThriftTransportError, match="its log says why"):
        async with nimbus.client(nimbus.certificates.by_token("x.y.z")):
            pass
    # Inside TLS, a frame without SASL.
    credentials = nimbus.certificates.credentials(Role.USER, "alice")
    for bytes_ in (
        struct.pack(">i", 40) + b"\x80\x01\x00\x01" + bytes(36),
        b"\x01\x7f\xff\xff\xff",
        b"\x01\x00\x00\x00\x04GSAP\x02\x00\x00\x00\x00",
    ):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", nimbus.server.port, ssl=credentials.context
        )
        writer.write(bytes_)
        async with asyncio.timeout(10):
            answer = await reader.read()
        assert answer in (b"", b"\x03\x00\x00\x00\x07refused")
        writer.close()
    assert {one["action"] for one in audit(nimbus)} == {"authenticate"}


def test_strangers_are_refused_where_assertions_are_off() -> None:
    """CVE-2018-1320: an assertion completed the login. (`pytest.raises` is none.)"""
    test = f"{__file__}::test_strangers_are_refused_with_a_reason_in_the_log_alone"
    command = [sys.executable, "-O", "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    ended = subprocess.run(
        [*command, "-W", "ignore:assertions not in test modules"],
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed" in ended.stdout


async def test_a_client_talks_to_nothing_but_a_nimbus_of_its_cluster(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Whoever holds a certificate of a user, or one for another host, is no Nimbus."""
    credentials = certificates.credentials(Role.USER, "alice")
    elsewhere = certificates.credentials(Role.USER, "alice", server=Role.SUPERVISOR)
    async with secured_nimbus(tmp_path / "nimbus", certificates) as running:
        async with running.client(credentials) as client:
            await client.call("getLeader")
        with pytest.raises(ThriftTransportError, match="and not a supervisor"):
            async with running.client(elsewhere):
                pass
    other = Certificates(tmp_path / "other").create()
    other.issue(Role.NIMBUS, "n1", hosts=["nimbus.example.org"])
    async with secured_nimbus(tmp_path / "nimbus2", other) as running:
        with pytest.raises(ThriftTransportError, match="certificate is not accepted"):
            async with running.user("alice"):
                pass


async def test_strangers_take_a_share_of_the_connections_only(
    tmp_path: Path, certificates: Certificates
) -> None:
    async with secured_nimbus(tmp_path / "nimbus", certificates, connections_max=16) as running:
        strangers = []
        for _ in range(40):
            strangers.append(
                await asyncio.open_connection(
                    "127.0.0.1", running.server.port, local_addr=("127.0.0.2", 0)
                )
            )

        async def dropped() -> bool:
            return sum(reader.at_eof() for reader, _ in strangers) >= 36

        await eventually(dropped, "all but a quarter of the connections are closed", 10.0)
        async with running.user("alice") as alice:
            await alice.call("getLeader")
        for _, writer in strangers:
            writer.close()


async def test_strangers_of_many_addresses_drive_out_strangers_only(
    tmp_path: Path, certificates: Certificates
) -> None:
    """Those that do not even begin TLS, too."""
    async with secured_nimbus(tmp_path / "nimbus", certificates, connections_max=16) as running:
        async with running.user("alice") as alice:
            await alice.call("getLeader")
            strangers = [
                await asyncio.open_connection(
                    "127.0.0.1", running.server.port, local_addr=(f"127.0.0.{last}", 0)
                )
                for last in range(2, 12)
                for _ in range(4)
            ]

            async def dropped() -> bool:
                return sum(reader.at_eof() for reader, _ in strangers) >= 24

            await eventually(dropped, "the oldest strangers have made room", 10.0)
            assert running.server.connections == 1
            await alice.call("getLeader")
            async with running.user("bob") as bob:
                await bob.call("getLeader")
        for _, writer in strangers:
            writer.close()


async def test_silent_strangers_do_not_drive_out_one_that_is_about_to_prove_who_it_is(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many come meanwhile, from however many addresses."""
    monkeypatch.setattr("squall_thrift.serving.server.AUTHENTICATION_SECS", 600.0)
    async with secured_nimbus(tmp_path / "nimbus", certificates, connections_max=16) as running:

        async def has_begun() -> bool:
            return bool(running.server._upgrades) and not running.server._silent

        # It has begun, and TLS waits for the rest of its first record.
        _, begun = await asyncio.open_connection("127.0.0.1", running.server.port)
        begun.write(b"\x16\x03\x01")
        await begun.drain()
        await eventually(has_begun, "it has begun", 30.0)
        silent = [
            await asyncio.open_connection(
                "127.0.0.1", running.server.port, local_addr=(f"127.0.1.{last}", 0)
            )
            for last in range(1, 61)
        ]

        async def dropped() -> bool:
            return sum(reader.at_eof() for reader, _ in silent) >= 44

        await eventually(dropped, "silent ones have made room", 30.0)
        assert len(running.server._upgrades) - len(running.server._silent) == 1
        async with running.user("alice") as alice:
            await alice.call("getLeader")
        for _, writer in (*silent, (None, begun)):
            writer.close()


@pytest.mark.parametrize("speaks", [False, True], ids=["silent", "speaks TLS"])
async def test_strangers_that_have_begun_do_not_drive_out_one_that_is_on_its_way(
    tmp_path: Path, certificates: Certificates, monkeypatch: pytest.MonkeyPatch, speaks: bool
) -> None:
    """A crowd of connections that begin TLS with a byte and no more, and come again, drives out
    itself: neither one whose first byte is under way, nor one that is about to prove who it is."""
    monkeypatch.setattr("squall_thrift.serving.server.AUTHENTICATION_SECS", 600.0)
    async with secured_nimbus(tmp_path / "nimbus", certificates, connections_max=16) as running:
        server = running.server
        before = 0 if speaks else 1  # silent ones: the one on its way
        numbers = iter(range(1, 250))
        crowd = []

        async def come() -> None:
            own = (f"127.0.1.{next(numbers)}", 0)
            crowd.append(await asyncio.open_connection("127.0.0.1", server.port, local_addr=own))
            crowd[-1][1].write(b"\x16")

        async def have_begun() -> bool:
            return (
                len(server._upgrades) >= 15 - server.connections and len(server._silent) <= silent
            )

        silent = 0
        for _ in range(16):
            await come()
        await eventually(have_begun, "the crowd has begun", 30.0)
        context = certificates.credentials(Role.USER, "alice").context if speaks else None
        named = "127.0.0.1" if speaks else None
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=context, server_hostname=named
        )

        async def is_there() -> bool:
            return server.connections == 1 if speaks else len(server._silent) == 1

        await eventually(is_there, "the one on its way", 30.0)
        silent = before
        for _ in range(20):
            await come()
            await eventually(have_begun, "the next one has begun", 30.0)
        assert await is_there()
        assert not reader.at_eof()
        async with running.user("bob") as bob:
            await bob.call("getLeader")
        for _, one in (*crowd, (reader, writer)):
            one.close()


async def test_a_supervisor_reports_for_its_own_node(nimbus: SecuredNimbus) -> None:
    state = await nimbus.local.supervisor("node-1", signed=nimbus.signed("node-1"))
    async with nimbus.user("alice") as alice:
        await submit(alice, "count")
        [summary] = await alice.call("getTopologySummaries")

    async def assigned() -> bool:
        found = await nimbus.local.nimbus.state.assignment(summary.id)
        return found is not None and WorkerSlot("node-1", 6700) in {
            *found[0].executor_slot.values()
        }

    await eventually(assigned, "the topology is assigned to node-1")
    async with nimbus.daemon(Role.SUPERVISOR, "node-1") as client:
        found = await client.call("getSupervisorAssignments", "node-1")
        assert summary.id in found.storm_assignment
        began = await client.call("beginBlobDownload", f"{summary.id}-stormjar.jar")
        assert (await client.call("downloadBlobChunk", began.session)).startswith(b"PK")
        beat = storm.SupervisorWorkerHeartbeat(
            storm_id=summary.id,
            executors=[storm.ExecutorInfo(task_start=1, task_end=1)],
            time_secs=1,
            supervisor_id="node-9",
            port=6700,
        )
        await client.call("sendSupervisorWorkerHeartbeat", beat)
        reports = nimbus.local.nimbus.heartbeats.reports(summary.id)
        assert [one.slot for one in reports] == [WorkerSlot("node-1", 6700)]
    async with nimbus.daemon(Role.SUPERVISOR, "node-2") as client:
        with pytest.raises(storm.AuthorizationException):
            await client.call("getSupervisorAssignments", "node-1")
    await state.close()


async def test_a_worker_proves_its_slot_by_a_token_and_only_while_it_has_it(
    nimbus: SecuredNimbus,
) -> None:
    """Nimbus issues it to the node's supervisor, for what it has assigned itself."""
    state = await nimbus.local.supervisor("node-1", signed=nimbus.signed("node-1"))
    certificates = nimbus.certificates
    async with nimbus.user("alice") as alice:
        await submit(alice, "count")
        [summary] = await alice.call("getTopologySummaries")
    monitor = nimbus.local.nimbus.monitor

    async def assigned() -> bool:
        return monitor.is_on(summary.id, WorkerSlot("node-1", 6700))

    await eventually(assigned, "Nimbus has put the topology on node-1")
    async with nimbus.daemon(Role.SUPERVISOR, "node-1") as client:
        tokens = await client.call("getWorkerTokens", "node-1", [summary.id, "none-1-1"])
        assert tokens.keys() == {6700}
    for role, name in ((Role.SUPERVISOR, "node-2"), (Role.USER, "root"), (Role.USER, "alice")):
        async with nimbus.daemon(role, name) as client:
            with pytest.raises(storm.AuthorizationException):
                await client.call("getWorkerTokens", "node-1", [summary.id])
    async with nimbus.daemon(Role.SUPERVISOR, "node-2") as client:
        assert await client.call("getWorkerTokens", "node-2", [summary.id]) == {}

    beat = storm.SupervisorWorkerHeartbeat(
        storm_id=summary.id,
        executors=[storm.ExecutorInfo(task_start=1, task_end=1)],
        time_secs=1,
        supervisor_id="node-9",  # it is not asked
        port=6700,
    )
    async with nimbus.client(certificates.by_token(tokens[6700])) as worker:
        await worker.call("sendSupervisorWorkerHeartbeat", beat)
        reports = nimbus.local.nimbus.heartbeats.reports(summary.id)
        assert [one.slot for one in reports] == [WorkerSlot("node-1", 6700)]
        beat.port = 6701
        with pytest.raises(storm.AuthorizationException, match="slot"):
            await worker.call("sendSupervisorWorkerHeartbeat", beat)
        for method, arguments in (
            ("getWorkerTokens", ["node-1", [summary.id]]),
            ("killTopology", ["count"]),
            ("getTopologyKey", [summary.id, "supervisor/node-1"]),
            ("createToken", ["alice", 60, "", None, None]),
        ):
            assert not await allowed(worker, method, arguments), method
        beat.port = 6700
        async with nimbus.user("alice") as alice:
            await alice.call("killTopologyWithOpts", "count", storm.KillOptions(wait_secs=0))
        await eventually(lambda: _is_not(assigned), "the topology has ended")
        with pytest.raises(storm.AuthorizationException):
            await worker.call("sendSupervisorWorkerHeartbeat", beat)
    with pytest.raises(ThriftTransportError, match="refused"):
        async with nimbus.client(certificates.by_token(tokens[6700])):
            pass
    reasons = [one["reason"] for one in audit(nimbus)]
    assert f"{summary.id} is not on node-1:6700" in reasons
    await state.close()


async def test_tokens_of_workers_follow_what_was_signed_and_nothing_else(
    nimbus: SecuredNimbus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the slots that a leader remembers of an earlier term count, nor the owner in the
    configuration."""
    state = await nimbus.local.supervisor("node-1", signed=nimbus.signed("node-1"))
    async with nimbus.user("alice") as alice:
        await submit(alice, "count")
        [summary] = await alice.call("getTopologySummaries")
    running = nimbus.local.nimbus
    signed = running.signed
    assert signed is not None

    async def assigned() -> bool:
        return signed.is_on(summary.id, "node-1", 6700)

    await eventually(assigned, "the topology's state on node-1 is signed")
    stale = WorkerSlot("node-2", 6700)
    monkeypatch.setattr(running.monitor, "slots", lambda topology_id: frozenset({stale}))
    monkeypatch.setattr(running.monitor, "is_on", lambda topology_id, slot: slot == stale)
    stored = running.topology_store.get(summary.id)
    forged = {**stored.conf, "topology.submitter.user": "eve"}
    monkeypatch.setattr(
        running.topology_store, "get", lambda topology_id: replace(stored, conf=forged)
    )
    async with nimbus.daemon(Role.SUPERVISOR, "node-2") as client:
        assert await client.call("getWorkerTokens", "node-2", [summary.id]) == {}
    async with nimbus.daemon(Role.SUPERVISOR, "node-1") as client:
        tokens = await client.call("getWorkerTokens", "node-1", [summary.id])
    assert tokens.keys() == {6700}
    assert parse(tokens[6700]).payload["owner"] == "alice"
    async with nimbus.client(nimbus.certificates.by_token(tokens[6700])) as worker:
        assert await worker.call("getLeader")
    assert running.tokens is not None
    old = running.tokens.of_worker(summary.id, "alice", "node-2", 6700)
    with pytest.raises(ThriftTransportError, match="refused"):
        async with nimbus.client(nimbus.certificates.by_token(old)):
            pass
    await state.close()


async def _is_not(condition: Callable[[], Awaitable[bool]]) -> bool:
    return not await condition()
