"""Revocations: signed, numbered lists of what counts no longer, though its signature is right.

    of certificates   serial numbers, signed by the CA's key (`storm admin ca revoke`); a file
    of tokens         ids, and users whose tokens from before a moment count no longer; signed by
                      the leading Nimbus, which also lists the tokens that it has issued

A verifier keeps the list with the highest number that it has seen, on its own disk, and refuses
lower ones: an old list that somebody puts back revives nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from squall_common.security import jws
from squall_common.security.certificates import Anchor
from squall_common.security.identity import IdentityError, check_name
from squall_common.security.jws import SignatureError
from squall_common.security.signing import LEEWAY_SECS, SigningKey, Trust, Use, verify_by_ca
from squall_common.security.tokens import PROGRAM_SECS_MAX, Token, TokenError

_CERTIFICATES = "squall-revoked-certificates"
_REGISTER = "squall-token-register"
_REMEMBERED_SECS = 7 * 86_400
TOKENS_MAX = 4_000
TOKENS_OF_USER_MAX = 100


@dataclass(frozen=True, slots=True)
class RevokedCertificates:
    """The serial numbers that the CA has revoked."""

    number: int = 0
    serials: frozenset[int] = frozenset()

    def with_serial(self, serial: int) -> RevokedCertificates:
        """The next list."""
        return RevokedCertificates(self.number + 1, self.serials | {serial})

    def sign(self, cluster: str, key: EllipticCurvePrivateKey) -> str:
        """The file's text."""
        payload = {
            "cluster": cluster,
            "number": self.number,
            "serials": sorted(f"{serial:x}" for serial in self.serials),
        }
        return jws.sign(payload, {"typ": _CERTIFICATES}, key)

    @classmethod
    def verify(cls, text: str, cluster: str, ca: Anchor) -> RevokedCertificates:
        """Raises SignatureError."""
        payload = verify_by_ca(text.strip(), ca, typ=_CERTIFICATES)
        if payload.get("cluster") != cluster:
            raise SignatureError(f"it is of cluster {payload.get('cluster')!r}")
        try:
            serials = frozenset(int(one, 16) for one in payload["serials"])
        except (KeyError, TypeError, ValueError):
            raise SignatureError("its serial numbers cannot be read") from None
        return cls(_natural(payload, "number"), serials)


@dataclass(frozen=True, slots=True)
class TokenRegister:
    """The tokens that are alive and those that were revoked. A value: each change is a new one
    with the next number."""

    number: int = 0
    issued: Mapping[str, Token] = field(default_factory=dict)  # by id
    revoked: Mapping[str, int] = field(default_factory=dict)  # id -> when it would have ended
    cut_off: Mapping[str, int] = field(default_factory=dict)  # user -> tokens until then are void

    def token_revoked(self, token: Token) -> bool:
        """Whether a token whose signature is right counts no longer."""
        return token.id in self.revoked or token.issued <= self.cut_off.get(token.user, -1)

    def with_token(self, token: Token, now: float) -> TokenRegister:
        """Raises TokenError if there are too many; the text is for the person who asks."""
        pruned = self._pruned(now)
        if len(pruned.issued) >= TOKENS_MAX:
            raise TokenError(f"the cluster has {TOKENS_MAX} tokens, which is its limit")
        own = sum(one.user == token.user for one in pruned.issued.values())
        if own >= TOKENS_OF_USER_MAX:
            raise TokenError(
                f"{token.user} has {own} tokens, which is the limit: revoke some of them"
            )
        return replace(pruned, number=self.number + 1, issued={**pruned.issued, token.id: token})

    def without_token(self, token_id: str, now: float) -> TokenRegister:
        """Revoke one. Raises TokenError if it is not alive."""
        pruned = self._pruned(now)
        token = pruned.issued.get(token_id)
        if token is None:
            raise TokenError(f"no token {token_id!r} was found")
        issued = {key: one for key, one in pruned.issued.items() if key != token_id}
        return replace(
            pruned,
            number=self.number + 1,
            issued=issued,
            revoked={**pruned.revoked, token_id: token.expires},
        )

    def without_user(self, user: str, now: float) -> TokenRegister:
        """Revoke all tokens that a user has by now."""
        pruned = self._pruned(now)
        issued = {key: one for key, one in pruned.issued.items() if one.user != user}
        return replace(
            pruned,
            number=self.number + 1,
            issued=issued,
            cut_off={**pruned.cut_off, user: int(now + LEEWAY_SECS)},
        )

    def _pruned(self, now: float) -> TokenRegister:
        """Without what has ended by itself. What was revoked is remembered for a week longer: the
        clock of a verifier may be behind, or go back."""
        forgotten = now - _REMEMBERED_SECS
        return replace(
            self,
            issued={
                key: one for key, one in self.issued.items() if one.expires > now - LEEWAY_SECS
            },
            revoked={key: end for key, end in self.revoked.items() if end > forgotten},
            cut_off={
                user: at for user, at in self.cut_off.items() if at + PROGRAM_SECS_MAX > forgotten
            },
        )

    def sign(self, key: SigningKey, now: float) -> str:
        """The text that is published. Raises SignatureError if the key may not sign any more."""
        payload = {
            "cluster": key.cluster,
            "number": self.number,
            "iat": int(now),
            "issued": {one.id: _token_json(one) for one in self.issued.values()},
            "revoked": dict(self.revoked),
            "cut_off": dict(self.cut_off),
        }
        return key.sign(payload, _REGISTER, now)

    @classmethod
    def verify(cls, text: str, trust: Trust) -> TokenRegister:
        """Raises SignatureError."""
        payload = trust.verify(text, _REGISTER, Use.RECORD).payload
        try:
            return cls(
                _natural(payload, "number"),
                {key: _token(key, value) for key, value in payload["issued"].items()},
                {str(key): int(value) for key, value in payload["revoked"].items()},
                {check_name(key): int(value) for key, value in payload["cut_off"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError, IdentityError):
            raise SignatureError("the register cannot be read") from None


def newest(kept: TokenRegister, seen: TokenRegister) -> TokenRegister:
    """Of the register that a verifier has kept and one that it sees: the later one. One with the
    same number was signed twice, by two that believed to lead: both revoke."""
    if seen.number != kept.number:
        return seen if seen.number > kept.number else kept
    return replace(
        kept,
        issued={**kept.issued, **seen.issued},
        revoked={**kept.revoked, **seen.revoked},
        cut_off={
            user: max(kept.cut_off.get(user, 0), seen.cut_off.get(user, 0))
            for user in kept.cut_off.keys() | seen.cut_off.keys()
        },
    )


def _token_json(token: Token) -> dict[str, Any]:
    value: dict[str, Any] = {"sub": token.user, "iat": token.issued, "exp": token.expires}
    if token.label:
        value["label"] = token.label
    if token.actions is not None:
        value["actions"] = sorted(token.actions)
    if token.topologies is not None:
        value["topologies"] = sorted(token.topologies)
    if token.authority > 1:
        value["authority"] = token.authority
    return value


def _token(identifier: str, value: Mapping[str, Any]) -> Token:
    actions, topologies = value.get("actions"), value.get("topologies")
    return Token(
        identifier,
        check_name(value["sub"]),
        int(value["iat"]),
        int(value["exp"]),
        str(value.get("label", "")),
        None if actions is None else frozenset(actions),
        None if topologies is None else frozenset(topologies),
        int(value.get("authority", 1)),
    )


def _natural(payload: Mapping[str, Any], key: str) -> int:
    value = payload.get(key)
    if type(value) is not int or not 0 <= value < 2**53:
        raise SignatureError(f"its {key} is not a number")
    return value
