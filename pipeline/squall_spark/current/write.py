"""Merges a batch into an output that holds the current value of each key."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from squall_spark.current import delta, jdbc
from squall_spark.current.view import LOCK, View
from squall_spark.data.bindings import Format
from squall_spark.lock import folder_lock
from squall_spark.plan import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from squall_spark.data.columns import TypeGuess


def merges(sink: Sink) -> bool:
    """Whether an output is written here: with a key, or into a table of Delta Lake's."""
    return bool(sink.key) or sink.format is Format.DELTA


def check(sink: Sink) -> None:
    """Raises SquallError for an output that cannot be. Needs no Spark."""
    if sink.format is Format.DELTA:
        delta.check_package(sink.where)
    elif sink.format is Format.SPARK:
        jdbc.check(sink)
    else:
        _view(sink).check()


@contextlib.contextmanager
def held(sinks: Iterable[Sink]) -> Iterator[None]:
    """Hold the views among these outputs: two drivers would undo what the other has merged. Raises
    FolderInUseError."""
    with contextlib.ExitStack() as stack:
        for sink in sinks:
            if sink.key and sink.format is Format.PARQUET:
                what = f"{sink.where}={sink.path}"
                stack.enter_context(folder_lock(sink.path.rstrip("/"), what, LOCK))
        yield


def widen(sink: Sink, types: TypeGuess, *, anew: bool = False) -> TypeGuess:
    """Types that hold what is in the output as well. Raises SquallError."""
    if sink.key and sink.format is Format.PARQUET and not anew:
        return _view(sink).widen(sink, types)
    return types


def merge(
    frame: DataFrame,
    sink: Sink,
    types: TypeGuess,
    *,
    writer: str | None = None,
    batch: int = 0,
    files: int | None = None,
    anew: bool = False,
) -> bool:
    """Merge the tuples of a batch, or append them if there is no key. `writer` is a name that no
    other stream has; without one the batch is not remembered. `anew` replaces what is there, in the
    same step. Returns False, and reads nothing, if the batch is there already. Raises
    SquallError."""
    files = files or frame.sparkSession.sparkContext.defaultParallelism
    if sink.format is Format.DELTA:
        return delta.write(frame, sink, writer, batch, files=files, anew=anew)
    if sink.format is Format.SPARK:
        return jdbc.merge(frame, sink, writer, batch, files=files, anew=anew)
    return _view(sink).merge(frame, sink, types, writer, batch, files=files, anew=anew)


def _view(sink: Sink) -> View:
    return View(sink.path, sink.where)
