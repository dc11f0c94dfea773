"""Tuples of windows whose values are in files."""

from __future__ import annotations

import copy
import errno
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from squall import TupleWindow, WindowedBolt
from squall.testing import BoltTest
from squall.windows import EventTime, Windows, on_disk, session, sliding, tumbling
from squall.windows.on_disk import DiskRow, DiskRows
from squall_common.errors import SquallError
from squall_common.state.errors import StateStoreError
from squall_common.topology.serialization import Registry
from squall_engine.embed import ValueCodec

MAX = "topology.bolts.window.tuples.in.memory.max"
FOLDER = "topology.state.backend.folder"
INPUTS = {"s": ["user", "at"]}


def rows_in(folder: Path) -> DiskRows:
    return DiskRows(ValueCodec(Registry()), str(folder))


def added(rows: DiskRows, values: list[list[Any]]) -> list[DiskRow]:
    found = rows.add([(one, None, None) for one in values])
    rows.settle()
    assert all(isinstance(one, DiskRow) for one in found)
    return found  # type: ignore[return-value]


# -- rows --


def test_a_row_is_the_sequence_that_was_written(tmp_path: Path) -> None:
    values = ["a", 1, (2, 3), {"b": [None]}, b"c" * 5_000]
    first, second = added(rows_in(tmp_path), [values, []])
    assert first == values
    assert list(first) == values
    assert (first[0], first[-1], first[1:3], len(first)) == ("a", b"c" * 5_000, [1, (2, 3)], 5)
    assert repr(first) == repr(values)
    assert first != values[1:]
    assert first != "a"
    assert second == []
    assert type(copy.deepcopy(first)) is list
    assert copy.copy(first) == pickle.loads(pickle.dumps(first)) == values
    assert os.listdir(tmp_path) == []  # nothing has a name


def test_files_end_with_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_disk, "_FILE_BYTES_MIN", 1_000)
    rows = rows_in(tmp_path)
    found = [added(rows, [[n, "x" * 100]])[0] for n in range(100)]
    assert len(rows) == 100
    before = rows.file_bytes
    del found[:50]
    assert len(rows) == 50
    assert before / 2 <= rows.file_bytes <= before / 2 + 2_000
    found.clear()
    assert len(rows) == 0
    assert rows.file_bytes <= 2_000  # the one that rows are appended to


def test_files_of_which_little_is_left_are_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_disk, "_FILE_BYTES_MIN", 1_000)
    monkeypatch.setattr(on_disk, "_WASTE_BYTES_MIN", 2_000)
    rows = rows_in(tmp_path)
    found = [added(rows, [[n, "x" * 100]])[0] for n in range(100)]
    left = found[::10]
    found.clear()
    assert len(rows) == 10
    assert rows.is_wasteful
    rows.compact([*left, ["values", "in memory"]])
    assert not rows.is_wasteful
    assert rows.file_bytes <= 3_000
    assert len(rows) == 10
    assert [row[0] for row in left] == list(range(0, 100, 10))
    rows.settle()
    left.clear()
    assert len(rows) == 0


def test_a_full_disk_is_an_error_that_names_the_folder_and_adds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = rows_in(tmp_path)
    (first,) = added(rows, [[1]])

    def full(*given: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StateStoreError, match="No space left on device") as caught:
            added(rows, [[2]])
    assert str(tmp_path) in str(caught.value)
    assert len(rows) == 1
    (second,) = added(rows, [[2]])
    assert (first, second) == ([1], [2])


def test_a_row_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    rows = rows_in(tmp_path)
    (row,) = added(rows, [[1]])
    assert rows._file is not None
    os.ftruncate(rows._file.fd, 0)
    with pytest.raises(StateStoreError, match="could not read"):
        list(row)


def test_files_need_a_folder(tmp_path: Path) -> None:
    with pytest.raises(StateStoreError, match="absent"):
        added(rows_in(tmp_path / "absent"), [[1]])


# -- windows --


class Shown(WindowedBolt):
    outputs = ("key", "at", "new", "expired", "end", "late")

    def execute_window(self, window: TupleWindow) -> None:
        at, new, expired = (
            [tup["at"] for tup in some] for some in (window.get(), window.new(), window.expired())
        )
        self.emit([window.key, at, new, expired, window.end_ms, window.late])


AT = EventTime("at", lag_secs=0.005)
LATE = EventTime("at", lag_secs=0.005, allowed_lateness_secs=0.02)
KINDS: dict[str, Windows] = {
    "tumbling": tumbling(secs=0.01, key="user", event_time=AT),
    "sliding": sliding(secs=0.02, every_secs=0.005, event_time=AT),
    "sliding, late": sliding(secs=0.02, every_secs=0.005, key="user", event_time=LATE),
    "of a number": sliding(count=5, every_count=2, key="user"),
    "tumbling of a number": tumbling(count=7),
    "session": session(gap_secs=0.008, key="user", event_time=AT),
    "session, late": session(gap_secs=0.008, key="user", event_time=LATE),
}


def outcome(windows: Windows, seed: int, bound: int | None) -> tuple[Any, ...]:
    """What a bolt makes of random tuples, with so many in memory."""
    chance = random.Random(seed)
    with BoltTest(Shown(), INPUTS, {MAX: bound}, windows=windows) as test:
        at, done = 1_000, []
        for _ in range(60):
            at += chance.choice((0, 1, 1, 2, 15))
            when = at - chance.choice((0, 0, 3, 12))
            done.append(test.execute([chance.choice("abc"), when]))
            if chance.random() < 0.2:
                test.run_for(1.1)
        (bolt,) = test.test.instances("bolt")
        shell = bolt._squall_shell
        held = list(shell.windows.operator.held())
        on_its_disk = [type(tup.values) is DiskRow for tup in held]
        assert shell.sizes().get("tuples_on_disk", 0) == sum(on_its_disk)
        if bound is not None:
            assert len(held) - sum(on_its_disk) <= bound
        emitted = [one.values for one in test.test.emitted("bolt")]
        acks = [(one.acked, one.failed) for one in done]
        return emitted, acks, [list(tup.values) for tup in held]


@pytest.mark.parametrize("kind", list(KINDS))
def test_windows_are_the_same_on_disk_as_in_memory(kind: str) -> None:
    for seed in range(4):
        assert outcome(KINDS[kind], seed, 2) == outcome(KINDS[kind], seed, None)


def test_a_bolt_may_emit_the_values_of_a_tuple_as_they_are() -> None:
    class Again(WindowedBolt):
        outputs = ("user", "at")

        def execute_window(self, window: TupleWindow) -> None:
            for tup in window:
                self.emit(tup.values)

    with BoltTest(Again(), INPUTS, {MAX: 1}, windows=tumbling(count=3)) as test:
        for at in range(3):
            test.execute(["a", at])
        found = [one.values for one in test.test.emitted("bolt")]
        assert found == [["a", 0], ["a", 1], ["a", 2]]


def test_replays_of_tuples_on_disk_count_once() -> None:
    conf = {"topology.bolts.message.id.field.name": "at", MAX: 1}
    with BoltTest(WindowedUnread(), INPUTS, conf, windows=tumbling(count=3, key="user")) as test:
        for at in (1, 2, 2, 3, 2):  # the last one is new: none is held any more
            test.execute(["a", at])
        assert [one.values for one in test.test.emitted("bolt")] == [[3]]
        assert test.test.instances("bolt")[0]._squall_shell.sizes()["tuples"] == 1


class WindowedUnread(WindowedBolt):
    outputs = ("n",)

    def execute_window(self, window: TupleWindow) -> None:
        self.emit([len(window)])


def test_tuples_for_which_the_disk_has_no_room_fail_and_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {MAX: 2, FOLDER: str(tmp_path)}
    with BoltTest(Shown(), INPUTS, conf, windows=tumbling(count=4)) as test:
        kept = [test.execute(["a", at]) for at in range(2)]
        with monkeypatch.context() as patch:

            def full(*given: Any) -> int:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            patch.setattr(os, "pwrite", full)
            assert test.execute(["a", 2]).failed
        (error,) = test.test.errors
        assert isinstance(error.error, SquallError)
        assert f"on disk in {tmp_path}" in str(error.error)
        again = [test.execute(["a", at]) for at in (2, 3)]
        assert all(one.acked for one in (*kept, *again))
        assert [one.values[1] for one in test.test.emitted("bolt")] == [[0, 1, 2, 3]]


def test_a_window_far_larger_than_its_bound_takes_little_memory(tmp_path: Path) -> None:
    """20 MB of values, in turn, with a twentieth of them in memory; the whole is in `bench`."""

    class Sizes(WindowedBolt):
        outputs = ("bytes", "most")

        def execute_window(self, window: TupleWindow) -> None:
            size = most = 0
            for tup in window:
                size += len(tup["at"])
                most = max(most, loaded(window))
            self.emit([size, most])

    def loaded(window: TupleWindow) -> int:
        rows = (tup.values for tup in window)
        return sum(type(row) is not DiskRow or row._loaded is not None for row in rows)

    count, each = 320, 64 * 1024
    conf = {MAX: 16, FOLDER: str(tmp_path)}
    with BoltTest(Sizes(), INPUTS, conf, windows=tumbling(count=count)) as test:
        for n in range(count):
            test.execute(["a", bytes([n % 256]) * each])
        ((size, most),) = [one.values for one in test.test.emitted("bolt")]
    assert size == count * each
    assert most <= 16 + 1 + 4  # in memory, the tuple that fired it, and those read last
