"""Snapshots that become bases when they are written, out of older segments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.keyed import KeyedState
from squall_common.state.manifest import ComponentPart
from squall_common.state.segment import SegmentRef
from squall_engine.core.codec import ValueCodec
from squall_engine.epochs import parts
from squall_engine.epochs.parts import Chain, PartStore, Snapshot

GROUPS = 4
TASK = ("count", 0)


class Task:
    """A task that writes each snapshot, and whose epochs are all complete."""

    def __init__(self, folder: Path) -> None:
        self.store = CheckpointStore(str(folder), sleep=lambda secs: None)
        self.parts = PartStore(self.store, "t", {"count": 1}, ValueCodec())
        self.state = KeyedState(GROUPS, ValueCodec())
        self.chain = Chain()
        self.epoch = 0

    def put(self, entries: dict[Any, Any]) -> None:
        for key, value in entries.items():
            self.state.current = key
            self.state.put(key, value)

    def write(self, older: tuple[SegmentRef, ...] | None = None) -> SegmentRef:
        """The next epoch. Returns its newest segment."""
        self.epoch += 1
        can_merge = not self.state.has_times and self.parts.can_merge(self.chain.older)
        base = self.chain.wants_base(self.state, can_merge=can_merge)
        changes = self.state.snapshot(self.epoch, base=base)
        older = () if base else self.chain.older if older is None else older
        merged = can_merge and not base and self.chain.merges(self.epoch)
        part = self.parts.write(Snapshot(TASK, 1, self.epoch, changes, older, merged), GROUPS)
        restored = KeyedState(GROUPS, ValueCodec())
        if older == self.chain.older or base:
            self.parts.restore_state(ComponentPart(GROUPS, (part,)), TASK, restored)
            assert dict(restored.items()) == dict(self.state.items())
        self.chain.wrote(self.epoch, part.segments)
        self.chain.completed(self.epoch)
        self.state.completed(self.epoch)
        return part.segments[-1]


@pytest.fixture
def task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """It wants a base."""
    monkeypatch.setattr(parts, "_BASE_BYTES_MIN", 0)
    made = Task(tmp_path)
    made.put({f"key {n}": n for n in range(20)})
    assert made.write().is_base
    made.put({f"key {n}": -n for n in range(10, 30)})
    made.state.delete("key 3")
    made.put({7: 8, b"raw": None})
    assert not made.write().is_base
    assert made.chain.wants_base(made.state)
    assert not made.chain.wants_base(made.state, can_merge=True)
    return made


def test_a_base_is_merged_out_of_segments(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    task.state.delete("key 4")
    task.put({"new": [1]})
    monkeypatch.setattr(KeyedState, "snapshot", only_changes)
    written = task.write()
    assert (written.is_base, written.entries) == (True, len(task.state))
    assert task.chain.older == (written,)
    assert not task.write().is_base


def test_the_first_base_is_merged_out_of_the_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Task(tmp_path)
    monkeypatch.setattr(KeyedState, "snapshot", only_changes)
    task.put({"a": 1, "b": 2, "c": 3})
    changes = task.state.snapshot(1)  # of an epoch that was given up
    assert changes.entries == 3
    task.epoch = 1
    task.put({"b": 4, "d": 5})
    task.state.delete("c")
    written = task.write()
    assert (written.is_base, written.entries) == (True, 3)
    assert task.chain.older == (written,)


def test_first_changes_that_cannot_be_merged_are_kept_as_they_are(tmp_path: Path) -> None:
    task = Task(tmp_path)
    task.put({1.5: 1, "a": 2})
    assert not task.write().is_base
    task.put({"a": 3})
    assert not task.write().is_base
    assert len(task.chain.older) == 2
    assert not task.chain._merges


def test_the_first_base_of_a_state_that_was_restored_is_a_copy(tmp_path: Path) -> None:
    task = Task(tmp_path)
    assert task.state.is_all_new
    task.state.restore([], range(GROUPS), bound=True)
    assert not task.state.is_all_new
    assert Chain().wants_base(task.state, can_merge=True)


def only_changes(state: KeyedState, epoch: int, *, base: bool = False) -> Any:
    assert not base
    return state._snapshot(epoch)


@pytest.mark.parametrize("key", [1.5, ("a", 1)])
def test_keys_that_cannot_be_merged_make_a_base_of_the_state(task: Task, key: Any) -> None:
    task.put({key: 1})
    assert not task.write().is_base
    assert task.chain.wants_base(task.state, can_merge=True)
    assert task.write().is_base


def damage(task: Task, name: str) -> None:
    task.store.put(name, task.store.get(name).replace(b"key 1", b"key X"))


def remove(task: Task, name: str) -> None:
    task.store.delete(name)


def make_unreadable(task: Task, name: str) -> None:
    """Reading it is an error of the file system, which is tried again."""
    remove(task, name)
    (Path(task.store.url) / name).mkdir()


@pytest.mark.parametrize("spoil", [damage, remove, make_unreadable])
def test_segments_that_cannot_be_read_make_a_base_of_the_state(
    task: Task, spoil: Callable[[Task, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The epoch that finds them still needs them, which is reported; the next one does not."""
    spoiled = task.chain.older[0].name
    spoil(task, spoiled)
    task.put({"new": 1})
    task.epoch += 1
    changes = task.state.snapshot(task.epoch)
    assert task.chain.merges(task.epoch)
    older = task.chain.older
    part = task.parts.write(Snapshot(TASK, 1, task.epoch, changes, older, merged=True), GROUPS)
    assert part.segments[:-1] == older
    assert caplog.text.count("segment_not_merged") == 1
    assert spoiled in caplog.text
    task.chain.wrote(task.epoch, part.segments)
    task.chain.completed(task.epoch)
    written = task.write()
    assert (written.is_base, task.chain.older) == (True, (written,))
    task.put({"newer": 1})
    task.write()  # and is restored without them


def test_a_merge_for_which_memory_is_short_writes_the_changes(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def merge(self: ValueCodec, blocks: list[bytes]) -> None:
        raise MemoryError

    monkeypatch.setattr(ValueCodec, "merge_blocks", merge)
    task.put({"new": 1})
    assert not task.write().is_base
    assert task.write().is_base


def test_what_has_other_keys_than_the_task_is_no_base(task: Task) -> None:
    task.put({"key 1": 5})
    assert not task.write(task.chain.older[:1]).is_base


def test_entries_with_times_are_not_merged(task: Task) -> None:
    task.state.set_ttl(100.0)
    assert task.state.has_times
    assert task.write().is_base


def test_a_store_that_is_no_folder_and_large_segments_are_not_read(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = PartStore(CheckpointStore("memory://x"), "t", {"count": 1}, ValueCodec())
    assert not remote.can_merge(task.chain.older)
    assert task.parts.can_merge(task.chain.older)
    monkeypatch.setattr(parts, "_MERGED_BYTES_MAX", 100)
    assert not task.parts.can_merge(task.chain.older)
