"""What a file on this machine, or behind a URL, says of itself: its columns. Needs no Spark."""

from __future__ import annotations

import csv
import glob
import itertools
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from squall_spark.data.bad_records import lines_of, local_path, open_file
from squall_spark.data.bindings import NAMED, Format, Source, format_of_path

_FILES_MAX = 100_000


def is_here(path: str, format_: Format | None) -> bool:
    """Whether an input or output is a file or folder of this machine."""
    return format_ not in NAMED and "://" not in path and not path.startswith("file:")


@dataclass(frozen=True, slots=True)
class Files:
    """The files of an input."""

    names: tuple[str, ...]
    size: int  # bytes

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def first(self) -> str | None:
        return self.names[0] if self.names else None


def files_of(source: Source) -> Files | None:
    """The files of an input; None if they are not on this machine. (Not with `{a,b}` in the
    pattern, which Python does not have.)"""
    path = local_path(source.path) if source.path.startswith("file:") else source.path
    if not is_here(path, source.format) or "{" in path:
        return None
    names = tuple(itertools.islice(files_below(sorted(glob.glob(path))), _FILES_MAX))
    return Files(names, sum(map(os.path.getsize, names)))


def files_below(paths: Iterable[str]) -> Iterator[str]:
    """The data files among these files and in these folders."""
    for path in paths:
        if not os.path.isdir(path):
            yield path
            continue
        for folder, below, names in os.walk(path):
            below.sort()
            yield from (
                os.path.join(folder, n) for n in sorted(names) if not n.startswith(("_", "."))
            )


def columns_in(file: str, format_: Format | None) -> list[tuple[str, str | None]] | None:
    """The columns of a file, of JSON those of its first record, and the types where the file says
    them. None if that is not known. Raises OSError, and ValueError for a damaged file."""
    try:
        return _columns_in(file, format_ or format_of_path(file))
    except (EOFError, zlib.error, csv.Error) as error:
        raise ValueError(str(error)) from error


def _columns_in(file: str, format_: Format | None) -> list[tuple[str, str | None]] | None:
    if format_ is Format.PARQUET:
        import pyarrow.parquet as pq

        with open_file(file) as opened:
            schema = pq.ParquetFile(opened).schema_arrow
        return [(field.name, str(field.type)) for field in schema]
    if format_ is Format.CSV:
        return [(name, None) for name in next(csv.reader(lines_of(file)), [])]
    if format_ is Format.JSON:
        line = next((line for line in lines_of(file) if line.strip()), None)
        record = None if line is None else json.loads(line)
        return [(name, None) for name in record] if isinstance(record, dict) else None
    return None
