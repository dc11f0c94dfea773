"""Calls on tokens, and what daemons that authenticate users go by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.security.access import caller_of
from squall_common.security.acl import Node, OwnToken
from squall_common.security.worker_tokens import parse_worker_name
from squall_nimbus.service.base import Calls, needed, operation, refused
from squall_nimbus.topologies.lifecycle_shell import TopologyNotAliveError
from squall_thrift import storm
from squall_thrift.serving.authorization import Call
from squall_thrift.serving.throttle import Throttle

if TYPE_CHECKING:
    from squall_common.security.tokens import Token
    from squall_nimbus.access.tokens import Tokens

log = get_logger(__name__)

_throttle = Throttle()
_NAMES_MAX = 100
_TOPOLOGIES_MAX = _SLOTS_MAX = 1_000


def _info(token: Token) -> storm.TokenInfo:
    return storm.TokenInfo(
        id=token.id,
        user=token.user,
        issued=token.issued,
        expires=token.expires,
        label=token.label,
        actions=None if token.actions is None else sorted(token.actions),
        topologies=None if token.topologies is None else sorted(token.topologies),
    )


async def _node_asked(_: Calls, arguments: tuple[Any, ...]) -> Node:
    return Node(needed(arguments[0], "node"))


class TokenCalls(Calls):
    """Tokens of users, of workers, and of topologies for foreign parties: in a secured cluster
    only."""

    @property
    def _tokens(self) -> Tokens:
        tokens = self.nimbus.tokens
        if tokens is None:
            raise refused("this cluster is open: it has no tokens (see docs/security.md)")
        return tokens

    def _user(self, call: Call, user: str | None) -> str:
        """The named user, else the caller's own. Raises a refusal for a daemon without one."""
        caller = caller_of(call)
        own = None if caller is None else caller.user
        return needed(user or own, "user")

    @operation("createToken", decides=True)
    async def createToken(
        self,
        call: Call,
        user: str | None,
        lifetimeSecs: int | None,
        label: str | None,
        actions: Sequence[str] | None,
        topologies: Sequence[str] | None,
    ) -> str:
        """The token's text, which is shown this once. Actions and topologies that are not given
        limit nothing; a list of none is refused."""
        tokens, name = self._tokens, self._user(call, user)
        self.nimbus.access.require(call, "createToken", OwnToken(name))
        return await tokens.create(
            name, needed(lifetimeSecs, "lifetimeSecs"), label or "", actions, topologies
        )

    @operation("listTokens")
    async def listTokens(self, call: Call, user: str | None) -> list[storm.TokenInfo]:
        """The tokens that live, of a user or of all: those that the caller could revoke."""
        found = self._tokens.issued(user)
        shown = self.nimbus.access.shown(call, "revokeToken", found, lambda one: OwnToken(one.user))
        return [_info(one) for one in shown]

    @operation("revokeToken", decides=True)
    async def revokeToken(self, call: Call, id: str | None) -> None:
        tokens, token_id = self._tokens, needed(id, "id")
        owner = tokens.owner(token_id)
        # One that the caller may not revoke does not exist for it.
        absent = refused(f"no token {token_id[:_NAMES_MAX]!r} was found")
        if owner is None:
            raise absent
        try:
            self.nimbus.access.require(call, "revokeToken", OwnToken(owner))
        except storm.AuthorizationException:  # the audit log has a line
            raise absent from None
        await tokens.revoke(token_id)

    @operation("revokeToken", decides=True)
    async def revokeTokens(self, call: Call, user: str | None) -> None:
        """All tokens that a user has by now."""
        tokens, name = self._tokens, self._user(call, user)
        self.nimbus.access.require(call, "revokeToken", OwnToken(name))
        await tokens.revoke_user(name)

    @operation("getTokenRegister")
    async def getTokenRegister(self, call: Call, known: int | None) -> str:
        """The register as a Nimbus has signed it; empty if the caller knows it, or there is none
        yet."""
        return self._tokens.signed(known or 0)

    @operation("getWorkerTokens", of=_node_asked)
    async def getWorkerTokens(
        self, call: Call, node: str | None, topologyIds: Sequence[str] | None
    ) -> dict[int, str]:
        """A token for each slot of the node that one of the topologies has. Which slots it has, and
        whose it is, stands in its signed state: what this Nimbus remembers of an earlier term, or
        finds in a topology's configuration, does not count."""
        tokens, name = self._tokens, needed(node, "node")
        signed = self.nimbus.signed
        assert signed is not None  # there are tokens
        await self.nimbus.leader_elector.require()
        found: dict[int, str] = {}
        for topology_id in needed(topologyIds, "topologyIds")[:_TOPOLOGIES_MAX]:
            kept = await signed.work(topology_id)
            if kept is None:
                continue
            try:
                for port in kept.slots.get(name, {}):
                    found[port] = tokens.of_worker(topology_id, kept.record.owner, name, port)
            except SquallError as error:
                if (left_out := _throttle.left_out(topology_id)) is not None:
                    log.warning(
                        "worker_has_no_token",
                        topology_id=topology_id,
                        node=name,
                        error=error,
                        left_out=left_out,
                    )
        return found

    @operation("getIdentityToken", by_id="topologyId")
    async def getIdentityToken(
        self, call: Call, topologyId: str | None, audience: str | None
    ) -> str:
        """A token for a foreign party, for the worker that calls."""
        nimbus, topology_id = self.nimbus, needed(topologyId, "topologyId")
        if nimbus.outside is None or nimbus.signed is None:
            raise refused("this cluster issues no identity tokens (storm.identity.issuer)")
        await nimbus.leader_elector.require()
        caller = caller_of(call)
        # What it has proved was looked at before this Nimbus knew that it leads.
        if caller is None or not nimbus.signed.is_on(
            topology_id, caller.node or "", caller.port or 0
        ):
            raise storm.AuthorizationException(msg="the caller's slot is not the topology's")
        kept = await nimbus.signed.work(topology_id)
        if kept is None:
            raise TopologyNotAliveError(topology_id)
        asked = needed(audience, "audience")
        token, is_new = await nimbus.outside.issue(topology_id, kept.record, asked)
        if is_new:
            thing = nimbus.objects.topology(topology_id, kept.record.owner)
            nimbus.access.note_issue(call, "getIdentityToken", thing, f"a token for {asked}")
        return token

    @operation("getIdentityKeys")
    async def getIdentityKeys(self, call: Call) -> list[str]:
        """What each Nimbus has published of its keys for these tokens."""
        outside = self.nimbus.outside
        return [] if outside is None else outside.keys.texts()

    @operation("getLiveSlots")
    async def getLiveSlots(self, call: Call, slots: Sequence[str] | None) -> list[str]:
        """Those of the slots that their topologies have, by what is signed. Others say so: they are
        not those of a topology, or it has moved, or ended."""
        signed = self.nimbus.signed
        if signed is None:
            return []  # an open cluster has no tokens
        await self.nimbus.leader_elector.require()
        found = []
        for name in needed(slots, "slots")[:_SLOTS_MAX]:
            slot = parse_worker_name(name)
            if slot is None:
                continue
            topology_id, node, port = slot
            kept = await signed.work(topology_id)
            if kept is not None and port in kept.slots.get(node, {}):
                found.append(name)
        return found

    @operation("getLogAccess")
    async def getLogAccess(
        self, call: Call, topologyIds: Sequence[str] | None
    ) -> dict[str, storm.LogAccess]:
        """Who may read the logs of topologies: of those that are alive."""
        found: dict[str, storm.LogAccess] = {}
        for topology_id in needed(topologyIds, "topologyIds")[:_TOPOLOGIES_MAX]:
            try:
                base = await self.nimbus.reader.base(topology_id)
            except TopologyNotAliveError:
                continue
            acl = self.nimbus.objects.topology(topology_id, base.owner).acl
            found[topology_id] = storm.LogAccess(
                owner=acl.owner,
                users=sorted(acl.writers.users),
                groups=sorted(acl.writers.groups),
                logUsers=sorted(acl.logs.users),
                logGroups=sorted(acl.logs.groups),
            )
        return found
