"""The keys by which foreign parties verify identity tokens, and who vouches for them.

Each Nimbus publishes its own keys in ZooKeeper, in one text that its certificate endorses
(`security.signing`). The UI serves those of all of them. A key is published `AHEAD_SECS` before it
signs, since foreign parties keep what they have read for `CACHE_SECS`, and stays until the last
token that it has signed has ended. What a Nimbus has published counts no longer once its
certificate is revoked.

    made ─────AHEAD_SECS─────▶ signs ─────SIGNS_SECS─────▶ ended ──an hour──▶ gone
                                                ▲ the next one is made AHEAD_SECS before this
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.hashes import SHA256, Hash

from squall_common.outside.issued import LIFE_SECS
from squall_common.security.jws import SignatureError, b64, unb64
from squall_common.security.signing import LEEWAY_SECS, SigningKey, Trust, Use

CACHE_SECS = 300  # how long foreign parties may keep the keys that they have read
AHEAD_SECS = 2 * CACHE_SECS
SIGNS_SECS = 7 * 86_400
BITS = 2_048

_TYP = "squall-outside-keys"
_TEXT_CHARS_MAX = 65_536
_KEYS_MAX = 16
# Of a number in base64url, so that nobody makes the UI serve megabytes.
_NUMBER_CHARS_MAX = 1_024


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key of RSA. `n` and `e` are as in a JWK (RFC 7518, section 6.3.1); it signs from
    `begins` to `ends`, in seconds since the epoch."""

    kid: str
    n: str
    e: str
    begins: int
    ends: int

    @property
    def until(self) -> int:
        """How long it is served: until the last token has ended that it has signed."""
        return self.ends + LIFE_SECS + int(LEEWAY_SECS)

    def jwk(self) -> dict[str, str]:
        """As an element of a JWKS (RFC 7517)."""
        return {
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid, "n": self.n, "e": self.e,
        }  # fmt: skip

    @classmethod
    def of(cls, key: RSAPublicKey, begins: int, ends: int) -> PublicKey:
        """Of a key; its id is its thumbprint (RFC 7638)."""
        numbers = key.public_numbers()
        n, e = (
            b64(number.to_bytes((number.bit_length() + 7) // 8))
            for number in (numbers.n, numbers.e)
        )
        digest = Hash(SHA256())
        digest.update(f'{{"e":"{e}","kty":"RSA","n":"{n}"}}'.encode())
        return cls(b64(digest.finalize()), n, e, begins, ends)


@dataclass(frozen=True, slots=True)
class Publication:
    """All keys of one Nimbus that are served."""

    nimbus: str
    issuer: str
    keys: tuple[PublicKey, ...]
    issued: int

    def sign(self, key: SigningKey, now: float) -> str:
        """Its text. Raises SignatureError if the key may not sign any more."""
        payload = {
            "cluster": key.cluster,
            "issuer": self.issuer,
            "iat": self.issued,
            "keys": [
                {"kid": one.kid, "n": one.n, "e": one.e, "begins": one.begins, "ends": one.ends}
                for one in self.keys
            ],
        }
        return key.sign(payload, _TYP, now)

    @classmethod
    def verify(cls, text: str, trust: Trust) -> Publication:
        """Raises SignatureError."""
        if len(text) > _TEXT_CHARS_MAX:
            raise SignatureError(f"it has more than {_TEXT_CHARS_MAX} characters")
        signed = trust.verify(text, _TYP, Use.RECORD)
        issuer, keys = signed.payload.get("issuer"), signed.payload.get("keys")
        if not isinstance(issuer, str) or not isinstance(keys, list) or len(keys) > _KEYS_MAX:
            raise SignatureError("it lacks an issuer or keys")
        return cls(signed.nimbus, issuer, tuple(map(_read, keys)), int(signed.at))


def served(publications: Iterable[Publication], issuer: str, now: float) -> tuple[PublicKey, ...]:
    """The keys that foreign parties get now: of this issuer, and not gone."""
    found = {
        one.kid: one
        for publication in publications
        if publication.issuer == issuer
        for one in publication.keys
        if now < one.until
    }
    return tuple(found[kid] for kid in sorted(found))


def jwks(keys: Iterable[PublicKey]) -> dict[str, object]:
    """The document with the keys (RFC 7517, section 5)."""
    return {"keys": [one.jwk() for one in keys]}


def _read(value: Any) -> PublicKey:
    if not isinstance(value, Mapping):
        raise SignatureError("a key cannot be read")
    texts = tuple(value.get(name) for name in ("kid", "n", "e"))
    times = tuple(value.get(name) for name in ("begins", "ends"))
    if not all(isinstance(one, str) and 0 < len(one) <= _NUMBER_CHARS_MAX for one in texts):
        raise SignatureError("a key lacks a part")
    if not all(type(one) is int and 0 <= one < 2**40 for one in times):
        raise SignatureError("a key lacks a time")
    for number in texts[1:]:
        unb64(str(number))
    return PublicKey(*texts, *times)  # type: ignore[arg-type]
