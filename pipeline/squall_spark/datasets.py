"""Data sets of --input as data frames of a spout's fields, and the checks of an --output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.errors import SquallError
from squall_spark.bindings import Format, Source, format_of_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HIDDEN = ("_", ".")
_FORMATS = "parquet, json, csv, text or table"


def read(spark: SparkSession, source: Source, fields: Sequence[str]) -> DataFrame:
    """A data set with the columns `fields`, in this order. Raises SquallError when it does not
    exist, cannot be read, or lacks a field."""
    try:
        frame = _load(spark, source)
    except SquallError:
        raise
    except Exception as error:  # PySpark's own, or Py4J's
        raise unreadable(source, error) from error
    return select_fields(frame, source, fields)


def select_fields(frame: DataFrame, source: Source, fields: Sequence[str]) -> DataFrame:
    """The spout's fields of a data set. Raises SquallError when it lacks one."""
    columns = frame.columns
    if source.format is Format.TEXT or source.format is Format.SOCKET:
        if len(fields) != 1:
            raise SquallError(
                f"{_where(source)}: a line of text is one field; the spout has {len(fields)} "
                f"({', '.join(fields)})"
            )
        return frame.select(frame["value"].alias(fields[0]))
    missing = [field for field in fields if field not in columns]
    if missing:
        raise SquallError(
            f"{_where(source)}: the data has no field {', '.join(map(repr, missing))}, which the "
            f"spout emits (it has {', '.join(map(repr, columns)) or 'none'})"
        )
    return frame.select(*(frame[_quoted(field)].alias(field) for field in fields))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _load(spark: SparkSession, source: Source) -> DataFrame:
    if source.format is Format.TABLE:
        return spark.table(source.path)
    format_ = source.format or sniff(spark, source)
    frame: DataFrame = with_options(spark.read, format_).load(source.path)
    return frame


def with_options(reader: Any, format_: Format) -> Any:
    """A reader (of a batch or a stream) set to a format. A damaged record is an error, not a row
    of nulls."""
    reader = reader.format(format_.value)
    if format_ is Format.JSON:
        return reader.option("mode", "FAILFAST")
    if format_ is Format.CSV:
        return reader.option("header", True).option("inferSchema", True).option("mode", "FAILFAST")
    return reader


def sniff(spark: SparkSession, source: Source) -> Format:
    """The format of the files in a folder, by their endings. Raises SquallError."""
    names = _names_in(spark, source)
    formats = {f for f in map(format_of_path, names) if f is not None}
    if len(formats) == 1:
        return formats.pop()
    found = ", ".join(sorted(f.value for f in formats)) or "no file with a known ending"
    raise SquallError(
        f"{_where(source)}: its format is not clear (found {found})",
        hint=f"write it before the path: --input {source.stream}=FORMAT:{source.path}, "
        f"where FORMAT is {_FORMATS}",
    )


def _names_in(spark: SparkSession, source: Source) -> Iterable[str]:
    """A few names of data files below a path. Raises SquallError when the path does not exist."""
    jvm: Any = spark.sparkContext._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    path = jvm.org.apache.hadoop.fs.Path(source.path)
    system = path.getFileSystem(conf)
    found = system.globStatus(path)
    if not found:
        raise _not_there(source)
    names: list[str] = []
    for status in list(found)[:20]:
        if status.isFile():
            names.append(status.getPath().getName())
            continue
        files = system.listFiles(status.getPath(), True)
        while files.hasNext() and len(names) < 1_000:
            name = files.next().getPath().getName()
            if not name.startswith(_HIDDEN):
                names.append(name)
    return names


def exists(spark: SparkSession, path: str) -> bool:
    """Whether a path exists, on any file system that Spark supports."""
    jvm: Any = spark.sparkContext._jvm
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    place = jvm.org.apache.hadoop.fs.Path(path)
    return bool(place.getFileSystem(conf).exists(place))


def unreadable(source: Source, error: Any) -> SquallError:
    """The error for a data set that could not be opened."""
    condition = error.getCondition() if hasattr(error, "getCondition") else ""
    if condition == "PATH_NOT_FOUND":
        return _not_there(source)
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        return SquallError(f"{_where(source)}: there is no such table")
    if condition == "UNABLE_TO_INFER_SCHEMA":
        return SquallError(f"{_where(source)}: there is no data in it")
    return SquallError(f"{_where(source)}: {first_line(error)}")


def _not_there(source: Source) -> SquallError:
    what = "no file matches" if has_magic(source.path) else "there is no"
    hint = None
    if "://" not in source.path:
        above = Path(source.path).parent
        while not above.exists():
            above = above.parent
        hint = f"there is {above}" if str(above) != "/" else None
    return SquallError(f"--input {source.stream}: {what} {source.path}", hint=hint)


def _where(source: Source) -> str:
    return f"--input {source.stream}={source.path}"


_CONDITION = re.compile(r"\[[A-Z][A-Z_.]+\] .*")


def first_line(error: BaseException) -> str:
    """The message of an error from Spark, without its stack and plan."""
    text = str(error)
    # The innermost error says what happened; the others only say that something failed.
    named: list[str] = _CONDITION.findall(text)
    lines = named[-1:] or [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:500] if lines else type(error).__name__
