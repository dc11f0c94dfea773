"""State files: a batch finds what the one before wrote, and replaces its own when it runs again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from squall_common.daemon.folders import Folder
from squall_common.topology.serialization import Registry
from squall_engine.core.codec import ValueCodec
from squall_spark.state import SNAPSHOT_EVERY, DurableState, StateAt, StateDamagedError


def state(folder: Path | str, batch: int) -> DurableState:
    return StateAt(str(folder), "count", batch).open(0, ValueCodec())


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
    with pytest.raises(StateDamagedError, match=r"after batch 0 is missing.*000000000000\.delta"):
        state(tmp_path, 1)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    first = state(tmp_path, 0)
    first.put("a", 1)
    first.commit()
    (file,) = tmp_path.rglob("*.delta")
    file.write_bytes(b"\xc1nonsense")
    with pytest.raises(StateDamagedError, match=r"000000000000\.delta cannot be read"):
        state(tmp_path, 1)


def test_old_files_are_deleted_and_every_batch_can_still_run_again(tmp_path: Path) -> None:
    for batch in range(3 * SNAPSHOT_EVERY + 2):
        for _ in range(2):
            now = state(tmp_path, batch)
            now.put("n", batch)
            now.put(batch % 4, batch)
            now.commit()
    assert len(list(tmp_path.rglob("*.delta"))) <= 2 * SNAPSHOT_EVERY + 1
    last = state(tmp_path, 3 * SNAPSHOT_EVERY + 2)
    assert last.get("n") == 3 * SNAPSHOT_EVERY + 1
    assert len(last) == 5


def test_a_folder_behind_a_url(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/cp"
    first = state(url, 0)
    first.put("a", 1)
    first.commit()
    assert state(url, 1).get("a") == 1


KEYS = some.text(max_size=2) | some.integers(-3, 3) | some.tuples(some.booleans(), some.integers())
STEPS = some.lists(some.tuples(KEYS, some.none() | some.integers()), max_size=8)


@given(some.lists(STEPS, max_size=25))
def test_state_is_a_dict_over_any_batches(batches: list[list[tuple[Any, Any]]]) -> None:
    class InMemory(Folder):
        def __init__(self) -> None:
            super().__init__("memory")
            self.files: dict[str, bytes] = {}

        def names(self) -> list[str]:
            return list(self.files)

        def read(self, name: str) -> bytes:
            return self.files[name]

        def write(self, name: str, data: bytes) -> None:
            self.files[name] = data

        def delete(self, name: str) -> None:
            del self.files[name]

    folder, model = InMemory(), dict[Any, Any]()
    codec = ValueCodec(Registry(), allow_pickle=False)
    for number, steps in enumerate(batches):
        now = DurableState(folder, number, codec)
        assert dict(now.iterate()) == model
        for key, value in steps:
            if value is None:
                now.delete(key)
                model.pop(key, None)
            else:
                now.put(key, value)
                model[key] = value
        now.commit()
