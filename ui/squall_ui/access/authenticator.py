"""Who makes a request: by `Authorization: Bearer TOKEN`, by the cookie of a session, or by the
certificate that the connection has shown; in this order."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from squall_common.authentication import mechanisms
from squall_common.authentication.authenticator import PeerAuthenticator, Proved
from squall_common.authentication.credentials import ACT_FOR_HEADER
from squall_common.authentication.followed import FollowedRevocations
from squall_common.authentication.http import bearer_of, check_token
from squall_common.security.identity import Principal
from squall_ui.access.sessions import Sessions


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who makes a request. `token` is what it has shown, or begun its session with."""

    proved: Proved
    token: str | None = None
    session: str | None = None

    @property
    def caller(self) -> Principal:
        return self.proved.caller

    @property
    def principal(self) -> str:
        return self.proved.principal

    def __repr__(self) -> str:
        """Without the token and the session's id: it may get into a log."""
        return f"Visitor({self.caller})"


class WebPeers:
    """Implements `squall_common.daemon.web.WebAuthenticator`."""

    def __init__(
        self,
        peers: PeerAuthenticator,
        revocations: FollowedRevocations,
        sessions: Sessions,
        *,
        cookie: str,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._peers = peers
        self._revocations = revocations
        self.sessions = sessions
        self.cookie = cookie
        self._now = now

    @property
    def context(self) -> ssl.SSLContext:
        return self._peers.context

    async def identify(
        self, request: web.Request, certificate: bytes | None, peer: str
    ) -> Visitor | None:
        act_for = request.headers.get(ACT_FOR_HEADER)
        token = bearer_of(request.headers)
        if token is not None:
            return Visitor(await self.by_token(token, peer, certificate), token)
        session = request.cookies.get(self.cookie)
        if session is not None:
            found = self.sessions.find(session)
            if found is not None:
                proved = await self._peers.with_groups(found.proved)
                return Visitor(proved, found.token, session)
        if certificate is None:
            return None
        proved = await self._peers.accept(
            mechanisms.EXTERNAL, mechanisms.external(act_for), certificate, peer
        )
        return Visitor(proved)

    async def by_token(self, token: str, peer: str, certificate: bytes | None = None) -> Proved:
        """Whose token it is. Raises RefusedError."""
        check_token(token)
        await self._revocations.ready()
        return await self._peers.accept(
            mechanisms.OAUTHBEARER, mechanisms.bearer(token, None), certificate, peer
        )

    def ended(self, identity: Any) -> str | None:
        proved = identity.proved
        ends = proved.caller.expires
        if ends is not None and self._now() >= ends:
            return f"the proof of {proved.caller} has ended"
        if identity.session is not None and not self.sessions.lives(identity.session):
            return f"the session of {proved.caller} has ended"
        return self._peers.ended(proved)

    def refused(self, peer: str, reason: str) -> None:
        self._peers.refused(peer, reason)
