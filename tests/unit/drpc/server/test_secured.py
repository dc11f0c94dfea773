"""Which topologies have ended, by what Nimbus says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from squall_common.security.worker_tokens import WorkerToken
from squall_drpc.server.secured import LiveTopologies


def token(topology_id: str) -> WorkerToken:
    return WorkerToken(topology_id, "alice", "node-1", 6700, 0, 1)


async def test_a_topology_that_ended_is_asked_for_again_only_if_a_token_of_it_is_shown() -> None:
    live, asked = {"a-1-1", "b-2-1"}, []

    async def fetch(names: Sequence[str]) -> list[str]:
        asked.append(set(names))
        return [name for name in names if name in live]

    topologies = LiveTopologies(fetch)
    assert topologies.ended(token("a-1-1")) is None
    assert topologies.ended(token("b-2-1")) is None
    live.remove("a-1-1")
    await topologies.refresh()
    assert topologies.ended(token("a-1-1")) == "a-1-1 has ended"
    assert topologies.ended(token("b-2-1")) is None
    await topologies.refresh()
    assert topologies.ended(token("a-1-1")) == "a-1-1 has ended"
    await topologies.refresh()
    assert topologies.ended(token("a-1-1")) == "a-1-1 has ended"
    assert asked == [{"a-1-1", "b-2-1"}] * 3  # each time one had been shown
    await topologies.refresh()
    await topologies.refresh()
    assert asked[3:] == [{"a-1-1", "b-2-1"}, {"b-2-1"}]


async def test_the_id_of_a_topology_that_ended_counts_again_if_nimbus_uses_it_again() -> None:
    """Its counter begins anew with each start, and its clock can be set back."""
    live: set[str] = set()

    async def fetch(names: Sequence[str]) -> list[str]:
        return [name for name in names if name in live]

    topologies = LiveTopologies(fetch)
    assert topologies.ended(token("a-1-1")) is None
    await topologies.refresh()
    assert topologies.ended(token("a-1-1")) == "a-1-1 has ended"
    live.add("a-1-1")
    await topologies.refresh()
    assert topologies.ended(token("a-1-1")) is None


async def test_while_nimbus_is_away_the_last_answer_counts() -> None:
    async def fetch(names: Sequence[str]) -> list[str]:
        raise OSError("away")

    topologies = LiveTopologies(fetch)
    assert topologies.ended(token("a-1-1")) is None
    with pytest.raises(OSError, match="away"):
        await topologies.refresh()
    assert topologies.ended(token("a-1-1")) is None
