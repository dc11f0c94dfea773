"""Which audiences a topology may declare."""

from __future__ import annotations

from typing import Any

import pytest

from squall_common.outside.audiences import audience_problems

ISSUER = "https://id.example.org"
OF_ALICE: dict[str, Any] = {
    "issuer": ISSUER, "allowed": None, "cluster": "prod", "owner": "alice", "topology": "words",
}  # fmt: skip


def test_what_declares_none_needs_no_issuer() -> None:
    assert audience_problems([], issuer=None, allowed=None) == []


def test_without_an_issuer_none_may_be_declared() -> None:
    [problem] = audience_problems(["https://a"], issuer=None, allowed=None)
    assert "storm.identity.issuer" in problem


def test_only_audiences_that_the_site_allows_may_be_declared() -> None:
    assert audience_problems(["https://a"], **OF_ALICE) == []
    limited = {**OF_ALICE, "allowed": ("https://a",)}
    assert audience_problems(["https://a"], **limited) == []
    [problem] = audience_problems(["https://a", "https://b"], **limited)
    assert "'https://b'" in problem
    assert audience_problems(["https://a"], **{**OF_ALICE, "allowed": ()})


@pytest.mark.parametrize(
    ("audiences", "more", "says"),
    [
        ([f"https://{n}" for n in range(9)], {}, "9 items"),
        (["a" * 256], {}, "not an audience"),
        (["a\nb"], {}, "not an audience"),
        (["ä"], {}, "not an audience"),
        (["https://a"], {"topology": "wörter"}, "subject"),
        (["https://a"], {"topology": "w" * 200, "owner": "a" * 100}, "subject"),
        (["https://a"], {"owner": "anonymous"}, "owner"),
        (["https://a"], {"owner": None}, "owner"),
    ],
)
def test_what_foreign_parties_could_not_read_is_refused(
    audiences: list[str], more: dict[str, Any], says: str
) -> None:
    problems = audience_problems(audiences, **{**OF_ALICE, **more})
    assert any(says in one for one in problems), problems
