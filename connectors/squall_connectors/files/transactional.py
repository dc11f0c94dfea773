"""`TransactionalFileSink`: the rows of each checkpoint as a file, exactly once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from squall import RowBatch, TopologyContext, TransactionalSink, Tuple
from squall_common.daemon.files import make_dirs, write_atomic
from squall_connectors.base.columns import names_of
from squall_connectors.files.formats import checked, written

_EXTENSIONS = {"text": "txt", "json": "jsonl", "csv": "csv", "parquet": "parquet"}


class TransactionalFileSink(TransactionalSink):
    """Writes the rows that a task has got in one checkpoint to one new file of a folder:

        TransactionalFileSink("/data/totals", ["word", "count"])

    The file's name has the task and the number of the checkpoint. It appears under its name when it
    is whole and on the disk, so one that is there is never written again, and no row is in two.

    A column of a Parquet file has one type. Rows whose types do not fit together go to several
    files, in order, with a number behind that of the checkpoint.
    """

    def __init__(self, folder: str | Path, fields: Sequence[str], *, format: str = "json") -> None:
        """`fields` of the tuples are written, as "text", "json" (an object a line), "csv" or
        "parquet". Raises InvalidTopologyError if format and fields do not fit."""
        self._folder = Path(folder)
        self._fields = names_of("TransactionalFileSink", "fields", fields)
        self._format = checked(format, self._fields)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        make_dirs(self._folder)

    def row(self, tup: Tuple) -> Any:
        values = {field: tup[field] for field in self._fields}
        written([values], self._format, self._fields)  # a value without a form fails its tuple
        return list(values.values())

    def commit(self, batches: Sequence[RowBatch]) -> None:
        for batch in batches:
            extension = _EXTENSIONS[self._format]
            name = f"{quote(batch.writer, safe='')}-{batch.epoch:012}"
            if (self._folder / f"{name}.{extension}").exists():
                continue
            rows = [dict(zip(self._fields, row, strict=True)) for row in batch.rows]
            files = self._files(rows)
            for number, data in enumerate(files, 1):
                part = "" if len(files) == 1 else f"-{number}"
                path = self._folder / f"{name}{part}.{extension}"
                if not path.exists():  # the same rows are divided in the same way each time
                    write_atomic(path, data, mode=0o644)

    def _files(self, rows: Sequence[dict[str, Any]]) -> list[bytes]:
        """The files of these rows: one, if their types fit together."""
        try:
            return [written(rows, self._format, self._fields)]
        except Exception:
            # Each row alone can be written: `row` has tried it.
            if self._format != "parquet" or len(rows) == 1:
                raise
            middle = len(rows) // 2
            return self._files(rows[:middle]) + self._files(rows[middle:])
