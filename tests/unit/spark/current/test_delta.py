"""Tables of Delta Lake's: what a table would not hold is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.unit.spark.current.support import sink_of

from squall import SquallError
from squall_spark.current import delta
from squall_spark.plan import Sink


class Frame:
    """A DataFrame as far as an output without a key reads it."""

    def __init__(self, **columns: list[Any]) -> None:
        self._columns = columns

    def toArrow(self) -> pa.Table:
        return pa.table(self._columns)


def append(sink: Sink, batch: int, **columns: list[Any]) -> bool:
    frame: Any = Frame(**columns)
    return delta.write(frame, sink, "writer", batch, files=1, anew=False)


def rows(sink: Sink) -> set[tuple[Any, ...]]:
    table = DeltaTable(sink.path).to_pyarrow_table()
    return {(row["word"], row["n"]) for row in table.to_pylist()}


def test_fractions_are_not_cut_off(tmp_path: Path) -> None:
    sink = sink_of(f"delta:{tmp_path}/out", ())
    assert append(sink, 0, word=["a"], n=[1])
    with pytest.raises(SquallError, match=r"field 'n' has fractions, .* is of type int64"):
        append(sink, 1, word=["b"], n=[2.5])
    assert append(sink, 1, word=["b"], n=[2.0])
    assert rows(sink) == {("a", 1), ("b", 2)}
    assert not append(sink, 1, word=["b"], n=[2.0])


def test_a_column_that_the_table_lacks_is_named(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path), pa.table({"word": ["a"], "count": [1]}))
    sink = sink_of(f"delta:{tmp_path}")
    with pytest.raises(SquallError, match=r"has no column n \(it has word, count\)"):
        delta._check_fits(pa.table({"word": ["a"], "n": [1]}), sink)
