"""Signed JSON: compact JWS (RFC 7515), with the two algorithms that Squall uses and no others.

    Ed25519 ("EdDSA")   what a Nimbus signs: tokens, revocations, records
    P-256 ("ES256")     what a certificate's key signs: the endorsement of a Nimbus' signing key

The verifier chooses the algorithm, by the kind of its key: what the header names must be the same.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)
from cryptography.hazmat.primitives.hashes import SHA256

PrivateKey = Ed25519PrivateKey | EllipticCurvePrivateKey
PublicKey = Ed25519PublicKey | EllipticCurvePublicKey

# A signed list of revocations is the longest text.
TEXT_CHARS_MAX = 1_048_576
_P256_BYTES = 32


class SignatureError(ValueError):
    """A text is not what its key has signed. The reason is for the log, not for the sender."""


@dataclass(frozen=True, slots=True)
class Jws:
    """A text that was taken apart. Nothing in it is to be believed before `verify`."""

    header: Mapping[str, Any]
    payload: Mapping[str, Any]
    signed: bytes
    signature: bytes


def b64(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    """The inverse of `b64`; one spelling only. Raises SignatureError."""
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        raise SignatureError("it is not base64url") from None
    if b64(data) != text:
        raise SignatureError("it is not base64url in its one spelling")
    return data


def sign(payload: Mapping[str, Any], header: Mapping[str, Any], key: PrivateKey) -> str:
    """The text; `alg` is added to the header."""
    alg = "EdDSA" if isinstance(key, Ed25519PrivateKey) else "ES256"
    head = b64(_json({**header, "alg": alg}))
    signed = f"{head}.{b64(_json(payload))}".encode()
    if isinstance(key, Ed25519PrivateKey):
        signature = key.sign(signed)
    else:
        r, s = decode_dss_signature(key.sign(signed, ECDSA(SHA256())))
        signature = r.to_bytes(_P256_BYTES) + s.to_bytes(_P256_BYTES)
    return f"{signed.decode()}.{b64(signature)}"


def parse(text: str) -> Jws:
    """Take a text apart. Raises SignatureError."""
    if len(text) > TEXT_CHARS_MAX:
        raise SignatureError(f"it has more than {TEXT_CHARS_MAX} characters")
    if not text.isascii():
        raise SignatureError("it is not ASCII")
    parts = text.split(".")
    if len(parts) != 3:
        raise SignatureError(f"it has {len(parts)} parts, not 3")
    head, body, signature = (unb64(part) for part in parts)
    return Jws(_object(head), _object(body), f"{parts[0]}.{parts[1]}".encode(), signature)


def verify(jws: Jws, key: PublicKey, *, typ: str) -> Mapping[str, Any]:
    """Return the payload if `key` has signed it as a text of this type. Raises SignatureError."""
    alg = "EdDSA" if isinstance(key, Ed25519PublicKey) else "ES256"
    if jws.header.get("alg") != alg:
        raise SignatureError(f"its algorithm is not {alg}")
    if jws.header.get("typ") != typ:
        raise SignatureError(f"it is not a {typ}")
    if "crit" in jws.header:
        raise SignatureError("it has extensions that must be understood")
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(jws.signature, jws.signed)
        else:
            if not isinstance(key.curve, SECP256R1) or len(jws.signature) != 2 * _P256_BYTES:
                raise SignatureError("its signature is not one of P-256")
            halves = jws.signature[:_P256_BYTES], jws.signature[_P256_BYTES:]
            r, s = (int.from_bytes(half) for half in halves)
            key.verify(encode_dss_signature(r, s), jws.signed, ECDSA(SHA256()))
    except InvalidSignature:
        raise SignatureError("its signature is wrong") from None
    return jws.payload


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise SignatureError("it is not JSON") from None
    if not isinstance(value, dict):
        raise SignatureError("it is not a JSON object")
    return value
