"""What files say of themselves."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from squall_spark.data.bindings import Format, parse_input
from squall_spark.data.look import columns_in, files_of


def test_columns_of_files(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1], "t": ["a"]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("n,x\n1,2\n")
    (tmp_path / "a.json").write_text('\n{"n": 1}\n')
    (tmp_path / "list.json").write_text("[1]\n")
    parquet = columns_in(str(tmp_path / "a.parquet"), None)
    assert parquet == [("n", "int64"), ("t", "string")]
    assert columns_in(str(tmp_path / "a.csv"), Format.CSV) == [("n", None), ("x", None)]
    assert columns_in(str(tmp_path / "a.json"), Format.JSON) == [("n", None)]
    assert columns_in(str(tmp_path / "list.json"), Format.JSON) is None
    assert columns_in(str(tmp_path / "a.json"), Format.TEXT) is None


def test_a_damaged_file_is_a_value_error(tmp_path: Path) -> None:
    whole = gzip.compress(b"n,x\n1,2\n")
    (tmp_path / "short.csv.gz").write_bytes(whole[:12])
    (tmp_path / "mixed.csv.gz").write_bytes(whole[:10] + b"\xff" * 20)
    (tmp_path / "wide.csv").write_text('"' + "x" * 200_000)
    for name in ("short.csv.gz", "mixed.csv.gz", "wide.csv"):
        with pytest.raises(ValueError, match=r"ended before|invalid block|field limit"):
            columns_in(str(tmp_path / name), None)


@pytest.mark.parametrize("pattern", ["in", "in/day=*", "in/*/*.json"])
def test_files_and_their_size(tmp_path: Path, pattern: str) -> None:
    for day in range(2):
        folder = tmp_path / "in" / f"day={day}"
        folder.mkdir(parents=True)
        (folder / "a.json").write_text("{}\n")
    if not pattern.endswith(".json"):
        (tmp_path / "in" / "day=0" / "_SUCCESS").write_text("not data")
    found = files_of(parse_input(f"s=json:{tmp_path}/{pattern}"))
    assert found is not None
    assert (found.count, found.size) == (2, 6)
    assert found.first == f"{tmp_path}/in/day=0/a.json"


@pytest.mark.parametrize("where", ["table:t", "s3a://bucket/in", "kafka:h:1/t", "/d/{a,b}.csv"])
def test_files_that_are_not_here(where: str) -> None:
    assert files_of(parse_input(f"s={where}")) is None
