"""Signing keys of a Nimbus, and the chain from a signed text to the cluster's CA.

    CA certificate ──issues──▶ certificate of a Nimbus ──endorses──▶ signing key ──signs──▶ text

A Nimbus makes its signing keys itself, and they never leave it. Its certificate's key endorses each
of them for one use and a time (`Endorsement`), and the endorsement travels in the header of every
text that the key signs: whoever has the CA's certificate can verify the text alone, and also after
the key was replaced.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.serialization import Encoding

from squall_common.security import jws
from squall_common.security.certificates import (
    Anchor,
    Authorities,
    CertificateError,
    Holder,
    authorities_of,
    check_issued,
    issuer_of,
)
from squall_common.security.identity import IdentityError, Role
from squall_common.security.jws import SignatureError, b64, unb64

LEEWAY_SECS = 60.0  # by which the clocks of two machines may differ
ENDORSED_DAYS = 180

_ENDORSEMENT = "squall-endorsement"
_CACHED_MAX = 256


class Use(enum.StrEnum):
    """What a signing key signs. A key has one use."""

    TOKEN = "token"
    RECORD = "record"


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """A key of this Nimbus with its endorsement. It is not to be seen in a log: no `repr`."""

    private: Ed25519PrivateKey
    endorsement: str
    use: Use
    cluster: str
    not_before: float  # signs nothing earlier, nor later:
    not_after: float

    def __repr__(self) -> str:
        return f"SigningKey({self.use.value}, {key_id(self.private.public_key())})"

    @classmethod
    def make(
        cls,
        use: Use,
        cluster: str,
        certificate: x509.Certificate,
        key: EllipticCurvePrivateKey,
        now: float,
        *,
        private: Ed25519PrivateKey | None = None,
        days: int = ENDORSED_DAYS,
    ) -> SigningKey:
        """A new key, or a new endorsement of `private`, by a Nimbus' certificate and its key. It
        ends with the certificate, if that is earlier."""
        private = private or Ed25519PrivateKey.generate()
        public = private.public_key()
        begins = int(now - LEEWAY_SECS)
        ends = int(min(now + days * 86_400, certificate.not_valid_after_utc.timestamp()))
        payload = {
            "cluster": cluster,
            "kid": key_id(public),
            "key": b64(public.public_bytes_raw()),
            "use": use.value,
            "nbf": begins,
            "exp": ends,
        }
        header = {"typ": _ENDORSEMENT, "x5c": [b64(certificate.public_bytes(Encoding.DER))]}
        endorsement = jws.sign(payload, header, key)
        return cls(private, endorsement, use, cluster, float(begins), float(ends))

    def may_sign(self, now: float, left_secs: float = 0.0) -> bool:
        """Whether the key may sign now, and `left_secs` later. A clock that is set back may be
        before its time."""
        return self.not_before <= now <= self.not_after - left_secs

    def sign(self, payload: Mapping[str, Any], typ: str, now: float) -> str:
        """Sign a text of a type. Raises SignatureError outside the time of the key."""
        if not self.may_sign(now):
            raise SignatureError(f"the signing key for {self.use.value}s is not valid now")
        header = {
            "typ": typ,
            "kid": key_id(self.private.public_key()),
            "endorsement": self.endorsement,
        }
        return jws.sign(payload, header, self.private)


def key_id(public: Ed25519PublicKey) -> str:
    """The id of a key: a hash of it."""
    digest = Hash(SHA256())
    digest.update(public.public_bytes_raw())
    return digest.finalize().hex()[:32]


@dataclass(frozen=True, slots=True)
class _Endorsed:
    key: Ed25519PublicKey
    kid: str
    use: Use
    nimbus: str
    serial: int
    not_before: float
    not_after: float
    issuer: x509.Certificate | None  # of the certificate that endorses it


class Trust:
    """Verifies what the Nimbus nodes of a cluster sign. All of its knowledge is local: the
    cluster's name, the CA's certificate (or the CAs that are trusted, which may change), and
    (`revoked`) the serial numbers that were revoked."""

    def __init__(
        self,
        cluster: str,
        ca: Anchor,
        revoked: Callable[[], Collection[int]] = frozenset,
    ) -> None:
        self.cluster = cluster
        self.ca = ca
        self._revoked = revoked
        self._cache: dict[str, _Endorsed] = {}

    def revoked(self) -> Collection[int]:
        """The serial numbers of certificates that were revoked, as far as is known here."""
        return self._revoked()

    def verify(self, text: str, typ: str, use: Use, *, signed_at: str = "iat") -> Signed:
        """Return what a Nimbus of the cluster has signed. The key and the certificate must have
        been valid at the text's own time, its claim `signed_at` (seconds since the epoch); whether
        the text is still valid is for the caller to say. Raises SignatureError."""
        parsed = jws.parse(text)
        endorsement = parsed.header.get("endorsement")
        if not isinstance(endorsement, str):
            raise SignatureError("its key is not endorsed")
        at = _number(parsed.payload, signed_at)
        endorsed = self._endorsed(endorsement, at)
        if endorsed.use is not use:
            raise SignatureError(f"its key is for {endorsed.use.value}s, not for {use.value}s")
        if parsed.header.get("kid") != endorsed.kid:
            raise SignatureError("its key is not the endorsed one")
        if endorsed.serial in self._revoked():
            raise SignatureError(f"the certificate of nimbus:{endorsed.nimbus} was revoked")
        payload = jws.verify(parsed, endorsed.key, typ=typ)
        if not endorsed.not_before - LEEWAY_SECS <= at <= endorsed.not_after:
            raise SignatureError("it was signed outside the time of its key")
        if payload.get("cluster") != self.cluster:
            raise SignatureError(f"it is of cluster {payload.get('cluster')!r}")
        return Signed(payload, endorsed.nimbus, at, endorsed.issuer)

    def _endorsed(self, text: str, at: float) -> _Endorsed:
        """The key of an endorsement whose certificate was valid `at`. What is kept is only what the
        signatures say, which does not change."""
        parsed = jws.parse(text)
        chain = parsed.header.get("x5c")
        if not isinstance(chain, list) or len(chain) != 1 or not isinstance(chain[0], str):
            raise SignatureError("its endorsement has no certificate")
        try:
            certificate = x509.load_der_x509_certificate(unb64(chain[0]))
            holder = check_issued(certificate, self.ca, self.cluster, at)
        except (CertificateError, IdentityError, x509.ExtensionNotFound) as error:
            raise SignatureError(f"its endorsement: {error}") from None
        except (ValueError, OverflowError):
            raise SignatureError("its endorsement has a bad certificate or time") from None
        if holder.role is not Role.NIMBUS:
            raise SignatureError(f"its key is endorsed by {holder.role.value}:{holder.name}")
        found = self._cache.get(text)
        if found is None:
            public = certificate.public_key()
            if not isinstance(public, jws.PublicKey):
                raise SignatureError("its endorsement is of an unknown kind of key")
            payload = jws.verify(parsed, public, typ=_ENDORSEMENT)
            found = _read_endorsement(payload, self.cluster, holder)
            if len(self._cache) >= _CACHED_MAX:
                self._cache.clear()
            self._cache[text] = found
        return found


@dataclass(frozen=True, slots=True)
class Signed:
    """A verified text: its payload, the Nimbus that signed it, and when."""

    payload: Mapping[str, Any]
    nimbus: str
    at: float
    issuer: x509.Certificate | None  # the CA that it stands on


def verify_by_ca(text: str, ca: Anchor, *, typ: str) -> Mapping[str, Any]:
    """The payload of what a CA's own key has signed. Raises SignatureError."""
    parsed = jws.parse(text)
    problem = SignatureError("the CA's key is of an unknown kind")
    for one in authorities_of(ca):
        public = one.public_key()
        if not isinstance(public, jws.PublicKey):
            continue
        try:
            return jws.verify(parsed, public, typ=typ)
        except SignatureError as error:
            problem = error
    raise problem


def is_by_newest(text: str, ca: Authorities) -> bool:
    """Whether the certificate that endorses a text's key is of the CA that stays. For texts that
    were verified: nothing else is looked at."""
    try:
        endorsement = jws.parse(str(jws.parse(text).header.get("endorsement")))
        certificate = x509.load_der_x509_certificate(unb64(str(endorsement.header["x5c"][0])))
    except (SignatureError, ValueError, KeyError, TypeError, IndexError):
        return False
    return issuer_of(certificate, ca.newest) is not None


def _read_endorsement(payload: Mapping[str, Any], cluster: str, holder: Holder) -> _Endorsed:
    if payload.get("cluster") != cluster:
        raise SignatureError("its key is endorsed for another cluster")
    try:
        use = Use(str(payload.get("use")))
        public = Ed25519PublicKey.from_public_bytes(unb64(str(payload.get("key"))))
    except ValueError:
        raise SignatureError("its endorsement names no key") from None
    return _Endorsed(
        public,
        key_id(public),
        use,
        holder.name,
        holder.serial,
        _number(payload, "nbf"),
        _number(payload, "exp"),
        holder.issuer,
    )


def _number(payload: Mapping[str, Any], claim: str) -> float:
    value = payload.get(claim)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**40:
        raise SignatureError(f"its {claim} is not a time")
    return float(value)
