"""`IcebergSink`: tuples as rows of an Apache Iceberg table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyiceberg.catalog import load_catalog

from squall_common.errors import InvalidTopologyError
from squall_connectors.lakes.table import TableSink

_BATCH = "squall.batch"


class IcebergSink(TableSink):
    """Appends each batch to an Iceberg table, as one snapshot, and acks it when that is committed.

        IcebergSink("shop.orders", ["day", "sku", "price"],
                    catalog={"type": "rest", "uri": "https://catalog.example"})

    The table must exist; its partitions are its own. The snapshot's summary names the batch
    (`squall.batch`), so one that is repeated because an answer was lost is there once. A replayed
    tuple is appended again. Writers of a table take turns by its catalog: with many tasks make
    batches large. Keep `batch_secs` well below the message timeout.
    """

    def __init__(
        self,
        table: str,
        fields: Sequence[str],
        *,
        catalog: Mapping[str, str],
        catalog_name: str = "default",
        batch_records: int = 10_000,
        batch_secs: float = 5.0,
        write_timeout_secs: float = 60.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """`table` is `NAMESPACE.TABLE`; `catalog` has the properties of a catalog, as pyiceberg
        takes them (type, uri, warehouse, credentials ...); an SQL catalog knows its tables by
        `catalog_name`. The fields become the columns of the
        same names; other columns get null. The others are those of `Sink`. Raises
        InvalidTopologyError for arguments that cannot be."""
        super().__init__(
            fields,
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        if not all(table.split(".")) or "." not in table:
            raise InvalidTopologyError(f"IcebergSink: table {table!r}; expected NAMESPACE.TABLE")
        if not catalog:
            raise InvalidTopologyError("IcebergSink: catalog has no properties")
        self._table_name = table
        self._catalog_name, self._catalog = catalog_name, dict(catalog)

    def __str__(self) -> str:
        return f"Iceberg table {self._table_name}"

    def load(self) -> None:
        self._table = load_catalog(self._catalog_name, **self._catalog).load_table(self._table_name)

    def arrow_schema(self) -> Any:
        return self._table.schema().as_arrow()

    def is_committed(self, writer: str, number: int) -> bool:
        self._table.refresh()
        batch = f"{writer}:{number}"
        summaries = [snapshot.summary for snapshot in self._table.metadata.snapshots]
        return any(
            summary is not None and summary.additional_properties.get(_BATCH) == batch
            for summary in summaries
        )

    def append(self, data: Any, writer: str, number: int) -> None:
        self._table.refresh()  # to conflict with other writers less often
        self._table.append(data, snapshot_properties={_BATCH: f"{writer}:{number}"})
