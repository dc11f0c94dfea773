"""Which slots their topologies have left, by what Nimbus says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from squall_common.security.worker_tokens import WorkerToken
from squall_drpc.server.secured import LiveSlots

A, B = "a-1-1/node-1:6700", "b-2-1/node-1:6700"
GONE = "a-1-1 is no longer on node-1:6700"


def token(topology_id: str) -> WorkerToken:
    return WorkerToken(topology_id, "alice", "node-1", 6700, 0, 1)


async def test_a_slot_that_ended_is_asked_for_again_only_if_a_token_of_it_is_shown() -> None:
    live, asked = {A, B}, []

    async def fetch(names: Sequence[str]) -> list[str]:
        asked.append(set(names))
        return [name for name in names if name in live]

    slots = LiveSlots(fetch)
    assert slots.ended(token("a-1-1")) is None
    assert slots.ended(token("b-2-1")) is None
    live.remove(A)
    await slots.refresh()
    assert slots.ended(token("a-1-1")) == GONE
    assert slots.ended(token("b-2-1")) is None
    await slots.refresh()
    assert slots.ended(token("a-1-1")) == GONE
    await slots.refresh()
    assert slots.ended(token("a-1-1")) == GONE
    assert asked == [{A, B}] * 3  # each time one had been shown
    await slots.refresh()
    await slots.refresh()
    assert asked[3:] == [{A, B}, {B}]


async def test_a_slot_that_ended_counts_again_if_its_topology_has_it_again() -> None:
    """A rebalance can bring it back; and ids, if Nimbus starts anew with its clock set back."""
    live: set[str] = set()

    async def fetch(names: Sequence[str]) -> list[str]:
        return [name for name in names if name in live]

    slots = LiveSlots(fetch)
    assert slots.ended(token("a-1-1")) is None
    await slots.refresh()
    assert slots.ended(token("a-1-1")) == GONE
    live.add(A)
    await slots.refresh()
    assert slots.ended(token("a-1-1")) is None


async def test_while_nimbus_is_away_the_last_answer_counts() -> None:
    async def fetch(names: Sequence[str]) -> list[str]:
        raise OSError("away")

    slots = LiveSlots(fetch)
    assert slots.ended(token("a-1-1")) is None
    with pytest.raises(OSError, match="away"):
        await slots.refresh()
    assert slots.ended(token("a-1-1")) is None
