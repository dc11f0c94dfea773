"""The SQL that merges a batch, run by a real database where Python has one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any

import pytest
from tests.unit.spark.current.support import sink_of

from squall import SquallError
from squall_spark.current.jdbc import Columns, check, statements, writer_id

URL = "spark:jdbc?url={}&dbtable=now"


def merged(rows: list[tuple[Any, ...]], others: list[str]) -> list[tuple[Any, ...]]:
    """What SQLite makes of a table with a and b."""
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute("CREATE TABLE now (k TEXT PRIMARY KEY, n INTEGER, kept TEXT DEFAULT 'kept')")
        base.executemany("INSERT INTO now VALUES (?, ?, ?)", [("a", 1, "x"), ("b", 2, "y")])
        base.execute("CREATE TABLE staged (k TEXT, n INTEGER, squall_gone INTEGER)")
        base.executemany("INSERT INTO staged VALUES (?, ?, ?)", rows)
        columns = Columns(['"k"'], others)
        for sql in statements("jdbc:sqlite:x", "now", "staged", '"squall_gone"', columns):
            base.execute(sql)
        return base.execute("SELECT k, n, kept FROM now ORDER BY k").fetchall()


def test_rows_are_updated_inserted_and_deleted_and_other_columns_stay() -> None:
    rows = [("a", 10, 0), ("b", None, 1), ("c", 3, 0), ("never", None, 1)]
    assert merged(rows, ['"n"']) == [("a", 10, "x"), ("c", 3, "kept")]


def test_a_key_of_all_fields_is_a_set() -> None:
    assert merged([("a", None, 0), ("c", None, 0)], []) == [
        ("a", 1, "x"),
        ("b", 2, "y"),
        ("c", None, "kept"),
    ]


def test_other_databases_get_a_merge() -> None:
    columns = Columns(["K1", "K2"], ["N"])
    assert statements("jdbc:derby:x", "s.now", "s.new", "G", columns)[-1] == (
        "MERGE INTO s.now t USING s.new s ON (s.K1 = t.K1 AND s.K2 = t.K2) "
        "WHEN MATCHED THEN UPDATE SET N = s.N "
        "WHEN NOT MATCHED THEN INSERT (K1, K2, N) VALUES (s.K1, s.K2, s.N)"
    )


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("spark:jdbc?url=jdbc:derby:x", "--current count: spark:jdbc. needs the option dbtable"),
        (URL.format("jdbc:mysql://h/d"), "does not work with MySQL and MariaDB"),
    ],
)
def test_a_table_that_cannot_be_updated_is_refused_before_spark_starts(
    place: str, message: str
) -> None:
    with pytest.raises(SquallError, match=message):
        check(sink_of(place))
    assert check(sink_of(URL.format("jdbc:derby:x"))).options["dbtable"] == "now"


def test_a_known_database_needs_no_driver_class() -> None:
    url = URL.format("jdbc:postgresql://h/d")
    assert check(sink_of(url)).options["driver"] == "org.postgresql.Driver"
    assert check(sink_of(f"{url}&driver=other.Driver")).options["driver"] == "other.Driver"


def test_two_batch_jobs_at_once_do_not_share_the_table_of_new_rows() -> None:
    sink = sink_of(URL.format("jdbc:derby:x"))
    assert writer_id("a", sink, "now") == writer_id("a", sink, "now") != writer_id("b", sink, "now")
    assert writer_id(None, sink, "now") != writer_id(None, sink, "now")
