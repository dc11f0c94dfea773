"""The state of a task: a batch finds what the one before left, and replaces its own file when it
runs again."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from squall_common.component.groupings import stable_hash
from squall_common.component.state import CounterState, ListState
from squall_common.daemon.folders import Folder
from squall_common.topology.serialization import Registry
from squall_engine.core.codec import ValueCodec
from squall_spark.state.owner import BOUND, OUTSIDE, task_of
from squall_spark.state.place import StateSize, clean
from squall_spark.state.segment import StateDamagedError
from squall_spark.state.store import DurableState


def state(folder: Path | str, batch: int, **options: Any) -> DurableState:
    options.setdefault("tasks_before", 1 if batch else 0)
    return DurableState(Folder(f"{folder}/state/count"), ValueCodec(), batch=batch, **options)


def test_a_batch_finds_what_the_one_before_left(tmp_path: Path) -> None:
    first = state(tmp_path, 0)
    first.put("a", 1)
    first.put(("k", 2), {"x": {1, 2}})
    first.put("gone", 3)
    first.delete("gone")
    first.delete("never there")
    first.commit()
    second = state(tmp_path, 1)
    assert second.get("a") == 1
    assert second.get(("k", 2)) == {"x": {1, 2}}
    assert second.get("gone", "no") == "no"
    assert sorted(map(repr, second.iterate())) == sorted(
        [repr(("a", 1)), repr((("k", 2), {"x": {1, 2}}))]
    )


def test_prefixes_lists_and_counters_are_read_from_files_and_from_memory(tmp_path: Path) -> None:
    first = state(tmp_path, 0)
    ListState(first, "pages").append("ann", "/")
    CounterState(first, "visits").inc("ann")
    first.commit()
    second = state(tmp_path, 1)
    ListState(second, "pages").extend("ann", ["/cart"])
    CounterState(second, "visits").inc("bob", 2)
    assert dict(second.prefix(("visits",))) == {("visits", "ann"): 1, ("visits", "bob"): 2}
    second.commit()
    third = state(tmp_path, 2)
    assert dict(ListState(third, "pages").items()) == {"ann": ["/", "/cart"]}
    assert len(dict(third.items())) == 3


def test_a_value_changed_in_place_is_kept_whether_it_was_put_again_or_not(tmp_path: Path) -> None:
    first = state(tmp_path, 0)
    first.put("seen", [1])
    first.get("seen").append(2)
    first.put("iterated", {"n": 0})
    first.commit()
    second = state(tmp_path, 1)
    second.get("seen").append(3)
    for key, value in second.iterate():
        if key == "iterated":
            value["n"] += 1
    second.commit()
    third = state(tmp_path, 2)
    assert third.get("seen") == [1, 2, 3]
    assert third.get("iterated") == {"n": 1}


def test_what_is_only_read_is_not_written_again(tmp_path: Path) -> None:
    first = state(tmp_path, 0)
    first.put("a", [1, {"x", "y", "z"}])
    first.commit()
    second = state(tmp_path, 1)
    assert second.get("a") == [1, {"x", "y", "z"}]
    assert second.commit().entries == 0


def test_equal_keys_are_one_key(tmp_path: Path) -> None:
    first = state(tmp_path, 0)
    first.put(1, "one")
    first.commit()
    second = state(tmp_path, 1)
    second.put(1.0, "still one")
    second.commit()
    third = state(tmp_path, 2)
    assert third.get(True) == "still one"
    assert len(list(third.iterate())) == len(third) == 1


def test_a_batch_that_runs_again_replaces_what_it_wrote(tmp_path: Path) -> None:
    first = state(tmp_path, 0)
    first.put("a", 1)
    first.commit()
    for _ in range(3):
        again = state(tmp_path, 1)
        again.put("a", again.get("a") + 1)
        again.commit()
    assert state(tmp_path, 2).get("a") == 2


def test_uncommitted_changes_are_lost(tmp_path: Path) -> None:
    first = state(tmp_path, 0)
    first.put("a", 1)
    with pytest.raises(StateDamagedError, match=r"after batch 0 is missing.*000000\.0-1\.state"):
        state(tmp_path, 1)


@pytest.mark.parametrize("place", [0, 3, -1, -10, -30])
def test_a_damaged_file_is_named(tmp_path: Path, place: int) -> None:
    first = state(tmp_path, 0)
    first.put("a", 1)
    first.commit()
    (file,) = tmp_path.rglob("*.state")
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    with pytest.raises(StateDamagedError, match=r"000000\.0-1\.state cannot be read: "):
        state(tmp_path, 1).get("a")


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    first = state(tmp_path, 0)
    first.commit()
    (file,) = tmp_path.rglob("*.state")
    for length in (0, 8, file.stat().st_size - 1):
        file.write_bytes(file.read_bytes()[:length])
        with pytest.raises(StateDamagedError, match="cannot be read"):
            state(tmp_path, 1)


def test_old_files_are_deleted_and_every_batch_can_still_run_again(tmp_path: Path) -> None:
    needed: frozenset[str] = frozenset()
    folder = Folder(f"{tmp_path}/state/count")
    for batch in range(40):
        for _ in range(2):
            now = state(tmp_path, batch)
            now.put("n", batch)
            now.put(batch % 4, batch)
            now.commit()
        size = StateSize.of(folder, batch, 1)
        clean(folder, batch, needed | size.names)
        needed = size.names
    assert len(folder.names()) <= 8
    last = state(tmp_path, 40)
    assert last.get("n") == 39
    assert len(last) == 5


def test_a_small_batch_reads_and_writes_little_of_a_large_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = state(tmp_path, 0)
    for n in range(20_000):
        first.put(f"key {n}", n)
    first.commit()
    read = 0
    original = Folder.read_part

    def counted(self: Folder, name: str, start: int, length: int) -> bytes:
        nonlocal read
        data = original(self, name, start, length)
        read += len(data)
        return data

    monkeypatch.setattr(Folder, "read_part", counted)
    second = state(tmp_path, 1)
    second.put("key 17", second.get("key 17") + 1)
    written = second.commit()
    whole = sum(file.stat().st_size for file in tmp_path.rglob("*000000.0-1.state"))
    assert written.entries == 1
    assert read < 0.2 * whole  # the index, and one block
    assert state(tmp_path, 2).get("key 17") == 18


def test_an_entry_is_written_again_only_a_few_times(tmp_path: Path) -> None:
    written = 0
    for batch in range(256):
        now = state(tmp_path, batch)
        for n in range(4):
            now.put((batch, n), n)
        written += now.commit().entries
    assert written < 1024 * 10  # log2(1024)
    assert len(state(tmp_path, 256)) == 1024


def test_more_than_fits_in_memory_is_put_aside(tmp_path: Path) -> None:
    first = state(tmp_path, 0, hot_max=10)
    for n in range(100):
        first.put(n, [n])
        first.relieve()
        assert len(first._hot) <= 10
    first.delete(5)
    first.get(7).append("x")
    first.commit()
    second = state(tmp_path, 1, hot_max=10)
    assert dict(second.iterate()) == {n: [n] for n in range(100) if n != 5} | {7: [7, "x"]}
    assert len(second) == 99
    assert not list(tmp_path.rglob(".squall-state-*"))


def test_keys_that_were_not_put_for_the_ttl_are_absent(tmp_path: Path) -> None:
    first = state(tmp_path, 0, now_secs=1000, ttl_secs=60)
    first.put("old", 1)
    first.put("kept", 1)
    first.commit()
    second = state(tmp_path, 1, now_secs=1050, ttl_secs=60)
    second.put("kept", second.get("kept") + 1)
    assert second.get("old") == 1  # reading does not keep it
    second.commit()
    third = state(tmp_path, 2, now_secs=1061, ttl_secs=60)
    assert third.get("old") is None
    assert list(third.iterate()) == [("kept", 2)]
    third.put("kept", 3)
    third.put("more", 3)
    third.commit()
    assert len(state(tmp_path, 3, now_secs=1062, ttl_secs=60)) == 2


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 2), (4, 4), (2, 5)])
def test_keys_follow_their_groupings_values_when_the_number_of_tasks_changes(
    tmp_path: Path, before: int, after: int
) -> None:
    now: list[int] = [OUTSIDE]
    keys = [f"k{n}" for n in range(200)]

    def run(batch: int, tasks: int, tasks_before: int, step: Callable[[Any, str], None]) -> None:
        for task in range(tasks):
            one = state(
                tmp_path, batch, task=task, tasks=tasks, tasks_before=tasks_before,
                owner=lambda: now[0],
            )  # fmt: skip
            for key in keys:
                now[0] = stable_hash(key)
                if task_of(now[0], tasks, 128) == task:
                    step(one, key)
            now[0] = OUTSIDE
            one.commit()

    def add(one: DurableState, key: str) -> None:
        one.put((key, "composite"), one.get((key, "composite"), 0) + 1)

    run(0, before, 0, add)
    run(1, after, before, add)
    run(2, after, after, add)
    size = StateSize.of(Folder(f"{tmp_path}/state/count"), 2, after)
    assert (size.keys, size.bound) == (200, 0)
    found: dict[Any, int] = {}
    for task in range(after):
        mine = state(tmp_path, 3, task=task, tasks=after, tasks_before=after)
        assert all(task_of(stable_hash(key[0]), after, 128) == task for key, _ in mine.iterate())
        found |= dict(mine.iterate())
    assert found == {(key, "composite"): 3 for key in keys}


def test_keys_that_cannot_follow_a_grouping_are_counted(tmp_path: Path) -> None:
    now = OUTSIDE
    one = state(tmp_path, 0, owner=lambda: now)
    one.put("set in prepare", 1)
    now = 17
    one.put("by the key", 1)
    one.put("shared", 1)
    now = 18
    assert one.get("shared") == 1
    now = BOUND
    one.put("by another grouping", 1)
    now = OUTSIDE
    one.put("by the key", 2)  # in flush
    assert one.commit().bound == 3
    again = state(tmp_path, 1, owner=lambda: now)
    again.delete("shared")
    assert again.commit().bound == 2


def test_a_folder_behind_a_url(tmp_path: Path) -> None:
    for url in (f"file://{tmp_path}/cp", "memory://cp"):
        first = state(url, 0)
        first.put("a", 1)
        first.commit()
        second = state(url, 1)
        assert second.get("a") == 1
        second.commit()
        folder = Folder(f"{url}/state/count")
        clean(folder, 1, StateSize.of(folder, 1, 1).names)
        assert len(folder.names()) == 2


KEYS = some.text(max_size=2) | some.integers(-3, 3) | some.tuples(some.booleans(), some.integers())
VALUES = some.integers() | some.lists(some.integers(), max_size=2)
STEPS = some.lists(some.tuples(KEYS, some.none() | VALUES), max_size=8)


@settings(max_examples=50)
@given(some.lists(STEPS, max_size=25), some.integers(1, 9))
def test_state_is_a_dict_over_any_batches(
    batches: list[list[tuple[Any, Any]]], hot_max: int
) -> None:
    folder = Folder(f"memory://{uuid.uuid4()}")
    model = dict[Any, Any]()
    codec = ValueCodec(Registry(), allow_pickle=False)
    for number, steps in enumerate(batches):
        now = DurableState(
            folder, codec, batch=number, tasks_before=min(number, 1), hot_max=hot_max
        )
        assert dict(now.iterate()) == model
        for key, value in steps:
            if value is None:
                now.delete(key)
                model.pop(key, None)
            elif isinstance(value, list) and isinstance(now.get(key), list):
                now.get(key).extend(value)
                model[key] = [*model[key], *value]
            else:
                now.put(key, copy(value))  # it may be changed in place
                model[key] = value
            now.relieve()
            assert len(now) == len(model)
        now.commit()
