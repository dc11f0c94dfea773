"""Bolts that work on Arrow arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from squall_common.component.columns.columns import Columns
from squall_common.component.component import Bolt
from squall_common.errors import SquallError

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowBolt(Bolt):
    """A bolt whose batches are Arrow record batches, for computations that pyarrow, NumPy or Polars
    do without a loop in Python:

        import pyarrow.compute as pc

        class Split(ArrowBolt):
            outputs = Stream({"word": str})

            def execute_arrow(self, batch):
                words = pc.split_pattern(batch["sentence"], " ")
                self.emit_arrow(
                    [pc.list_flatten(words)], origins=pc.list_parent_indices(words)
                )

    On Spark the arrays stay Arrow from one such bolt to the next, from the input data and to the
    output. On a cluster they are made of the values of a batch of tuples, and emitted as tuples.
    Needs pyarrow; the values of a field must be of one type.
    """

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        """Process a batch of tuples from one source, with a column for each field. Acked, or failed
        when the method raises, as by `execute_columns`."""
        raise NotImplementedError(f"{type(self).__name__} does not define execute_arrow()")

    def emit_arrow(
        self,
        columns: Sequence[pa.Array],
        *,
        origins: Sequence[int] | pa.Array | None = None,
        stream: str = "default",
    ) -> None:
        """Emit many tuples at once, given as one array for each field, all of the same length.
        `origins` is as for `emit_columns`, or an array of integers."""
        collector = self._bound("emit_columns")
        # Spark's collector takes arrays as they are.
        emit: Any = getattr(collector, "emit_arrow", None)
        if emit is not None:
            emit(columns, origins, stream)
            return
        rows = origins if origins is None or isinstance(origins, Sequence) else _plain(origins)
        self.emit_columns([_plain(column) for column in columns], origins=rows, stream=stream)

    def execute_columns(self, columns: Columns) -> None:
        """Called by the engine: makes the record batch."""
        batch = getattr(columns, "arrow", None)
        self.execute_arrow(_batch(columns) if batch is None else batch)


def _plain(column: Any) -> list[Any]:
    to_list = getattr(column, "to_pylist", None)
    return list(column) if to_list is None else to_list()


def _batch(columns: Columns) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = []
    for name, values in zip(columns.fields, columns, strict=True):
        try:
            arrays.append(pa.array(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise SquallError(
                f"field {name!r} of {columns.source_component!r} does not become an Arrow array: "
                f"{error}",
                hint="emit values of one type, or use execute_columns()",
            ) from error
    return pa.record_batch(arrays, names=list(columns.fields))
