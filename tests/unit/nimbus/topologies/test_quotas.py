"""Quotas against what is stored, while others submit."""

from __future__ import annotations

from typing import Any

import pytest

from squall_common.security.quotas import QuotaError, Quotas, Size
from squall_nimbus.topologies import quotas as module
from squall_nimbus.topologies.quotas import TopologyQuotas


@pytest.mark.parametrize(("most", "refused"), [(2, False), (1, True)])
async def test_a_submit_is_decided_although_grants_end_during_each_reading(
    monkeypatch: pytest.MonkeyPatch, most: int, refused: bool
) -> None:
    """What another submit was granted counts, though it was not stored yet when it was read."""
    nothing: Any = None
    quotas = TopologyQuotas(Quotas.of({"ann": {"topologies": most}}), nothing, lambda owner: 0)
    readings = 0

    class Nothing:
        bases: dict[str, Any] = {}

    async def read(state: object) -> Nothing:
        nonlocal readings
        readings += 1
        assert readings < 50, "it reads forever"
        with quotas._ledger.granted("ann", "other-1-1", Size(1, 1), {}):
            pass
        return Nothing()

    monkeypatch.setattr(module, "read_topologies", read)
    try:
        async with quotas.granted("ann", "mine-2-1", Size(1, 1)):
            granted = True
    except QuotaError:
        granted = False
    assert granted is not refused
