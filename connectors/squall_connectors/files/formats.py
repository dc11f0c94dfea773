"""Records in files: text, JSON lines, CSV, Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from squall_common.errors import InvalidTopologyError, describe

FORMATS = ("text", "json", "csv", "parquet")
UNREADABLE_FIELDS = ("path", "offset", "value", "reason")
"""The fields of the stream of lines that cannot be read."""
BEGINNING_BYTES = 1_000
"""So much of a line that is too long is its `value`."""
_ROWS_MAX = 1_000  # of Parquet, in memory at once


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that has no values, and why."""

    reason: str
    value: bytes = b""  # the line
    offset: int = 0  # of its first byte


Row = Sequence[Any] | Unreadable


def checked(format: str, fields: Sequence[str], among: Sequence[str] = FORMATS) -> str:
    """The format. Raises InvalidTopologyError if it is not `among` those possible, or does not fit
    the fields."""
    if format not in among:
        raise InvalidTopologyError(f"format {format!r}; expected one of {', '.join(among)}")
    if not fields or (format == "text" and len(fields) != 1):
        raise InvalidTopologyError(f"format {format!r} does not take {len(fields)} fields")
    return format


def line_reader(format: str, fields: Sequence[str]) -> Callable[[bytes], Row]:
    """Reads a line, without its end, as values of the fields: the line itself as text; a JSON
    object; or a CSV row that has exactly these fields. A field that a JSON object lacks is None."""

    def text(line: bytes) -> Row:
        return [line.decode("utf-8", "replace")]

    def json(line: bytes) -> Row:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            return Unreadable(describe(error))
        if not isinstance(value, dict):
            return Unreadable(f"not an object: {line[:100]!r}")
        return [value.get(field) for field in fields]

    def comma_separated(line: bytes) -> Row:
        rows = list(csv.reader([line.decode("utf-8", "replace")]))
        if len(rows) != 1 or len(rows[0]) != len(fields):
            return Unreadable(f"{len(fields)} values expected: {line[:100]!r}")
        return rows[0]

    return {"text": text, "json": json, "csv": comma_separated}[format]


def rows_of(file: BinaryIO, format: str, fields: Sequence[str]) -> Iterator[Row]:
    """The records of a whole file. A CSV file begins with a row of names."""
    if format == "parquet":
        yield from _parquet_rows(file, fields)
    elif format == "csv":
        lines = io.TextIOWrapper(file, "utf-8", errors="replace", newline="")
        for found in csv.DictReader(lines):
            yield [found.get(field) for field in fields]
        lines.detach()
    else:
        read = line_reader(format, fields)
        offset = 0
        for line in file:
            row = read(text := line.rstrip(b"\r\n"))
            if isinstance(row, Unreadable):
                row = Unreadable(row.reason, text, offset)
            yield row
            offset += len(line)


def _parquet_rows(file: BinaryIO, fields: Sequence[str]) -> Iterator[Row]:
    from pyarrow import parquet

    source = parquet.ParquetFile(file)
    there = [field for field in fields if field in source.schema_arrow.names]
    for batch in source.iter_batches(_ROWS_MAX, columns=there):
        columns = {name: batch.column(name).to_pylist() for name in there}
        none = [None] * batch.num_rows
        yield from zip(*(columns.get(field, none) for field in fields), strict=True)


def written(rows: Sequence[Mapping[str, Any]], format: str, fields: Sequence[str]) -> bytes:
    """A whole file of these records. Raises what the format raises for a value that it has no form
    for: TypeError, or pyarrow's errors."""
    if format == "parquet":
        return _parquet(rows, fields)
    if format == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(fields)
        writer.writerows([row[field] for field in fields] for row in rows)
        return text.getvalue().encode()
    if format == "json":
        return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
    lines = []
    for row in rows:
        value = row[fields[0]]
        data = value if isinstance(value, bytes) else str(value).encode()
        if b"\n" in data:
            raise ValueError("a text record may not have a line end in it")
        lines.append(data + b"\n")
    return b"".join(lines)


def _parquet(rows: Sequence[Mapping[str, Any]], fields: Sequence[str]) -> bytes:
    import pyarrow
    from pyarrow import parquet

    table = pyarrow.table({field: [row[field] for row in rows] for field in fields})
    out = io.BytesIO()
    parquet.write_table(table, out)
    return out.getvalue()
