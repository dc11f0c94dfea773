"""State by key in memory: what bolts have on a cluster and in batch jobs."""

from __future__ import annotations

import pytest

from squall_common.component.state import CounterState, ListState, MemoryState


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


def test_the_keys_of_a_prefix_are_found() -> None:
    state = MemoryState()
    for key in ("a", "ab", b"ab", ("a",), ("a", 1), ("ab", 1), 7):
        state.put(key, repr(key))
    assert [key for key, _ in state.prefix("a")] == ["a", "ab"]
    assert [key for key, _ in state.prefix(b"a")] == [b"ab"]
    assert [key for key, _ in state.prefix(("a",))] == [("a",), ("a", 1)]
    assert dict(state.prefix(())) == {key: repr(key) for key in (("a",), ("a", 1), ("ab", 1))}
    assert dict(state.items()) == dict(state.iterate())
    with pytest.raises(TypeError, match="a prefix is a str, bytes or a tuple, not 7"):
        state.prefix(7)  # type: ignore[arg-type]


def test_a_list_state_has_a_list_for_each_key() -> None:
    state = MemoryState()
    pages, other = ListState(state, "pages"), ListState(state, "other")
    pages.append("ann", "/")
    pages.extend("ann", ["/cart", "/pay"])
    pages.append("bob", "/")
    other.append("ann", 1)
    assert pages.get("ann") == ["/", "/cart", "/pay"]
    assert pages.get("nobody") == []
    pages.get("ann").append("changes a copy")
    assert dict(pages.items()) == {"ann": ["/", "/cart", "/pay"], "bob": ["/"]}
    pages.put("ann", ("/",))
    pages.delete("bob")
    pages.delete("bob")
    assert dict(pages.items()) == {"ann": ["/"]}
    assert state.get(("other", "ann")) == [1]


def test_a_counter_state_counts_for_each_key() -> None:
    state = MemoryState()
    visits, other = CounterState(state, "visits"), CounterState(state, "other")
    assert visits.inc("ann") == 1
    assert visits.inc("ann", 5) == 6
    assert visits.dec("ann") == 5
    assert other.dec("ann", 2) == -2
    assert (visits.get("ann"), visits.get("bob")) == (5, 0)
    assert dict(visits.items()) == {"ann": 5}
    visits.delete("ann")
    assert (visits.get("ann"), other.get("ann")) == (0, -2)
