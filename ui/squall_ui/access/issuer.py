"""What foreign parties read: the discovery document of identity tokens, and their keys.

Both are for everyone, and may be kept for some minutes. The UI asks Nimbus for the keys at most
every `_OLD_SECS`, and verifies what each Nimbus has signed. While Nimbus is away it serves the last
ones, each until its last token has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from squall_common.daemon import fast_json
from squall_common.daemon.logs import get_logger
from squall_common.daemon.web import HttpError, Route
from squall_common.outside.issuer import (
    check_issuer,
    discovery_document,
    discovery_path,
    host_of,
    keys_path,
)
from squall_common.outside.published import CACHE_SECS, Publication, jwks, served
from squall_common.security.jws import SignatureError
from squall_common.security.signing import Trust
from squall_thrift.serving.authorization import PUBLIC
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

_OLD_SECS = 30.0
_AGAIN_SECS = 5.0  # after Nimbus has not answered


class IssuerPages:
    """`fetch()` asks Nimbus what was published; it may raise anything. Raises ConfigError for what
    cannot be an issuer."""

    def __init__(
        self,
        issuer: str,
        trust: Trust,
        fetch: Callable[[], Awaitable[Sequence[str]]],
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.issuer = check_issuer(issuer)
        self._trust = trust
        self._fetch = fetch
        self._now = now
        self._monotonic = monotonic
        self._texts: Sequence[str] = ()
        self._ask_at = float("-inf")
        self._asking = asyncio.Lock()
        self._throttle = Throttle()

    @property
    def host(self) -> str:
        """The name by which foreign parties ask for them."""
        return host_of(self.issuer)

    def routes(self) -> list[Route]:
        """Those below the issuer's path."""
        return [
            Route("GET", discovery_path(self.issuer), self._discovery, PUBLIC),
            Route("GET", keys_path(self.issuer), self._keys, PUBLIC),
        ]

    async def _discovery(self, request: web.Request) -> web.Response:
        return _answer(discovery_document(self.issuer))

    async def _keys(self, request: web.Request) -> web.Response:
        if self._monotonic() >= self._ask_at and not (self._texts and self._asking.locked()):
            async with self._asking:
                if self._monotonic() >= self._ask_at:
                    await self._ask()
        keys = served(self._publications(), self.issuer, self._now())
        if not keys:  # a foreign party must not keep that there are none
            raise HttpError(503, "503 Service Unavailable", "the keys are not known yet")
        return _answer(jwks(keys))

    async def _ask(self) -> None:
        try:
            self._texts = await self._fetch()
        except Exception as error:  # whatever it is, the last ones count
            self._complain("outside_keys_not_read", error)
            self._ask_at = self._monotonic() + _AGAIN_SECS
        else:
            self._ask_at = self._monotonic() + (_OLD_SECS if self._texts else _AGAIN_SECS)

    def _publications(self) -> list[Publication]:
        found = []
        for text in self._texts:
            try:
                one = Publication.verify(text, self._trust)
            except SignatureError as error:
                self._complain("outside_keys_refused", error)
                continue
            if one.issuer != self.issuer:
                self._complain(
                    "outside_keys_refused",
                    f"storm.identity.issuer is {self.issuer} here, and {one.issuer} at "
                    f"nimbus:{one.nimbus}",
                )
            found.append(one)
        return found

    def _complain(self, event: str, reason: object) -> None:
        if (left_out := self._throttle.left_out(event)) is not None:
            log.error(event, reason=reason, left_out=left_out)


def _answer(value: object) -> web.Response:
    return web.Response(
        body=fast_json.dumps(value),
        content_type="application/json",
        headers={"Cache-Control": f"public, max-age={CACHE_SECS}"},
    )
