"""Data sets of --input as data frames of a spout's fields, and the checks of an --output."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.errors import SquallError
from squall_spark.data.bad_records import BAD, COLUMNS, FAIL, FILE, OnBadRecord
from squall_spark.data.bindings import Foreign, Format, Source, format_of_path
from squall_spark.messages import innermost
from squall_spark.traits import Column

if TYPE_CHECKING:
    from pyspark.sql import Column as Column_
    from pyspark.sql import DataFrame, SparkSession

_HIDDEN = ("_", ".")
FILES = frozenset({Format.PARQUET, Format.JSON, Format.CSV, Format.TEXT})
_WITH_BAD_TEXT = frozenset({Format.JSON, Format.CSV})  # Spark gives the text of a bad record
_FORMATS = "parquet, json, csv, text or table"


def read(
    spark: SparkSession,
    source: Source,
    fields: Sequence[str],
    columns: Sequence[Column] = (),
    on_bad: OnBadRecord = FAIL,
) -> DataFrame:
    """A data set with the columns `fields`, in this order, and `bad_records.COLUMNS` if bad records
    are not an error. `columns` are the types that the spout declares, if any. Raises SquallError
    when it does not exist, cannot be read, or lacks a field."""
    try:
        frame, format_ = _load(spark, source, fields, columns, on_bad)
    except SquallError:
        raise
    except Exception as error:  # PySpark's own, or Py4J's
        raise unreadable(source, error) from error
    return select_fields(frame, replace(source, format=format_), fields, on_bad)


def select_fields(
    frame: DataFrame,
    source: Source,
    fields: Sequence[str],
    on_bad: OnBadRecord = FAIL,
    *more: Column_,
) -> DataFrame:
    """The spout's fields of a data set, then `bad_records.COLUMNS` if bad records are not an error,
    then `more`. Raises SquallError when it lacks a field."""
    from pyspark.sql import functions as sf

    frame = filtered(frame, source)
    columns = frame.columns
    bad = no_bad_records(on_bad)
    if on_bad.keeps_going and source.format in FILES:
        bad[1] = sf.col("_metadata.file_path").alias(FILE)
        if BAD in columns:
            bad[0] = sf.col(BAD)
    if source.format is Format.TEXT or source.format is Format.SOCKET:
        if len(fields) != 1:
            raise SquallError(
                f"{_where(source)}: a line of text is one field; the spout has {len(fields)} "
                f"({', '.join(fields)})"
            )
        return frame.select(frame["value"].alias(fields[0]), *bad, *more)
    missing = [field for field in fields if field not in columns]
    if missing:
        there = [name for name in columns if name != BAD]
        raise SquallError(
            f"{_where(source)}: the data has no field {', '.join(map(repr, missing))}, which the "
            f"spout emits (it has {', '.join(map(repr, there)) or 'none'})"
        )
    return frame.select(*(frame[_quoted(field)].alias(field) for field in fields), *bad, *more)


def filtered(frame: DataFrame, source: Source) -> DataFrame:
    """The records that --filter lets through. Spark reads as little for it as the format allows.
    Raises SquallError."""
    if source.filter is None:
        return frame
    try:
        return frame.filter(source.filter)
    except Exception as error:  # PySpark's own
        raise SquallError(
            f"--filter {source.stream}={source.filter}: {innermost(str(error))}",
            hint="a filter is a condition in SQL on the columns of the data: "
            "--filter \"orders=day >= '2026-01-01'\"",
        ) from error


def no_bad_records(on_bad: OnBadRecord) -> list[Column_]:
    """`bad_records.COLUMNS` of a source that has no bad records; [] if these are errors."""
    from pyspark.sql import functions as sf

    if not on_bad.keeps_going:
        return []
    return [sf.lit(None).cast("string").alias(name) for name in COLUMNS]


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _load(
    spark: SparkSession,
    source: Source,
    fields: Sequence[str],
    columns: Sequence[Column],
    on_bad: OnBadRecord,
) -> tuple[DataFrame, Format]:
    if source.format is Format.TABLE:
        return spark.table(source.path), Format.TABLE
    if source.format is Format.SPARK:
        foreign = Foreign.parse(source.path, _where(source))
        return spark.read.format(foreign.format).options(**foreign.options).load(), Format.SPARK
    format_ = source.format or sniff(spark, source)
    schema = declared_schema(fields, columns)
    if schema is None and on_bad.keeps_going and format_ in _WITH_BAD_TEXT:
        schema = inferred_schema(spark, replace(source, format=format_), on_bad)
    frame: DataFrame = with_options(spark.read, format_, on_bad, schema).load(source.path)
    return frame, format_


def declared_schema(fields: Sequence[str], columns: Sequence[Column]) -> Any:
    """Spark's types for declared ones (a StructType); None if there are none, or Spark has none for
    one of them."""
    if not columns or any(column.type is None for column in columns):
        return None
    from pyspark.sql.types import StructType

    pairs = zip(fields, columns, strict=True)
    return StructType.fromDDL(", ".join(f"{_quoted(name)} {of.type}" for name, of in pairs))


def inferred_schema(spark: SparkSession, source: Source, on_bad: OnBadRecord) -> Any:
    """The types of the data that is there (a StructType). Reads all of it, if it is JSON or CSV."""
    assert source.format is not None
    reader = with_options(spark.read, source.format, FAIL)
    if on_bad.keeps_going:
        reader = reader.option("mode", "DROPMALFORMED").option("ignoreCorruptFiles", True)
    return reader.load(source.path).schema


def with_options(reader: Any, format_: Format, on_bad: OnBadRecord, schema: Any = None) -> Any:
    """A reader (of a batch or a stream) set to a format, and to columns with the types of `schema`.
    A damaged record is an error, or its text is in the column BAD; never a row of nulls."""
    reader = reader.format(format_.value)
    if format_ is Format.CSV:
        reader = reader.option("header", True)
        if schema is None:
            reader = reader.option("inferSchema", True)
    if on_bad.keeps_going:
        reader = reader.option("ignoreCorruptFiles", True)
        if schema is not None and format_ in _WITH_BAD_TEXT:
            schema = _copy(schema).add(BAD, "string")
            reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", BAD)
    elif format_ in _WITH_BAD_TEXT:
        reader = reader.option("mode", "FAILFAST")
    return reader if schema is None else reader.schema(schema)


def _copy(schema: Any) -> Any:
    from pyspark.sql.types import StructType

    return StructType(list(schema.fields))


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
        raise not_there(source)
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
        return not_there(source)
    if condition in ("DATA_SOURCE_NOT_FOUND", "DATA_SOURCE_NOT_EXIST") or (
        source.format is Format.SPARK and "ClassNotFoundException" in str(error)
    ):
        return SquallError(
            f"{_where(source)}: Spark has no such data source",
            hint="add its package: --spark-conf spark.jars.packages=GROUP:ARTIFACT:VERSION",
        )
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        return SquallError(f"{_where(source)}: there is no such table")
    if condition == "UNABLE_TO_INFER_SCHEMA":
        return SquallError(f"{_where(source)}: there is no data in it")
    return SquallError(f"{_where(source)}: {innermost(str(error)) or type(error).__name__}")


def not_there(source: Source) -> SquallError:
    """The error for an input without a file."""
    what = "no file matches" if glob.has_magic(source.path) else "there is no"
    hint = None
    if "://" not in source.path:
        above = Path(source.path).parent
        while not above.exists():
            above = above.parent
        hint = f"there is {above}" if str(above) != "/" else None
    return SquallError(f"--input {source.stream}: {what} {source.path}", hint=hint)


def _where(source: Source) -> str:
    return f"--input {source.stream}={source.path}"
