"""The identity provider of a site: gets its keys, and says whose a token is.

    storm.oidc.issuer ──▶ /.well-known/openid-configuration ──▶ jwks_uri ──▶ keys, by their ids

Keys count for `_KEPT_SECS`. After `_FRESH_SECS` the next call has them read again, and does not
wait for it. Once they no longer count, a call waits until they have been read: a key that the
provider has withdrawn must not be accepted only because no one called for a while. While the
provider is away, the last keys count for `_STALE_SECS` more. A token with an unknown key has them
read at once. They are never read more often than every `_AGAIN_SECS`, since a stranger can make
up keys. Only one reading is under way at a time; it takes at most `_READ_SECS`, and no call waits
longer than that.

An answer is believed if it comes by https from where it was asked for: no redirect is followed.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from squall_common.daemon.logs import get_logger
from squall_common.errors import ConfigError
from squall_common.outside.issuer import check_issuer
from squall_common.outside.jwk import Jwk, read_keys
from squall_common.outside.provider import (
    ProvedUser,
    ProviderSettings,
    check_token,
    read_token,
)
from squall_common.security.tokens import TokenError
from squall_thrift.serving.throttle import Throttle

if TYPE_CHECKING:
    from aiohttp import ClientSession

log = get_logger(__name__)

_FRESH_SECS = 300.0
_KEPT_SECS = 600.0
_STALE_SECS = 3_600.0
_AGAIN_SECS = 30.0
_READ_SECS = 5.0  # of both documents; who authenticates has ten seconds in all
_BYTES_MAX = 262_144
_DISCOVERY = "/.well-known/openid-configuration"

# Reads an https URL as JSON; raises OSError, ValueError, TimeoutError.
Read = Callable[[str], Awaitable[Any]]


class ProviderOptions(Protocol):
    """The options that say which provider it is."""

    @property
    def storm_oidc_issuer(self) -> str | None: ...

    @property
    def storm_oidc_audience(self) -> str | None: ...

    @property
    def storm_oidc_algorithms(self) -> tuple[str, ...]: ...

    @property
    def storm_oidc_claim_user(self) -> str: ...

    @property
    def storm_oidc_claim_groups(self) -> str | None: ...

    @property
    def storm_oidc_ca(self) -> str | None: ...


def provider_of(options: ProviderOptions, own_issuer: str | None = None) -> Provider | None:
    """The provider that a site has configured, if there is one. `own_issuer` is the site's own, for
    its topologies. Raises ConfigError."""
    issuer, audience = options.storm_oidc_issuer, options.storm_oidc_audience
    if issuer is None:
        if audience is not None:
            raise ConfigError("storm.oidc.audience is set, and storm.oidc.issuer is not")
        return None
    # Some providers have a slash at its end.
    check_issuer(issuer.removesuffix("/"), "storm.oidc.issuer")
    if audience is None:
        raise ConfigError(
            "storm.oidc.issuer is set, and storm.oidc.audience is not",
            hint="Without it, a token that the provider has issued for anything would count here.",
        )
    if issuer == own_issuer:
        raise ConfigError(
            "storm.oidc.issuer is the cluster's own issuer, storm.identity.issuer",
            hint="The code of a topology would be a user. Name the provider of your users.",
        )
    settings = ProviderSettings(
        issuer,
        audience,
        options.storm_oidc_algorithms,
        options.storm_oidc_claim_user,
        options.storm_oidc_claim_groups,
    )
    return Provider(settings, HttpsReader(options.storm_oidc_ca))


class HttpsReader:
    """Reads JSON from servers that a file vouches for, else from those that the system trusts.
    Raises ConfigError for a file that does not."""

    def __init__(self, ca_file: str | None) -> None:
        # Imported only where there is a provider, and not while calls wait: it takes some 100 ms.
        import aiohttp

        self._timeout = aiohttp.ClientTimeout(total=_READ_SECS)
        try:
            self._context = ssl.create_default_context(cafile=ca_file)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"storm.oidc.ca: {ca_file} cannot be read: {error}") from error

    async def __call__(self, url: str) -> Any:
        """What is at a URL. Raises OSError, ValueError, TimeoutError."""
        import aiohttp

        if urlsplit(url).scheme != "https":
            raise ValueError(f"{url!r:.200} is not an https URL")
        try:
            async with aiohttp.ClientSession(
                timeout=self._timeout,
                auto_decompress=False,  # a small answer may be a large one
                cookie_jar=aiohttp.DummyCookieJar(),
            ) as session:
                body = await self._get(session, url)
        except aiohttp.ClientError as error:
            raise OSError(f"{url!r:.200} cannot be read: {error}") from error
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise ValueError(f"{url!r:.200} is not JSON") from None

    async def _get(self, session: ClientSession, url: str) -> bytes:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        async with session.get(
            url, ssl=self._context, allow_redirects=False, headers=headers
        ) as answer:
            if answer.status != 200:
                raise ValueError(f"{url!r:.200} was answered with status {answer.status}")
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > _BYTES_MAX:
                    raise ValueError(f"{url!r:.200} has more than {_BYTES_MAX} bytes")
        return bytes(body)


class Provider:
    """Knows the provider's keys. `monotonic` counts seconds."""

    def __init__(
        self,
        settings: ProviderSettings,
        read: Read,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._read = read
        self._monotonic = monotonic
        self._keys: Mapping[str, Jwk] = {}
        self._read_at = float("-inf")  # when `_keys` were
        self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._throttle = Throttle()

    async def verify(self, text: str, now: float) -> ProvedUser:
        """Whose token it is; `now` is in seconds since the epoch. Raises TokenError."""
        shown = read_token(text, self.settings, now)
        key = await self._key(shown.kid)
        return check_token(shown, key, self.settings)

    async def _key(self, kid: str) -> Jwk:
        found = self._known(kid)
        age = self._monotonic() - self._read_at
        if found is None or age >= _KEPT_SECS:
            await self._wait_read()
            found = self._known(kid)  # the last ones, if the provider is away
        elif age >= _FRESH_SECS:
            self._begin()
        if found is None:
            raise TokenError(f"token of {self.settings.issuer}: its key {kid!r:.100} is not known")
        return found

    def _known(self, kid: str) -> Jwk | None:
        if self._monotonic() - self._read_at >= _KEPT_SECS + _STALE_SECS:
            return None
        return self._keys.get(kid)

    async def _wait_read(self) -> None:
        task = self._begin()
        if task is not None:
            await asyncio.wait({task})

    def _begin(self) -> asyncio.Task[None] | None:
        """Begin to read the keys, or find who does; None if they were read, or tried to be, just
        before."""
        if self._reading is not None and not self._reading.done():
            return self._reading
        now = self._monotonic()
        if now - self._tried_at < _AGAIN_SECS:
            return None
        self._tried_at = now
        self._reading = asyncio.create_task(self._refresh(), name="keys of the identity provider")
        return self._reading

    async def _refresh(self) -> None:
        """Read discovery and keys. Never raises: the last ones count."""
        issuer = self.settings.issuer
        try:
            async with asyncio.timeout(_READ_SECS):
                document = await self._read(f"{issuer.removesuffix('/')}{_DISCOVERY}")
                if not isinstance(document, Mapping) or document.get("issuer") != issuer:
                    raise ValueError("the discovery document is of another issuer")
                where = document.get("jwks_uri")
                if not isinstance(where, str):
                    raise ValueError("the discovery document names no jwks_uri")
                keys = read_keys(await self._read(where))
        except Exception as error:  # whatever the provider has sent
            if (left_out := self._throttle.left_out("read")) is not None:
                log.error(
                    "identity_provider_not_read",
                    issuer=issuer,
                    error=str(error) or f"no answer within {_READ_SECS:g} s",
                    left_out=left_out,
                )
            return
        if keys.keys() != self._keys.keys():
            log.info("identity_provider_keys", issuer=issuer, kids=sorted(keys))
        self._keys, self._read_at = keys, self._monotonic()
