"""Tokens of workers: what is accepted, and every way in which one is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.signers import NOW, Signers

from squall_common.security.acl import ClusterAcl, Impersonation
from squall_common.security.authorize import Denied, may_impersonate
from squall_common.security.identity import Role
from squall_common.security.revocation import TokenRegister
from squall_common.security.signing import Use
from squall_common.security.tokens import TokenError, make_token, sign_token, verify_token
from squall_common.security.worker_tokens import (
    LIFE_SECS,
    WorkerToken,
    is_worker_token,
    make_worker_token,
    sign_worker_token,
    verify_worker_token,
    worker_principal,
)

ID = "count-1-1700000000"


def token(**changes: Any) -> WorkerToken:
    return replace(make_worker_token(ID, "alice", "node-1", 6700, NOW), **changes)


def test_it_names_the_slot_and_the_owner(prod: Signers) -> None:
    made = token()
    text = sign_worker_token(made, prod.tokens)
    assert is_worker_token(text)
    verified = verify_worker_token(text, prod.trust, NOW + 5)
    assert verified == made
    assert verified.issuer == prod.ca.certificate
    caller = worker_principal(made, "10.0.0.1")
    assert str(caller) == f"worker:{ID}/node-1:6700"
    assert caller.role is Role.WORKER
    assert caller.user is None
    assert (caller.topology_id, caller.owner) == (ID, "alice")
    assert (caller.node, caller.port) == ("node-1", 6700)


@pytest.mark.parametrize(
    ("made", "at", "reason"),
    [
        (token(), NOW + LIFE_SECS + 61, "has expired"),
        (token(issued=int(NOW) + 120, expires=int(NOW) + 1200), NOW, "not valid yet"),
        (token(expires=int(NOW) + LIFE_SECS + 1), NOW, "lifetime"),
        (token(port=0), NOW, "port"),
        (token(owner="anonymous"), NOW, "reserved"),
        (token(topology_id=""), NOW, "lacks a topology"),
    ],
)
def test_a_bad_token_is_refused_though_its_signature_is_right(
    prod: Signers, made: WorkerToken, at: float, reason: str
) -> None:
    with pytest.raises(TokenError, match=reason):
        verify_worker_token(sign_worker_token(made, prod.tokens), prod.trust, at)


def test_another_cluster_another_key_and_a_changed_text_are_refused(
    prod: Signers, foreign: Signers
) -> None:
    text = sign_worker_token(token(), prod.tokens)
    for wrong in (
        sign_worker_token(token(), foreign.tokens),
        sign_worker_token(token(), prod.records),
        sign_worker_token(token(), prod.key(Use.TOKEN, NOW, role=Role.SUPERVISOR)),
        text[:-4] + "AAAA",
        "a.b.c",
    ):
        with pytest.raises(TokenError):
            verify_worker_token(wrong, prod.trust, NOW)


def test_it_is_no_token_of_a_user_nor_the_other_way_round(prod: Signers) -> None:
    with pytest.raises(TokenError, match="not a squall-token"):
        verify_token(sign_worker_token(token(), prod.tokens), prod.trust, TokenRegister(), NOW)
    users = sign_token(make_token("alice", 3600, NOW), prod.tokens)
    assert not is_worker_token(users)
    with pytest.raises(TokenError, match="not a squall-worker-token"):
        verify_worker_token(users, prod.trust, NOW)


def test_a_topology_of_nobody_gets_none() -> None:
    with pytest.raises(TokenError, match="reserved"):
        make_worker_token(ID, "anonymous", "node-1", 6700, NOW)


def test_a_worker_acts_for_no_one_whatever_the_list_says() -> None:
    caller = worker_principal(token())
    everyone = Impersonation(frozenset({"*"}), frozenset({"*"}))
    acls = ClusterAcl(impersonation={str(caller): everyone})
    assert isinstance(may_impersonate(caller, "bob", frozenset(), acls), Denied)
