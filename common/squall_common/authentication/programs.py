"""Who makes a request over HTTP where only programs call: DRPC over HTTP, pages with metrics.

A program shows a token in `Authorization`, or the certificate of its connection. There are no
cookies and no sessions.
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from squall_common.authentication import mechanisms
from squall_common.authentication.authenticator import PeerAuthenticator, Proved
from squall_common.authentication.credentials import ACT_FOR_HEADER
from squall_common.authentication.http import bearer_of


class ProgramPeers:
    """Implements `squall_common.daemon.web.WebAuthenticator`. `ended` says why a proof counts no
    longer, or None; `ready` is awaited before a token is looked at: it learns which were revoked,
    if this is not known yet."""

    def __init__(
        self,
        peers: PeerAuthenticator,
        ended: Callable[[Proved], str | None],
        *,
        ready: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._peers = peers
        self._ended = ended
        self._ready = ready

    @property
    def context(self) -> ssl.SSLContext:
        return self._peers.context

    async def identify(
        self, request: web.Request, certificate: bytes | None, peer: str
    ) -> Proved | None:
        token = bearer_of(request.headers)
        if token is not None:
            if self._ready is not None:
                await self._ready()
            response = mechanisms.bearer(token, None)
            return await self._peers.accept(mechanisms.OAUTHBEARER, response, certificate, peer)
        if certificate is None:
            return None
        response = mechanisms.external(request.headers.get(ACT_FOR_HEADER))
        return await self._peers.accept(mechanisms.EXTERNAL, response, certificate, peer)

    def ended(self, identity: Any) -> str | None:
        return self._ended(identity)

    def refused(self, peer: str, reason: str) -> None:
        self._peers.refused(peer, reason)
