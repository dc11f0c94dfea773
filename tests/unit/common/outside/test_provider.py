"""Tokens of an identity provider: what is accepted, and every way in which one is refused."""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.identity_provider import AUDIENCE, ISSUER, ProviderKeys, signed
from tests.support.signers import NOW, make_signers

from squall_common.outside.jwk import read_keys
from squall_common.outside.provider import (
    ProvedUser,
    ProviderSettings,
    check_token,
    is_outside_token,
    read_token,
)
from squall_common.security.jws import b64
from squall_common.security.tokens import TokenError, make_token, sign_token

SETTINGS = ProviderSettings(ISSUER, AUDIENCE, ("RS256", "ES256", "PS256", "EdDSA"), "sub", "groups")


@pytest.fixture(scope="module")
def keys() -> ProviderKeys:
    return ProviderKeys()


def claims(**changes: Any) -> dict[str, Any]:
    whole = {
        "iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": NOW, "exp": NOW + 300,
        "groups": ["dev"], **changes,
    }  # fmt: skip
    return {name: value for name, value in whole.items() if value is not ...}


def verify(
    text: str, keys: ProviderKeys, settings: ProviderSettings = SETTINGS, now: float = NOW
) -> ProvedUser:
    shown = read_token(text, settings, now)
    return check_token(shown, read_keys(keys.jwks())[shown.kid], settings)


@pytest.mark.parametrize("alg", ["RS256", "ES256", "PS256", "EdDSA"])
def test_a_token_that_the_provider_has_signed_names_the_user(alg: str, keys: ProviderKeys) -> None:
    found = verify(signed(claims(), keys, alg), keys)
    assert (found.token.user, found.groups) == ("alice", {"dev"})
    assert (found.token.issued, found.token.expires) == (NOW, NOW + 300)
    assert found.token.actions is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"iss": "https://login.example.com"}, "its issuer"),
        ({"iss": ISSUER + "/"}, "its issuer"),
        ({"iss": ...}, "its issuer"),
        ({"aud": "other"}, "its audience"),
        ({"aud": [AUDIENCE, "other"]}, "its audience"),
        ({"aud": []}, "its audience"),
        ({"aud": ...}, "its audience"),
        ({"exp": NOW - 61}, "has expired"),
        ({"exp": ...}, "its exp is not a time"),
        ({"exp": True}, "its exp is not a time"),
        ({"exp": "9999999999"}, "its exp is not a time"),
        ({"exp": 1e300}, "its exp is not a time"),
        ({"iat": ...}, "its iat is not a time"),
        ({"iat": NOW + 61}, "not valid yet"),
        ({"nbf": NOW + 61}, "not valid yet"),
        ({"nbf": "x"}, "its nbf is not a time"),
        ({"iat": NOW - 13 * 3_600, "exp": NOW + 10**7}, "more than 12 hours ago"),
        ({"sub": ...}, "names no user"),
        ({"sub": ["alice"]}, "names no user"),
        ({"sub": "anonymous"}, "reserved"),
        ({"sub": "auth0|42"}, "is not a name"),
        ({"sub": "a/b"}, "is not a name"),
        ({"groups": "dev"}, "not a list of groups"),
        ({"groups": ["a"] * 1_001}, "not a list of groups"),
        ({"groups": [1]}, "not a group"),
        ({"groups": [""]}, "not a group"),
    ],
)
def test_what_is_not_for_us_and_now_is_refused(
    changes: dict[str, Any], reason: str, keys: ProviderKeys
) -> None:
    with pytest.raises(TokenError, match=reason):
        verify(signed(claims(**changes), keys), keys)


def test_clocks_may_differ_by_a_minute(keys: ProviderKeys) -> None:
    assert verify(signed(claims(iat=NOW + 59), keys), keys)
    assert verify(signed(claims(exp=NOW - 59), keys), keys)
    assert verify(signed(claims(iat=NOW + 0.5, exp=NOW + 300.5), keys), keys)


def test_a_token_ends_after_twelve_hours_whatever_it_says(keys: ProviderKeys) -> None:
    found = verify(signed(claims(exp=NOW + 10**7), keys), keys)
    assert found.token.expires == NOW + 12 * 3_600


def test_without_a_claim_for_groups_a_token_has_none(keys: ProviderKeys) -> None:
    plain = ProviderSettings(ISSUER, AUDIENCE, ("RS256",), "sub", None)
    assert verify(signed(claims(groups="whatever"), keys), keys, plain).groups == frozenset()
    assert verify(signed(claims(groups=...), keys), keys).groups == frozenset()


def test_an_email_counts_only_if_the_provider_has_verified_it(keys: ProviderKeys) -> None:
    by_email = ProviderSettings(ISSUER, AUDIENCE, ("RS256",), "email", None)
    good = claims(email="alice@example.org", email_verified=True)
    assert verify(signed(good, keys), keys, by_email).token.user == "alice@example.org"
    for verified in (False, "true", 1, ...):
        with pytest.raises(TokenError, match="not verified its email"):
            verify(signed({**good, "email_verified": verified}, keys, drop=True), keys, by_email)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ({"alg": "none"}, "its algorithm is 'none'"),
        ({"alg": "HS256"}, "its algorithm is 'HS256'"),
        ({"alg": "RS512"}, "its algorithm"),
        ({"alg": ["RS256"]}, "its algorithm"),
        ({"alg": "ES256"}, "not one for ES256"),
        ({"kid": None}, "names no key"),
        ({"crit": ["exp"]}, "extensions"),
        ({"typ": "logout+jwt"}, "its type"),
    ],
)
def test_a_header_that_asks_for_something_else_is_refused(
    header: dict[str, Any], reason: str, keys: ProviderKeys
) -> None:
    with pytest.raises(TokenError, match=reason):
        verify(signed(claims(), keys, "RS256", header), keys)


def test_an_algorithm_that_the_site_does_not_allow_is_refused(keys: ProviderKeys) -> None:
    pinned = ProviderSettings(ISSUER, AUDIENCE, ("RS256",), "sub", None)
    for alg in ("ES256", "PS256", "EdDSA"):
        with pytest.raises(TokenError, match="its algorithm"):
            verify(signed(claims(), keys, alg), keys, pinned)


def test_the_public_key_is_no_password(keys: ProviderKeys) -> None:
    """HS256, with what everyone can read as the secret."""
    secret = json.dumps(keys.jwks()["keys"][0]).encode()
    head = b64(json.dumps({"alg": "HS256", "kid": "RS256", "typ": "JWT"}).encode())
    part = f"{head}.{b64(json.dumps(claims()).encode())}"
    text = f"{part}.{b64(hmac.digest(secret, part.encode(), 'sha256'))}"
    with pytest.raises(TokenError, match="HS256"):
        verify(text, keys)


def test_a_changed_token_and_another_providers_are_refused(keys: ProviderKeys) -> None:
    text = signed(claims(), keys)
    head, _, signature = text.split(".")
    changed = f"{head}.{b64(json.dumps(claims(sub='root')).encode())}.{signature}"
    with pytest.raises(TokenError, match="signature is wrong"):
        verify(changed, keys)
    with pytest.raises(TokenError, match="signature is wrong"):
        verify(signed(claims(), ProviderKeys()), keys)
    with pytest.raises(TokenError, match="too long"):
        read_token(text + "A" * 16_384, SETTINGS, NOW)


@pytest.mark.parametrize("text", ["", "a", "a.b", "a.b.c", "..", "\u00e4.b.c", "e30.e30."])
def test_rubbish_is_refused(text: str) -> None:
    with pytest.raises(TokenError):
        read_token(text, SETTINGS, NOW)


def test_our_own_tokens_are_told_from_the_providers(keys: ProviderKeys) -> None:
    prod = make_signers("prod")
    ours = sign_token(make_token("alice", 60, NOW), prod.tokens)
    assert not is_outside_token(ours)
    assert is_outside_token(signed(claims(), keys))
    for text in ("", "a.b.c", "a" * 20_000):
        assert not is_outside_token(text)


def weak_rsa(jwk: dict[str, Any]) -> None:
    jwk["n"] = b64((2**1023 + 1).to_bytes(128))


def huge_rsa(jwk: dict[str, Any]) -> None:
    jwk["n"] = b64((2**9000 + 1).to_bytes(1_126))


def huge_e(jwk: dict[str, Any]) -> None:
    jwk["e"] = b64((2**40 + 1).to_bytes(6))


CHANGES: list[Callable[[dict[str, Any]], None]] = [
    weak_rsa,
    huge_rsa,
    huge_e,
    lambda jwk: jwk.update(use="enc"),
    lambda jwk: jwk.update(alg="ES256"),
    lambda jwk: jwk.update(alg="HS256"),
    lambda jwk: jwk.update(alg=5),
    lambda jwk: jwk.update(kty="oct", k="c2VjcmV0"),
    lambda jwk: jwk.update(kid=""),
    lambda jwk: jwk.update(kid=7),
    lambda jwk: jwk.update(n=5),
    lambda jwk: jwk.update(n="!"),
    lambda jwk: jwk.pop("e"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_key_that_is_weak_or_for_something_else_is_left_out(
    change: Callable[[dict[str, Any]], None], keys: ProviderKeys
) -> None:
    document = keys.jwks()
    before = set(read_keys(document))
    [jwk] = [one for one in document["keys"] if one["kid"] == "RS256"]
    change(jwk)
    assert set(read_keys(document)) == before - {"RS256"}


def test_two_keys_with_one_id_are_none(keys: ProviderKeys) -> None:
    document = keys.jwks()
    document["keys"][1]["kid"] = document["keys"][0]["kid"]
    assert len(read_keys(document)) == len(document["keys"]) - 2


@pytest.mark.parametrize(
    "document", [None, [], {}, {"keys": {}}, {"keys": [{}] * 101}, {"keys": "RS256"}]
)
def test_what_is_not_a_jwks_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match=r"JWKS|keys"):
        read_keys(document)
    assert read_keys({"keys": [None, 5, "a", {}, {"kty": "EC", "crv": "P-256", "kid": "a"}]}) == {}
