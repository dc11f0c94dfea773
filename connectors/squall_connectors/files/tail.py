"""`TailSpout`: the lines of files that grow and rotate.

A file is known by its device and inode, not by its name: when it is rotated (renamed), what is left
of it is read to its end under its new name, and the file that has its old name now from its
beginning. One that becomes shorter than what was read of it (copytruncate) starts again.

Positions are kept in a file of the task's own: for each file the offset before which all lines are
done. It is replaced atomically, so a killed worker reads some lines again and loses none.
"""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from squall import Stream, TopologyContext
from squall_common.daemon.files import make_dirs, write_atomic
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.offsets import Offsets
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.base.unreadable import UNREADABLE, OnUnreadable, UnreadableRecords
from squall_connectors.files.formats import (
    BEGINNING_BYTES,
    UNREADABLE_FIELDS,
    Unreadable,
    checked,
    line_reader,
)

_READ_BYTES = 1 << 18
_LINE_BYTES_MAX = 8 << 20

FileId = str  # "device:inode"


@dataclass(slots=True)
class _Tailed:
    """A file that is followed."""

    id: FileId
    file: BinaryIO
    offsets: Offsets  # in bytes; the records in flight by the offset of their first byte
    read: int  # the offset of the next byte to read
    rest: bytes = b""  # what was read of a line whose end is not there yet
    dropped: int = 0  # bytes before `rest` of a line that is too long to be kept
    beginning: bytes = b""  # of that line
    names: set[str] = field(default_factory=set)
    life: int = 0  # how often it was truncated


class TailSpout(AsyncSource):
    """Emits each line that is appended to files on the worker's node:

        TailSpout("/var/log/app/*.log", state="/var/lib/app/positions")
        TailSpout("events.jsonl", ["user", "action"], format="json", state="positions")

    `state` is a folder for the positions. It must be on the node as the files are, so pin the spout
    to one node, and give it one task. Lines of a file come in order. A last line without an end is
    emitted when its end is there.

    A line that cannot be read in the format, or is longer than 8 MiB, goes to the stream
    "unreadable", with the fields `path`, `offset` (of its first byte), `value` (its bytes; the
    first 1,000 of one that is too long) and `reason`, if a bolt consumes it; otherwise it is
    reported as an error, one every ten seconds for all of them, and passed over. The metric
    `unreadable` counts both.

    With "text" there may be the fields `line`, or `line` and `path`.
    """

    def __init__(
        self,
        paths: str | Sequence[str],
        fields: Sequence[str] = ("line",),
        *,
        state: str | Path,
        format: str = "text",
        start: str = "earliest",
        poll_secs: float = 0.2,
        in_flight_max: int = 10_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`paths` are globs. `format` is "text", "json" (an object a line) or "csv" (without a row
        of names). With `start="latest"`, lines that files have when the spout first sees them at
        its first start are left out. The others are those of `Source`. Raises InvalidTopologyError
        if the format and fields do not fit."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        if start not in ("earliest", "latest"):
            raise InvalidTopologyError(
                f"TailSpout: start {start!r}; expected 'earliest' or 'latest'"
            )
        self.outputs = {
            "default": Stream(list(fields)),
            UNREADABLE: Stream(list(UNREADABLE_FIELDS)),
        }
        self._patterns = [paths] if isinstance(paths, str) else list(paths)
        self._with_path = format == "text" and list(fields) == ["line", "path"]
        of_line = ["line"] if self._with_path else list(fields)
        self._read_line = line_reader(checked(format, of_line, ("text", "json", "csv")), of_line)
        self._state, self._start, self._poll_secs = Path(state), start, poll_secs

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        name = f"{context.topology_name}-{context.this_component_id}-{context.this_task_index}"
        self._positions_path = self._state / f"{name}.json"
        make_dirs(self._state)
        self._unreadable = UnreadableRecords(context, self.report_error)
        self._tailed: dict[FileId, _Tailed] = {}
        self._first_look = not self._positions_path.exists()
        self._positions: dict[FileId, int] = (
            {} if self._first_look else orjson.loads(self._positions_path.read_bytes())
        )
        await super().open(conf, context)

    async def close(self) -> None:
        await super().close()
        for tailed in self._tailed.values():
            tailed.file.close()

    # Reading is short, and local: it needs no thread.

    async def fetch(self, limit: int) -> Sequence[Record]:
        self._look()
        self._unreadable.look()
        records: list[Record] = []
        for tailed in list(self._tailed.values()):
            if len(records) < limit:
                records += self._lines(tailed, limit - len(records))
        if not records:
            await asyncio.sleep(self._poll_secs)
        return records

    def _look(self) -> None:
        """Find files that are new, rotated, gone or truncated."""
        names: dict[FileId, set[str]] = {}
        for pattern in self._patterns:
            for path in sorted(glob.glob(pattern, recursive=True)):
                try:
                    status = os.stat(path)
                except FileNotFoundError:  # rotated just now
                    continue
                of = f"{status.st_dev}:{status.st_ino}"
                names.setdefault(of, set()).add(path)
                if of not in self._tailed:
                    self._follow(of, path)
        if self._first_look:
            self._first_look = False
            self._save()
        for tailed in list(self._tailed.values()):
            tailed.names = names.get(tailed.id, set()) or tailed.names
            size = os.fstat(tailed.file.fileno()).st_size
            if size < tailed.read:
                tailed.life += 1
                tailed.read, tailed.rest, tailed.offsets = 0, b"", Offsets(0)
                tailed.dropped = 0
            elif tailed.id not in names and size == tailed.read and not tailed.offsets.pending:
                # Renamed to a name that is not followed, or deleted, and all of it is done.
                tailed.file.close()
                del self._tailed[tailed.id]
                self._positions.pop(tailed.id, None)

    def _follow(self, of: FileId, path: str) -> None:
        try:
            file = open(path, "rb")  # noqa: SIM115  # as long as it is followed
        except FileNotFoundError:
            return
        status = os.fstat(file.fileno())
        if f"{status.st_dev}:{status.st_ino}" != of:  # rotated since it was seen
            file.close()
            return
        position = self._positions.get(of, 0)
        if self._first_look and self._start == "latest":
            position = status.st_size
        if position > status.st_size:  # truncated, or another file that got the inode
            position = 0
        self._tailed[of] = _Tailed(of, file, Offsets(position), position, names={path})

    def _lines(self, tailed: _Tailed, limit: int) -> list[Record]:
        """At most `limit` lines that are whole."""
        records: list[Record] = []
        while len(records) < limit:
            if b"\n" not in tailed.rest:
                tailed.file.seek(tailed.read)
                data = tailed.file.read(_READ_BYTES)
                tailed.read += len(data)
                tailed.rest += data
                if not data:
                    break
                if b"\n" not in data and len(tailed.rest) > _LINE_BYTES_MAX:
                    # Its beginning stands for it: it is not kept in memory.
                    if not tailed.dropped:
                        tailed.beginning = tailed.rest[:BEGINNING_BYTES]
                    tailed.dropped += len(tailed.rest)
                    tailed.rest = b""
                    continue
            lines = tailed.rest.split(b"\n")
            if tailed.dropped and len(lines) > 1:
                records += self._too_long(tailed, len(lines[0]))
                tailed.rest = tailed.rest[len(lines.pop(0)) + 1 :]
            start = tailed.read - len(tailed.rest)
            taken = 0
            for line in lines[:-1][: limit - len(records)]:
                records += self._record(tailed, start + taken, line)
                taken += len(line) + 1
            tailed.rest = tailed.rest[taken:]
        return records

    def _too_long(self, tailed: _Tailed, more_bytes: int) -> list[Record]:
        """The end of a line that was not kept."""
        offset = tailed.read - len(tailed.rest) - tailed.dropped
        size, tailed.dropped = tailed.dropped + more_bytes, 0
        reason = f"a line of {size} bytes"
        return self._cannot_read(tailed, offset, offset + size, tailed.beginning, reason)

    def _cannot_read(
        self, tailed: _Tailed, offset: int, end: int, value: bytes, reason: str
    ) -> list[Record]:
        """A line that is passed over, or goes to its stream. `end`: the byte that ends it."""
        path = min(tailed.names, default=tailed.id)
        values = OnUnreadable([path, offset, value, reason])
        if not self._unreadable.found(f"{path}, byte {offset}: {reason}"):
            tailed.offsets.skipped(end)
            return []
        return self._in_flight(tailed, offset, end, values)

    def _in_flight(
        self, tailed: _Tailed, offset: int, end: int, values: Sequence[Any]
    ) -> list[Record]:
        tailed.offsets.emitted([offset], [values])
        tailed.offsets.skipped(end)
        return [((tailed.id, tailed.life, offset), values)]

    def _record(self, tailed: _Tailed, offset: int, line: bytes) -> list[Record]:
        end = offset + len(line)
        text = line.rstrip(b"\r")
        row = self._read_line(text)
        if isinstance(row, Unreadable):
            return self._cannot_read(tailed, offset, end, text, row.reason)
        values = [*row, min(tailed.names, default="")] if self._with_path else row
        return self._in_flight(tailed, offset, end, values)

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        ids: Any = message_ids
        for of, life, offset in ids:
            tailed = self._tailed.get(of)
            if tailed is not None and tailed.life == life:
                tailed.offsets.acked(offset)
        self._save()

    def _save(self) -> None:
        for tailed in self._tailed.values():
            self._positions[tailed.id] = tailed.offsets.committable
        write_atomic(self._positions_path, orjson.dumps(self._positions))

    async def measure_lag(self) -> int | None:
        """In bytes: lines are not counted before they are read."""
        return sum(
            max(0, os.fstat(tailed.file.fileno()).st_size - tailed.offsets.committable)
            for tailed in self._tailed.values()
        )
