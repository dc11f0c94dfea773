"""Names of callers, and the URI of a certificate."""

from __future__ import annotations

import pytest

from squall_common.security.identity import (
    IdentityError,
    Role,
    check_name,
    identity_uri,
    parse_identity,
)


def test_a_uri_names_cluster_role_and_name() -> None:
    uri = identity_uri("prod", Role.SUPERVISOR, "node-7")
    assert uri == "squall://prod/supervisor/node-7"
    assert parse_identity(["https://x", uri], "prod") == (Role.SUPERVISOR, "node-7")


@pytest.mark.parametrize(
    "uris",
    [
        [],
        ["https://prod/user/alice"],
        ["squall://prod/user/alice", "squall://prod/user/bob"],
        ["squall://test/user/alice"],
        ["squall://prod/user"],
        ["squall://prod/user/alice/admin"],
        ["squall://prod/root/alice"],
        ["squall://prod/worker/alice"],
        ["squall://prod/user/anonymous"],
        ["squall://prod/user/Anonymous"],
        ["squall://prod/user/../alice"],
        ["squall://prod/user/"],
        ["squall://prod/user/al%69ce"],
        ["SQUALL://prod/user/alice"],
    ],
)
def test_other_uris_identify_no_one(uris: list[str]) -> None:
    with pytest.raises(IdentityError):
        parse_identity(uris, "prod")


@pytest.mark.parametrize(
    "name", ["", "-x", "a b", "a/b", "a:b", "a\n", "é", "x" * 129, "anonymous"]
)
def test_what_is_not_a_name_is_refused(name: str) -> None:
    with pytest.raises(IdentityError):
        check_name(name)


def test_a_worker_has_no_certificate() -> None:
    with pytest.raises(IdentityError):
        identity_uri("prod", Role.WORKER, "x")
