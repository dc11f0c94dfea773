"""The file in which a worker lays its heartbeat for its supervisor."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall_common.worker_files.report_file import (
    REPORT_BYTES_MAX,
    REPORT_FILE,
    has_report,
    read_report,
    remove_report,
    write_report,
)


def test_a_report_is_read_as_it_was_written_until_it_is_removed(tmp_path: Path) -> None:
    assert not has_report(tmp_path)
    assert read_report(tmp_path) is None
    write_report(tmp_path, 1_700_000_000, b"beat")
    assert has_report(tmp_path)
    found = read_report(tmp_path)
    assert found is not None
    assert (found.time_secs, found.heartbeat) == (1_700_000_000, b"beat")
    remove_report(tmp_path, found.inode)
    assert not has_report(tmp_path)
    remove_report(tmp_path, found.inode)  # fine
    assert os.listdir(tmp_path) == []


def test_a_newer_report_is_not_removed_with_the_one_before(tmp_path: Path) -> None:
    write_report(tmp_path, 1, b"old")
    with open(tmp_path / REPORT_FILE, "rb"):  # so that the inode is not used again
        old = read_report(tmp_path)
        assert old is not None
        write_report(tmp_path, 2, b"new")
        remove_report(tmp_path, old.inode)
    new = read_report(tmp_path)
    assert new is not None
    assert new.heartbeat == b"new"


def test_what_is_not_a_report_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / REPORT_FILE
    secret = tmp_path / "secret"
    secret.write_bytes(b"SQRP" + bytes(8) + b"not the worker's")
    path.symlink_to(secret)
    with pytest.raises(ValueError, match="not a file"):
        read_report(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match="not a file"):
        read_report(tmp_path)
    path.unlink()
    path.write_bytes(b"SQ")
    with pytest.raises(ValueError, match="does not begin"):
        read_report(tmp_path)
    with path.open("wb") as file:
        file.truncate(REPORT_BYTES_MAX + 1)
    with pytest.raises(ValueError, match="more than"):
        read_report(tmp_path)


def test_a_folder_in_the_place_of_a_report_costs_no_descriptor(tmp_path: Path) -> None:
    """The supervisor looks twice a second, and ends when it has no descriptor left."""
    (tmp_path / REPORT_FILE).mkdir()
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(ValueError, match="not a file"):
            read_report(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_a_link_in_the_place_of_a_report_is_removed_itself(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"kept")
    path = tmp_path / REPORT_FILE
    path.symlink_to(target)
    remove_report(tmp_path, os.lstat(path).st_ino)
    assert target.read_bytes() == b"kept"
    assert not has_report(tmp_path)
