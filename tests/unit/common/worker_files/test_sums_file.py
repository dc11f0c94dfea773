"""The mailbox of a worker's sums by component."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall_common.telemetry.sums import SUMS_BYTES_MAX
from squall_common.worker_files.sums_file import SUMS_FILE, take_sums, write_sums


def test_the_last_sums_are_taken_once(tmp_path: Path) -> None:
    assert take_sums(tmp_path) is None
    write_sums(tmp_path, b"one")
    write_sums(tmp_path, b"two")
    assert take_sums(tmp_path) == b"two"
    assert take_sums(tmp_path) is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"else", b"SQSU" + b"x" * (SUMS_BYTES_MAX + 1)])
def test_what_no_worker_writes_is_refused_and_removed(tmp_path: Path, data: bytes) -> None:
    (tmp_path / SUMS_FILE).write_bytes(data)
    with pytest.raises(ValueError, match="sums"):
        take_sums(tmp_path)
    assert take_sums(tmp_path) is None


def test_no_link_is_followed_and_no_pipe_waited_for(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"SQSUsecret")
    (tmp_path / SUMS_FILE).symlink_to(tmp_path / "secret")
    with pytest.raises((OSError, ValueError)):
        take_sums(tmp_path)
    (tmp_path / SUMS_FILE).unlink()
    os.mkfifo(tmp_path / SUMS_FILE)
    with pytest.raises((OSError, ValueError)):
        take_sums(tmp_path)


def test_the_folder_of_a_worker_that_has_ended_has_none(tmp_path: Path) -> None:
    assert take_sums(tmp_path / "gone") is None
