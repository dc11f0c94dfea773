"""The chain of segments of one task."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.effort import examples

from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import (
    StateDamagedError,
    StateError,
    StateFencedError,
    StateStoreError,
)
from squall_common.state.key_groups import key_group
from squall_common.state.keyed import KeyedState
from squall_common.state.task_store import SegmentStore, TaskPlace
from squall_engine.core.codec import ValueCodec

PLACE = TaskPlace("words", "count", 0, 1, 128)


class Task:
    """A task that was started."""

    def __init__(self, store: CheckpointStore, place: TaskPlace = PLACE) -> None:
        self.store = SegmentStore(store, place)
        self.state = KeyedState(place.max_parallelism, ValueCodec())
        self.epoch = 0
        self.store.open(self.state)

    def put(self, key: Any, value: Any) -> None:
        self.state.current = key
        self.state.put(key, value)

    def flush(self) -> None:
        self.epoch = max(self.epoch, self.store.epoch) + 1
        base = self.store.wants_base(len(self.state))
        self.store.write(self.state.snapshot(self.epoch, base=base), ValueCodec())
        self.state.completed(self.epoch)

    @property
    def values(self) -> dict[Any, Any]:
        return dict(self.state.items())


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(f"memory://{tmp_path.name}")  # no disk to wait for


def files(store: CheckpointStore, kind: str) -> list[str]:
    return [name for name in store.names(PLACE.folder) if name.endswith(kind)]


def test_the_first_segment_is_a_base_and_another_one_follows_when_as_much_has_changed(
    store: CheckpointStore,
) -> None:
    task = Task(store)
    for n in range(2_000):
        task.put(f"k{n}", n)
    task.flush()
    assert len(files(store, ".segment")) == 1
    for start in range(0, 2_000, 500):
        for n in range(start, start + 500):
            task.put(f"k{n}", -n)
        task.flush()
    assert len(files(store, ".segment")) == 5
    task.put("k0", "new")
    task.flush()  # 2,000 of 2,000 have changed since: what came before is deleted
    assert len(files(store, ".segment")) == 1
    assert Task(store).values == task.values


def test_no_start_has_to_read_more_than_256_segments(store: CheckpointStore) -> None:
    task = Task(store)
    most = 0
    for n in range(300):
        task.put("a", n)
        task.flush()
        most = max(most, len(files(store, ".segment")))
    assert most == 256
    assert Task(store).values == {"a": 299}


def test_a_new_life_deletes_what_older_ones_have_left(store: CheckpointStore) -> None:
    for n in range(5):
        task = Task(store)
        task.put("a", n)
        task.flush()
    assert len(files(store, ".fence")) == 5
    for n in range(1_000):
        task.put(f"k{n}", n)
    task.flush()
    task.put("a", 7)
    task.flush()
    assert len(files(store, ".fence")) == len(files(store, ".segment")) == 1
    assert Task(store).values["a"] == 7


def test_of_two_tasks_that_start_at_once_one_is_fenced(store: CheckpointStore) -> None:
    first, second = Task(store), Task(store)
    first.put("a", 1)
    with pytest.raises(StateFencedError, match="task 0 of 'count'"):
        first.flush()
    second.put("a", 2)
    second.flush()
    assert Task(store).values == {"a": 2}


def test_a_write_that_was_confirmed_before_the_fence_is_found(store: CheckpointStore) -> None:
    """A replaced task writes just before the new one lists the folder."""
    old = Task(store)
    names = store.names
    written: list[bool] = []

    def names_after_write(folder: str = "") -> list[str]:
        if folder == PLACE.folder and not written:
            written.append(True)
            old.put("a", 1)
            old.flush()
        return names(folder)

    store.names = names_after_write  # type: ignore[method-assign]
    new = Task(store)
    assert new.values == {"a": 1}


def test_a_write_whose_outcome_is_unknown_does_no_harm(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(store)
    task.put("a", 1)
    put = CheckpointStore.put

    def lost_answer(self: CheckpointStore, name: str, data: Any) -> None:
        put(self, name, data)
        raise StateStoreError("the answer was lost")

    with monkeypatch.context() as patched:
        patched.setattr(CheckpointStore, "put", lost_answer)
        with pytest.raises(StateStoreError):
            task.flush()
    task.state.delete("a")
    task.put("b", 2)
    task.flush()
    assert Task(store).values == {"b": 2}


def place_of(index: int, tasks: int, groups: int = 128) -> TaskPlace:
    return TaskPlace("words", "count", index, tasks, groups)


def test_bound_state_and_other_numbers_of_groups_are_refused(store: CheckpointStore) -> None:
    task = Task(store)
    task.put("a", 1)
    task.flush()
    with pytest.raises(StateError, match="128 key groups, and the bolt has 256"):
        Task(store, place_of(1, 2, 256))
    task = Task(store)
    task.state.put("everybody's", 1)
    task.flush()
    with pytest.raises(StateError, match=r"belongs to its tasks .* 1 of them, not 2"):
        Task(store, place_of(0, 2))
    with pytest.raises(StateError, match="128 key groups, and the bolt has 256") as raised:
        Task(store, TaskPlace("words", "count", 0, 1, 256))
    assert raised.value.hint == "set topology.state.max.parallelism of the bolt to 128"


def test_a_missing_segment_is_named_with_the_state_before_it(store: CheckpointStore) -> None:
    task = Task(store)
    for n in range(3):
        task.put("a", n)
        task.flush()
    first, second, third = files(store, ".segment")
    store.delete(f"{PLACE.folder}/{second}")
    with pytest.raises(StateDamagedError, match=f"{second} is damaged: it is missing") as raised:
        Task(store)
    assert f"delete {PLACE.folder}/{third} to go back to the state before it, {first}" in str(
        raised.value.hint
    )
    store.delete(f"{PLACE.folder}/{third}")
    assert Task(store).values == {"a": 0}


@pytest.mark.parametrize("seed", range(15))
def test_what_was_confirmed_is_found_whatever_fails(seed: int, tmp_path: Path) -> None:
    """Writes and lists that fail before or after they take effect, and tasks that end."""
    rng = random.Random(seed)
    store = CheckpointStore(f"memory://{tmp_path.name}")
    failing = [0.0]
    put, names = store.put, store.names

    def flaky_put(name: str, data: Any) -> None:
        if rng.random() < failing[0]:
            raise StateStoreError("before")
        put(name, data)
        if rng.random() < failing[0]:
            raise StateStoreError("after")

    def flaky_names(folder: str = "") -> list[str]:
        if rng.random() < failing[0]:
            raise StateStoreError("list")
        return names(folder)

    store.put, store.names = flaky_put, flaky_names  # type: ignore[method-assign]
    model: dict[Any, Any] = {}
    confirmed: dict[Any, Any] = {}
    task = Task(store)
    for _ in range(120):
        if rng.random() < 0.1:
            failing[0] = 0.0
            task = Task(store)
            # At least what was confirmed; what was written and not confirmed may be there.
            model = task.values
            assert confirmed.keys() <= model.keys()
            assert all(model[key] >= value for key, value in confirmed.items())
        for _ in range(rng.randrange(5)):
            key = f"k{rng.randrange(10)}"
            model[key] = model.get(key, 0) + 1
            task.put(key, model[key])
        failing[0] = rng.choice([0.0, 0.0, 0.3])
        try:
            task.flush()
        except StateStoreError:
            continue
        confirmed = dict(model)


def test_state_of_before_there_were_markers_moves_too(store: CheckpointStore) -> None:
    task = Task(store)
    task.put("a", 1)
    task.flush()
    store.delete("words/count/layout-000000-00001")
    moved = [Task(store, place_of(index, 3)) for index in range(3)]
    assert [one.values for one in moved if one.values] == [{"a": 1}]
    with pytest.raises(StateFencedError):
        task.flush()


def test_two_first_numbers_of_tasks_at_once_are_refused(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = CheckpointStore.put

    def twice(store: CheckpointStore, name: str, data: Any) -> None:
        put(store, name, data)
        put(store, "words/count/layout-000000-00003", b"")

    monkeypatch.setattr(CheckpointStore, "put", twice)
    with pytest.raises(StateError, match="different numbers of tasks"):
        Task(store)


@pytest.mark.parametrize("seed", range(examples(10)))
def test_key_groups_move_exactly_whatever_ends_meanwhile(seed: int, tmp_path: Path) -> None:
    """The number of tasks changes before the last change is through, tasks end, and tasks that were
    replaced live on."""
    rng = random.Random(seed)
    store = CheckpointStore(f"memory://{tmp_path.name}")
    acked: dict[str, int] = {}
    old: list[tuple[TaskPlace, Task]] = []
    tasks = 1
    running: dict[int, Task] = {}
    number = 0

    def work(place: TaskPlace, task: Task) -> None:
        nonlocal number
        changes = {}
        for _ in range(rng.randrange(4)):
            key = f"key {rng.randrange(60)}"
            if key_group(key, place.max_parallelism) in place.groups:
                number += 1
                changes[key] = number
                task.put(key, number)
        if rng.random() < 0.7:
            task.flush()
            acked.update(changes)

    for _ in range(300):
        what = rng.random()
        if what < 0.04:  # submitted again
            old += [(place_of(index, tasks), task) for index, task in running.items()]
            running, tasks = {}, rng.choice([1, 2, 3, 5, 8])
        elif what < 0.1 and running:  # replaced, and not ended
            index = rng.choice(list(running))
            old.append((place_of(index, tasks), running.pop(index)))
        elif what < 0.4:
            index = rng.randrange(tasks)
            if index not in running:
                running[index] = Task(store, place_of(index, tasks))
        elif what < 0.5 and old:
            place, task = old[at := rng.randrange(len(old))]
            try:
                work(place, task)
            except StateFencedError:
                del old[at]
        elif running:
            index = rng.choice(list(running))
            try:
                work(place_of(index, tasks), running[index])
            except StateFencedError:  # by one that was started with the old number of tasks
                del running[index]
    found: dict[str, int] = {}
    for index in range(tasks):
        values = Task(store, place_of(index, tasks)).values
        assert not values.keys() & found.keys(), "a key has two tasks"
        place = place_of(index, tasks)
        assert all(key_group(key, 128) in place.groups for key in values)
        found |= values
    assert {key: found.get(key, 0) for key in acked if found.get(key, 0) < acked[key]} == {}
