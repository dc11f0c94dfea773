"""How a worker knows that somebody watches its topology."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall_common.worker_files.watch_file import (
    WATCH_FILE,
    Pace,
    pace_of,
    read_watch,
    write_watch,
)

FAST, LARGE = Pace(0.25), Pace(8.0, 0.25)


def test_a_watch_is_valid_until_its_end(tmp_path: Path) -> None:
    assert read_watch(tmp_path, 100.0) is None
    write_watch(tmp_path, FAST, 108.0)
    assert read_watch(tmp_path, 107.9) == FAST
    assert read_watch(tmp_path, 108.0) is None
    write_watch(tmp_path, LARGE, 116.0)
    assert read_watch(tmp_path, 110.0) == LARGE


def test_a_worker_of_an_earlier_version_understands_a_watch_without_sums(tmp_path: Path) -> None:
    """Workers go on while their supervisor is upgraded."""
    write_watch(tmp_path, FAST, 108.0)
    assert (tmp_path / WATCH_FILE).read_bytes().split() == [b"0.25", b"108.0"]


def test_a_file_of_an_earlier_boot_means_nothing(tmp_path: Path) -> None:
    write_watch(tmp_path, FAST, 900_000.0)
    assert read_watch(tmp_path, 100.0) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0.25",
        b"x 1 y",
        b"nan 1 108",
        b"-1 1 108",
        b"0 108",
        b"0.2 0 108",
        b"0.2 -1 108",
        b"0.2 inf 108",
        b"0.2 1 108 109",
    ],
)
def test_what_no_supervisor_writes_counts_as_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / WATCH_FILE).write_bytes(data)
    assert read_watch(tmp_path, 100.0) is None


def test_a_worker_that_lays_traps_harms_nothing(tmp_path: Path) -> None:
    """The supervisor may be root, and the folder its worker's."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for trap in (os.symlink, os.link):
        folder = tmp_path / trap.__name__
        folder.mkdir()
        trap(victim, folder / WATCH_FILE)
        write_watch(folder, FAST, 108.0)
        assert read_watch(folder, 100.0) == FAST
        assert victim.read_text() == "precious"
    pipe = tmp_path / "pipe"
    pipe.mkdir()
    os.mkfifo(pipe / WATCH_FILE)
    assert read_watch(pipe, 100.0) is None
    link = tmp_path / "other-link"
    link.symlink_to(tmp_path)
    with pytest.raises(OSError):
        write_watch(link, FAST, 108.0)


def test_a_worker_with_many_executors_reports_sums_in_between() -> None:
    """The larger its topology, the less often a worker reports all statistics; how often it may
    report sums depends on how many workers there are."""
    for executors in (1, 50, 150, 5_000):
        assert pace_of(0.25, executors) == Pace(0.25)
    assert pace_of(1_000 / 600, 250) == Pace(1_000 / 600, 0.25)  # in four workers
    assert pace_of(5_000 / 600, 10).sums_secs == pytest.approx(2.5)  # in 500
    for executors in (1, 2, 3):  # thousands of small workers
        assert pace_of(5_000 / 600, executors).sums_secs is None
