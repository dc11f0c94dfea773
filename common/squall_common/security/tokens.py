"""Tokens: what a user shows instead of a certificate. A signed text of one Nimbus, for one cluster.

    person   up to 12 hours, no limits but the user's own
    program  up to 90 days, for the actions and topologies that it lists

No token makes another: that takes a certificate (`actions`). A token ends by its time, by its id in
the revocations, or because its user's tokens from before some moment were revoked. It is never
written to a log; its id is.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from cryptography import x509

from squall_common.security.actions import ACTIONS
from squall_common.security.identity import (
    Channel,
    IdentityError,
    Principal,
    Role,
    Scope,
    check_name,
)
from squall_common.security.jws import SignatureError
from squall_common.security.signing import LEEWAY_SECS, SigningKey, Trust, Use

TYP = "squall-token"
PERSON_SECS_MAX = 12 * 3600
PROGRAM_SECS_MAX = 90 * 86_400
_LISTED_MAX = 100
_LABEL_CHARS_MAX = 200
# Of all names in a token: its text must fit into a SASL response, and the tokens of one user must
# leave room for those of others in the register, which is one node in ZooKeeper.
_NAMES_BYTES_MAX = 6_000


class TokenError(ValueError):
    """A token is not valid, or cannot be made. Of one that was shown, the text is for the log."""


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says. Times are seconds since the epoch."""

    id: str
    user: str
    issued: int
    expires: int
    label: str = ""
    actions: frozenset[str] | None = None
    topologies: frozenset[str] | None = None
    authority: int = 1  # generation of the CA that stands behind it; in the register alone
    # That CA, of one that was verified here.
    issuer: x509.Certificate | None = field(default=None, compare=False, repr=False)

    @property
    def scope(self) -> Scope:
        return Scope(self.actions, self.topologies)


class Revocations(Protocol):
    """What the verifier of tokens knows of revocations."""

    def token_revoked(self, token: Token) -> bool: ...


def make_token(
    user: str,
    lifetime_secs: int,
    now: float,
    *,
    label: str = "",
    actions: Collection[str] | None = None,
    topologies: Collection[str] | None = None,
) -> Token:
    """A new token. Raises TokenError, whose text is for the person who asks for it."""
    try:
        check_name(user)
    except IdentityError as error:
        raise TokenError(str(error)) from error
    limited = actions is not None and topologies is not None
    most = PROGRAM_SECS_MAX if limited else PERSON_SECS_MAX
    if not 0 < lifetime_secs <= PROGRAM_SECS_MAX:
        raise TokenError(f"a token lives up to {PROGRAM_SECS_MAX // 86_400} days")
    if lifetime_secs > most:
        raise TokenError(
            f"a token that lives longer than {PERSON_SECS_MAX // 3600} hours must list its "
            "actions and its topologies"
        )
    for name, listed in (("actions", actions), ("topologies", topologies)):
        if listed is not None and not 0 < len(listed) <= _LISTED_MAX:
            raise TokenError(f"a token lists from 1 to {_LISTED_MAX} {name}")
    if len(json.dumps([*(actions or ()), *(topologies or ())])) > _NAMES_BYTES_MAX:
        raise TokenError(f"a token's actions and topologies have at most {_NAMES_BYTES_MAX} bytes")
    unknown = sorted(set(actions or ()) - ACTIONS.keys())
    if unknown:
        raise TokenError(f"unknown actions: {', '.join(unknown)}")
    if len(label) > _LABEL_CHARS_MAX or not label.isprintable():
        raise TokenError(f"a label has at most {_LABEL_CHARS_MAX} printable characters")
    return Token(
        secrets.token_hex(12),
        user,
        int(now),
        int(now) + lifetime_secs,
        label,
        None if actions is None else frozenset(actions),
        None if topologies is None else frozenset(topologies),
    )


def sign_token(token: Token, key: SigningKey) -> str:
    """The text that the user shows. Raises SignatureError if the key may not sign any more."""
    payload: dict[str, Any] = {
        "aud": f"squall:{key.cluster}",
        "cluster": key.cluster,
        "jti": token.id,
        "sub": token.user,
        "iat": token.issued,
        "exp": token.expires,
    }
    if token.actions is not None:
        payload["actions"] = sorted(token.actions)
    if token.topologies is not None:
        payload["topologies"] = sorted(token.topologies)
    return key.sign(payload, TYP, token.issued)


def verify_token(text: str, trust: Trust, revocations: Revocations, now: float) -> Token:
    """What a token says, if it is valid now. Raises TokenError."""
    try:
        signed = trust.verify(text, TYP, Use.TOKEN)
        token = replace(_read(signed.payload, trust.cluster), issuer=signed.issuer)
    except SignatureError as error:
        raise TokenError(f"token: {error}") from None
    if token.issued > now + LEEWAY_SECS:
        raise TokenError(f"token {token.id} of {token.user} is not valid yet")
    if token.expires <= now - LEEWAY_SECS:
        raise TokenError(f"token {token.id} of {token.user} has expired")
    if revocations.token_revoked(token):
        raise TokenError(f"token {token.id} of {token.user} was revoked")
    return token


def principal_of(token: Token, host: str = "", groups: frozenset[str] = frozenset()) -> Principal:
    """The caller that a verified token names."""
    expires = token.expires + LEEWAY_SECS
    return Principal(Role.USER, token.user, Channel.TOKEN, groups, host, token.scope, expires)


def _read(payload: Mapping[str, Any], cluster: str) -> Token:
    if payload.get("aud") != f"squall:{cluster}":
        raise SignatureError(f"its audience is {payload.get('aud')!r}")
    identifier, user, issued, expires = (payload.get(key) for key in ("jti", "sub", "iat", "exp"))
    if not (
        isinstance(identifier, str)
        and isinstance(user, str)
        and type(issued) is int
        and type(expires) is int
    ):
        raise SignatureError("it lacks an id, a user or a time")
    try:
        check_name(user)
    except IdentityError as error:
        raise SignatureError(str(error)) from None
    actions, topologies = (_listed(payload, key) for key in ("actions", "topologies"))
    limited = actions is not None and topologies is not None
    if not 0 < expires - issued <= (PROGRAM_SECS_MAX if limited else PERSON_SECS_MAX):
        raise SignatureError("it lives longer than a token may")
    return Token(identifier, user, issued, expires, "", actions, topologies)


def _listed(payload: Mapping[str, Any], key: str) -> frozenset[str] | None:
    value = payload.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise SignatureError(f"its {key} are not a list")
    return frozenset(value)
