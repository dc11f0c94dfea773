"""The identity tokens that a worker has: one for each audience that its topology declares.

A token is got before it is needed, and renewed when a third of its life is left, so that asking for
it never waits. While Nimbus is away the last one counts to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from squall_common.errors import IdentityTokenError

RENEW_LEFT_SECS = 1200.0  # of the hour that a token lives

_NOWHERE = "only workers of a secured cluster have identity tokens"


@dataclass(frozen=True, slots=True)
class Held:
    """A token; `expires` is in seconds since the epoch."""

    text: str = field(repr=False)
    expires: float


class HeldTokens:
    """The tokens. `get` may be called from any thread, everything else from one."""

    def __init__(
        self, audiences: Collection[str] | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        """`audiences` are those that the topology declares; None where no cluster gives any."""
        self._audiences = None if audiences is None else tuple(dict.fromkeys(audiences))
        self._now = now
        self._held: dict[str, Held] = {}
        self._why: dict[str, str] = {}  # there is no newer one

    def __repr__(self) -> str:
        return f"HeldTokens({sorted(self._held)})"

    def get(self, audience: str) -> str:
        """The token for an audience. Raises IdentityTokenError if there is none that counts."""
        if self._audiences is None:
            raise IdentityTokenError(
                f"there is no identity token for {audience!r}: {_NOWHERE}",
                hint="In local mode, give the component its token in another way.",
            )
        if audience not in self._audiences:
            raise IdentityTokenError(
                f"this topology does not declare the audience {audience!r}",
                hint="List it in topology.identity.audiences of the topology's configuration.",
            )
        held = self._held.get(audience)
        why = self._why.get(audience, "Nimbus has not answered yet")
        if held is None:
            raise IdentityTokenError(f"there is no identity token for {audience!r} yet: {why}")
        if self._now() >= held.expires:
            ended = datetime.fromtimestamp(held.expires, UTC).isoformat(timespec="seconds")
            raise IdentityTokenError(
                f"the identity token for {audience!r} ended at {ended}, and there is no newer one: "
                f"{why}"
            )
        return held.text

    def due(self) -> list[str]:
        """The audiences whose token is missing, or to be renewed."""
        limit = self._now() + RENEW_LEFT_SECS
        return [
            one
            for one in self._audiences or ()
            if (held := self._held.get(one)) is None or held.expires <= limit
        ]

    def missing(self) -> list[str]:
        """The audiences that have never had one."""
        return [one for one in self._audiences or () if one not in self._held]

    def take(self, audience: str, held: Held) -> None:
        """Nimbus has issued one."""
        self._held[audience] = held
        self._why.pop(audience, None)

    def fail(self, audience: str, why: str) -> None:
        """Nimbus has issued none; the last one goes on counting."""
        self._why[audience] = why
