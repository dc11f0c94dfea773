"""How much each user may have."""

from __future__ import annotations

import pytest

from squall_common.errors import ConfigError
from squall_common.security.quotas import Ledger, Limits, QuotaError, Quotas, Size

QUOTAS = Quotas.of(
    {
        "*": {"topologies": 2, "workers": 5, "executors": 20, "blob.bytes": 100, "sessions": 3},
        "ann": {"workers": 7},
        "ci": {"topologies": 0},
    }
)


def test_a_user_has_the_limits_of_everyone_but_for_what_names_them() -> None:
    assert QUOTAS.limits("bob") == Limits(2, 5, 20, 100, 3)
    assert QUOTAS.limits("ann") == Limits(2, 7, 20, 100, 3)
    assert QUOTAS.limits("ci").topologies == 0
    assert Quotas.of(None).limits("ann") == Limits()
    assert Quotas.of({"ann": {"workers": 1}}).limits("bob") == Limits()


def test_a_quota_that_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="'ann' has a quota 'worker'") as refused:
        Quotas.of({"ann": {"worker": 1}})
    assert "executors" in str(refused.value.hint)


def test_each_quota_holds_at_its_edge() -> None:
    ledger = Ledger(QUOTAS)
    one = {"a-1": Size(3, 10)}
    with ledger.granted("bob", "b-2", Size(2, 10), one):
        pass
    for size, name in ((Size(3, 10), "workers"), (Size(2, 11), "executors")):
        with (
            pytest.raises(QuotaError, match=f"5 {name}|20 {name}"),
            ledger.granted("bob", "b-2", size, one),
        ):
            pass
    with (
        pytest.raises(QuotaError, match="2 topologies: 2 in use, 1 more"),
        ledger.granted("bob", "c-3", Size(), {"a-1": Size(), "b-2": Size()}),
    ):
        pass
    with pytest.raises(QuotaError, match="0 topologies"), ledger.granted("ci", "c-3", Size(), {}):
        pass
    QUOTAS.check_blob_bytes("bob", 60, 40)
    with pytest.raises(QuotaError, match="100 bytes of blobs: 60 in use, 41 more"):
        QUOTAS.check_blob_bytes("bob", 60, 41)
    QUOTAS.check_sessions("bob", 2)
    with pytest.raises(QuotaError, match="3 uploads and downloads"):
        QUOTAS.check_sessions("bob", 3)


def test_what_is_granted_counts_before_it_is_stored() -> None:
    ledger = Ledger(QUOTAS)
    with ledger.granted("bob", "a-1", Size(3, 1), {}):
        with (
            pytest.raises(QuotaError, match="3 in use, 3 more"),
            ledger.granted("bob", "b-2", Size(3, 1), {}),
        ):
            pass
        # Stored meanwhile, and granted: once.
        with ledger.granted("bob", "b-2", Size(2, 1), {"a-1": Size(3, 1)}):
            pass
        with ledger.granted("ann", "c-3", Size(7, 1), {}):
            pass
    with ledger.granted("bob", "b-2", Size(5, 1), {}):
        pass


def test_a_topology_that_gets_smaller_is_granted_although_the_limit_was_lowered() -> None:
    ledger = Ledger(QUOTAS)
    stored = {"a-1": Size(50, 200), "b-2": Size(1, 1), "c-3": Size(1, 1)}
    with ledger.granted("bob", "a-1", Size(49, 200), stored):
        pass
    with (
        pytest.raises(QuotaError, match="workers"),
        ledger.granted("bob", "a-1", Size(51, 200), stored),
    ):
        pass


def test_two_grants_of_one_topology_at_a_time_both_count_and_both_end() -> None:
    """As of two rebalances: which of them comes last is not known yet."""
    ledger = Ledger(QUOTAS)
    stored = {"a-1": Size(1, 1)}
    first = ledger.granted("bob", "a-1", Size(4, 1), stored)
    first.__enter__()
    with ledger.granted("bob", "a-1", Size(2, 1), stored):
        first.__exit__(None, None, None)
        with (
            pytest.raises(QuotaError, match="2 in use, 4 more"),
            ledger.granted("bob", "b-2", Size(4, 1), stored),
        ):
            pass
    with ledger.granted("bob", "b-2", Size(4, 1), stored):
        pass


def test_who_reads_what_is_stored_learns_which_grants_end_meanwhile() -> None:
    ledger = Ledger(QUOTAS)
    with ledger.granted("ann", "a-1", Size(1, 1), {}):
        pass
    with (
        ledger.reading() as ended,
        ledger.reading() as other,
        ledger.granted("bob", "b-2", Size(1, 2), {}),
    ):
        assert ended == []
    with ledger.granted("ann", "c-3", Size(1, 1), {}):
        pass
    assert ended == other == [("bob", "b-2", Size(1, 2))]
