"""Gets the topology's identity tokens from Nimbus, and renews them.

The worker asks by itself, with the token of its slot (`authentication.worker_identity`): a token
for a foreign party is never on a disk, nor with the supervisor.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Collection

from squall_common.client.reporting import Connect
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import NimbusError
from squall_common.outside.held import Held, HeldTokens
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError
from squall_thrift.serving.authentication import RefusedError
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

LOOK_SECS = 1.0
# How long components wait for the first tokens before they are opened.
FIRST_SECS = 20.0
_FIRST_LOOK_SECS = 0.25
_CALL_SECS = 10.0
_PAUSE_SECS, _PAUSE_SECS_MAX = 1.0, 30.0


class IdentityTokens:
    """`held` is what components get them from."""

    def __init__(
        self, audiences: Collection[str], topology_id: str, connect: Connect, clock: Clock
    ) -> None:
        self.held = HeldTokens(audiences, now=clock.time)
        self._topology_id = topology_id
        self._connect = connect
        self._clock = clock
        self._next_try = 0.0
        self._pause_secs = _PAUSE_SECS
        self._throttle = Throttle()

    async def first(self) -> None:
        """Get the first ones, so that components can log in when they are opened. A worker that
        gets none within `FIRST_SECS` starts without: Nimbus may be away."""
        ends = self._clock.monotonic() + FIRST_SECS
        while self.held.missing() and self._clock.monotonic() < ends:
            await self.look()
            if self.held.missing():
                await asyncio.sleep(_FIRST_LOOK_SECS)

    async def look(self) -> None:
        """Get those that are missing or to be renewed; once each `LOOK_SECS`."""
        due = self.held.due()
        now = self._clock.monotonic()
        if not due or now < self._next_try:
            return
        why = await self._fetch(due)
        if why is None:
            self._pause_secs = _PAUSE_SECS
            return
        for audience in due:
            self.held.fail(audience, why)
        self._next_try = self._clock.monotonic() + self._pause_secs
        self._pause_secs = min(2 * self._pause_secs, _PAUSE_SECS_MAX)
        if (left_out := self._throttle.left_out("")) is not None:
            log.warning(
                "identity_tokens_not_fetched",
                topology_id=self._topology_id,
                audiences=due,
                error=why,
                left_out=left_out,
            )

    async def _fetch(self, due: Collection[str]) -> str | None:
        """Ask for each; why not all were got, or None."""
        whys = []
        try:
            async with asyncio.timeout(_CALL_SECS):
                connection = await self._connect()
                try:
                    for audience in due:
                        try:
                            text = await connection.call(
                                "getIdentityToken", self._topology_id, audience
                            )
                            self.held.take(audience, Held(text, expiry_of(text)))
                        except ThriftApplicationError as error:
                            whys.append(str(error))
                finally:
                    await connection.close()
        except (NimbusError, RefusedError) as error:
            return str(error)
        except (storm.AuthorizationException, storm.NotAliveException) as error:
            return error.msg or type(error).__name__
        except (TimeoutError, ValueError) as error:
            return str(error) or "no answer in time"
        return whys[0] if whys else None


def expiry_of(token: str) -> float:
    """When a token ends, in seconds since the epoch; for who trusts its sender: its signature is
    not looked at. Raises ValueError, which does not quote it."""
    try:
        body = token.split(".")[1]
        return float(json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))["exp"])
    except (ValueError, IndexError, KeyError, TypeError):
        raise ValueError("what Nimbus has sent is not an identity token") from None
