"""`LinesSpout` emits each line with the position behind it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from squall import InvalidTopologyError
from squall_connectors.files import LinesSpout

opened: list[LinesSpout] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


class Reader:
    """A task of the spout, and what it emits."""

    def __init__(
        self,
        folder: Path,
        positions: Any = None,
        *,
        index: int = 0,
        tasks: int = 1,
        consumed: bool = False,
        **more: Any,
    ) -> None:
        self.spout = LinesSpout(f"{folder}/*.txt*", **more)
        self.lines: list[Any] = []
        self.unreadable: list[Any] = []
        self.errors: list[str] = []
        self.metrics: dict[str, Any] = {}
        self.now = 0.0
        self.positions: dict[Any, Any] = dict(positions or {})
        context: Any = SimpleNamespace(
            monotonic=lambda: self.now,
            this_component_id="lines",
            this_task_id=1 + index,
            this_task_index=index,
            component_tasks=lambda _: list(range(tasks)),
            this_targets={"unreadable": {}} if consumed else {},
            register_metric=self.metrics.setdefault,
        )
        collector: Any = SimpleNamespace(
            emit=self._emit,
            emit_direct=None,
            emit_columns=None,
            report_error=lambda error: self.errors.append(str(error)),
        )
        self.spout._bind(collector, context)
        self.spout.open({}, context)
        opened.append(self.spout)
        self.spout._rewind(self.positions)

    def _emit(self, values: Any, message_id: Any, stream: str) -> Any:
        if stream == "unreadable":
            self.unreadable.append(values)
        else:
            self.lines.append(values[0] if len(values) == 1 else values)
        return (1,)

    def read(self, calls: int = 50) -> list[Any]:
        """The lines of so many calls of next_tuple."""
        self.now += 1.0
        for _ in range(calls):
            self.spout.next_tuple()
        found, self.lines = self.lines, []
        return found

    def saved(self) -> dict[Any, Any]:
        return dict(self.spout._positions_now())


def test_files_are_read_on_from_their_positions(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n3\n")
    reader = Reader(tmp_path)
    assert reader.read(calls=3) == ["1", "2"]  # the first call has looked
    again = Reader(tmp_path, reader.saved())
    assert again.read() == ["3"]
    with (tmp_path / "a.txt").open("a") as file:
        file.write("4\n5")
    assert again.read() == ["4"]
    with (tmp_path / "a.txt").open("a") as file:
        file.write("0\n")
    assert again.read() == ["50"]


def test_a_rotated_file_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1\n")
    reader = Reader(tmp_path)
    assert reader.read() == ["1"]
    with path.open("a") as file:
        os.rename(path, tmp_path / "a.txt.1")
        file.write("2\n")
    path.write_text("3\n")
    assert sorted(reader.read()) == ["2", "3"]
    assert Reader(tmp_path, reader.saved()).read() == []


def test_a_file_that_was_cut_off_starts_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("1\n2\n3\n")
    reader = Reader(tmp_path)
    reader.read()
    with path.open("r+") as file:
        file.truncate()
        file.write("4\n")
    assert reader.read() == ["4"]


def test_a_file_that_comes_back_is_read_on(tmp_path: Path) -> None:
    path, away = tmp_path / "a.txt", tmp_path / "a.away"
    path.write_text("1\n2\n")
    reader = Reader(tmp_path)
    assert reader.read() == ["1", "2"]
    path.rename(away)
    assert reader.read() == []
    with away.open("a") as file:
        file.write("3\n")
    away.rename(path)
    assert reader.read() == ["3"]


def test_the_position_in_a_deleted_file_is_forgotten(tmp_path: Path) -> None:
    """The inode is given to another file."""
    path = tmp_path / "a.txt"
    path.write_text("1\n2\n")
    reader = Reader(tmp_path)
    reader.read()
    again = Reader(tmp_path, reader.saved())
    reader.spout.close()
    again.read()
    path.unlink()
    again.read()
    assert again.saved() == {}
    assert again.spout._known == {}


def test_tasks_share_the_files(tmp_path: Path) -> None:
    for name in "abcdefgh":
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
    found = [Reader(tmp_path, index=index, tasks=3).read() for index in range(3)]
    assert sorted(line for lines in found for line in lines) == list("abcdefgh")


def test_lines_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text('{"a":1,"b":2}\nnonsense\n{"a":3}\n')
    reader = Reader(tmp_path, fields=["a", "b"], format="json")
    assert reader.read() == [[1, 2], [3, None]]
    assert len(reader.errors) == 1
    assert "a.txt, byte 14" in reader.errors[0]


def test_a_file_of_lines_that_cannot_be_read_does_not_hold_the_loop(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("nonsense\n" * 2_500)
    reader = Reader(tmp_path, fields=["a"], format="json")
    assert reader.read(calls=2) == []
    count = reader.metrics["unreadable"]
    assert count.get_value_and_reset() == 1_000  # the first call has looked
    reader.read(calls=3)
    assert count.get_value_and_reset() == 1_500


def test_lines_that_cannot_be_read_are_few_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("nonsense\n" * 500)
    reader = Reader(tmp_path, fields=["a"], format="json")
    reader.read(calls=3)
    assert len(reader.errors) == 1
    assert "a.txt, byte 0: JSONDecodeError" in reader.errors[0]
    assert "the stream 'unreadable'" in reader.errors[0]
    reader.now += 9.0
    reader.read(calls=3)
    assert len(reader.errors) == 2
    assert "499 records cannot be read; the last: " in reader.errors[1]
    assert "a.txt, byte 4491: JSONDecodeError" in reader.errors[1]
    reader.now += 20.0
    reader.read(calls=3)
    assert len(reader.errors) == 2


def test_the_last_errors_of_files_with_an_end_do_not_wait(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("nonsense\n" * 5)
    reader = Reader(tmp_path, fields=["a"], format="json", follow=False)
    reader.read()
    assert reader.spout.exhausted() is True
    assert len(reader.errors) == 2
    assert "4 records cannot be read" in reader.errors[1]


def test_lines_that_cannot_be_read_go_to_the_bolt_that_consumes_them(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text('{"a":1}\nnonsense\r\n{"a":3}\n[4]\n')
    reader = Reader(tmp_path, fields=["a"], format="json", consumed=True)
    assert reader.read(calls=3) == [1]  # the first call has looked
    ((where, offset, value, reason),) = reader.unreadable
    assert (where, offset, value) == (str(path), 8, b"nonsense")
    assert reason.startswith("JSONDecodeError")
    # It has a position, as any other line: the next process does not emit it again.
    again = Reader(tmp_path, reader.saved(), fields=["a"], format="json", consumed=True)
    assert again.read() == [3]
    assert [row[1:3] for row in again.unreadable] == [[26, b"[4]"]]
    assert reader.errors == again.errors == []
    assert again.metrics["unreadable"].get_value_and_reset() == 1


@pytest.mark.parametrize("rest", ["y" * 40 + "\ntwo\n", "y" * 40, ""])
def test_a_line_that_is_too_long_goes_there_when_its_end_is_known(
    tmp_path: Path, rest: str
) -> None:
    """A process that goes on from its position does not take the rest of it for a line."""
    (tmp_path / "a.txt").write_text("one\n" + "x" * 21 + rest)
    reader = Reader(tmp_path, line_bytes_max=20, consumed=True, follow=False)
    assert reader.read(calls=3) == ["one"]
    assert [row[1:] for row in reader.unreadable] == [
        [4, b"x" * 21, "the line is longer than 20 bytes (line_bytes_max)"]
    ]
    again = Reader(tmp_path, reader.saved(), line_bytes_max=20, consumed=True, follow=False)
    assert again.read() == (["two"] if "two" in rest else [])
    assert again.unreadable == []


def test_a_file_without_ends_of_lines_does_not_hold_the_loop(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.truncate(200 << 20)  # takes no room on the disk
    reader = Reader(tmp_path)
    assert reader.read(calls=2) == []  # the first call has looked
    (followed,) = reader.spout._followed.values()
    assert 16 << 20 <= followed.position <= 32 << 20
    reader.read(calls=1)
    assert 32 << 20 <= followed.position <= 64 << 20
    assert len(reader.errors) == 1


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(InvalidTopologyError, match="poll_secs"):
        LinesSpout("*.txt", poll_secs=0)
    with pytest.raises(InvalidTopologyError, match="parquet"):
        LinesSpout("*.parquet", format="parquet")


@pytest.mark.parametrize("is_there_at_once", [True, False])
def test_a_line_that_is_too_long_is_reported_once_and_passed_over(
    tmp_path: Path, is_there_at_once: bool
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\n" + "x" * 95)
    reader = Reader(tmp_path, line_bytes_max=20)
    if not is_there_at_once:
        assert reader.read() == ["one"]
        assert reader.read() == []
    with path.open("a") as file:
        file.write("y" * 40 + "\ntwo\n" + "z" * 21 + "\n")
    assert reader.read() == (["one"] if is_there_at_once else []) + ["two"]
    reader.now += 10.0
    reader.read()
    assert len(reader.errors) == 2
    assert all("longer than 20 bytes" in error for error in reader.errors)
    # The next process begins behind the last line that was emitted, and leaves out what it must.
    again = Reader(tmp_path, reader.saved(), line_bytes_max=21)
    assert again.read() == ["z" * 21]


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidTopologyError, match="line_bytes_max"):
        LinesSpout("/tmp/*.txt", line_bytes_max=0)


def test_files_that_are_not_followed_come_to_their_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n2\n")
    (tmp_path / "b.txt").write_text("3\n4 without an end")
    reader = Reader(tmp_path, follow=False)
    assert reader.spout.exhausted() is False
    assert reader.read(calls=3) == ["1", "2"]
    assert reader.spout.exhausted() is False
    assert reader.read() == ["3", "4 without an end"]
    assert reader.spout.exhausted() is True
    # What comes later belongs to the next run, and this one goes on behind what it has emitted.
    (tmp_path / "c.txt").write_text("5\n")
    assert reader.read() == []
    again = Reader(tmp_path, reader.saved(), follow=False)
    assert again.read() == ["5"]
    assert again.spout.exhausted() is True


def test_the_rest_of_a_long_line_is_no_line_at_the_end_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n" + "x" * 30)
    reader = Reader(tmp_path, line_bytes_max=20, follow=False)
    assert reader.read() == ["1"]
    assert reader.spout.exhausted() is True
    (error,) = reader.errors
    assert "longer than 20 bytes" in error


def test_a_task_without_a_file_of_its_own_has_ended(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n")
    readers = [Reader(tmp_path, index=index, tasks=2, follow=False) for index in range(2)]
    assert sorted(line for one in readers for line in one.read()) == ["1"]
    assert [one.spout.exhausted() for one in readers] == [True, True]


def test_input_that_is_not_there_is_reported_and_waited_for(tmp_path: Path) -> None:
    reader = Reader(tmp_path, follow=False)
    assert reader.read() == []
    assert reader.read() == []
    (error,) = reader.errors
    assert f"no file matches {tmp_path}/*.txt*" in error
    assert reader.spout.exhausted() is False
    (tmp_path / "late.txt").write_text("1\n")
    assert reader.read() == ["1"]
    assert reader.spout.exhausted() is True


def test_files_that_are_followed_have_no_end(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1\n")
    reader = Reader(tmp_path)
    assert reader.read() == ["1"]
    assert reader.spout.exhausted() is None
