"""Records that cannot be read: `--on-bad-record fail | skip | FOLDER`.

With `fail`, the default, Spark stops at the first one and names the file; `diagnose` then
finds the line in it. Otherwise Spark passes on the text of a damaged record and its file in two
more columns, and the task of the spout leaves it out (`Sorter`): into FOLDER goes one line of JSON
a record,

    {"input": "records", "file": "...", "line": 17, "reason": "...", "record": "..."}

A record without a value that its spout declares is a bad record, too. Of a file that cannot be
opened, or ends too early, Spark passes on what it can; `broken_file` says why.
"""

from __future__ import annotations

import csv
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError
from squall_common.names import encode_znode
from squall_spark.data.bindings import Format, format_of_path

BAD, FILE = "_squall_bad", "_squall_file"
COLUMNS = (BAD, FILE)
HINT = "leave out bad records with --on-bad-record skip, or keep them: --on-bad-record FOLDER"
_SHOWN = 200
_PORTION = 10_000


@dataclass(frozen=True, slots=True)
class OnBadRecord:
    """What to do with a record that cannot be read."""

    keeps_going: bool = False
    folder: str | None = None  # where it goes; None: nowhere

    @classmethod
    def parse(cls, text: str) -> OnBadRecord:
        if text == "fail":
            return cls()
        return cls(keeps_going=True, folder=None if text == "skip" else text)

    def in_batch(self, number: int) -> OnBadRecord:
        """The same in a micro-batch: it replaces its own files when it runs again."""
        if self.folder is None:
            return self
        return replace(self, folder=f"{self.folder.rstrip('/')}/batch={number}")


FAIL = OnBadRecord()


@dataclass(frozen=True, slots=True)
class BadRecord:
    """`line` counts from 1; None: it is not known, or it is the whole file."""

    input: str
    file: str
    line: int | None
    reason: str
    record: str | None = None


def keep(folder: str, name: str, records: Iterable[BadRecord]) -> None:
    """Write dead letters. Raises OSError."""
    lines = [
        json.dumps({f: getattr(one, f) for f in BadRecord.__dataclass_fields__}) + "\n"
        for one in records
    ]
    Folder(folder).write(f"{name}.jsonl", "".join(lines).encode("utf-8", "replace"))


# ---- in a task ----


@dataclass(slots=True)
class Sorter:
    """Takes the bad records out of the batches of one task."""

    input: str
    format: Format | None
    fields: Sequence[str]
    required: Sequence[int]  # the fields that must have a value, by index
    on_bad: OnBadRecord
    name: str  # of this task, for its files
    left_out: int = 0
    _waiting: list[BadRecord] = field(default_factory=list)
    _files: int = 0

    def good(self, batch: Any) -> Any:
        """A record batch of the fields, BAD and FILE: its good records, without these two. Raises
        SquallError for a bad one, unless they are left out."""
        import pyarrow.compute as pc

        columns = batch.columns[: len(self.fields)]
        if not self.on_bad.keeps_going:
            for index in self.required:
                if columns[index].null_count:
                    raise SquallError(
                        f"--input {self.input}: a record has no value for field "
                        f"{self.fields[index]!r}, which the spout declares",
                        hint=f"allow it in the spout's outputs (`... | None`), or {HINT}",
                    )
            return columns
        bad = pc.is_valid(batch.column(len(columns)))
        for index in self.required:
            bad = pc.or_(bad, pc.is_null(columns[index]))
        if pc.any(bad).as_py():
            self._leave_out(batch.filter(bad))
            columns = batch.filter(pc.invert(bad)).columns[: len(columns)]
        return columns

    def _leave_out(self, rows: Any) -> None:
        self.left_out += rows.num_rows
        if self.on_bad.folder is None:
            return
        for row in rows.to_pylist():
            values = list(row.values())
            text, file = values[len(self.fields) : len(self.fields) + 2]
            if text is None:
                missing = [self.fields[i] for i in self.required if values[i] is None]
                reason = "no value for field " + ", ".join(map(repr, missing))
                text = json.dumps(
                    dict(zip(self.fields, values, strict=False)), default=str, ensure_ascii=False
                )
            else:
                reason = reason_of(text, self.format or format_of_path(file or ""))
            self._waiting.append(BadRecord(self.input, file or "", None, reason, text))
        if len(self._waiting) >= _PORTION:
            self.close()

    def close(self) -> None:
        """Write what was left out."""
        if self._waiting and self.on_bad.folder is not None:
            number = f"-{self._files}" if self._files else ""
            keep(self.on_bad.folder, f"{self.name}{number}", _with_lines(self._waiting))
            self._files += 1
            self._waiting.clear()


def reason_of(text: str, format_: Format | None) -> str:
    """Why a record of JSON or CSV is bad."""
    if format_ is Format.JSON:
        try:
            value = json.loads(text)
        except ValueError as error:
            return f"not JSON: {error}"
        if not isinstance(value, dict):
            return f"a JSON {type(value).__name__} instead of an object"
        return "a value does not fit the type of its column"
    return "it does not fit the columns"


def _with_lines(records: Sequence[BadRecord]) -> list[BadRecord]:
    """The same with the numbers of their lines, where the file can be read here."""
    by_file: dict[str, list[int]] = {}
    for index, one in enumerate(records):
        by_file.setdefault(one.file, []).append(index)
    found = list(records)
    for file, indexes in by_file.items():
        wanted: dict[str, list[int]] = {}
        for index in reversed(indexes):
            wanted.setdefault((records[index].record or "").rstrip("\r\n"), []).append(index)
        try:
            for number, line in enumerate(lines_of(file), start=1):
                places = wanted.get(line.rstrip("\r\n"))
                if places:
                    index = places.pop()
                    found[index] = replace(found[index], line=number)
        except Exception:  # not from here, or not to the end: it stays without a line
            continue
    return found


# ---- files ----


def local_path(file: str) -> str:
    """Spark's URL of a file on this machine as a path; other URLs as they are."""
    if file.startswith("file:"):
        from urllib.parse import unquote

        return unquote("/" + file.removeprefix("file:").lstrip("/"))
    return file


def open_file(file: str) -> IO[bytes]:
    """A file on this machine, or behind a URL."""
    path = local_path(file)
    if "://" not in path:
        return open(path, "rb")
    import fsspec

    opened: IO[bytes] = fsspec.open(path, "rb").open()
    return opened


def lines_of(file: str) -> Iterator[str]:
    """The lines of a text file, also of one in gzip. Raises OSError, EOFError, zlib.error."""
    with open_file(file) as raw:
        lines: Iterable[bytes] = raw
        if file.endswith(".gz"):
            import gzip

            lines = gzip.GzipFile(fileobj=raw)
        for line in lines:
            yield line.decode("utf-8", "replace")


def broken_file(file: str, format_: Format | None) -> str | None:
    """Why a file cannot be read, or not to its end; None if it can. Only of formats in which a part
    of a file is no good."""
    try:
        if format_ is Format.PARQUET:
            import pyarrow.parquet as pq

            with open_file(file) as opened:
                pq.ParquetFile(opened)
        elif file.endswith(".gz"):
            for _ in lines_of(file):
                pass
    except FileNotFoundError:
        return None  # it is gone, and was not read
    except (OSError, EOFError, zlib.error, ValueError) as error:
        return str(error) or type(error).__name__
    return None


def keep_broken_files(
    on_bad: OnBadRecord, input_: str, files: Iterable[str], format_: Format | None
) -> int:
    """Write dead letters for the files that Spark cannot read, or not to their ends. Returns how
    many these are."""
    found = []
    for file in files:
        reason = broken_file(file, format_ or format_of_path(file))
        if reason is not None:
            found.append(BadRecord(input_, file, None, f"the file is damaged: {reason}"))
    if found and on_bad.folder is not None:
        keep(on_bad.folder, f"{encode_znode(input_)}-files", found)
    return len(found)


def first_bad_line(
    file: str, format_: Format | None, types: Mapping[str, str]
) -> tuple[int | None, str] | None:
    """The first line of a file that cannot be read, and why. `types` are the columns' (Spark's
    names). None if none is found."""
    why = broken_file(file, format_)
    if why is not None:
        return None, why
    if format_ is Format.JSON:
        for number, line in enumerate(lines_of(file), start=1):
            if line.strip():
                reason = _json_problem(line, types)
                if reason is not None:
                    return number, reason
    elif format_ is Format.CSV:
        rows = csv.reader(lines_of(file))
        header = next(rows, [])
        for row in rows:
            if row and len(row) != len(header):
                return rows.line_num, f"{len(row)} values, and the header has {len(header)}"
    return None


_JSON_TYPES: Mapping[str, tuple[type, ...]] = {
    "bigint": (int,),
    "double": (int, float),
    "boolean": (bool,),
}


def _json_problem(line: str, types: Mapping[str, str]) -> str | None:
    try:
        value = json.loads(line)
    except ValueError as error:
        return f"not JSON: {error}: {line.strip()[:_SHOWN]}"
    if not isinstance(value, dict):
        return f"a JSON {type(value).__name__} instead of an object"
    for name, type_ in types.items():
        classes = _JSON_TYPES.get(type_)
        found = value.get(name)
        if classes is None or found is None:
            continue
        if not isinstance(found, classes) or (isinstance(found, bool) and bool not in classes):
            return f"field {name!r} is {json.dumps(found)[:_SHOWN]}, and its column is {type_}"
    return None
