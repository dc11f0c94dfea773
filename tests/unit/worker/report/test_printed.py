"""What a worker prints is bounded while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from squall_worker.report.printed import turn_over


@pytest.fixture
def printed(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    path = tmp_path / "worker.log.out"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    yield fd, path
    os.close(fd)


def test_the_newest_output_is_kept_and_printing_goes_on(printed: tuple[int, Path]) -> None:
    fd, path = printed
    for number in range(100):
        os.write(fd, b"%04d\n" % number)
        turn_over(fd, path, 50)
    older = path.with_name("worker.log.out.1")
    assert 0 < path.stat().st_size <= 50
    kept = (older.read_bytes() + path.read_bytes()).split()
    assert kept[-11:] == [b"%04d" % number for number in range(89, 100)]
    assert sorted(os.listdir(path.parent)) == ["worker.log.out", "worker.log.out.1"]


def test_a_flood_leaves_its_end(printed: tuple[int, Path]) -> None:
    fd, path = printed
    os.write(fd, b"".join(b"%07d\n" % n for n in range(100_000)))
    assert turn_over(fd, path, 8_000)
    assert path.stat().st_size == 0
    kept = path.with_name("worker.log.out.1").read_bytes()
    assert kept == b"".join(b"%07d\n" % n for n in range(99_000, 100_000))


def test_files_below_the_limit_and_other_kinds_of_output_are_left_alone(
    printed: tuple[int, Path],
) -> None:
    fd, path = printed
    os.write(fd, b"x" * 50)
    assert not turn_over(fd, path, 50)
    reader, writer = os.pipe()
    assert not turn_over(writer, path, 0)
    os.close(reader)
    os.close(writer)
    assert path.stat().st_size == 50


def test_a_file_is_cut_even_if_its_copy_fails(printed: tuple[int, Path]) -> None:
    """A full disk; here a folder has the name."""
    fd, path = printed
    path.with_name("worker.log.out.1").mkdir()
    os.write(fd, b"x" * 100)
    assert turn_over(fd, path, 50)
    assert path.stat().st_size == 0
    path.unlink()
    path.symlink_to("/etc/passwd")  # what the descriptor writes to is cut, nothing else is read
    os.write(fd, b"x" * 100)
    assert turn_over(fd, path, 50)
    assert sorted(os.listdir(path.parent)) == ["worker.log.out", "worker.log.out.1"]
