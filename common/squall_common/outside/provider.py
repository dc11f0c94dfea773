"""Tokens of an identity provider, by which users prove who they are (OpenID Connect).

What a provider says is believed as far as the site has configured it, and no further: the issuer,
one audience, the algorithms, and the claims that name the user and its groups.

    settings = ProviderSettings("https://login.example.org", "squall", ("RS256",), "sub", None)
    shown = read_token(text, settings, now)    # is it for us, and now? nothing is believed yet
    user = check_token(shown, key, settings)   # the provider has signed it
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall_common.outside.jwk import Jwk, check_signature
from squall_common.security import jws
from squall_common.security.identity import IdentityError, check_name
from squall_common.security.jws import Jws, SignatureError
from squall_common.security.signing import LEEWAY_SECS
from squall_common.security.tokens import PERSON_SECS_MAX, Token, TokenError

_OURS = "squall-"  # how the types of our own tokens begin
_TYPES = frozenset({"jwt", "at+jwt", "application/at+jwt"})
_TEXT_CHARS_MAX = 16_384
_GROUPS_MAX = 1_000
_GROUP_CHARS_MAX = 256
_ID_CHARS = 24


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """What a site has configured. `user` and `groups` are names of claims; None: the token's groups
    do not count."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...]
    user: str
    groups: str | None


@dataclass(frozen=True, slots=True)
class Shown:
    """A token that is for us, if what it says is true."""

    parsed: Jws
    kid: str
    alg: str
    token: Token


@dataclass(frozen=True, slots=True)
class ProvedUser:
    """What a token that the provider has signed says."""

    token: Token
    groups: frozenset[str]


def is_outside_token(text: str) -> bool:
    """Whether a text says that it is a token of another party: it has the form of one, and not the
    type of one of ours. Nothing in it is to be believed yet."""
    if text.count(".") != 2 or len(text) > _TEXT_CHARS_MAX:
        return False
    try:
        typ = jws.parse(text).header.get("typ", "JWT")
    except SignatureError:
        return False
    return not (isinstance(typ, str) and typ.startswith(_OURS))


def read_token(text: str, settings: ProviderSettings, now: float) -> Shown:
    """Look at all that needs no key, so that no stranger makes us ask the provider for nothing.
    Raises TokenError."""
    try:
        if len(text) > _TEXT_CHARS_MAX:
            raise SignatureError("it is too long")
        parsed = jws.parse(text)
        header, claims = parsed.header, parsed.payload
        alg, kid = header.get("alg"), header.get("kid")
        if alg not in settings.algorithms:
            raise SignatureError(f"its algorithm is {alg!r:.40}")
        if str(header.get("typ", "JWT")).lower() not in _TYPES:
            raise SignatureError(f"its type is {header.get('typ')!r:.40}")
        if "crit" in header:
            raise SignatureError("it has extensions that must be understood")
        if not isinstance(kid, str):
            raise SignatureError("it names no key")
        if claims.get("iss") != settings.issuer:
            raise SignatureError(f"its issuer is {claims.get('iss')!r:.200}")
        # One that is for others too could be used here by them.
        if claims.get("aud") not in (settings.audience, [settings.audience]):
            raise SignatureError(f"its audience is {claims.get('aud')!r:.200}")
        return Shown(parsed, kid, alg, _token(text, claims, settings, now))
    except (SignatureError, IdentityError) as error:
        raise TokenError(f"token of {settings.issuer}: {error}") from None


def check_token(shown: Shown, key: Jwk, settings: ProviderSettings) -> ProvedUser:
    """What the token says, if `key` has signed it. Raises TokenError."""
    try:
        check_signature(shown.parsed, shown.alg, key)
        return ProvedUser(shown.token, _groups(shown.parsed.payload, settings))
    except SignatureError as error:
        raise TokenError(f"token of {settings.issuer}: {error}") from None


def _token(text: str, claims: Mapping[str, Any], settings: ProviderSettings, now: float) -> Token:
    """As a token of ours: so that revoking a user's tokens ends it, too. Raises SignatureError,
    IdentityError."""
    issued, expires = _time(claims, "iat"), _time(claims, "exp")
    begins = _time(claims, "nbf") if "nbf" in claims else issued
    if max(issued, begins) > now + LEEWAY_SECS:
        raise SignatureError("it is not valid yet")
    expires = min(expires, issued + PERSON_SECS_MAX)
    if expires <= now - LEEWAY_SECS:
        raise SignatureError("it has expired, or was issued more than 12 hours ago")
    name = claims.get(settings.user)
    if not isinstance(name, str):
        raise SignatureError(f"its claim {settings.user} names no user")
    if settings.user == "email" and claims.get("email_verified") is not True:
        raise SignatureError("the provider has not verified its email")
    identifier = hashlib.sha256(text.encode()).hexdigest()[:_ID_CHARS]
    return Token(f"outside-{identifier}", check_name(name), issued, expires)


def _groups(claims: Mapping[str, Any], settings: ProviderSettings) -> frozenset[str]:
    if settings.groups is None:
        return frozenset()
    listed = claims.get(settings.groups, [])
    if not isinstance(listed, list) or len(listed) > _GROUPS_MAX:
        raise SignatureError(f"its claim {settings.groups} is not a list of groups")
    if not all(isinstance(one, str) and 0 < len(one) <= _GROUP_CHARS_MAX for one in listed):
        raise SignatureError(f"its claim {settings.groups} has what is not a group")
    return frozenset(listed)


def _time(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    # A NumericDate may have a fraction (RFC 7519, section 2).
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**40:
        raise SignatureError(f"its {name} is not a time")
    return int(value)
