"""State by key in memory: what bolts have on a cluster and in batch jobs."""

from __future__ import annotations

from squall_common.component.state import MemoryState


def test_keys_that_were_not_put_for_the_ttl_are_absent() -> None:
    now = 0.0
    state = MemoryState(60, clock=lambda: now)
    state.put("old", 1)
    state.put("kept", 1)
    now = 50.0
    state.put("kept", 2)
    assert state.get("old") == 1, "reading does not keep it"
    now = 61.0
    assert state.get("old") is None
    assert list(state.iterate()) == [("kept", 2)]
    now = 200.0
    state.put("kept", 3)
    assert state.get("kept") == 3
    state.delete("kept")
    assert len(state) == 0
    now = 300.0
    state.put("kept", 4)
    assert state.get("kept") == 4


def test_without_a_ttl_nothing_expires() -> None:
    state = MemoryState(clock=lambda: 1e9)
    state.put("a", [1])
    state.get("a").append(2)
    assert state.get("a") == [1, 2]
