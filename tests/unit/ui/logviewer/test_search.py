"""Search in logs."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

from squall_ui.logviewer.places import Places
from squall_ui.logviewer.search import (
    CONTEXT_BYTES,
    Deadline,
    Found,
    deep_search,
    find,
    is_log,
)


def in_pieces(data: bytes, size: int, start: int = 0) -> list[bytes]:
    return [data[at : at + size] for at in range(start, len(data), size)]


def search(data: bytes, wanted: bytes, size: int, start: int = 0, most: int = 5_000) -> Found:
    return find(in_pieces(data, size, start), wanted, start, most, Deadline())


def offsets(data: bytes, wanted: bytes, start: int = 0) -> list[int]:
    found, at = [], data.find(wanted, start)
    while at >= 0:
        found.append(at)
        at = data.find(wanted, at + len(wanted))
    return found


def test_the_size_of_pieces_changes_nothing() -> None:
    chooser = random.Random(4)
    data = bytes(chooser.choice(b"abc") for _ in range(4_000))
    for wanted in (b"a", b"abca", b"aa", b"aaaaaa", data[500:800], b"zz"):
        expected = offsets(data, wanted)
        for size in (1, 2, 3, 7, 64, 333, 5_000):
            found = search(data, wanted, size)
            assert [one.offset for one in found.matches] == expected
            for one in found.matches:
                end = one.offset + len(wanted)
                assert one.match == wanted
                assert one.after == data[end : end + CONTEXT_BYTES]
                assert data[: one.offset].endswith(one.before)
                assert len(one.before) == min(one.offset, CONTEXT_BYTES)


def test_a_search_goes_on_where_it_stopped() -> None:
    data = b"".join(b"<%d> needle " % n for n in range(100))
    seen: list[int] = []
    start: int | None = 0
    while start is not None:
        found = search(data, b"needle", 50, start, most=7)
        assert len(found.matches) <= 7
        seen += [one.offset for one in found.matches]
        start = found.next_offset
    assert seen == offsets(data, b"needle")


def test_a_search_that_takes_long_stops_and_says_where() -> None:
    clock = iter(range(1_000))
    data = b"x" * 1_000 + b"needle"
    found = find(in_pieces(data, 10), b"needle", 0, 10, Deadline(3.0, lambda: float(next(clock))))
    assert found.matches == []
    assert found.next_offset is not None
    assert 0 < found.next_offset <= 1_000
    rest = search(data, b"needle", 10, found.next_offset)
    assert [one.offset for one in rest.matches] == [1_000]


def test_which_files_are_logs() -> None:
    for name in ("worker.log", "worker.log.err", "events.log", "dead-letters.jsonl"):
        assert is_log(name, archived=False), name
    for name in ("worker.log.1", "worker.log.3.gz", "worker.log.gz", "worker.log.out.2"):
        assert is_log(name, archived=True), name
        assert not is_log(name, archived=False), name
    for name in ("flamegraph-1.svg", "heap-1.txt", "core", "3", "worker.pid"):
        assert not is_log(name, archived=True), name


def test_a_deep_search_finds_all_workers_and_the_archive(tmp_path: Path) -> None:
    for port in (6700, 6701):
        folder = tmp_path / "words-1-1" / str(port)
        folder.mkdir(parents=True)
        (folder / "worker.log").write_text(f"needle at {port}\n")
        (folder / "worker.log.1.gz").write_bytes(gzip.compress(b"needle before\n"))
        (folder / "worker.log.2.gz").write_bytes(b"damaged needle")
    places = Places([tmp_path], [tmp_path])

    def files(**options: object) -> list[str]:
        arguments: dict[str, object] = {
            "port": None, "archived": False, "matches_max": 10, "deadline": Deadline(), **options
        }  # fmt: skip
        found = deep_search(places, "words-1-1", b"needle", **arguments)  # type: ignore[arg-type]
        return sorted(f"{one.file.port}/{one.file.name}" for one in found)

    assert files() == ["6700/worker.log", "6701/worker.log"]
    assert files(port=6701) == ["6701/worker.log"]
    assert len(files(archived=True)) == 4
    assert len(files(archived=True, matches_max=3)) == 3
