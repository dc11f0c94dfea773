"""`FolderSpout`: files that are put into a folder."""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from squall import Stream, TopologyContext
from squall_common.component.groupings import stable_hash
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.base.unreadable import UNREADABLE, OnUnreadable, UnreadableRecords
from squall_connectors.files.formats import (
    UNREADABLE_FIELDS,
    Row,
    Unreadable,
    checked,
    rows_of,
)


class FolderSpout(AsyncSource):
    """Emits the records of each file in a folder, and deletes or moves the file when all of them
    are done:

        FolderSpout("/data/incoming", ["sku", "price"], format="csv", done="/data/done")
        FolderSpout("s3://bucket/incoming", ["sku", "price"], format="parquet")

    Files must appear whole, as objects in object stores do: written under another name, or one that
    begins with a dot or an underscore, and then renamed. They are read in the order of their names;
    several tasks share them by a hash of the name. A file that was not done when its worker was
    lost is read again from its beginning. A file that cannot be read is reported as an error and
    passed over; it stays where it is until the worker restarts.

    A line that cannot be read goes to the stream "unreadable", with the fields `path`, `offset`
    (of its first byte), `value` (its bytes) and `reason`, if a bolt consumes it; otherwise it is
    reported as an error, one every ten seconds for all of them, and passed over. The metric
    `unreadable` counts both.

    The message id is `(path, number of the record)`.
    """

    def __init__(
        self,
        url: str,
        fields: Sequence[str],
        *,
        format: str = "json",
        pattern: str = "*",
        done: str | None = None,
        poll_secs: float = 1.0,
        storage_options: Mapping[str, Any] | None = None,
        in_flight_max: int = 10_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`url` is a path or any URL of fsspec, which gets `storage_options`. `pattern` is a glob
        below it (`*/*.csv` also looks into folders). A file that is done is deleted, or moved to
        `done`, in the same file system. `format` is as for FileSink. The others are those of
        `Source`. Raises InvalidTopologyError if the format and fields do not fit."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        if poll_secs <= 0:
            raise InvalidTopologyError("FolderSpout: poll_secs must be positive")
        self.outputs = {
            "default": Stream(list(fields)),
            UNREADABLE: Stream(list(UNREADABLE_FIELDS)),
        }
        self._url, self._fields = url, list(fields)
        self._format, self._pattern = checked(format, fields), pattern
        self._done_url, self._poll_secs = done, poll_secs
        self._storage_options = dict(storage_options or {})

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._files: Any = None
        self._share = (
            context.this_task_index,
            len(context.component_tasks(context.this_component_id)),
        )
        self._reading: tuple[str, Any, Iterator[tuple[int, Row]]] | None = None
        # Of each file that is read: the records that are not done. None as a member: still reading.
        self._left: dict[str, set[int | None]] = {}
        self._passed_over: set[str] = set()  # files
        self._unreadable = UnreadableRecords(context, self.report_error)
        await super().open(conf, context)

    async def connect(self) -> None:
        import fsspec

        def find() -> tuple[Any, str]:
            files, root = fsspec.core.url_to_fs(self._url, **self._storage_options)
            return files, root

        self._files, self._root = await asyncio.to_thread(find)
        self._done_root = (
            None if self._done_url is None else self._files._strip_protocol(self._done_url)
        )

    async def disconnect(self) -> None:
        if self._reading is not None:
            path, file, _ = self._reading
            self._reading = None
            self._left.pop(path, None)  # from the beginning: what is in flight is emitted once
            await asyncio.to_thread(file.close)

    async def fetch(self, limit: int) -> Sequence[Record]:
        self._unreadable.look()
        if self._reading is None:
            path = await asyncio.to_thread(self._next_path)
            if path is None:
                await asyncio.sleep(self._poll_secs)
                return []
            self._left[path] = {None}
            file = await asyncio.to_thread(self._files.open, path, "rb")
            self._reading = (path, file, enumerate(rows_of(file, self._format, self._fields)))
        path, file, rows = self._reading
        try:
            found = await asyncio.to_thread(lambda: list(islice(rows, limit)))
        except (ValueError, TypeError, KeyError) as error:  # not a file of this format
            self._passed_over.add(path)
            self.report_error(ValueError(f"{path}: {error}"))
            found = []
        left = self._left[path]
        records: list[Record] = []
        for number, row in found:
            if isinstance(row, Unreadable):
                if not self._unreadable.found(f"{path}, record {number + 1}: {row.reason}"):
                    continue
                row = OnUnreadable([path, row.offset, row.value, row.reason])
            left.add(number)
            records.append(((path, number), row))
        if len(found) < limit:  # its end
            self._reading = None
            await asyncio.to_thread(file.close)
            left.discard(None)
            if not left:
                await self._finish(path)
        return records

    def _next_path(self) -> str | None:
        mine, tasks = self._share
        self._files.invalidate_cache()  # object stores' clients keep listings
        for path in sorted(self._files.glob(posixpath.join(self._root, self._pattern))):
            inside = path[len(self._root) :].lstrip("/")
            hidden = any(part.startswith((".", "_")) for part in inside.split("/"))
            if hidden or path in self._left or path in self._passed_over:
                continue
            if self._done_root is not None and path.startswith(self._done_root.rstrip("/") + "/"):
                continue
            if stable_hash(inside) % tasks == mine and self._files.isfile(path):
                found: str = path
                return found
        return None

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        ids: Any = message_ids
        for path, number in ids:
            left = self._left.get(path)
            if left is None:
                continue
            left.discard(number)
            if not left:
                await self._finish(path)

    async def _finish(self, path: str) -> None:
        if path not in self._passed_over:
            await asyncio.to_thread(self._remove, path)
        del self._left[path]

    def _remove(self, path: str) -> None:
        self._files.invalidate_cache()
        if not self._files.exists(path):  # done in an attempt whose answer was lost
            return
        if self._done_root is None:
            self._files.rm_file(path)
            return
        target = posixpath.join(self._done_root, path[len(self._root) :].lstrip("/"))
        self._files.makedirs(posixpath.dirname(target), exist_ok=True)
        self._files.mv(path, target)
