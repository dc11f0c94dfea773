"""Tokens: what is accepted, and every way in which one is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.signers import NOW, Signers

from squall_common.authentication.mechanisms import bearer
from squall_common.cluster.store import NODE_BYTES_MAX
from squall_common.security import jws
from squall_common.security.identity import Role
from squall_common.security.revocation import TOKENS_OF_USER_MAX, TokenRegister, newest
from squall_common.security.signing import SigningKey, Trust, Use
from squall_common.security.tokens import (
    PERSON_SECS_MAX,
    PROGRAM_SECS_MAX,
    TYP,
    Token,
    TokenError,
    make_token,
    principal_of,
    sign_token,
    verify_token,
)
from squall_thrift.protocol.sasl import PAYLOAD_BYTES_MAX

NONE_REVOKED = TokenRegister()


def token(**changes: Any) -> Token:
    return replace(make_token("alice", 3600, NOW), **changes)


def test_a_token_names_its_user_and_its_limits(prod: Signers) -> None:
    made = make_token(
        "ci", PROGRAM_SECS_MAX, NOW, actions=["submitTopology"], topologies=["count"], label="x"
    )
    found = verify_token(sign_token(made, prod.tokens), prod.trust, NONE_REVOKED, NOW + 5)
    assert found == replace(made, label="")
    caller = principal_of(found, "10.0.0.1", frozenset({"dev"}))
    assert str(caller) == "user:ci"
    assert caller.scope.actions == {"submitTopology"}


@pytest.mark.parametrize(
    ("made", "at", "reason"),
    [
        (token(expires=int(NOW) + 10), NOW + 71, "has expired"),
        (token(issued=int(NOW) + 120, expires=int(NOW) + 1200), NOW, "not valid yet"),
        (token(expires=int(NOW) + PERSON_SECS_MAX + 1), NOW, "lives longer"),
        (token(expires=int(NOW) + PROGRAM_SECS_MAX), NOW, "lives longer"),
        (token(user="anonymous"), NOW, "reserved"),
        (token(user="a/b"), NOW, "not a name"),
    ],
)
def test_a_bad_token_is_refused_though_its_signature_is_right(
    prod: Signers, made: Token, at: float, reason: str
) -> None:
    text = sign_token(replace(made, issued=min(made.issued, made.issued)), prod.tokens)
    with pytest.raises(TokenError, match=reason):
        verify_token(text, prod.trust, NONE_REVOKED, at)


def test_a_token_of_another_cluster_with_the_same_name_is_refused(
    prod: Signers, foreign: Signers
) -> None:
    with pytest.raises(TokenError, match="has not issued"):
        verify_token(sign_token(token(), foreign.tokens), prod.trust, NONE_REVOKED, NOW)


def test_a_token_of_a_key_for_records_is_refused(prod: Signers) -> None:
    with pytest.raises(TokenError, match="for records, not for tokens"):
        verify_token(sign_token(token(), prod.records), prod.trust, NONE_REVOKED, NOW)


@pytest.mark.parametrize("role", sorted(set(Role) - {Role.NIMBUS, Role.WORKER}))
def test_only_a_nimbus_endorses(prod: Signers, role: Role) -> None:
    key = prod.key(Use.TOKEN, NOW - 10, role=role)
    with pytest.raises(TokenError, match=f"endorsed by {role.value}"):
        verify_token(sign_token(token(), key), prod.trust, NONE_REVOKED, NOW)


def test_a_token_signed_outside_the_time_of_its_key_is_refused(prod: Signers) -> None:
    key = prod.key(Use.TOKEN, NOW - 10 * 86_400, days=1)
    with pytest.raises(jws.SignatureError, match="not valid now"):
        sign_token(token(), key)
    backdated = token(issued=int(NOW) - 11 * 86_400, expires=int(NOW) - 11 * 86_400 + 3600)
    with pytest.raises(jws.SignatureError, match="not valid now"):
        sign_token(backdated, key)  # by a clock that was set back
    willing = replace(key, not_before=0, not_after=NOW)
    with pytest.raises(TokenError):
        verify_token(sign_token(backdated, willing), prod.trust, NONE_REVOKED, NOW)


def test_the_tokens_of_a_nimbus_end_when_its_certificate_is_revoked(prod: Signers) -> None:
    text = sign_token(token(), prod.tokens)
    parsed = jws.parse(jws.parse(text).header["endorsement"])
    from cryptography import x509

    serial = x509.load_der_x509_certificate(jws.unb64(parsed.header["x5c"][0])).serial_number
    revoked: set[int] = set()
    trust = Trust("prod", prod.ca.certificate, lambda: revoked)
    verify_token(text, trust, NONE_REVOKED, NOW)
    revoked.add(serial)
    with pytest.raises(TokenError, match="was revoked"):
        verify_token(text, trust, NONE_REVOKED, NOW)


def _with(text: str, part: int, **changes: Any) -> str:
    parts = text.split(".")
    value = json.loads(jws.unb64(parts[part]))
    value.update(changes)
    parts[part] = jws.b64(json.dumps(value).encode())
    return ".".join(parts)


def test_what_was_changed_is_refused(prod: Signers) -> None:
    text = sign_token(token(), prod.tokens)
    changed = [
        _with(text, 1, sub="root"),
        _with(text, 1, exp=int(NOW) + 40_000),
        _with(text, 0, alg="none"),
        _with(text, 0, alg="HS256"),
        _with(text, 0, alg="ES256"),
        _with(text, 0, kid="0" * 32),
        _with(text, 0, typ="squall-manifest"),
        _with(text, 0, endorsement="x"),
        _with(text, 0, endorsement=None),
        _with(text, 0, crit=["x"]),
        text.rpartition(".")[0] + ".",
        text[:-4] + "AAAA",
        text + "=",
        text + ".x",
        "é" + text,
        "x" * (jws.TEXT_CHARS_MAX + 1),
        "..",
        "",
    ]
    for one in changed:
        with pytest.raises(TokenError):
            verify_token(one, prod.trust, NONE_REVOKED, NOW)


def test_an_endorsed_key_cannot_be_swapped(prod: Signers) -> None:
    """A stranger's own key below a real endorsement."""
    stolen = SigningKey(
        Ed25519PrivateKey.generate(), prod.tokens.endorsement, Use.TOKEN, "prod", NOW, NOW + 10
    )
    with pytest.raises(TokenError, match="not the endorsed one"):
        verify_token(sign_token(token(), stolen), prod.trust, NONE_REVOKED, NOW)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"lifetime_secs": PERSON_SECS_MAX + 1}, "must list"),
        ({"lifetime_secs": PROGRAM_SECS_MAX + 1}, "90 days"),
        ({"lifetime_secs": 0}, "90 days"),
        ({"lifetime_secs": 10, "actions": ["flyToTheMoon"]}, "unknown actions: flyToTheMoon"),
        ({"lifetime_secs": 10, "actions": []}, "from 1 to 100"),
        ({"lifetime_secs": 10, "topologies": ["x" * 6_000]}, "at most 6000 bytes"),
        ({"lifetime_secs": 10, "label": "a\nb"}, "printable"),
        ({"lifetime_secs": PERSON_SECS_MAX + 1, "actions": ["getLeader"]}, "must list"),
    ],
)
def test_a_token_beyond_the_limits_is_not_made(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(TokenError, match=reason):
        make_token("alice", now=NOW, **arguments)


def test_the_type_of_a_token_is_not_that_of_a_record() -> None:
    assert TYP == "squall-token"


def test_no_secret_is_in_a_repr(prod: Signers) -> None:
    assert "private" not in repr(prod.tokens).lower()
    assert repr(prod.ca) == "Authority('prod')"


def test_the_longest_tokens_of_one_user_can_be_shown_and_registered(prod: Signers) -> None:
    register = NONE_REVOKED
    names = [f"{number:02}" + "x" * 54 for number in range(100)]
    for _ in range(TOKENS_OF_USER_MAX):
        made = make_token("eve", 3600, NOW, topologies=names, label="y" * 200)
        register = register.with_token(made, NOW)
    assert len(bearer(sign_token(made, prod.tokens), None)) <= PAYLOAD_BYTES_MAX
    assert len(register.sign(prod.records, NOW)) < NODE_BYTES_MAX


def test_of_two_registers_the_later_one_counts() -> None:
    """And of two with one number, which two that believed to lead have signed, both revoke."""
    older, newer = TokenRegister(3, revoked={"a": 9}), TokenRegister(4, revoked={"b": 9})
    assert newest(newer, older) is newer
    assert newest(older, newer) is newer
    both = newest(older, replace(newer, number=3))
    assert both.revoked.keys() == {"a", "b"}
