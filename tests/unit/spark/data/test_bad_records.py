"""Records that cannot be read: found in their files, left out, or written to a folder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from squall_common.errors import SquallError
from squall_spark.data.bad_records import (
    BAD,
    FAIL,
    FILE,
    OnBadRecord,
    Sorter,
    broken_file,
    first_bad_line,
    local_path,
    reason_of,
)
from squall_spark.data.bindings import Format


def sorter(on_bad: OnBadRecord, required: tuple[int, ...] = ()) -> Sorter:
    return Sorter("records", Format.JSON, ("text", "n"), required, on_bad, "records-0")


def batch(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True))
    names = ["text", "n", BAD, FILE][: len(columns)]
    types = [pa.string(), pa.int64(), pa.string(), pa.string()]
    arrays = [pa.array(c, t) for c, t in zip(columns, types, strict=False)]
    return pa.record_batch(arrays, names=names)


def test_bad_records_go_to_the_folder_with_file_line_and_reason(tmp_path: Path) -> None:
    file = tmp_path / "a b.json"
    file.write_text('{"text": "a", "n": 1}\n{"text": "b"\n{"text": "b"\n')
    url = f"file://{tmp_path}/a%20b.json"
    one = sorter(OnBadRecord.parse(str(tmp_path / "bad")))
    rows = [("a", 1, None, url), (None, None, '{"text": "b"', url)]
    good = one.good(batch([*rows, rows[1]]))
    one.close()
    assert [column.to_pylist() for column in good] == [["a"], [1]]
    assert one.left_out == 2
    letters = [
        json.loads(line) for line in (tmp_path / "bad" / "records-0.jsonl").read_text().splitlines()
    ]
    assert [(x["line"], x["record"]) for x in letters] == [(2, rows[1][2]), (3, rows[1][2])]
    assert letters[0]["reason"].startswith("not JSON: ")
    assert letters[0]["file"] == url


def test_a_required_field_without_a_value_is_a_bad_record() -> None:
    rows = [("a", 1), (None, 2)]
    with pytest.raises(SquallError, match="no value for field 'text', which the spout declares"):
        sorter(FAIL, (0,)).good(batch(rows))
    skipping = sorter(OnBadRecord.parse("skip"), (0,))
    good = skipping.good(batch([(*row, None, None) for row in rows]))
    assert [column.to_pylist() for column in good] == [["a"], [1]]
    assert skipping.left_out == 1


def test_reasons() -> None:
    assert reason_of("{", Format.JSON).startswith("not JSON: ")
    assert reason_of("[1]", Format.JSON) == "a JSON list instead of an object"
    assert "type of its column" in reason_of('{"n": "x"}', Format.JSON)
    assert reason_of("a,b", Format.CSV) == "it does not fit the columns"


def test_the_first_bad_line_of_a_csv_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('text,n\n"two\nlines",1\nonly one\n')
    assert first_bad_line(str(tmp_path / "a.csv"), Format.CSV, {}) == (
        4,
        "1 values, and the header has 2",
    )


def test_damaged_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1] * 1000}), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    assert broken_file(str(tmp_path / "a.parquet"), Format.PARQUET) is None
    (tmp_path / "a.parquet").write_bytes(whole[:-7])
    assert broken_file(str(tmp_path / "a.parquet"), Format.PARQUET)
    packed = gzip.compress(b"{}\n" * 1000)
    (tmp_path / "a.json.gz").write_bytes(packed)
    assert broken_file(str(tmp_path / "a.json.gz"), Format.JSON) is None
    (tmp_path / "a.json.gz").write_bytes(packed[:-9])
    assert broken_file(str(tmp_path / "a.json.gz"), Format.JSON)
    assert broken_file(str(tmp_path / "gone.json.gz"), Format.JSON) is None


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("file:///a/b.json", "/a/b.json"),
        ("file:/a/b%20c.json", "/a/b c.json"),
        ("s3a://bucket/x", "s3a://bucket/x"),
        ("/a/b", "/a/b"),
    ],
)
def test_urls_of_spark_as_paths(url: str, path: str) -> None:
    assert local_path(url) == path
