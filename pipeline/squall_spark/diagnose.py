"""From what Spark says when a job fails to one message: what happened, to which file or component.

Spark's errors are chains: a job was aborted because a stage failed because a task failed writing
rows because ... The innermost one says what happened.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squall_common.errors import SquallError
from squall_spark.data.bad_records import HINT, first_bad_line, local_path
from squall_spark.data.bindings import Format, Source, format_of_path
from squall_spark.data.look import columns_in, files_below
from squall_spark.messages import innermost, one_line

# Of Squall's own errors in a task: with all its lines, up to the stacks around it.
_OURS = re.compile(
    r"^[ \t]*(?:[\w.]+: )?squall\w*\.[\w.]*Error: "
    r"(?P<message>[^\n]*(?:\n(?!\s|Caused by|Driver stacktrace|SQLSTATE|\tat )[^\n]+)*)",
    re.MULTILINE,
)
_FILE = re.compile(
    r"(?:Encountered error while reading file|Could not read footer for file:?|"
    r"Error reading file|is not a Parquet file[.:]?) "
    r"(?:FileStatus\{path=)?(?P<file>[a-z0-9]+:/[^\s;]*?)(?:[.;]?(?=\s|$)|;)"
)
_UNREADABLE = re.compile(r"MALFORMED_RECORD|FAILED_READ_FILE|CANNOT_READ_FILE|Malformed records")
_FULL = "No space left on device"
# What Spark says, what that means, and what to do. (The page `how-to/spark-troubleshooting` has
# more.)
_KNOWN = (
    (
        "Python worker exited unexpectedly",
        "a Python worker of Spark's ended in the middle of its work: the kernel killed it because "
        "memory was short, or native code crashed",
        "more tasks hold less each: --parallelism COMPONENT=N; see also dmesg, and the end of",
    ),
    (
        "Java heap space",
        "the JVM has no memory left (Java heap space)",
        "give it more: --spark-conf spark.driver.memory=4g (on a cluster spark.executor.memory); "
        "the stack is in",
    ),
    (
        "No module named 'squall",
        "the Python of an executor has no squall, or another version of it",
        "install this version there, or name another Python: PYSPARK_PYTHON; see",
    ),
)
_FILES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class DataSet:
    """An input made of files, for a look into them after a failure."""

    source: Source
    fields: tuple[str, ...]
    types: Mapping[str, str]  # of those fields whose type is declared: Spark's name


def diagnose(error: BaseException, inputs: Sequence[DataSet], log_file: str) -> SquallError:
    """One of our errors for one of Spark's."""
    text = str(error)
    hint = f"the traceback is in {log_file}"
    if _FULL in text:
        return SquallError(
            f"a disk is full ({_FULL.lower()}): {_who_wrote(text)}",
            hint="free space there, or name another folder: --output, "
            "--spark-conf spark.local.dir=FOLDER (Spark's own files)",
        )
    found = _OURS.findall(text)
    ours = one_line(found[-1]) if found else None
    if ours is None and _UNREADABLE.search(text):
        bad = _bad_file(text, inputs)
        if bad is not None:
            return bad
    if ours is not None:
        missing = _missing_column(inputs) if "a tuple failed" in ours else None
        if missing is not None:
            return SquallError(f"{missing} ({ours})", hint=hint)
        return SquallError(ours, hint=hint)
    for said, meaning, remedy in _KNOWN:
        if said in text:
            return SquallError(meaning, hint=f"{remedy} {log_file}")
    return SquallError(f"Spark: {innermost(text) or type(error).__name__}", hint=f"see {log_file}")


def _who_wrote(text: str) -> str:
    found = _OURS.findall(text)
    if found:
        return one_line(found[-1])
    place = re.search(r"(?:while writing|Task failed while writing rows to) (\S+)", text)
    if place is not None:
        return f"Spark was writing {place[1].rstrip('.')}"
    return "Spark was writing rows"


def _bad_file(text: str, inputs: Sequence[DataSet]) -> SquallError | None:
    """The file, line and reason of a record that Spark could not read."""
    named = [match["file"] for match in _FILE.finditer(text)]
    for one in inputs:
        mine = [file for file in named if _belongs(file, one.source)] or (
            () if named else local_files(one.source)
        )
        for file in mine:
            format_ = one.source.format or format_of_path(file)
            try:
                found = first_bad_line(file, format_, one.types)
            except Exception:  # not from here
                found = None
            if found is None and not named:
                continue
            line, reason = found or (None, innermost(text))
            where = local_path(file) + ("" if line is None else f", line {line}")
            return SquallError(f"--input {one.source.stream}: {where}: {reason}", hint=HINT)
    return None


def _belongs(file: str, source: Source) -> bool:
    path = local_path(source.path) if source.path.startswith("file:") else source.path
    fixed = re.split(r"[*?\[{]", path, maxsplit=1)[0].rstrip("/")
    return local_path(file).startswith(fixed)


def local_files(source: Source) -> Iterator[str]:
    """The newest files of an input, if they are on this machine."""
    path = local_path(source.path) if source.path.startswith("file:") else source.path
    if "://" in path or source.format in (Format.TABLE, Format.KAFKA, Format.SOCKET, Format.SPARK):
        return
    found = sorted(files_below(glob.glob(path)), key=_changed, reverse=True)
    yield from found[:_FILES_MAX]


def _changed(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _missing_column(inputs: Sequence[DataSet]) -> str | None:
    for one in inputs:
        for file in local_files(one.source):
            try:
                columns = columns_in(file, one.source.format)
            except Exception:  # it is being written, or damaged: no reason to say nothing
                continue
            there = {name for name, _ in columns or ()}
            missing = [name for name in one.fields if name not in there]
            if columns is not None and missing:
                names = ", ".join(map(repr, missing))
                return (
                    f"--input {one.source.stream}: {file} has no column {names}, which the spout "
                    "emits: its records have no value (None) there"
                )
    return None


def data_sets(plan: Any) -> list[DataSet]:
    """The inputs of a plan."""
    found = []
    for stage in plan.stages:
        for source in stage.sources:
            fields = plan.topology.components[stage.component].streams[source.stream.stream].fields
            columns = plan.columns_of(source.stream)
            types = {f: c.type for f, c in zip(fields, columns, strict=False) if c.type}
            found.append(DataSet(source, fields, types))
    return found
