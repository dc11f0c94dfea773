"""The matrix: every Thrift method and every HTTP route, times everyone who may come.

`matrix.txt` is the reviewed answer. `outsider` is a
user that nimbus.users does not name; all others are named there, or are daemons.

Rows are made from the interface and from the daemons' own
tables of routes, so that a method or a route that is added has no row until somebody has decided
about it. SQUALL_UPDATE_SNAPSHOTS=1 writes the file; review the difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.route_tables import route_tables

from squall_common.cluster.values import Access
from squall_common.daemon.web import Route, WebServer
from squall_common.security.acl import (
    ADMIN,
    READ,
    WRITE,
    Blob,
    ClusterAcl,
    Function,
    Members,
    Node,
    Object,
    OwnToken,
    Topology,
    TopologyAcl,
)
from squall_common.security.actions import ACTIONS, Kind, action, require_declared
from squall_common.security.authorize import Allowed, authorize
from squall_common.security.identity import Channel, Principal, Role
from squall_drpc.server.services import CallerService, WorkerService
from squall_nimbus.service import NimbusService
from squall_supervisor.service import SupervisorService
from squall_thrift import storm
from squall_thrift.serving.authorization import PUBLIC, permission_of

MATRIX = Path(__file__).parent / "matrix.txt"
NOW = 1_700_000_000.0
TOPOLOGY = "count-1-1700000000"


def user(name: str, *groups: str) -> Principal:
    return Principal(Role.USER, name, Channel.CERTIFICATE, frozenset(groups))


# The columns.
CALLERS: dict[str, Principal | None] = {
    "stranger": None,
    "outsider": user("eve"),
    "other": user("frank"),
    "reader": user("carol"),
    "logs": user("dave"),
    "owner": user("alice"),
    "group": user("bob", "ops"),
    "admin": user("root"),
    "its-supervisor": Principal(Role.SUPERVISOR, "node-1", Channel.CERTIFICATE),
    "a-supervisor": Principal(Role.SUPERVISOR, "node-2", Channel.CERTIFICATE),
    "its-worker": Principal(
        Role.WORKER,
        f"{TOPOLOGY}/node-1:6700",
        Channel.TOKEN,
        topology_id=TOPOLOGY,
        owner="alice",
        node="node-1",
        port=6700,
    ),
    "a-worker": Principal(
        Role.WORKER,
        "sum-2-1700000000/node-2:6700",
        Channel.TOKEN,
        topology_id="sum-2-1700000000",
        owner="bob",
        node="node-2",
        port=6700,
    ),
    "nimbus": Principal(Role.NIMBUS, "n2", Channel.CERTIFICATE),
    "ui": Principal(Role.UI, "ui", Channel.CERTIFICATE),
    "logviewer": Principal(Role.LOGVIEWER, "node-1", Channel.CERTIFICATE),
    "drpc": Principal(Role.DRPC, "drpc1", Channel.CERTIFICATE),
}
ACLS = ClusterAcl(
    admins=Members(frozenset({"root"})),
    users=Members(frozenset({"alice", "bob", "carol", "dave", "frank"})),
    logs=Members(frozenset({"dave"})),
    metrics=Members(frozenset({"dave"})),
)
ACL = TopologyAcl(
    "alice",
    writers=Members(groups=frozenset({"ops"})),
    readers=Members(frozenset({"carol"})),
    logs=Members(frozenset({"dave"})),
)
_BITS = {
    "beginUpdateBlob": WRITE,
    "deleteBlob": WRITE,
    "setBlobMeta": ADMIN,
    "updateBlobReplication": WRITE,
}
_FUNCTION = Function("f", Members(frozenset({"carol"})), Members(frozenset({"alice"})))


def thing(name: str) -> Object:
    """An object of the action's kind: of alice's, on node-1."""
    match ACTIONS[name].kind:
        case Kind.CLUSTER:
            return None
        case Kind.TOPOLOGY:
            return Topology(TOPOLOGY, "count", ACL, frozenset({"node-1"}))
        case Kind.BLOB:
            acl = (Access(2, "alice", READ | WRITE | ADMIN), Access(2, "carol", READ))
            return Blob("words", acl, _BITS.get(name, READ))
        case Kind.NODE:
            return Node("node-1")
        case Kind.FUNCTION:
            return _FUNCTION
        case Kind.TOKEN:
            return OwnToken("alice")


def may(caller: Principal | None, name: str) -> bool:
    if name == PUBLIC:  # a page without data, or where one logs in
        return True
    return isinstance(authorize(caller, name, thing(name), ACLS, NOW), Allowed)


HANDLERS: dict[str, tuple[Any, type]] = {
    "Nimbus": (storm.Nimbus, NimbusService),
    "Supervisor": (storm.Supervisor, SupervisorService),
    "DistributedRPC": (storm.DistributedRPC, CallerService),
    "DistributedRPCInvocations": (storm.DistributedRPCInvocations, WorkerService),
}


def rows(folder: Path) -> dict[str, str]:
    """The action of each method and route."""
    found: dict[str, str] = {}
    for service, (interface, handler) in HANDLERS.items():
        for method in interface.methods:
            found[f"{service}.{method}"] = str(permission_of(getattr(handler, method)))
    for daemon, listed in route_tables(folder).items():
        for route in listed:
            found[f"{daemon} {route.method} {route.path}"] = route.permission
    return found


def test_every_method_and_route_has_its_reviewed_answers(tmp_path: Path) -> None:
    found = rows(tmp_path)
    wide = max(map(len, found))
    lines = [f"{'':{wide}}  {'':32} {' '.join(CALLERS)}"]
    for row, name in found.items():
        cells = []
        for column, caller in CALLERS.items():
            cells.append(f"{'yes' if may(caller, name) else '-':{len(column)}}")
        lines.append(f"{row:{wide}}  {name:32} {' '.join(cells)}".rstrip())
    text = "\n".join(lines) + "\n"
    if os.environ.get("SQUALL_UPDATE_SNAPSHOTS"):
        MATRIX.write_text(text)
    assert text == MATRIX.read_text(), "see the docstring of this module"


def test_an_undeclared_action_fails_at_the_start() -> None:
    with pytest.raises(TypeError, match="flyToTheMoon"):
        require_declared(["killTopology", "flyToTheMoon"])
    with pytest.raises(TypeError, match="flyToTheMoon"):
        action("flyToTheMoon")

    async def handle(request: object) -> None: ...

    with pytest.raises(TypeError, match="flyToTheMoon"):
        WebServer([Route("GET", "/x", handle, "flyToTheMoon")], name="test")  # type: ignore[arg-type]


def test_every_action_is_somebodys() -> None:
    assert all(one.grants for one in ACTIONS.values())
