"""The newest tuple of each key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

from squall_spark.plan import Sink

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ORDER = "squall_order"  # of the tuples of one task: the order in which it has emitted them
GONE = "squall_gone"  # whether the tuple deletes its key


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def others(sink: Sink) -> list[str]:
    """The fields of a sink that are not of its key."""
    return [name for name in sink.fields if name not in sink.key]


def numbered(frame: DataFrame, sink: Sink) -> DataFrame:
    """Tuples with their order. A tuple without a value for its key is an error when it is read."""
    from pyspark.sql import functions as sf

    types = {field.name: field.dataType for field in frame.schema.fields}
    columns = []
    for name in sink.fields:
        column = sf.col(quoted(name))
        if name in sink.key:
            message = f"--key {sink.stream}: a tuple has no value in its field {name!r}"
            column = sf.coalesce(column, sf.raise_error(sf.lit(message)).cast(types[name]))
        columns.append(column.alias(name))
    # Partitions are numbered in the upper half, and rows in the lower one.
    return frame.select(*columns, sf.monotonically_increasing_id().alias(ORDER))


def newest(frame: DataFrame, sink: Sink, partitions: int) -> DataFrame:
    """Of tuples with their order the newest of each key: the sink's fields, and GONE."""
    from pyspark.sql import functions as sf

    key, rest = [quoted(name) for name in sink.key], [quoted(name) for name in others(sink)]
    # (The same division that the aggregate needs, so that it is the only shuffle.)
    frame = frame.repartition(partitions, *key)
    if rest:
        values = sf.struct(*rest)
        frame = frame.groupBy(*key).agg(sf.max_by(values, sf.col(ORDER)).alias("squall_values"))
        columns = [
            sf.col(quoted(name) if name in sink.key else f"squall_values.{quoted(name)}").alias(
                name
            )
            for name in sink.fields
        ]
        frame = frame.select(*columns)
    else:
        frame = frame.select(*key).distinct()
    return frame.withColumn(GONE, _all(sf.col(name).isNull() for name in rest))


def remaining(frame: DataFrame, fields: Sequence[str]) -> DataFrame:
    """The keys that are not deleted, without GONE."""
    return frame.filter(f"not {GONE}").select(*map(quoted, fields))


def _all(conditions: Iterable[Column]) -> Column:
    from pyspark.sql import functions as sf

    listed = list(conditions)
    return reduce(lambda a, b: a & b, listed) if listed else sf.lit(False)
