"""Identity tokens: what the leader issues to workers, for foreign parties.

A worker proves by its own token on which slot it runs; whose its topology is stands in the signed
record, and which audiences it declares in the configuration whose hash that record has. One token
serves all workers of a topology for some minutes, so that a large topology costs a signature, not
one for each worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from squall_common.daemon.clock import Clock
from squall_common.errors import SquallError
from squall_common.names import topology_name_of
from squall_common.outside.audiences import AUDIENCES, audience_problems
from squall_common.outside.issued import make_outside_token
from squall_common.security.identity import IdentityError
from squall_nimbus.access.outside_keys import OutsideKeys

if TYPE_CHECKING:
    from squall_common.security.records import TopologyRecord

REUSE_SECS = 300.0


# Finds what a topology declares: its audiences, the key of the blob that says so, and the hash of
# the blob. Raises SquallError.
FindDeclared = Callable[[str], Awaitable[tuple[tuple[str, ...], str, str]]]


@dataclass(frozen=True, slots=True)
class _Issued:
    text: str = field(repr=False)
    owner: str
    kid: str
    issued: float


class OutsideTokens:
    """`allowed` are the audiences that the site lets topologies declare; None: every one."""

    def __init__(
        self,
        keys: OutsideKeys,
        *,
        cluster: str,
        allowed: Collection[str] | None,
        declared: FindDeclared,
        clock: Clock,
    ) -> None:
        self.keys = keys
        self._cluster = cluster
        self._allowed = allowed
        self._declared = declared
        self._clock = clock
        self._issued: dict[tuple[str, str], _Issued] = {}

    def problems(self, audiences: Collection[str], owner: str | None, name: str) -> list[str]:
        """List what is wrong with the audiences that a topology of this name would declare."""
        return audience_problems(
            audiences,
            issuer=self.keys.issuer,
            allowed=self._allowed,
            cluster=self._cluster,
            owner=owner,
            topology=name,
        )

    async def issue(
        self, topology_id: str, record: TopologyRecord, audience: str
    ) -> tuple[str, bool]:
        """A token of a topology, which a worker of it has asked for, and whether it is a new one.
        Raises SquallError."""
        audiences, blob, digest = await self._declared(topology_id)
        if record.hashes.get(blob) != digest:
            raise SquallError(f"the configuration of {topology_id} is not the signed one yet")
        if audience not in audiences:
            raise SquallError(f"{AUDIENCES} of {topology_id} does not list {audience!r:.300}")
        problems = self.problems([audience], record.owner, topology_name_of(topology_id))
        if problems:
            raise SquallError(problems[0])
        key = self.keys.signing_key()
        assert key.private is not None
        now = self._clock.time()
        self._issued = {
            where: one for where, one in self._issued.items() if 0 <= now - one.issued < REUSE_SECS
        }
        found = self._issued.get((topology_id, audience))
        if found is not None and (found.owner, found.kid) == (record.owner, key.public.kid):
            return found.text, False
        try:
            token = make_outside_token(
                self.keys.issuer, audience, self._cluster, record.owner, topology_id, now
            )
        except IdentityError as error:
            raise SquallError(f"the owner of {topology_id}: {error}") from error
        text = await asyncio.to_thread(token.sign, key.private, key.public.kid)
        self._issued[topology_id, audience] = _Issued(text, record.owner, key.public.kid, now)
        return text, True
