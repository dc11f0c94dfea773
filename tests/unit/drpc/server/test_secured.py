"""Which topologies have ended, by what Nimbus says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from squall_common.security.worker_tokens import WorkerToken
from squall_drpc.server.secured import LiveTopologies


def token(topology_id: str) -> WorkerToken:
    return WorkerToken(topology_id, "alice", "node-1", 6700, 0, 1)


async def test_a_topology_that_ended_stays_so_and_is_asked_for_no_more() -> None:
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
    live.add("a-1-1")
    await topologies.refresh()
    assert topologies.ended(token("a-1-1")) == "a-1-1 has ended"
    assert asked == [{"a-1-1", "b-2-1"}, {"b-2-1"}]


async def test_while_nimbus_is_away_the_last_answer_counts() -> None:
    async def fetch(names: Sequence[str]) -> list[str]:
        raise OSError("away")

    topologies = LiveTopologies(fetch)
    assert topologies.ended(token("a-1-1")) is None
    with pytest.raises(OSError, match="away"):
        await topologies.refresh()
    assert topologies.ended(token("a-1-1")) is None
