"""Who is named where: the access lists of the cluster, of a topology, of a blob.

They are values, read once from the configuration or the store. `authorize` compares a caller with
them; nothing else does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from squall_common.security.identity import Principal


@dataclass(frozen=True, slots=True)
class Members:
    """Users, and groups of users."""

    users: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    @classmethod
    def of(cls, users: Collection[str] | None, groups: Collection[str] | None) -> Members:
        """Of two options of the configuration, each of which may be null."""
        return cls(frozenset(users or ()), frozenset(groups or ()))

    def __bool__(self) -> bool:
        return bool(self.users or self.groups)

    def has(self, caller: Principal) -> bool:
        """Whether a user is one of them, by name or by group. A daemon never is."""
        user = caller.user
        if user is None:
            return False
        return user in self.users or not self.groups.isdisjoint(caller.groups)


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Whom one caller may act for: users of some groups, from some hosts. "*" allows all."""

    hosts: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()


def impersonation_of(
    option: Mapping[str, Mapping[str, Sequence[str]]] | None,
) -> Mapping[str, Impersonation]:
    """Of the value of `nimbus.impersonation.acl`."""
    return {
        caller: Impersonation(frozenset(rule.get("hosts", ())), frozenset(rule.get("groups", ())))
        for caller, rule in (option or {}).items()
    }


@dataclass(frozen=True, slots=True)
class ClusterAcl:
    """The roles that the site's configuration gives."""

    admins: Members = Members()  # nimbus.admins, nimbus.admins.groups
    users: Members = Members()  # nimbus.users, nimbus.groups; empty: every user
    supervisors: Members = Members()  # nimbus.supervisor.users
    logs: Members = Members()  # logs.users, logs.groups: of the daemons' logs
    metrics: Members = Members()  # metrics.users, metrics.groups: of Nimbus' and supervisors' pages
    impersonation: Mapping[str, Impersonation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopologyAcl:
    """Who may act on one topology, beside administrators."""

    owner: str
    writers: Members = Members()  # topology.users, topology.groups
    readers: Members = Members()  # topology.readonly.users, topology.readonly.groups
    logs: Members = Members()  # who may read its logs besides

    @classmethod
    def of(
        cls,
        owner: str,
        users: Collection[str] = (),
        groups: Collection[str] = (),
        readonly_users: Collection[str] = (),
        readonly_groups: Collection[str] = (),
    ) -> TopologyAcl:
        """Of the values of `topology.users`, `topology.groups` and their read-only fellows."""
        return cls(owner, Members.of(users, groups), Members.of(readonly_users, readonly_groups))


# The bits of a blob's access list, as Storm has them.
READ, WRITE, ADMIN = 1, 2, 4
OTHER, USER = 1, 2


@dataclass(frozen=True, slots=True)
class Topology:
    """A topology as an object of an action; `nodes` are those that it is assigned to."""

    id: str
    name: str
    acl: TopologyAcl
    nodes: frozenset[str] = frozenset()


class Entry(Protocol):
    """An entry of a blob's access list (`squall_common.cluster.values.Access`)."""

    @property
    def type(self) -> int: ...

    @property
    def name(self) -> str | None: ...

    @property
    def access(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob as an object, with the bits of access that an action needs."""

    key: str
    acl: Sequence[Entry]
    bits: int = READ


@dataclass(frozen=True, slots=True)
class Node:
    """A supervisor's node, by its id."""

    id: str


@dataclass(frozen=True, slots=True)
class Function:
    """A function of DRPC: who may call it, and whose topologies may serve it. One that is
    `unlisted` is for every user, and for the topologies of all."""

    name: str
    callers: Members = Members()
    servers: Members = Members()
    unlisted: bool = False


@dataclass(frozen=True, slots=True)
class OwnToken:
    """A token as an object: whose it is."""

    owner: str


Object = Topology | Blob | Node | Function | OwnToken | None  # None: the cluster as a whole
