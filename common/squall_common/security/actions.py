"""Every action, the kind of object that it acts on, and who may do it.

A Thrift method or an HTTP route declares its action beside it (`@operation`, `@permission`,
`Route.permission`); a listener does not start with an action that is not in this table. The names
are those of the operations that Storm's authorizers know, where Storm has one.

Administrators may do everything, but for what `SEALED` names.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from squall_thrift.serving.authorization import PUBLIC, permission

F = TypeVar("F", bound=Callable[..., Any])


class Kind(enum.StrEnum):
    """What an action acts on."""

    CLUSTER = "cluster"
    TOPOLOGY = "topology"
    BLOB = "blob"
    NODE = "node"
    FUNCTION = "function"
    TOKEN = "token"


class Grant(enum.Enum):
    """A reason for which a caller may act."""

    AUTHENTICATED = "any authenticated caller"
    MEMBER = "nimbus.users or nimbus.groups"
    OWNER = "the topology's owner"
    WRITER = "topology.users or topology.groups"
    READER = "topology.readonly.users or topology.readonly.groups"
    LOG_READER = "logs.users or logs.groups"
    METRICS_READER = "metrics.users or metrics.groups"
    SUPERVISOR = "any supervisor"
    ITS_SUPERVISOR = "the supervisor of that node, or of a node of that topology"
    ITS_WORKER = "a worker of that topology, or on that node"
    NIMBUS = "another Nimbus"
    DAEMON = "a daemon that authenticates users: ui, logviewer, drpc"
    LOGVIEWER = "a logviewer"
    DRPC = "a DRPC server"
    ACCESS_LIST = "the blob's own access list"
    CALLER = "the function's callers"
    SERVER = "a worker of a topology whose owner serves the function"
    TOKEN_OWNER = "the token's owner"
    CERTIFICATE_USER = "a user with a certificate"


@dataclass(frozen=True, slots=True)
class Action:
    """One action."""

    name: str
    kind: Kind
    grants: frozenset[Grant]
    changes: bool  # whether it changes anything, or reads what a topology keeps of its data: what
    # the audit log has a line for if allowed


_MEMBERS = frozenset({Grant.MEMBER})
_WRITERS = frozenset({Grant.OWNER, Grant.WRITER})
_READERS = _WRITERS | {Grant.READER}
_SUPERVISORS = frozenset({Grant.SUPERVISOR})
_BLOB_READERS = frozenset({Grant.ACCESS_LIST, Grant.SUPERVISOR, Grant.NIMBUS})

_CLUSTER_READS = ("getClusterInfo", "getSupervisorPageInfo", "getNimbusConf")
_LISTS = ("getTopologySummaries", "getOwnerResourceSummaries", "getTopologyHistory")
_TOPOLOGY_READS = (
    "getComponentPageInfo",
    "getComponentPendingProfileActions",
    "getLogConfig",
    "getTopology",
    "getTopologyConf",
    "getTopologyInfo",
    "getTopologyPageInfo",
    "getTopologySummary",
    "getTopologySummaryByName",
    "getUserTopology",
)
_TOPOLOGY_CHANGES = (
    "activate",
    "deactivate",
    "debug",
    "killTopology",
    "rebalance",
    "savepoint",
    "setLogConfig",
    "setWorkerProfiler",
    "uploadNewCredentials",
)
_BLOB_READS = ("beginBlobDownload", "getBlobMeta", "getBlobReplication", "isRemoteBlobExists")
_BLOB_CHANGES = ("beginUpdateBlob", "deleteBlob", "setBlobMeta", "updateBlobReplication")
# Calls within a session or an upload that another call began: its id, which cannot be guessed, is
# what they act on.
_BLOB_SESSIONS = ("uploadBlobChunk", "finishBlobUpload", "cancelBlobUpload", "downloadBlobChunk")


def _table() -> dict[str, Action]:
    actions: list[Action] = []

    def add(names: tuple[str, ...], kind: Kind, grants: frozenset[Grant], changes: bool) -> None:
        actions.extend(Action(name, kind, grants, changes) for name in names)

    everyone = frozenset({Grant.AUTHENTICATED})
    add(("getLeader",), Kind.CLUSTER, everyone, False)
    add(("listBlobs", "isTopologyNameAllowed"), Kind.CLUSTER, everyone, False)
    add(_CLUSTER_READS, Kind.CLUSTER, _MEMBERS | {Grant.SUPERVISOR}, False)
    add(_LISTS, Kind.CLUSTER, _MEMBERS, False)
    add(("submitTopology", "beginCreateBlob"), Kind.CLUSTER, _MEMBERS, True)
    add(("fileUpload",), Kind.CLUSTER, _MEMBERS, False)  # a call for each chunk
    add(("fileDownload",), Kind.CLUSTER, _SUPERVISORS, False)
    add(_TOPOLOGY_READS, Kind.TOPOLOGY, _READERS, False)
    add(_TOPOLOGY_CHANGES, Kind.TOPOLOGY, _WRITERS, True)
    # What a topology has of its messages.
    add(("readState",), Kind.TOPOLOGY, _WRITERS, True)
    add(("readLogs",), Kind.TOPOLOGY, _WRITERS | {Grant.LOG_READER}, False)
    add(("getWorkerHeartbeats",), Kind.TOPOLOGY, _READERS | {Grant.NIMBUS}, False)
    # By one Nimbus of another: it leaves out none by what its own caller may see.
    add(("getFinishedTopologies",), Kind.CLUSTER, frozenset({Grant.NIMBUS}), False)
    add(_BLOB_READS, Kind.BLOB, _BLOB_READERS, False)
    add(_BLOB_CHANGES, Kind.BLOB, frozenset({Grant.ACCESS_LIST}), True)
    add(("createStateInZookeeper",), Kind.BLOB, frozenset({Grant.ACCESS_LIST}), False)
    add(_BLOB_SESSIONS, Kind.CLUSTER, everyone, False)
    add(
        (
            "getSupervisorAssignments",
            "getStateQuestions",
            "sendStateAnswers",
            "sendSupervisorWorkerHeartbeats",
        ),
        Kind.NODE,
        frozenset({Grant.ITS_SUPERVISOR}),
        False,
    )
    add(
        ("sendSupervisorWorkerHeartbeat", "processWorkerMetrics"),
        Kind.TOPOLOGY,
        frozenset({Grant.ITS_SUPERVISOR, Grant.ITS_WORKER}),
        False,
    )
    add(
        ("getTopologyKey", "getTopologyCredentials"),
        Kind.NODE,
        frozenset({Grant.ITS_SUPERVISOR, Grant.NIMBUS}),
        False,
    )
    # Tokens of workers: for its own slots, to a supervisor alone.
    add(("getWorkerTokens",), Kind.NODE, frozenset({Grant.ITS_SUPERVISOR}), False)
    # Tokens for foreign parties: to the topology's own workers alone. Nimbus notes those that it
    # signs: a worker may ask as often as it likes. The keys are public.
    add(("getIdentityToken",), Kind.TOPOLOGY, frozenset({Grant.ITS_WORKER}), False)
    add(("getIdentityKeys",), Kind.CLUSTER, everyone, False)
    # Which topologies live: a daemon by which workers are authenticated asks for that.
    add(("getLiveSlots",), Kind.CLUSTER, frozenset({Grant.DRPC}), False)
    # The supervisor's own service.
    add(("sendSupervisorAssignments",), Kind.NODE, frozenset({Grant.NIMBUS}), False)
    add(
        ("getLocalAssignmentForStorm",),
        Kind.NODE,
        frozenset({Grant.ITS_SUPERVISOR, Grant.NIMBUS, Grant.ITS_WORKER}),
        False,
    )
    # DRPC.
    add(("execute",), Kind.FUNCTION, frozenset({Grant.CALLER}), False)
    add(("fetchRequest", "result", "failRequest"), Kind.FUNCTION, frozenset({Grant.SERVER}), False)
    # Tokens: none makes another.
    add(("createToken",), Kind.TOKEN, frozenset({Grant.CERTIFICATE_USER}), True)
    add(("listTokens",), Kind.CLUSTER, everyone, False)
    add(("revokeToken",), Kind.TOKEN, frozenset({Grant.TOKEN_OWNER}), True)
    # What a daemon that authenticates users goes by. It has no other rights of its own: it calls as
    # the user who asks it.
    add(("getTokenRegister",), Kind.CLUSTER, frozenset({Grant.DAEMON, Grant.SUPERVISOR}), False)
    add(("getLogAccess",), Kind.CLUSTER, frozenset({Grant.LOGVIEWER}), False)
    # Figures of a daemon, and the logs of daemons.
    add(("metrics",), Kind.CLUSTER, _MEMBERS, False)
    # Those of Nimbus and supervisors, which name the topologies of all owners.
    add(("readMetrics",), Kind.CLUSTER, frozenset({Grant.METRICS_READER}), False)
    add(("readDaemonLogs",), Kind.CLUSTER, frozenset({Grant.LOG_READER}), False)
    return {one.name: one for one in actions}


ACTIONS: Final = _table()

# What an administrator may not do either: keys are for daemons, a token comes of a certificate, a
# topology is itself, and only a worker or its supervisor knows how the worker is, or what its
# functions answer.
SEALED: Final = frozenset(
    {
        "createToken",
        "failRequest",
        "fetchRequest",
        "getIdentityToken",
        "getStateQuestions",
        "getTopologyCredentials",
        "getTopologyKey",
        "getWorkerTokens",
        "processWorkerMetrics",
        "result",
        "sendStateAnswers",
        "sendSupervisorWorkerHeartbeat",
        "sendSupervisorWorkerHeartbeats",
    }
)


def action(name: str) -> Callable[[F], F]:
    """Declare the action of a Thrift method, beside it. Raises TypeError for an unknown one."""
    require_declared([name])
    return permission(name)


def require_declared(names: Iterable[str]) -> None:
    """Raises TypeError, which lists them, for actions that the table does not have."""
    unknown = sorted({name for name in names if name != PUBLIC and name not in ACTIONS})
    if unknown:
        raise TypeError(f"these actions are not declared: {', '.join(unknown)}")
