"""`FileSink`: tuples as files of records."""

from __future__ import annotations

import os
import posixpath
import time
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from squall import TopologyContext, Tuple
from squall_common.daemon.files import make_dirs, write_atomic
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.base.columns import names_of
from squall_connectors.base.sink import ThreadedSink
from squall_connectors.files.formats import checked, written

_EXTENSIONS = {"text": "txt", "json": "jsonl", "csv": "csv", "parquet": "parquet"}


class FileSink(ThreadedSink):
    """Writes each batch as a new file, and acks it when the file is whole, under its final name and
    on the disk: a reader never sees half a file.

        FileSink("/data/orders", ["day", "sku", "price"], format="parquet", partition_by=["day"])
        FileSink("s3://bucket/orders", ["sku", "price"], format="json")

    The file rolls when it has `batch_records` records, or its first record is `batch_secs` old: so
    these say how large files become. The tuples wait for that, so `batch_secs` must be well below
    the message timeout. A tuple that is replayed is written again, into another file.

    Object stores have no rename: there an object appears, whole, when its upload is complete (in S3
    a PUT, or the end of a multipart upload if it is large). A batch that is repeated, because the
    answer was lost, replaces its own objects.

    With `partition_by`, records go to `day=2026-01-31/...`, as Spark, Hive and pyarrow read it.
    """

    def __init__(
        self,
        url: str,
        fields: Sequence[str],
        *,
        format: str = "json",
        partition_by: Sequence[str] = (),
        storage_options: Mapping[str, Any] | None = None,
        batch_records: int = 10_000,
        batch_secs: float = 5.0,
        write_timeout_secs: float = 60.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """`url` is a path or any URL of fsspec, which gets `storage_options`. `format` is "text"
        (one field, a line each), "json" (an object a line), "csv" (with a row of names) or
        "parquet". The others are those of `Sink`. Raises InvalidTopologyError if the format and
        fields do not fit, or `partition_by` names another field."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        self._url, self._fields = url, names_of("FileSink", "fields", fields)
        self._partition_by = names_of("FileSink", "partition_by", partition_by, optional=True)
        if unknown := sorted(set(self._partition_by) - set(self._fields)):
            raise InvalidTopologyError(f"FileSink: no field {', '.join(unknown)} to partition by")
        # What the folder's name says is not repeated in the file.
        self._inside = [field for field in fields if field not in partition_by]
        self._format = checked(format, self._inside)
        self._storage_options = dict(storage_options or {})

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._files: Any = None
        self._numbers = count()
        self._last: tuple[Sequence[Tuple], dict[str, bytes]] = ((), {})
        self._name = f"{context.this_component_id}-{context.this_task_id}"
        await super().prepare(conf, context)

    def connect_blocking(self) -> None:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem

        self._files, self._root = fsspec.core.url_to_fs(self._url, **self._storage_options)
        self._is_local = isinstance(self._files, LocalFileSystem)

    def write_blocking(self, tuples: Sequence[Tuple]) -> None:
        if self._last[0] is not tuples:
            self._last = (tuples, self._contents(tuples))
        for path, data in self._last[1].items():
            if self._is_local:
                make_dirs(Path(path).parent)
                write_atomic(Path(path), data, mode=0o644)
                continue
            try:
                self._files.pipe_file(path, data)  # an object appears when it is whole
            except Exception as error:  # whatever its client raises: the records are not at fault
                raise ConnectionError(f"{self._url}: {describe(error)}") from error
        self._last = ((), {})

    def _contents(self, tuples: Sequence[Tuple]) -> dict[str, bytes]:
        """The files of a batch, by their paths."""
        folders: dict[str, list[dict[str, Any]]] = {}
        for tup in tuples:
            row = {field: tup[field] for field in self._inside}
            folders.setdefault(self._folder(tup), []).append(row)
        # All of them first: a value without a form must not leave files of others behind.
        contents = {
            folder: written(rows, self._format, self._inside) for folder, rows in folders.items()
        }
        # Unique among all tasks and their lives, and in the order of writing.
        name = f"{time.time_ns():020d}-{self._name}-{os.getpid()}-{next(self._numbers)}"
        file = f"{name}.{_EXTENSIONS[self._format]}"
        return {posixpath.join(self._root, folder, file): data for folder, data in contents.items()}

    def _folder(self, tup: Tuple) -> str:
        return "/".join(
            f"{quote(field, safe='')}={quote(str(tup[field]), safe='')}"
            for field in self._partition_by
        )
