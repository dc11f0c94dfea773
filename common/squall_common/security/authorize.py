"""The one decision: may this caller do this to that, now?

    match authorize(caller, "killTopology", topology, acls, now):
        case Allowed(): ...
        case Denied(reason): ...      # the reason is for the log, never for the caller

A pure function of its arguments: it reads no clock, no file and no group database. What is not
granted by the table of actions is denied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from squall_common.security.acl import (
    OTHER,
    READ,
    USER,
    Blob,
    ClusterAcl,
    Function,
    Node,
    Object,
    OwnToken,
    Topology,
)
from squall_common.security.actions import ACTIONS, SEALED, Action, Grant, Kind
from squall_common.security.identity import RESERVED_NAMES, Channel, Principal, Role

T = TypeVar("T")

_KINDS: dict[Kind, type | None] = {
    Kind.CLUSTER: None,
    Kind.TOPOLOGY: Topology,
    Kind.BLOB: Blob,
    Kind.NODE: Node,
    Kind.FUNCTION: Function,
    Kind.TOKEN: OwnToken,
}


@dataclass(frozen=True, slots=True)
class Allowed:
    """The caller may. `by` is the grant that says so, or "administrator"."""

    by: str


@dataclass(frozen=True, slots=True)
class Denied:
    """The caller may not."""

    reason: str


Decision = Allowed | Denied

_ADMINISTRATOR = Allowed("administrator")
_STRANGER = Denied("the caller is not authenticated")


def authorize(
    caller: Principal | None, action: str, thing: Object, acls: ClusterAcl, now: float
) -> Decision:
    """Decide. `thing` is the object; None for an action on the cluster as a whole. `now` is in
    seconds since the epoch: a principal whose proof has ended by then may do nothing."""
    if caller is None:
        return _STRANGER
    plan = _PLANS.get(action)
    if plan is None:
        return Denied(f"action {action!r} is not declared")
    if not plan.fits(thing):
        kind = plan.action.kind.value
        return Denied(f"{action} acts on a {kind}, and was given {type(thing).__name__}")
    if caller.expires is not None and now >= caller.expires:
        return Denied(f"the proof of {caller} has ended")
    scope = caller.scope
    if scope.actions is not None and action not in scope.actions:
        return Denied(f"the token of {caller} is not for {action}")
    if scope.topologies is not None and not _in_scope(scope.topologies, plan.action, thing):
        return Denied(f"the token of {caller} is not for that topology")
    return _granted(caller, plan, thing, acls) or Denied(f"{caller} is not one of: {plan.names}")


def _granted(caller: Principal, plan: _Plan, thing: Object, acls: ClusterAcl) -> Allowed | None:
    if not plan.sealed and acls.admins.has(caller):
        return _ADMINISTRATOR
    for rule, allowed in plan.rules:
        if rule(caller, thing, acls):
            return allowed
    return None


def _in_scope(topologies: frozenset[str], action: Action, thing: Object) -> bool:
    """A token for some topologies may do nothing to others, and nothing to what is not one, but for
    DRPC functions of these names; what acts on the cluster is limited by the token's actions."""
    if isinstance(thing, Topology | Function):
        return thing.name in topologies
    return action.kind is Kind.CLUSTER


def _is_supervisor(caller: Principal, acls: ClusterAcl) -> bool:
    return caller.role is Role.SUPERVISOR or acls.supervisors.has(caller)


def _its_supervisor(caller: Principal, thing: Object, _acls: ClusterAcl) -> bool:
    if caller.role is not Role.SUPERVISOR:
        return False
    if isinstance(thing, Node):
        return caller.name == thing.id
    return isinstance(thing, Topology) and caller.name in thing.nodes


def _its_worker(caller: Principal, thing: Object, _acls: ClusterAcl) -> bool:
    if caller.role is not Role.WORKER:
        return False
    if isinstance(thing, Node):
        return caller.node == thing.id
    return isinstance(thing, Topology) and caller.topology_id == thing.id


def _listed(caller: Principal, thing: Object, acls: ClusterAcl) -> bool:
    if not isinstance(thing, Blob):
        return False
    missing = thing.bits
    user = caller.user
    for entry in thing.acl:
        if (entry.type == OTHER and (user is not None or thing.bits == READ)) or (
            entry.type == USER and user is not None and entry.name == user
        ):
            missing &= ~entry.access
            if not missing:
                return True
    return False


def _calls(caller: Principal, thing: Object, _acls: ClusterAcl) -> bool:
    """A worker calls as its owner."""
    if not isinstance(thing, Function) or caller.role not in (Role.USER, Role.WORKER):
        return False
    return thing.unlisted or thing.callers.has(caller) or caller.owner in thing.callers.users


def _serves(caller: Principal, thing: Object, _acls: ClusterAcl) -> bool:
    if not isinstance(thing, Function) or caller.role is not Role.WORKER:
        return False
    return thing.unlisted or caller.owner in thing.servers.users


# One rule a grant; (caller, object, the cluster's lists).
_RULES: dict[Grant, Callable[[Principal, Object, ClusterAcl], bool]] = {
    Grant.AUTHENTICATED: lambda caller, thing, acls: True,
    Grant.MEMBER: lambda caller, thing, acls: (
        caller.role is Role.USER and (not acls.users or acls.users.has(caller))
    ),
    Grant.OWNER: lambda caller, thing, acls: (
        isinstance(thing, Topology) and caller.user is not None and caller.user == thing.acl.owner
    ),
    Grant.WRITER: lambda caller, thing, acls: (
        isinstance(thing, Topology) and thing.acl.writers.has(caller)
    ),
    Grant.READER: lambda caller, thing, acls: (
        isinstance(thing, Topology) and thing.acl.readers.has(caller)
    ),
    Grant.LOG_READER: lambda caller, thing, acls: (
        thing.acl.logs.has(caller) if isinstance(thing, Topology) else acls.logs.has(caller)
    ),
    Grant.METRICS_READER: lambda caller, thing, acls: acls.metrics.has(caller),
    Grant.SUPERVISOR: lambda caller, thing, acls: _is_supervisor(caller, acls),
    Grant.ITS_SUPERVISOR: _its_supervisor,
    Grant.ITS_WORKER: _its_worker,
    Grant.NIMBUS: lambda caller, thing, acls: caller.role is Role.NIMBUS,
    Grant.DAEMON: lambda caller, thing, acls: caller.role in (Role.UI, Role.LOGVIEWER, Role.DRPC),
    Grant.LOGVIEWER: lambda caller, thing, acls: caller.role is Role.LOGVIEWER,
    Grant.DRPC: lambda caller, thing, acls: caller.role is Role.DRPC,
    Grant.ACCESS_LIST: _listed,
    Grant.CALLER: _calls,
    Grant.SERVER: _serves,
    Grant.TOKEN_OWNER: lambda caller, thing, acls: (
        isinstance(thing, OwnToken) and caller.user is not None and caller.user == thing.owner
    ),
    Grant.CERTIFICATE_USER: lambda caller, thing, acls: (
        isinstance(thing, OwnToken)
        and caller.channel is Channel.CERTIFICATE
        and caller.real is None
        and caller.user is not None
        and (caller.user == thing.owner or acls.admins.has(caller))
    ),
}


@dataclass(frozen=True, slots=True)
class _Plan:
    """An action, prepared for decisions."""

    action: Action
    expected: type | None  # of the object; None: there is none
    sealed: bool
    rules: tuple[tuple[Callable[[Principal, Object, ClusterAcl], bool], Allowed], ...]
    names: str  # of the grants, for a reason

    def fits(self, thing: Object) -> bool:
        if self.expected is None:
            return thing is None
        return isinstance(thing, self.expected)


def _plan(action: Action) -> _Plan:
    grants = sorted(action.grants, key=lambda grant: grant.value)
    return _Plan(
        action,
        _KINDS[action.kind],
        action.name in SEALED,
        tuple((_RULES[grant], Allowed(grant.value)) for grant in grants),
        ", ".join(grant.value for grant in grants),
    )


_PLANS = {name: _plan(one) for name, one in ACTIONS.items()}


def visible(
    caller: Principal | None,
    action: str,
    things: Iterable[T],
    object_of: Callable[[T], Object],
    acls: ClusterAcl,
    now: float,
) -> list[T]:
    """The things of a list to which the caller may do the action, in their order."""
    if caller is None:
        return []
    found = [(one, object_of(one)) for one in things]
    plan, scope = _PLANS[action], caller.scope
    if scope.actions is not None or scope.topologies is not None or caller.expires is not None:
        return [
            one
            for one, thing in found
            if isinstance(authorize(caller, action, thing, acls, now), Allowed)
        ]
    # The same decision, without its reasons.
    return [one for one, thing in found if plan.fits(thing) and _granted(caller, plan, thing, acls)]


def may_impersonate(
    caller: Principal, name: str, groups: frozenset[str], acls: ClusterAcl
) -> Decision:
    """Whether the caller may act for the user `name`, who is in `groups`: only where
    `nimbus.impersonation.acl` names the caller, from its hosts, for its groups."""
    if caller.real is not None:
        return Denied(f"{caller} already acts for another user")
    if caller.role is Role.WORKER:
        return Denied(f"{caller} runs its owner's code, and acts for no one else")
    if name.lower() in RESERVED_NAMES:
        return Denied(f"the name {name!r} is reserved")
    if caller.scope.actions is not None or caller.scope.topologies is not None:
        return Denied(f"the token of {caller} is limited, and not to impersonation")
    rule = acls.impersonation.get(caller.name if caller.user is not None else str(caller))
    if rule is None:
        return Denied(f"nimbus.impersonation.acl does not name {caller}")
    if "*" not in rule.hosts and caller.host not in rule.hosts:
        return Denied(f"{caller} may not act for others from {caller.host}")
    if "*" not in rule.groups and rule.groups.isdisjoint(groups):
        return Denied(f"{caller} may not act for {name}, who is in none of its groups")
    return Allowed("nimbus.impersonation.acl")
