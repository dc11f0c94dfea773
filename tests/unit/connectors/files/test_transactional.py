"""`TransactionalFileSink` writes each batch as one file, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall import RowBatch
from squall_connectors.files import TransactionalFileSink


def sink_of(folder: Path, **more: Any) -> TransactionalFileSink:
    sink = TransactionalFileSink(folder, ["word", "count"], **more)
    none: Any = None
    sink.prepare({}, none)
    return sink


def test_a_batch_that_is_committed_again_is_written_once(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    batches = [RowBatch("words/store/0", 7, [["cow", 1]]), RowBatch("words/store/0", 8, [["a", 2]])]
    sink_of(folder).commit(batches[:1])
    sink_of(folder).commit(batches)
    files = sorted(folder.iterdir())
    assert [path.name for path in files] == [
        "words%2Fstore%2F0-000000000007.jsonl",
        "words%2Fstore%2F0-000000000008.jsonl",
    ]
    assert files[0].read_text() == '{"word":"cow","count":1}\n'


def test_a_value_without_a_form_fails_its_tuple(tmp_path: Path) -> None:
    tup: Any = {"word": "cow", "count": object()}
    with pytest.raises(TypeError):
        sink_of(tmp_path).row(tup)
    assert sink_of(tmp_path).row({"word": "cow", "count": 3}) == ["cow", 3]  # type: ignore[arg-type]


def test_rows_whose_types_do_not_fit_together_are_in_several_parquet_files(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    batch = RowBatch("w/s/0", 7, [["a", 1], ["b", 2], ["c", "three"], ["d", 4.5]])
    for _ in range(2):  # a process that ended after the first file goes on with the others
        sink_of(tmp_path, format="parquet").commit([batch])
        files = sorted(tmp_path.iterdir())
        assert [path.name for path in files] == [
            f"w%2Fs%2F0-000000000007-{number}.parquet" for number in (1, 2, 3)
        ]
        rows = [row for path in files for row in parquet.read_table(path).to_pylist()]
        assert [list(row.values()) for row in rows] == batch.rows
        files[1].unlink()
