"""The keys of an identity provider, as its JWKS has them (RFC 7517), and what they verify.

The verifier chooses the algorithms, and a key has one kind: a token that names another algorithm is
refused before anything is computed. There is none for keys that two parties share (HS256), nor
"none".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePublicKey,
    EllipticCurvePublicNumbers,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS, PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey, RSAPublicNumbers
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from squall_common.security.jws import Jws, SignatureError, unb64

ProviderKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey

#: Algorithm -> kind of key, as `kty` says it (RFC 7518, sections 3.1 and 6.1; RFC 8037).
ALGORITHMS: Final = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}

_KEYS_MAX = 100
_KID_CHARS_MAX = 512
# Outside these a signature is not worth its name, or costs too much to look at.
_RSA_BITS_MIN, _RSA_BITS_MAX = 2_048, 8_192
_E_MAX = 2**32
_P256_BYTES = 32


@dataclass(frozen=True, slots=True)
class Jwk:
    """A key. `alg` is the one algorithm that the provider uses it for; None: it does not say."""

    key: ProviderKey
    kty: str
    alg: str | None


def read_keys(document: Any) -> dict[str, Jwk]:
    """The keys of a JWKS, by their ids. Those of other kinds or uses are left out, as are those
    without an id and those that are too weak. Raises ValueError for what is not a JWKS."""
    listed = document.get("keys") if isinstance(document, Mapping) else None
    if not isinstance(listed, list):
        raise ValueError("it is not a JWKS")
    if len(listed) > _KEYS_MAX:
        raise ValueError(f"it has {len(listed)} keys; the limit is {_KEYS_MAX}")
    found: dict[str, Jwk] = {}
    for one in listed:
        if not isinstance(one, Mapping) or one.get("use", "sig") != "sig":
            continue
        kid, kty, alg = one.get("kid"), one.get("kty"), one.get("alg")
        if not isinstance(kid, str) or not 0 < len(kid) <= _KID_CHARS_MAX:
            continue
        if alg is not None and (not isinstance(alg, str) or ALGORITHMS.get(alg) != kty):
            continue
        try:
            key = _read(one)
        except (ValueError, TypeError):
            continue
        if key is not None:
            # Of two keys with one id neither is the key.
            found[kid] = Jwk(key, str(kty), alg)
    kids = [one.get("kid") for one in listed if isinstance(one, Mapping)]
    return {kid: key for kid, key in found.items() if kids.count(kid) == 1}


def check_signature(token: Jws, alg: str, jwk: Jwk) -> None:
    """Raises SignatureError unless the key has signed the token with this algorithm."""
    if ALGORITHMS.get(alg) != jwk.kty or jwk.alg not in (None, alg):
        raise SignatureError(f"its key is not one for {alg}")
    key, signature = jwk.key, token.signature
    try:
        if isinstance(key, RSAPublicKey):
            padding = PSS(MGF1(SHA256()), SHA256.digest_size) if alg == "PS256" else PKCS1v15()
            key.verify(signature, token.signed, padding, SHA256())
        elif isinstance(key, Ed25519PublicKey):
            key.verify(signature, token.signed)
        else:
            if len(signature) != 2 * _P256_BYTES:
                raise SignatureError("its signature is not one of P-256")
            halves = signature[:_P256_BYTES], signature[_P256_BYTES:]
            r, s = (int.from_bytes(half) for half in halves)
            key.verify(encode_dss_signature(r, s), token.signed, ECDSA(SHA256()))
    except InvalidSignature:
        raise SignatureError("its signature is wrong") from None


def _read(value: Mapping[str, Any]) -> ProviderKey | None:
    """Raises ValueError, TypeError."""
    match value.get("kty"):
        case "RSA":
            n, e = _number(value, "n"), _number(value, "e")
            if not _RSA_BITS_MIN <= n.bit_length() <= _RSA_BITS_MAX or e > _E_MAX:
                return None
            return RSAPublicNumbers(e, n).public_key()
        case "EC" if value.get("crv") == "P-256":
            x, y = _number(value, "x"), _number(value, "y")
            return EllipticCurvePublicNumbers(x, y, SECP256R1()).public_key()
        case "OKP" if value.get("crv") == "Ed25519":
            return Ed25519PublicKey.from_public_bytes(unb64(str(value.get("x"))))
    return None


def _number(value: Mapping[str, Any], name: str) -> int:
    text = value.get(name)
    if not isinstance(text, str) or len(text) > _RSA_BITS_MAX // 4:
        raise ValueError(f"{name} is not a number")
    return int.from_bytes(unb64(text))
