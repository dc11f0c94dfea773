"""A failed try leaves the state as it was: values, and the keys that entries belong to."""

from __future__ import annotations

from typing import Any

import pytest

from squall_common.state import keyed
from squall_common.state.errors import StateValueError
from squall_common.state.keyed import NO_KEY, KeyedState
from squall_engine.atomic.undo import BatchKeys, BatchState, UndoableState
from squall_engine.core.codec import ValueCodec


def state(kind: Any = UndoableState) -> tuple[KeyedState, Any]:
    codec = ValueCodec()
    inner = KeyedState(128, codec)
    return inner, kind(inner, codec)


def restored(inner: KeyedState) -> KeyedState:
    """The state after a snapshot was read again."""
    codec = ValueCodec()
    blocks = inner.snapshot(1).encode(codec)

    class Stored:
        name = "it"

        def blocks(self, groups: Any) -> Any:
            return [(group, blocks[group]) for group in groups if group in blocks]

    found = KeyedState(128, codec)
    found.restore([[Stored()]], range(128), bound=True)  # type: ignore[list-item]
    return found


def test_an_entry_of_the_task_stays_one_when_a_tuple_that_deleted_it_fails() -> None:
    inner, seen = state()
    seen.put("total", 1)  # by no tuple
    assert inner.bound == 1
    seen.begin("ann")
    seen.delete("total")
    seen.undo()
    assert inner.bound == 1
    assert inner.get("total") == 1
    assert restored(inner).bound == 1


def test_an_entry_that_expires_while_a_try_fails_stays_away() -> None:
    now, codec = [0.0], ValueCodec()
    for puts in (False, True):
        now[0] = 0.0
        inner = KeyedState(128, codec, ttl_secs=10, clock=lambda: now[0])
        seen = UndoableState(inner, codec)
        inner.put("ann", [1])
        now[0] = 9.0
        seen.begin("ann")
        seen.get("ann").append(2)
        now[0] = 11.0
        assert seen.get("ann") is None
        if puts:
            seen.put("ann", [3])
        seen.undo()
        assert seen.get("ann") is None


def test_many_entries_that_expire_are_undone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    codec, sorts = ValueCodec(), list[Any]()
    inner = KeyedState(128, codec, ttl_secs=1e9)
    seen = UndoableState(inner, codec)
    for key in range(100):
        inner.put(key, key)
    times = {key: inner.entry(key) for key in range(100)}

    def noted(*given: Any, **how: Any) -> list[Any]:
        sorts.append(given)
        return sorted(*given, **how)

    monkeypatch.setattr(keyed, "sorted", noted, raising=False)
    seen.begin(0)
    for key in range(100):
        seen.put(key, -1)
    seen.undo()
    assert len(sorts) == 1
    assert {key: inner.entry(key) for key in range(100)} == times


def test_an_entry_keeps_its_key_when_a_tuple_of_another_fails() -> None:
    inner, seen = state()
    seen.begin("ann")
    seen.put(("ann", 1), [1])
    seen.end()
    seen.begin("bob")
    seen.put(("ann", 1), [2])
    assert inner.bound == 1
    seen.undo()
    assert inner.bound == 0
    again = restored(inner)
    assert again.bound == 0
    assert dict(again.items()) == {("ann", 1): [1]}


def test_a_new_entry_of_a_failed_try_is_nowhere() -> None:
    inner, seen = state()
    seen.begin("ann")
    seen.put("ann", 1)
    seen.put("other", 2)
    seen.undo()
    assert len(restored(inner)) == 0
    assert inner.bound == 0
    assert inner.current is NO_KEY


def test_the_time_of_an_entry_is_what_it_was() -> None:
    now = [100.0]
    codec = ValueCodec()
    inner = KeyedState(128, codec, ttl_secs=10, clock=lambda: now[0])
    seen = UndoableState(inner, codec)
    inner.put("a", 1)
    now[0] = 105.0
    inner.put("b", 2)
    now[0] = 109.0
    seen.begin("a")
    seen.put("a", 5)
    seen.undo()
    assert inner.get("a") == 1
    now[0] = 111.0
    assert inner.get("a") is None
    assert inner.get("b") == 2


def test_entries_of_a_batch_belong_to_the_keys_in_it() -> None:
    inner, seen = state(BatchState)
    keys = BatchKeys(lambda: ["ann", "bob", ("x", "y"), ["no hash"], NO_KEY])
    seen.begin(keys)
    for key in ("ann", ("bob", "monday"), (("x", "y"), 3), ("x", "y", "z")):
        seen.put(key, 1)
    assert inner.bound == 0
    seen.put("total", 1)
    assert inner.bound == 1
    seen.end()
    seen.begin(BatchKeys(lambda: ["cleo", "dora"]))
    assert seen.get("ann") == 1  # as a tuple of cleo that uses an entry of ann's
    assert inner.bound == 2
    seen.undo()


def test_keys_of_a_batch_are_looked_up_only_where_state_is_used() -> None:
    asked = []

    def read() -> list[str]:
        asked.append(1)
        return ["ann"]

    _, seen = state(BatchState)
    seen.begin(BatchKeys(read))
    seen.end()
    assert asked == []
    seen.begin(BatchKeys(read))
    seen.put("anything", 1)
    seen.put("more", 1)
    seen.end()
    assert asked == [1]


def test_a_key_that_is_refused_leaves_nothing_to_undo() -> None:
    """It is equal to one that is there, but could not be stored."""

    class Five(int):
        pass

    codec = ValueCodec()
    inner = KeyedState(16, codec)
    shown = UndoableState(inner, codec)
    inner.put(5, 1)
    for change in (lambda: shown.put(Five(5), 2), lambda: shown.delete(Five(5))):
        shown.begin(5)
        with pytest.raises(StateValueError):
            change()
        shown.undo()
    assert dict(inner.items()) == {5: 1}
    inner.snapshot(1).encode(codec)


class Thing:
    """Has no encoding."""


@pytest.mark.parametrize("kind", [UndoableState, BatchState])
@pytest.mark.parametrize("good", [[1], {"a": [1.5]}, {1, 2}, (1, [2])], ids=str)
def test_a_value_that_is_changed_in_place_into_one_without_an_encoding_fails_its_try(
    kind: Any, good: Any
) -> None:
    """In the snapshot that comes later, or for the next tuple of the key, it would be too late."""
    inner, seen = state(kind)
    inner.put("ann", [good])
    for change in (
        lambda: seen.get("ann").append(Thing()),
        lambda: seen.get("ann").append([{"deep": (Thing(),)}]),
        lambda: next(value for _, value in seen.iterate()).append(Thing()),
        lambda: (value := [good], seen.put("ann", value), value.append(Thing())),
        lambda: (seen.put("ann", [good]), seen.get("ann").append(Thing())),
    ):
        seen.begin(BatchKeys(lambda: ["ann"]) if kind is BatchState else "ann")
        change()
        with pytest.raises(StateValueError, match=r"key 'ann'.*of type .*:Thing has no encoding"):
            seen.check()
        seen.undo()
        assert inner.get("ann") == [good]
    inner.snapshot(1).encode(ValueCodec())


def test_a_value_that_a_try_changes_and_takes_back_or_deletes_is_none_of_its_errors() -> None:
    inner, seen = state()
    inner.put("ann", [1])
    seen.begin("ann")
    seen.get("ann").append(Thing())
    seen.get("ann").pop()
    seen.check()
    seen.get("ann").append(Thing())
    seen.delete("ann")
    seen.check()
    seen.end()
    assert len(restored(inner)) == 0
