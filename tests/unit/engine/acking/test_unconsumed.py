"""The file of dead letters that no bolt consumes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from squall_engine.acking.unconsumed import UnconsumedLetters, append


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def _recorded(folder: Path, message_id: Any, values: list[Any]) -> dict[str, Any]:
    letters = UnconsumedLetters(folder)
    assert letters.record("s", 1, [message_id, values, "default", "why", None, None, None, 3])
    [line] = (folder / "dead-letters.jsonl").read_text().splitlines()
    found: dict[str, Any] = json.loads(line)
    return found


def test_values_are_json_or_their_text(tmp_path: Path) -> None:
    values = [None, True, 3, 2.5, "word", [1, {"a": (2,)}]]
    found = _recorded(tmp_path, ("m", 1), values)
    assert found["values"] == [None, True, 3, 2.5, "word", [1, {"a": [2]}]]
    assert found["message_id"] == ["m", 1]


def test_values_that_json_does_not_know_are_text(tmp_path: Path) -> None:
    found = _recorded(tmp_path, b"\x00", [float("nan"), {1, 2}, Odd(), "\ud800", 10**5000])
    shown = found["values"]
    assert found["message_id"] == "b'\\x00'"
    assert shown[:2] == ["nan", "{1, 2}"]
    assert shown[2] == "<Odd: its repr failed: RuntimeError: no repr>"
    assert shown[3] == "\ud800"
    assert shown[4].startswith("<int: its repr failed: ValueError")


def test_a_line_is_bounded(tmp_path: Path) -> None:
    found = _recorded(tmp_path, "m", ["x" * 50_000] * 1_000)
    assert found["values_left_out"] == 800
    assert found["values"][0].endswith("... (50002 characters)")
    assert (tmp_path / "dead-letters.jsonl").stat().st_size < 200 * 10_200


def test_only_the_newest_files_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "letters"
    for number in range(20):
        append(file, b"%d\n" % number, bytes_max=4)
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        "letters", *(f"letters.{n}" for n in range(1, 6)),
    ]  # fmt: skip
    assert file.read_text() == "19\n"
    assert (tmp_path / "letters.5").read_text() == "14\n"


def test_a_line_that_does_not_fit_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "letters"
    append(file, b"first\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:3]))
    with pytest.raises(OSError, match="No space left"):
        append(file, b"second\n")
    assert file.read_text() == "first\n"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "dead-letters.jsonl").symlink_to(tmp_path / "elsewhere")
    letters = UnconsumedLetters(tmp_path)
    assert not letters.record("s", 1, ["m", [1], "default", "why", None, None, None, 3])
    assert not (tmp_path / "elsewhere").exists()
    assert letters.count == 0


def test_a_failure_to_write_is_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    letters = UnconsumedLetters(tmp_path / "missing")
    for _ in range(5):
        letters.record("s", 1, ["m", [1], "default", "why", None, None, None, 3])
    assert caplog.text.count("dead_letter_not_recorded") == 1


def test_without_a_folder_the_log_has_the_values(caplog: pytest.LogCaptureFixture) -> None:
    letters = UnconsumedLetters(None)
    assert letters.record("s", 1, ["m", ["word"], "default", "why", "b", 2, "h:1", 3])
    assert letters.count == 1
    assert "word" in caplog.text
