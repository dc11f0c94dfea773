"""The keys that foreign parties get: whose they must be, and how long they are served."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from tests.support.signers import NOW, Signers, make_signers

from squall_common.outside.published import (
    AHEAD_SECS,
    CACHE_SECS,
    Publication,
    PublicKey,
    jwks,
    served,
)
from squall_common.security.identity import Role
from squall_common.security.jws import SignatureError
from squall_common.security.signing import Trust, Use

ISSUER = "https://id.example.org"
BEGINS, ENDS = int(NOW), int(NOW) + 1_000


@pytest.fixture(scope="module")
def prod() -> Signers:
    return make_signers("prod")


@pytest.fixture(scope="module")
def private() -> RSAPrivateKey:
    return generate_private_key(65_537, 2_048)


@pytest.fixture(scope="module")
def public(private: RSAPrivateKey) -> PublicKey:
    return PublicKey.of(private.public_key(), BEGINS, ENDS)


def publication(*keys: PublicKey) -> Publication:
    return Publication("n1", ISSUER, keys, int(NOW))


def test_a_key_is_a_jwk_with_its_thumbprint(private: RSAPrivateKey, public: PublicKey) -> None:
    jwk = public.jwk()
    number = int.from_bytes(base64.urlsafe_b64decode(jwk["n"] + "=="))
    assert number == private.public_key().public_numbers().n
    assert (jwk["kty"], jwk["use"], jwk["alg"], jwk["e"]) == ("RSA", "sig", "RS256", "AQAB")
    # RFC 7638, section 3: the required members, sorted.
    text = json.dumps({name: jwk[name] for name in ("e", "kty", "n")}, separators=(",", ":"))
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode()
    assert jwk["kid"] == digest.rstrip("=")
    assert jwks([public]) == {"keys": [jwk]}


def test_what_a_nimbus_has_published_is_read_as_it_was(prod: Signers, public: PublicKey) -> None:
    made = publication(public)
    assert Publication.verify(made.sign(prod.records, NOW), prod.trust) == made


def test_nobody_else_publishes(prod: Signers, public: PublicKey) -> None:
    made = publication(public)
    other = make_signers("prod")
    for key in (
        prod.tokens,  # is not for this
        prod.key(Use.RECORD, NOW, role=Role.SUPERVISOR),
        other.records,
        make_signers("test").records,
    ):
        with pytest.raises(SignatureError):
            Publication.verify(made.sign(key, NOW), prod.trust)
    with pytest.raises(SignatureError):
        Publication.verify(prod.records.sign({"cluster": "prod", "iat": 1}, "x", NOW), prod.trust)


def test_a_nimbus_that_was_revoked_publishes_no_more(prod: Signers, public: PublicKey) -> None:
    text = publication(public).sign(prod.records, NOW)
    serials: set[int] = set()
    trust = Trust("prod", prod.ca.certificate, lambda: serials)
    assert Publication.verify(text, trust)
    from cryptography import x509

    header = json.loads(base64.urlsafe_b64decode(text.split(".")[0] + "=="))
    chain = json.loads(base64.urlsafe_b64decode(header["endorsement"].split(".")[0] + "=="))["x5c"]
    certificate = x509.load_der_x509_certificate(base64.urlsafe_b64decode(chain[0] + "=="))
    serials.add(certificate.serial_number)
    with pytest.raises(SignatureError, match="revoked"):
        Publication.verify(text, trust)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kid": ""},
        {"n": "a" * 2_000},
        {"e": "!"},
        {"begins": -1},
        {"ends": True},
    ],
)
def test_a_key_that_cannot_be_one_is_refused(
    prod: Signers, public: PublicKey, wrong: dict[str, object]
) -> None:
    text = publication(replace(public, **wrong)).sign(prod.records, NOW)  # type: ignore[arg-type]
    with pytest.raises(SignatureError):
        Publication.verify(text, prod.trust)


def test_a_key_is_served_until_its_last_token_has_ended(public: PublicKey) -> None:
    made = publication(public)
    assert served([made], ISSUER, BEGINS - AHEAD_SECS) == (public,)
    assert served([made], ISSUER, ENDS + 3_600) == (public,)
    assert served([made], ISSUER, ENDS + 3_660) == ()
    assert served([made], "https://other.example.org", NOW) == ()
    assert AHEAD_SECS > CACHE_SECS
