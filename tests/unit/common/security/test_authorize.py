"""The one decision: grants, scopes, impersonation, and how long it takes."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from itertools import cycle, islice

import pytest

from squall_common.cluster.values import Access
from squall_common.security.acl import (
    ADMIN,
    READ,
    WRITE,
    Blob,
    ClusterAcl,
    Function,
    Impersonation,
    Members,
    Node,
    OwnToken,
    Topology,
    TopologyAcl,
)
from squall_common.security.actions import ACTIONS, Kind
from squall_common.security.authorize import Allowed, Denied, authorize, may_impersonate, visible
from squall_common.security.identity import Channel, Principal, Role, Scope

NOW = 1_700_000_000.0
OPEN = ClusterAcl()
TOPOLOGY = Topology("count-1-1700000000", "count", TopologyAcl("alice"))


def user(
    name: str,
    *groups: str,
    channel: Channel = Channel.CERTIFICATE,
    scope: Scope = Scope(),  # noqa: B008 (frozen)
    host: str = "",
    real: Principal | None = None,
) -> Principal:
    return Principal(Role.USER, name, channel, frozenset(groups), host, scope, real=real)


def may(caller: Principal | None, action: str, thing: object, acls: ClusterAcl = OPEN) -> bool:
    return isinstance(authorize(caller, action, thing, acls, NOW), Allowed)  # type: ignore[arg-type]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_stranger_may_do_nothing(action: str) -> None:
    for thing in (None, TOPOLOGY, Blob("k", ()), Node("n"), Function("f"), OwnToken("alice")):
        assert not may(None, action, thing)


def test_an_unknown_action_is_denied_even_to_an_administrator() -> None:
    acls = ClusterAcl(admins=Members(frozenset({"root"})))
    assert not may(user("root"), "formatDisk", None, acls)


@pytest.mark.parametrize("action", [one for one in ACTIONS.values() if one.kind != Kind.CLUSTER])
def test_an_action_without_its_object_is_denied(action: object) -> None:
    acls = ClusterAcl(admins=Members(frozenset({"root"})))
    decision = authorize(user("root"), action.name, None, acls, NOW)  # type: ignore[attr-defined]
    assert isinstance(decision, Denied)
    assert "acts on a" in decision.reason


def test_nimbus_groups_count_though_nimbus_users_is_empty() -> None:
    """CVE-2026-82431 of Storm."""
    acls = ClusterAcl(users=Members(groups=frozenset({"staff"})))
    assert may(user("alice", "staff"), "submitTopology", None, acls)
    assert not may(user("bob", "guests"), "submitTopology", None, acls)


def test_without_users_and_groups_every_user_may_submit_but_no_daemon() -> None:
    assert may(user("bob"), "submitTopology", None)
    for role in set(Role) - {Role.USER}:
        assert not may(Principal(role, "x", Channel.CERTIFICATE), "submitTopology", None)


@pytest.mark.parametrize("action", ["killTopology", "getTopologyConf", "readLogs"])
def test_the_lists_of_a_topology_name_users_and_groups(action: str) -> None:
    named = TopologyAcl.of("alice", ["bob"], ["ops"], ["carol"], ["audit"])
    acl = replace(named, logs=Members(frozenset({"dave"}), frozenset({"support"})))
    thing = Topology("count-1-1700000000", "count", acl)
    callers = {
        "owner": user("alice"),
        "writer": user("bob"),
        "writers' group": user("x", "ops"),
        "reader": user("carol"),
        "readers' group": user("x", "audit"),
        "log reader": user("dave"),
        "log readers' group": user("x", "support"),
        "other": user("eve", "others"),
    }
    allowed = {name for name, caller in callers.items() if may(caller, action, thing)}
    everywhere = {"owner", "writer", "writers' group"}
    assert (
        allowed
        == everywhere
        | {
            "killTopology": set(),
            "getTopologyConf": {"reader", "readers' group"},
            "readLogs": {"log reader", "log readers' group"},
        }[action]
    )


def test_a_supervisor_acts_for_its_own_node_only() -> None:
    own = Principal(Role.SUPERVISOR, "node-1", Channel.CERTIFICATE)
    for action in ("getSupervisorAssignments", "sendSupervisorWorkerHeartbeats", "getTopologyKey"):
        assert may(own, action, Node("node-1"))
        assert not may(own, action, Node("node-2"))
    there = Topology("t-1-1", "t", TopologyAcl("alice"), frozenset({"node-1"}))
    assert may(own, "sendSupervisorWorkerHeartbeat", there)
    assert not may(own, "sendSupervisorWorkerHeartbeat", TOPOLOGY)
    assert not may(own, "killTopology", there)


def test_the_name_of_a_user_does_not_make_it_a_daemon() -> None:
    assert not may(user("node-1"), "getTopologyKey", Node("node-1"))
    assert not may(user("nimbus"), "getTopologyKey", Node("node-1"))
    daemon = Principal(Role.SUPERVISOR, "alice", Channel.CERTIFICATE)
    assert not may(daemon, "killTopology", TOPOLOGY)
    acls = ClusterAcl(admins=Members(frozenset({"alice"})))
    assert not may(daemon, "killTopology", TOPOLOGY, acls)


def test_an_administrator_gets_no_keys_and_makes_no_token_from_a_token() -> None:
    acls = ClusterAcl(admins=Members(frozenset({"root"})))
    assert may(user("root"), "killTopology", TOPOLOGY, acls)
    assert not may(user("root"), "getTopologyKey", Node("node-1"), acls)
    assert may(user("root"), "createToken", OwnToken("ci"), acls)
    by_token = user("root", channel=Channel.TOKEN)
    assert not may(by_token, "createToken", OwnToken("root"), acls)
    acting = user("root", real=user("proxy"))
    assert not may(acting, "createToken", OwnToken("root"), acls)


def test_a_user_makes_and_revokes_only_tokens_of_its_own() -> None:
    assert may(user("alice"), "createToken", OwnToken("alice"))
    assert not may(user("alice"), "createToken", OwnToken("bob"))
    assert may(user("alice", channel=Channel.TOKEN), "revokeToken", OwnToken("alice"))
    assert not may(user("alice"), "revokeToken", OwnToken("bob"))


def test_a_limited_token_may_do_what_it_lists_and_nothing_else() -> None:
    scope = Scope(frozenset({"killTopology", "getLeader"}), frozenset({"count"}))
    caller = user("alice", channel=Channel.TOKEN, scope=scope)
    other = Topology("sum-1-1700000000", "sum", TopologyAcl("alice"))
    assert may(caller, "killTopology", TOPOLOGY)
    assert may(caller, "getLeader", None)
    assert not may(caller, "killTopology", other)
    assert not may(caller, "activate", TOPOLOGY)
    assert not may(caller, "revokeToken", OwnToken("alice"))


def test_what_a_caller_has_proved_ends_though_its_connection_stays() -> None:
    caller = replace(user("alice", channel=Channel.TOKEN), expires=NOW)
    assert isinstance(authorize(caller, "getLeader", None, OPEN, NOW - 1), Allowed)
    assert not may(caller, "getLeader", None)
    assert visible(caller, "killTopology", [TOPOLOGY], lambda one: one, OPEN, NOW) == []


def test_the_limits_of_a_token_hold_for_administrators() -> None:
    acls = ClusterAcl(admins=Members(frozenset({"root"})))
    caller = user("root", channel=Channel.TOKEN, scope=Scope(frozenset({"getLeader"}), None))
    assert not may(caller, "killTopology", TOPOLOGY, acls)


def test_a_blobs_list_adds_up_and_daemons_only_read() -> None:
    acl = (Access(2, "alice", READ | WRITE), Access(2, "bob", ADMIN), Access(1, None, READ))
    assert may(user("alice"), "beginUpdateBlob", Blob("k", acl, WRITE))
    assert not may(user("bob"), "beginUpdateBlob", Blob("k", acl, WRITE))
    assert may(user("bob"), "setBlobMeta", Blob("k", acl, ADMIN))
    assert may(user("eve"), "beginBlobDownload", Blob("k", acl, READ))
    supervisor = Principal(Role.SUPERVISOR, "n", Channel.CERTIFICATE)
    assert may(supervisor, "beginBlobDownload", Blob("k", (), READ))
    assert not may(supervisor, "deleteBlob", Blob("k", acl, WRITE))


def test_a_blob_without_a_list_is_nobodys() -> None:
    assert not may(user("eve"), "beginBlobDownload", Blob("k", (), READ))


def test_impersonation_needs_the_caller_its_host_and_a_group() -> None:
    acls = ClusterAcl(
        impersonation={"ci": Impersonation(frozenset({"10.0.0.5"}), frozenset({"dev"}))}
    )
    dev, caller = frozenset({"dev"}), user("ci", host="10.0.0.5")
    assert isinstance(may_impersonate(caller, "alice", dev, acls), Allowed)
    refused = [
        (user("ci", host="10.0.0.6"), "alice", dev),
        (caller, "alice", frozenset({"ops"})),
        (user("eve", host="10.0.0.5"), "alice", dev),
        (caller, "anonymous", dev),
        (user("ci", host="10.0.0.5", real=user("x")), "alice", dev),
        (user("ci", host="10.0.0.5", scope=Scope(frozenset({"getLeader"}))), "alice", dev),
        # A daemon whose certificate has the same name.
        (Principal(Role.UI, "ci", Channel.CERTIFICATE, host="10.0.0.5"), "alice", dev),
    ]
    for who, name, groups in refused:
        assert isinstance(may_impersonate(who, name, groups, acls), Denied)


def test_a_decision_and_a_filtered_list_are_fast() -> None:
    """Kafka's benchmark of an authorizer: 200,000 objects with 50 entries each, half of the
    decisions denials. The bounds are 20 us (p99) and 50 ms for a list of 10,000; the first is
    measured in CPU time of batches, so that a neighbour on the machine does not count."""
    chance = random.Random(7)
    names = [f"user-{number}" for number in range(5_000)]
    # Lists share their members, or the test would take a gigabyte.
    lists = [
        Members(frozenset(chance.sample(names, 25)), frozenset(f"g{n + k}" for k in range(25)))
        for n in range(500)
    ]
    things = [
        Topology(f"t{n}-1-1700000000", f"t{n}", TopologyAcl(names[n % 5_000], one, one, one))
        for n, one in zip(range(200_000), cycle(lists), strict=False)
    ]
    caller = user("user-17", "g40", "nobody")
    chance.shuffle(things)
    actions = ("killTopology", "getTopologyInfo")
    batches = []
    for start in range(0, len(things), 100):
        began = time.process_time()
        for thing in things[start : start + 100]:
            authorize(caller, actions[start & 1], thing, OPEN, NOW)
        batches.append((time.process_time() - began) / 100)
    batches.sort()
    assert batches[int(0.99 * len(batches))] < 20e-6
    listed = list(islice(things, 10_000))
    took = []
    for _ in range(5):
        began = time.process_time()
        found = visible(caller, "getTopologyInfo", listed, lambda one: one, OPEN, NOW)
        took.append(time.process_time() - began)
    assert 0 < len(found) < len(listed)
    assert min(took) < 0.05


def worker(owner: str) -> Principal:
    return Principal(
        Role.WORKER,
        "count-1-1700000000/n:6700",
        Channel.TOKEN,
        topology_id=TOPOLOGY.id,
        owner=owner,
        node="n",
        port=6700,
    )


def test_a_function_is_called_by_whom_it_names_and_served_by_workers_of_its_owner_alone() -> None:
    function = Function("f", Members(frozenset({"bob"})), Members(frozenset({"alice"})))
    admins = ClusterAcl(admins=Members(frozenset({"root"})))
    assert may(user("bob"), "execute", function)
    assert may(worker("bob"), "execute", function)
    assert may(user("root"), "execute", function, admins)
    for caller in (user("alice"), worker("alice"), user("eve")):
        assert not may(caller, "execute", function)
    for action in ("fetchRequest", "result", "failRequest"):
        assert may(worker("alice"), action, function)
        for caller in (worker("bob"), worker("eve"), user("alice"), user("bob"), user("root")):
            assert not may(caller, action, function, admins)


def test_an_unlisted_function_is_for_users_and_workers_but_for_no_daemon() -> None:
    function = Function("f", unlisted=True)
    assert may(user("eve"), "execute", function)
    assert may(worker("eve"), "fetchRequest", function)
    assert not may(user("eve"), "fetchRequest", function)
    for role in set(Role) - {Role.USER, Role.WORKER}:
        for action in ("execute", "fetchRequest", "result"):
            assert not may(Principal(role, "x", Channel.CERTIFICATE), action, function)


def test_a_limited_token_calls_the_functions_that_it_names() -> None:
    scope = Scope(frozenset({"execute"}), frozenset({"f"}))
    caller = user("bob", channel=Channel.TOKEN, scope=scope)
    both = Members(frozenset({"bob"}))
    assert may(caller, "execute", Function("f", both))
    assert not may(caller, "execute", Function("g", both))
