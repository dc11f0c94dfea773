"""Parts of logs, plain and compressed."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from squall_ui.logviewer import reading
from squall_ui.logviewer.reading import (
    Part,
    TooLargeError,
    chunks,
    ended_lines,
    read_part,
    whole_lines,
)

TEXT = b"".join(b"line %d\n" % n for n in range(200_000))


@contextmanager
def opened(path: Path, data: bytes) -> Iterator[int]:
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("start", "length", "begin"),
    [(0, 10, 0), (None, 10, len(TEXT) - 10), (1_000_000, 70_000, 1_000_000), (1 << 40, 5, None)],
)
def test_a_part_is_the_same_plain_and_compressed(
    tmp_path: Path, compressed: bool, start: int | None, length: int, begin: int | None
) -> None:
    data = gzip.compress(TEXT, 1) if compressed else TEXT
    with opened(tmp_path / "x", data) as fd:
        part = read_part(fd, start, length, compressed=compressed)
    begin = len(TEXT) if begin is None else begin
    assert part == reading.Part(TEXT[begin : begin + length], begin, len(TEXT))


def test_chunks_from_an_offset(tmp_path: Path) -> None:
    for compressed in (False, True):
        data = gzip.compress(TEXT, 1) if compressed else TEXT
        with opened(tmp_path / "x", data) as fd:
            found = b"".join(chunks(fd, compressed=compressed, start=777_777))
        assert found == TEXT[777_777:]


def test_the_last_part_begins_with_a_whole_line(tmp_path: Path) -> None:
    with opened(tmp_path / "x", TEXT) as fd:
        part = whole_lines(read_part(fd, None, 100, compressed=False))
    assert part.text.startswith("line ")
    assert part.end == part.size == len(TEXT)
    assert TEXT[part.offset - 1 : part.offset] == b"\n"


def test_one_line_without_an_end_is_shown_anyway(tmp_path: Path) -> None:
    with opened(tmp_path / "x", b"x" * 1000) as fd:
        assert whole_lines(read_part(fd, None, 100, compressed=False)).text == "x" * 100


def test_a_bomb_is_not_read_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "UNCOMPRESSED_BYTES_MAX", 10_000_000)
    bomb = gzip.compress(bytes(20_000_000), 1)
    with opened(tmp_path / "x", bomb) as fd, pytest.raises(TooLargeError):
        read_part(fd, None, 10, compressed=True)


@pytest.mark.parametrize("data", [gzip.compress(TEXT, 1)[:-20], b"no gzip", b"\x1f\x8b\x08\x00xx"])
def test_a_damaged_file_is_an_error_that_can_be_shown(tmp_path: Path, data: bytes) -> None:
    with opened(tmp_path / "x", data) as fd, pytest.raises(OSError, match="gzip"):
        read_part(fd, None, 10, compressed=True)


def test_what_is_not_text_is_shown_with_marks(tmp_path: Path) -> None:
    with opened(tmp_path / "x", b"a\xffb") as fd:
        assert read_part(fd, 0, 10, compressed=False).text == "a�b"


@pytest.mark.parametrize(
    ("part", "ended"),
    [
        (Part(b"a\nb\n", 0, 4), b"a\nb\n"),
        (Part(b"a\nb", 0, 3), b"a\n"),
        (Part("a\nü".encode()[:3], 0, 5), b"a\n"),
        (Part(b"b", 2, 3), b""),
        (Part(b"", 3, 3), b""),
        (Part(b"long", 0, 9), b"long"),  # longer than a part: a reader gets past it
    ],
)
def test_a_line_that_is_being_written_is_left_out(part: Part, ended: bytes) -> None:
    assert ended_lines(part) == Part(ended, part.offset, part.size)
