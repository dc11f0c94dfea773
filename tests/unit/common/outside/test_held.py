"""The identity tokens of a worker, and what a component is told without one."""

from __future__ import annotations

import pytest

from squall_common.errors import IdentityTokenError
from squall_common.outside.held import RENEW_LEFT_SECS, Held, HeldTokens

A, B = "https://a", "https://b"
NOW = 1_700_000_000.0


class Time:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


def test_a_token_is_for_its_audience_alone() -> None:
    held = HeldTokens([A, B], now=Time())
    held.take(A, Held("secret-a", NOW + 3_600))
    assert held.get(A) == "secret-a"
    with pytest.raises(IdentityTokenError, match="yet: Nimbus has not answered"):
        held.get(B)
    with pytest.raises(IdentityTokenError, match=r"does not declare .*\n.*topology.identity"):
        held.get("https://c")
    assert "secret" not in repr(held)
    assert "secret" not in repr(Held("secret-a", NOW))


def test_the_last_token_counts_to_its_end_then_an_error_says_why() -> None:
    time = Time()
    held = HeldTokens([A], now=time)
    assert held.missing() == held.due() == [A]
    held.take(A, Held("first", NOW + 3_600))
    assert held.missing() == held.due() == []
    time.now = NOW + 3_600 - RENEW_LEFT_SECS
    assert held.due() == [A]
    held.fail(A, "Nimbus is away")
    time.now = NOW + 3_599
    assert held.get(A) == "first"
    time.now = NOW + 3_600
    with pytest.raises(IdentityTokenError, match=r"ended at 2023-11-14T23:13:20.*Nimbus is away"):
        held.get(A)
    held.take(A, Held("second", NOW + 7_200))
    assert held.get(A) == "second"
    assert held.missing() == []


def test_outside_a_secured_cluster_the_error_says_so() -> None:
    with pytest.raises(IdentityTokenError, match="only workers of a secured cluster"):
        HeldTokens().get(A)
