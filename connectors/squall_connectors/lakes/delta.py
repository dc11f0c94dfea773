"""`DeltaSink`: tuples as rows of a Delta Lake table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from squall_common.errors import InvalidTopologyError
from squall_connectors.lakes.table import TableSink


class DeltaSink(TableSink):
    """Appends each batch to a Delta Lake table, as one commit, and acks it when that is done.

        DeltaSink("/data/orders", ["day", "sku", "price"])
        DeltaSink("s3://lake/orders", ["day", "sku", "price"], batch_secs=10)

    The table must exist; its partitions are its own. The commit carries an application transaction,
    so a batch that is repeated because an answer was lost is there once. A replayed tuple is
    appended again. Batches make files: optimize the table now and then, and keep `batch_secs` well
    below the message timeout.
    """

    def __init__(
        self,
        url: str,
        fields: Sequence[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        batch_records: int = 10_000,
        batch_secs: float = 5.0,
        write_timeout_secs: float = 60.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """`url` is a path, or a URL of an object store, which gets `storage_options`. The fields
        become the columns of the same names; other columns get null. The others are those of
        `Sink`. Raises InvalidTopologyError for fields or a url that cannot be."""
        super().__init__(
            fields,
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        if not url:
            raise InvalidTopologyError("DeltaSink: url is empty")
        self._url, self._storage_options = url, dict(storage_options or {})

    def __str__(self) -> str:
        return f"Delta table {self._url}"

    def load(self) -> None:
        self._table = DeltaTable(self._url, storage_options=self._storage_options or None)

    def arrow_schema(self) -> Any:
        import pyarrow

        return pyarrow.schema(self._table.schema().to_arrow())

    def is_committed(self, writer: str, number: int) -> bool:
        self._table.update_incremental()
        version = self._table.transaction_version(writer)
        return version is not None and version >= number

    def append(self, data: Any, writer: str, number: int) -> None:
        write_deltalake(
            self._table,
            data,
            mode="append",
            commit_properties=CommitProperties(app_transactions=[Transaction(writer, number)]),
        )
