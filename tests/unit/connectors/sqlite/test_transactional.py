"""`TransactionalSqliteSink` writes the rows of each epoch once."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from squall import RowBatch
from squall_connectors.base.refused import REFUSED_MAX, RowRefusedError
from squall_connectors.sqlite import TransactionalSqliteSink

CREATE = "CREATE TABLE IF NOT EXISTS counts (word TEXT{key}, count INT CHECK (count > 0))"
SINKS: list[TransactionalSqliteSink] = []  # of the test that runs


@pytest.fixture(autouse=True)
def _clean_up() -> Iterator[None]:
    yield
    while SINKS:
        SINKS.pop().cleanup()


def sink_of(path: Path, *, key: str = "", **options: Any) -> TransactionalSqliteSink:
    sink = TransactionalSqliteSink(
        path,
        "counts",
        ["word", "count"],
        key=["word"] if key else [],
        create=CREATE.format(key=key),
        **options,
    )
    none: Any = None
    sink.prepare({}, none)
    SINKS.append(sink)
    return sink


def rows(path: Path) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT word, count FROM counts ORDER BY rowid").fetchall()


def test_batches_that_are_committed_again_are_written_once(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    first, second = RowBatch("w/s/0", 3, [["a", 1]]), RowBatch("w/s/0", 5, [["b", 2], ["b", 3]])
    other = RowBatch("w/s/1", 3, [["c", 4]])
    sink_of(path).commit([first])
    sink_of(path).commit([first, second, other])
    sink_of(path).commit([second, other])
    assert rows(path) == [("a", 1), ("b", 2), ("b", 3), ("c", 4)]


def test_a_transaction_that_fails_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    message = "refuses the row {'word': 'b', 'count': -1} of checkpoint 3: CHECK constraint failed"
    with pytest.raises(RowRefusedError, match=message):
        sink_of(path).commit([RowBatch("w/s/0", 3, [["a", 1], ["b", -1]])])
    assert rows(path) == []
    sink_of(path).commit([RowBatch("w/s/0", 3, [["a", 1]])])
    assert rows(path) == [("a", 1)]


def test_many_refused_rows_are_a_fault_of_the_table(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sink = sink_of(path, refused_table="bad")
    bad = [["b", -1]] * REFUSED_MAX
    with pytest.raises(RowRefusedError, match="refuses 1,000 rows of one commit"):
        sink.commit([RowBatch("w/s/0", 3, [["a", 1]]), RowBatch("w/s/0", 4, bad)])
    assert rows(path) == []
    errors: list[BaseException] = []
    object.__setattr__(sink, "report_error", errors.append)
    sink.commit([RowBatch("w/s/0", 3, [["a", 1]]), RowBatch("w/s/0", 4, bad[1:])])
    assert rows(path) == [("a", 1)]
    assert [str(error).partition(";")[0] for error in errors] == [
        "table 'counts' refused 999 rows, now in 'bad'"
    ]


def test_a_database_that_is_locked_or_without_a_table_refuses_no_row(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sink = sink_of(path, refused_table="bad")
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE counts")
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        sink.commit([RowBatch("w/s/0", 3, [["a", 1]])])
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM bad").fetchall() == []


@pytest.mark.parametrize(
    "value", [None, True, 1, -(2**63), 2**63 - 1, 1.5, "a", "ü", b"a", bytearray(b"a")]
)
def test_what_sqlite_stores_is_a_row(value: Any, tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "a.db")
    tup: Any = {"word": value, "count": 1}
    assert sink.row(tup) == [value, 1]
    sink.commit([RowBatch("w/s/0", 3, [sink.row(tup)])])
    sink.cleanup()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            ["a"],
            "field 'word' of type list cannot be stored in SQLite: .*type 'list' is not supported",
        ),
        (2**63, "field 'word' of type int cannot be stored in SQLite: .*too large"),
        ("\ud800", "field 'word' of type str cannot be stored in SQLite: .*surrogates"),
    ],
)
def test_what_sqlite_cannot_store_fails_its_tuple(value: Any, reason: str, tmp_path: Path) -> None:
    sink = sink_of(tmp_path / "a.db")
    tup: Any = {"word": value, "count": 1}
    with pytest.raises(ValueError, match=reason):
        sink.row(tup)
    sink.cleanup()


def test_a_row_replaces_that_of_its_key(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    sink_of(path, key=" PRIMARY KEY").commit([RowBatch("w/s/0", 3, [["a", 1], ["a", 2]])])
    assert rows(path) == [("a", 2)]
