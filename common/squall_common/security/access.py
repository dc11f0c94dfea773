"""Asks the one authorizer about each call, and writes what it decided into the audit log.

A call on the cluster as a whole is decided before its handler runs (`authorize`). One on a
topology, a blob or a node is decided by `require`, once Nimbus knows the object; `operation` in its
`service.base` calls it, so that no handler can forget it. In an open cluster everyone may do
everything, and neither does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from squall_common.security.acl import ClusterAcl, Node, Object
from squall_common.security.actions import ACTIONS, Kind
from squall_common.security.audit import AuditLog, described
from squall_common.security.authorize import Allowed, Denied, authorize, visible
from squall_common.security.identity import Principal
from squall_thrift import storm
from squall_thrift.serving.authorization import PUBLIC, Call

T = TypeVar("T")


def caller_of(call: Call) -> Principal | None:
    """Who calls; None if the caller is not authenticated."""
    return None if call.identity is None else call.identity.caller


class OpenAccess:
    """In an open cluster: everyone may do everything. Implements `Authorizer`."""

    secured = False
    authenticates = False

    def authorize(self, call: Call, permission: str) -> None:
        return None

    def require(self, call: Call, action: str, thing: Object) -> None:
        """Return: the caller may."""

    def note_refusal(self, call: Call, action: str, thing: Object, reason: str) -> None:
        """Nothing is refused here."""

    def note_issue(self, call: Call, action: str, thing: Object, what: str) -> None:
        """Nothing is noted here."""

    def require_name(self, call: Call, action: str, name: str) -> None:
        """Return: the caller may."""

    def may(self, call: Call, action: str, thing: Object) -> bool:
        """Return True."""
        return True

    def shown(
        self, call: Call, action: str, things: Iterable[T], object_of: Callable[[T], Object]
    ) -> list[T]:
        """Return all."""
        return list(things)


class SecuredAccess:
    """In a secured cluster. `ended` says why what a caller has proved counts no longer, or None;
    `now` is the time in seconds since the epoch."""

    secured = True
    authenticates = True

    def __init__(
        self,
        acls: ClusterAcl,
        audit: AuditLog,
        *,
        ended: Callable[[Any], str | None],
        now: Callable[[], float],
    ) -> None:
        self.acls = acls
        self._audit = audit
        self.ended = ended
        self._now = now

    def authorize(self, call: Call, permission: str) -> None:
        """Decide on a call on the cluster. One on an object is only looked at: whether its caller
        may call at all. Raises AuthorizationException."""
        caller = caller_of(call)
        why = None if call.identity is None else self.ended(call.identity)
        if why is not None:
            self._refuse(call, permission, None, Denied(why))
        if permission == PUBLIC and caller is not None:
            return
        action = ACTIONS[permission]
        if action.kind is Kind.CLUSTER or caller is None:
            self._decide(call, permission, None)

    def require(self, call: Call, action: str, thing: Object) -> None:
        """Decide on a call on an object. Raises AuthorizationException."""
        self._decide(call, action, thing)

    def may(self, call: Call, action: str, thing: Object) -> bool:
        """Whether the caller may; nothing is noted."""
        decision = authorize(caller_of(call), action, thing, self.acls, self._now())
        return isinstance(decision, Allowed)

    def shown(
        self, call: Call, action: str, things: Iterable[T], object_of: Callable[[T], Object]
    ) -> list[T]:
        """The things of a list to which the caller may do the action."""
        return visible(caller_of(call), action, things, object_of, self.acls, self._now())

    def note_refusal(self, call: Call, action: str, thing: Object, reason: str) -> None:
        """Note what the daemon itself has refused, of which its caller learns nothing."""
        self._audit.decided(Denied(reason), action, thing, caller_of(call), call.peer)

    def note_issue(self, call: Call, action: str, thing: Object, what: str) -> None:
        """Note what the daemon has issued by an action that has no line by itself."""
        self._audit.note(
            "allowed", action, described(thing), caller_of(call), call.peer, f"issued: {what}"
        )

    def require_name(self, call: Call, action: str, name: str) -> None:
        """Decide on the name of a topology that does not exist yet: a token for some topologies
        makes no others. Raises AuthorizationException."""
        caller = caller_of(call)
        scope = None if caller is None else caller.scope.topologies
        if scope is not None and name not in scope:
            denied = Denied(f"the token of {caller} is not for topology {name!r}")
            self._refuse(call, action, None, denied)

    def _decide(self, call: Call, action: str, thing: Object) -> None:
        decision = authorize(caller_of(call), action, thing, self.acls, self._now())
        if isinstance(decision, Denied):
            self._refuse(call, action, thing, decision)
        self._audit.decided(decision, action, thing, caller_of(call), call.peer)

    def _refuse(self, call: Call, action: str, thing: Object, decision: Denied) -> None:
        self._audit.decided(decision, action, thing, caller_of(call), call.peer)
        # The reason is in the log alone.
        raise storm.AuthorizationException(msg=f"{call.operation} is not allowed")


class NodeAccess(SecuredAccess):
    """On a supervisor, whose calls are all on its own node. No one has a role by its name."""

    def __init__(
        self,
        node: str,
        audit: AuditLog,
        *,
        ended: Callable[[Any], str | None],
        now: Callable[[], float],
    ) -> None:
        super().__init__(ClusterAcl(), audit, ended=ended, now=now)
        self._node = Node(node)

    def authorize(self, call: Call, permission: str) -> None:
        """Decide on a call. Raises AuthorizationException."""
        why = None if call.identity is None else self.ended(call.identity)
        if why is not None:
            self._refuse(call, permission, self._node, Denied(why))
        self._decide(call, permission, self._node)


Access = OpenAccess | SecuredAccess
