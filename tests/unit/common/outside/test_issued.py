"""Identity tokens: what they say, and that they are no proof inside the cluster."""

from __future__ import annotations

import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from tests.support.signers import NOW, Signers, make_signers

from squall_common.outside.issued import LIFE_SECS, make_outside_token
from squall_common.outside.published import PublicKey
from squall_common.security.identity import IdentityError
from squall_common.security.jws import unb64
from squall_common.security.revocation import TokenRegister
from squall_common.security.tokens import TokenError, verify_token
from squall_common.security.worker_tokens import is_worker_token, verify_worker_token

ISSUER, AUDIENCE = "https://id.example.org/prod", "https://vault.example.org"
ID = "words-1-1700000000"


@pytest.fixture(scope="module")
def key() -> RSAPrivateKey:
    return generate_private_key(65_537, 2_048)


@pytest.fixture(scope="module")
def prod() -> Signers:
    return make_signers("prod")


def test_it_names_the_topology_its_owner_and_one_audience(key: RSAPrivateKey) -> None:
    token = make_outside_token(ISSUER, AUDIENCE, "prod", "alice", ID, NOW + 0.9)
    head, body, signature = token.sign(key, "k1").split(".")
    assert json.loads(unb64(head)) == {"alg": "RS256", "kid": "k1", "typ": "JWT"}
    claims = json.loads(unb64(body))
    assert claims.pop("jti")
    assert claims == {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "prod/alice/words",
        "iat": NOW, "nbf": NOW - 60, "exp": NOW + LIFE_SECS,
        "cluster": "prod", "owner": "alice", "topology": "words", "topology_id": ID,
    }  # fmt: skip
    signed = f"{head}.{body}".encode()
    key.public_key().verify(unb64(signature), signed, PKCS1v15(), SHA256())
    with pytest.raises(InvalidSignature):
        key.public_key().verify(unb64(signature), signed + b"x", PKCS1v15(), SHA256())


def test_two_tokens_have_two_ids() -> None:
    made = [make_outside_token(ISSUER, AUDIENCE, "prod", "alice", ID, NOW) for _ in range(2)]
    assert made[0].id != made[1].id


@pytest.mark.parametrize("owner", ["anonymous", "", "a/b"])
def test_an_owner_that_is_not_a_user_gets_none(owner: str) -> None:
    with pytest.raises(IdentityError):
        make_outside_token(ISSUER, AUDIENCE, "prod", owner, ID, NOW)


def test_it_is_no_proof_inside_the_cluster(key: RSAPrivateKey, prod: Signers) -> None:
    """Also for an audience that is the cluster's own."""
    token = make_outside_token(ISSUER, "squall:prod", "prod", "alice", ID, NOW)
    text = token.sign(key, PublicKey.of(key.public_key(), 0, 1).kid)
    assert not is_worker_token(text)
    with pytest.raises(TokenError):
        verify_token(text, prod.trust, TokenRegister(), NOW)
    with pytest.raises(TokenError):
        verify_worker_token(text, prod.trust, NOW)
