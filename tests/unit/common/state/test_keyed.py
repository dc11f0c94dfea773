from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from squall_common.state.errors import StateDamagedError, StateError, StateValueError
from squall_common.state.key_groups import BOUND, groups_of_task, key_group
from squall_common.state.keyed import NO_KEY, KeyedState
from squall_common.state.task_state import Changes, TaskState
from squall_engine.core.codec import ValueCodec

GROUPS = 16
CODEC = ValueCodec()


class Part:
    """What was encoded, as a stored segment."""

    def __init__(self, changes: Changes) -> None:
        self.encoded = changes.encode(ValueCodec())

    def blocks(self, groups: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        wanted = set(groups)
        return ((group, data) for group, data in self.encoded.items() if group in wanted)


def new(**more: Any) -> KeyedState:
    state = KeyedState(GROUPS, ValueCodec(), **more)
    as_task_state: TaskState = state
    assert as_task_state is state
    return state


def restored(
    *parts: Iterable[Part], groups: range = range(GROUPS), bound: bool = True
) -> dict[Any, Any]:
    state = new()
    state.restore(parts, groups, bound=bound)
    return dict(state.items())


def put(state: KeyedState, current: Any, key: Any, value: Any) -> None:
    state.current = current
    state.put(key, value)
    state.current = NO_KEY


def test_a_snapshot_has_what_has_changed_since_the_last_completed_one() -> None:
    state = new()
    put(state, "a", "a", 1)
    put(state, "b", "b", 2)
    first = Part(state.snapshot(1))
    state.completed(1)
    put(state, "b", "b", 3)
    changes = state.snapshot(2)
    assert (changes.entries, changes.keys, changes.is_base) == (1, 2, False)
    second = Part(changes)
    assert restored([second]) == {"b": 3}
    assert restored([first, second]) == {"a": 1, "b": 3}


def test_a_given_up_epoch_is_part_of_the_next() -> None:
    state = new()
    put(state, "a", "a", 1)
    put(state, "c", "c", 1)
    state.snapshot(1).encode(CODEC)
    put(state, "b", "b", 2)
    state.delete("c")
    state.snapshot(2)  # not even encoded
    put(state, "b", "b", 3)
    third = Part(state.snapshot(3))
    assert restored([third]) == {"a": 1, "b": 3}
    state.completed(3)
    assert state.snapshot(4).entries == 0


def test_completing_an_old_epoch_late_keeps_what_is_newer() -> None:
    state = new()
    put(state, "a", "a", 1)
    first = Part(state.snapshot(1))
    put(state, "b", "b", 2)
    state.snapshot(2)
    state.completed(1)
    assert restored([first, Part(state.snapshot(3))]) == {"a": 1, "b": 2}


def test_a_snapshot_does_not_see_what_happens_after_it() -> None:
    state = new()
    put(state, "a", "a", 1)
    put(state, "list", "list", [1])
    put(state, "gone", "gone", [7])
    changes = state.snapshot(1)
    put(state, "a", "a", 2)
    state.get("list").append(2)
    for key, value in state.items():
        if key == "gone":
            value.append(8)
    state.delete("gone")
    assert restored([Part(changes)]) == {"a": 1, "list": [1], "gone": [7]}
    second = state.snapshot(2)
    assert second.entries == 3
    assert restored([Part(second)]) == {"a": 2, "list": [1, 2]}


def test_a_value_that_is_changed_in_place_counts_as_changed() -> None:
    state = new()
    put(state, "a", "a", {"n": 1})
    state.snapshot(1).encode(CODEC)
    state.completed(1)
    assert state.snapshot(2).entries == 0
    state.completed(2)
    state.get("a")["n"] = 2
    assert restored([Part(state.snapshot(3))]) == {"a": {"n": 2}}


def test_values_are_secured_while_another_thread_encodes() -> None:
    state = new()
    keys = [f"k{n}" for n in range(5_000)]
    for key in keys:
        put(state, key, key, [0])
    changes = state.snapshot(1)
    found: dict[Any, Any] = {}
    thread = threading.Thread(target=lambda: found.update(restored([Part(changes)])))
    thread.start()
    for key in reversed(keys):
        state.get(key).append(1)
    thread.join()
    assert found == {key: [0] for key in keys}


def test_a_base_has_everything_and_no_deletions() -> None:
    state = new()
    for key in "abc":
        put(state, key, key, 1)
    state.snapshot(1).encode(CODEC)
    state.completed(1)
    state.delete("a")
    changes = state.snapshot(2, base=True)
    assert changes.is_base
    assert changes.entries == 2
    assert restored([Part(changes)]) == {"b": 1, "c": 1}


def test_a_base_that_is_given_up_costs_no_second_one() -> None:
    state = new()
    for key in "abc":
        put(state, key, key, 1)
    state.completed(state.snapshot(1).epoch)
    put(state, "a", "a", 2)
    state.snapshot(2, base=True)
    assert state.snapshot(3).entries == 1


def test_an_entry_lies_in_the_group_of_the_tuples_that_use_it() -> None:
    state = new()
    put(state, "user", "user", 1)
    put(state, "user", ("user", "2026-11-24"), 2)
    put(state, ("a", 1), ("a", 1), 3)
    encoded = state.snapshot(1).encode(CODEC)
    assert set(encoded) == {key_group("user", GROUPS), key_group(("a", 1), GROUPS)}
    assert state.bound == 0


def test_an_entry_that_tuples_of_two_keys_use_belongs_to_the_task() -> None:
    state = new()
    put(state, "a", "total", 1)
    first = Part(state.snapshot(1))
    state.completed(1)
    assert BOUND not in first.encoded
    state.current = "b"
    assert state.get("total") == 1
    changes = state.snapshot(2)
    assert changes.bound == 1
    second = Part(changes)
    assert restored([first, second]) == {"total": 1}
    assert restored([first, second], bound=False) == {}
    again = new()
    again.restore([[first, second]], range(GROUPS), bound=True)
    assert again.bound == 1
    again.delete("total")
    assert again.bound == 0


def test_an_entry_that_no_tuple_puts_belongs_to_the_task() -> None:
    state = new()
    state.put("started", 1)
    assert state.snapshot(1).bound == 1


def test_what_a_tick_reads_or_replaces_keeps_its_owner() -> None:
    state = new()
    put(state, "a", "a", 1)
    assert dict(state.items()) == {"a": 1}
    state.put("a", 2)
    assert state.get("a") == 2
    assert state.snapshot(1).bound == 0


def test_an_entry_that_is_put_again_under_another_key_leaves_its_old_group() -> None:
    state = new()
    put(state, "a", "x", 1)
    put(state, "y", "y", 1)
    first = Part(state.snapshot(1))
    state.completed(1)
    state.delete("x")
    put(state, "b", "x", 2)
    state.delete("y")
    put(state, "c", "y", 2)
    second = Part(state.snapshot(2))
    for group in range(GROUPS):
        found = restored([first, second], groups=range(group, group + 1))
        assert found == {
            **({"x": 2} if group == key_group("b", GROUPS) else {}),
            **({"y": 2} if group == key_group("c", GROUPS) else {}),
        }


def test_two_tasks_that_have_the_same_key_cannot_become_one() -> None:
    first, second = new(), new()
    put(first, "a", "x", 1)
    put(second, "b", "x", 2)
    parts = [[Part(first.snapshot(1))], [Part(second.snapshot(1))]]
    with pytest.raises(StateError, match="two tasks have an entry for 'x'"):
        restored(*parts, bound=False)


def test_a_value_that_cannot_be_stored_is_refused_by_put_and_its_key_named() -> None:
    state = new()
    with pytest.raises(StateValueError, match=r"the state of key 'a' cannot be stored.*object"):
        put(state, "a", "a", {"x": object()})
    with pytest.raises(StateValueError, match="cannot be stored"):
        put(state, "a", object(), 1)
    assert len(state) == 0


def test_a_value_that_becomes_one_that_cannot_be_stored_is_named_by_the_snapshot() -> None:
    state = new()
    put(state, "a", "a", [1])
    put(state, "b", "b", [1])
    state.get("b").append(object())
    with pytest.raises(StateValueError, match="the state of key 'b'"):
        state.snapshot(1).encode(CODEC)


def test_damaged_rows_are_reported_as_damage() -> None:
    state = new()
    put(state, "a", "a", 1)
    part = Part(state.snapshot(1))
    part.encoded = {group: data[:-1] for group, data in part.encoded.items()}
    with pytest.raises(StateDamagedError):
        restored([part])


def test_keys_expire_and_their_times_are_kept() -> None:
    now = [1_000.0]
    state = new(ttl_secs=60, clock=lambda: now[0])
    put(state, "a", "a", 1)
    now[0] += 40
    put(state, "b", "b", [1])
    first = Part(state.snapshot(1))
    now[0] += 30
    again = new(ttl_secs=60, clock=lambda: now[0])
    again.restore([[first]], range(GROUPS), bound=True)
    assert dict(again.items()) == {"b": [1]}
    now[0] += 30.5
    assert len(list(again.items())) == 0
    assert dict(state.items()) == {}
    assert restored([first, Part(state.snapshot(2))]) == {}


def test_a_key_that_is_refused_leaves_nothing_to_expire() -> None:
    now = [1_000.0]
    state = new(ttl_secs=60, clock=lambda: now[0])
    with pytest.raises(StateValueError):
        put(state, "a", object(), 1)
    assert not state._put_at, "it would be expired again and again"
    now[0] += 61
    assert state.get("a") is None


@pytest.mark.parametrize("seed", range(150))
def test_what_is_restored_is_what_was_there(seed: int) -> None:
    """Random work, snapshots that complete or are given up, bases, and other numbers of tasks."""
    rng = random.Random(seed)
    tasks = rng.choice([1, 2, 3])
    states = [new() for _ in range(tasks)]
    chains: list[list[Part]] = [[] for _ in range(tasks)]
    expected: list[dict[Any, Any]] = [{} for _ in range(tasks)]
    taken: list[dict[Any, Any]] = [{} for _ in range(tasks)]
    users = [f"user {n}" for n in range(12)]
    for epoch in range(1, 12):
        for _ in range(rng.randrange(40)):
            user = rng.choice(users)
            index = key_group(user, GROUPS) * tasks // GROUPS
            state, model = states[index], expected[index]
            state.current = user
            key = rng.choice([user, (user, rng.randrange(3))])
            match rng.randrange(5):
                case 0:
                    state.delete(key)
                    model.pop(key, None)
                case 1 | 2:
                    value: Any = rng.choice([rng.randrange(9), "text", [rng.randrange(9)]])
                    state.put(key, value)
                    model[key] = list(value) if isinstance(value, list) else value
                case _:
                    found = state.get(key)
                    assert found == model.get(key)
                    if isinstance(found, list):
                        found.append(epoch)
                        model[key] = [*model[key], epoch]
            state.current = NO_KEY
        completes = rng.random() < 0.6
        for index, state in enumerate(states):
            changes = state.snapshot(epoch, base=rng.random() < 0.2)
            if completes:
                part = Part(changes)
                chains[index] = [part] if changes.is_base else [*chains[index], part]
                taken[index] = {
                    key: list(value) if isinstance(value, list) else value
                    for key, value in expected[index].items()
                }
                state.completed(epoch)
            elif rng.random() < 0.5:
                changes.encode(CODEC)
    for index in range(tasks):
        groups = groups_of_task(index, tasks, GROUPS)
        assert restored(chains[index], groups=groups) == taken[index]
    others = rng.choice([1, 2, 4, 5])
    whole: dict[Any, Any] = {}
    for index in range(others):
        groups = groups_of_task(index, others, GROUPS)
        found = restored(*chains, groups=groups, bound=False)
        assert not whole.keys() & found.keys()
        whole |= found
    assert whole == {key: value for model in taken for key, value in model.items()}
