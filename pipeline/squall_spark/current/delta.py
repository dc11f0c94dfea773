"""Tables of Delta Lake's, written by the driver with the package deltalake, without jars.

    --output counts=delta:/lake/counts
    --current counts=delta:/lake/now --key counts=word

Each batch is one commit, with an application transaction (writer, batch): a batch that is there is
not written again. With a key its tuples are merged, otherwise appended. They pass through the
memory of the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from squall_common.errors import SquallError
from squall_spark.current.newest import GONE, newest, numbered, others
from squall_spark.plan import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_package(where: str) -> None:
    """Raises SquallError without the package."""
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise SquallError(
            f"{where}: Delta needs the Python package deltalake",
            hint="pip install 'squall[delta]'",
        ) from None


def is_table(path: str) -> bool:
    from deltalake import DeltaTable

    return bool(DeltaTable.is_deltatable(path))


def write(
    frame: DataFrame, sink: Sink, writer: str | None, batch: int, *, files: int, anew: bool
) -> bool:
    """Merge or append a batch. Returns False, and does nothing, if it is there already. Raises
    SquallError if the table cannot take it."""
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.exceptions import DeltaError

    try:
        there = is_table(sink.path)
        if there and writer is not None:
            last = DeltaTable(sink.path).transaction_version(writer)
            if last is not None and last >= batch:
                return False
        properties = None
        if writer is not None:
            properties = CommitProperties(app_transactions=[Transaction(writer, batch)])
        if sink.key:
            frame = newest(numbered(frame, sink), sink, files)
        data = frame.toArrow()
        if there and not anew:
            _check_fits(data, sink)
        if not sink.key or anew:
            _put(data, sink, properties, anew=anew)
        else:
            _merge(data, sink, properties, there=there)
    except DeltaError as error:
        raise SquallError(
            f"{sink.where}: Delta table {sink.path}: {' '.join(str(error).split())}"
        ) from error
    return True


def _check_fits(data: Any, sink: Sink) -> None:
    """Raises SquallError for tuples of which the table would lose something: Delta Lake itself
    leaves out a column that the table does not have when it merges, and cuts 1.5 off to 1."""
    import pyarrow as pa
    from deltalake import DeltaTable

    there = pa.schema(DeltaTable(sink.path).schema())
    missing = [name for name in sink.fields if name not in there.names]
    if missing:
        raise SquallError(
            f"{sink.where}: Delta table {sink.path} has no column {', '.join(missing)} (it has "
            f"{', '.join(there.names)})",
            hint="choose another table, or write it anew: --overwrite",
        )
    for name in sink.fields:
        type_ = there.field(name).type
        if pa.types.is_integer(type_) and pa.types.is_floating(data.schema.field(name).type):
            try:
                data[name].cast(type_)
            except pa.ArrowInvalid:
                raise SquallError(
                    f"{sink.where}: field {name!r} has fractions, and its column in Delta table "
                    f"{sink.path} is of type {type_}",
                    hint="choose another table, or write it anew: --overwrite",
                ) from None


def _put(data: Any, sink: Sink, properties: Any, *, anew: bool) -> None:
    from deltalake import write_deltalake

    if sink.key:
        import pyarrow.compute as pc

        data = data.filter(pc.invert(data[GONE])).drop_columns([GONE])
    write_deltalake(
        sink.path,
        data,
        mode="overwrite" if anew else "append",
        schema_mode="overwrite" if anew else None,
        partition_by=list(sink.partition_by) or None,
        commit_properties=properties,
    )


def _merge(data: Any, sink: Sink, properties: Any, *, there: bool) -> None:
    from deltalake import DeltaTable

    if not there:
        DeltaTable.create(
            sink.path,
            data.drop_columns([GONE]).schema,
            mode="ignore",
            partition_by=list(sink.partition_by) or None,
        )
    same = " AND ".join(f"target.{_quoted(n)} = source.{_quoted(n)}" for n in sink.key)
    merger = DeltaTable(sink.path).merge(
        data,
        predicate=same,
        source_alias="source",
        target_alias="target",
        commit_properties=properties,
    )
    gone = f"source.{_quoted(GONE)}"
    values = {_quoted(n): f"source.{_quoted(n)}" for n in sink.fields}
    merger = merger.when_matched_delete(predicate=gone)
    changed = {_quoted(n): f"source.{_quoted(n)}" for n in others(sink)}
    if changed:
        merger = merger.when_matched_update(updates=changed, predicate=f"NOT {gone}")
    merger.when_not_matched_insert(updates=values, predicate=f"NOT {gone}").execute()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
