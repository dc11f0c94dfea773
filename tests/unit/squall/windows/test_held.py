"""The tuples that wait in windows, as they are counted."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from squall.windows.held import Held
from squall.windows.on_disk import DiskRow, DiskRows
from squall_common.state.errors import StateStoreError
from squall_common.topology.serialization import Registry
from squall_engine.embed import ValueCodec

LOG = logging.getLogger("bolt")


class Row:
    """A tuple with the fields `id` and `user`."""

    def __init__(self, id: Any, user: Any = "a") -> None:
        self.values: Any = [id, user]

    def get(self, field: str) -> Any:
        return dict(zip(("id", "user"), self.values, strict=True)).get(field)


def held_in(folder: Path | None = None, *, ids: bool = True, in_memory_max: int = 0) -> Held:
    disk = None if folder is None else DiskRows(ValueCodec(Registry()), str(folder))
    return Held(
        "id" if ids else None,
        lambda tup: tup.values[1],
        LOG,
        disk=disk,
        in_memory_max=in_memory_max,
    )


def on_disk(tuples: list[Any]) -> list[bool]:
    return [type(tup.values) is DiskRow for tup in tuples]


def test_as_many_tuples_have_room_in_memory_as_the_bound_allows(tmp_path: Path) -> None:
    held = held_in(tmp_path, in_memory_max=3)
    held.count = 2
    assert held.room == 1
    held.count, held.on_disk = 5, 4
    assert held.room == 2
    held.count = 50  # after a restart with a smaller bound
    assert held.room == 0


def test_the_values_of_tuples_on_disk_stay_what_they_are(tmp_path: Path) -> None:
    held = held_in(tmp_path)
    tuples: list[Any] = [Row(1, "a"), Row(2, "b")]
    held.put_on_disk(tuples)
    assert held.disk is not None
    held.disk.settle()
    assert on_disk(tuples) == [True, True]
    assert [list(tup.values) for tup in tuples] == [[1, "a"], [2, "b"]]
    assert [(tup.values.message_id, tup.values.key) for tup in tuples] == [(1, "a"), (2, "b")]


def test_tuples_that_are_released_are_counted_where_their_values_are(tmp_path: Path) -> None:
    held = held_in(tmp_path, in_memory_max=2)
    tuples: list[Any] = [Row(n) for n in range(5)]
    held.put_on_disk(tuples[2:])
    held.count = 5
    assert held.on_disk == 3
    held.release(tuples[1:4])
    assert (held.count, held.on_disk, held.room) == (2, 1, 1)
    held.on_disk = 7
    held.recount([tuples[0], tuples[4]])
    assert held.on_disk == 1


def test_values_that_cannot_be_stored_stay_in_memory_and_are_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Strange:
        pass

    held = held_in(tmp_path)
    tuples: list[Any] = [Row(1, Strange()), Row(2), Row(3, Strange())]
    held.put_on_disk(tuples)
    assert on_disk(tuples) == [False, True, False]
    assert held.on_disk == 1
    (line,) = caplog.messages
    assert line.startswith("tuples stay in memory that cannot be on disk: ")
    assert "Strange" in line


def test_all_values_stay_in_memory_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    held = held_in(tmp_path)
    tuples: list[Any] = [Row(1), Row(2)]
    with pytest.raises(StateStoreError):
        held.put_on_disk(tuples)
    assert on_disk(tuples) == [False, False]
    assert held.on_disk == 0


def test_no_file_is_begun_for_no_tuples(tmp_path: Path) -> None:
    held = held_in(tmp_path / "nosuch")
    held.put_on_disk([])
    with pytest.raises(StateStoreError):
        held.put_on_disk([Row(1)])  # type: ignore[list-item]


def test_a_message_id_may_come_again_when_its_tuple_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = held_in(tmp_path)
    tuples: list[Any] = [Row(1), Row(2)]
    held.ids = {1, 2}
    held.put_on_disk(tuples[:1])
    assert held.disk is not None
    held.disk.settle()
    monkeypatch.setattr(DiskRows, "read", None)  # its id is known without
    held.forget(tuples[0])
    assert held.ids == {2}
    held.forget(tuples[1])
    assert held.ids == set()


def test_without_a_field_for_it_no_message_id_is_known() -> None:
    held = held_in(ids=False)
    held.forget(Row(1))  # type: ignore[arg-type]
    assert held.ids is None
