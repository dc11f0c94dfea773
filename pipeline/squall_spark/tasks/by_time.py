"""The tuples of a task in the order of their timestamps.

Spark's shuffle brings them in any order. They are sorted by timestamp; those of one moment by the
task that has emitted them (component, stream, task), and those of one task as it emitted them. More
than `limit` tuples or `limit_bytes` are sorted in portions, which wait in temporary files and are
merged.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import BinaryIO

from squall_engine.embed import Tuple, ValueCodec
from squall_spark.tasks.spools import scratch_file

LIMIT = 200_000
LIMIT_BYTES = 64 * 1024 * 1024  # as they were sent
# What is read of a portion at once: each has a block in memory while they are merged.
_BLOCK_ROWS = 1_000
_BLOCK_BYTES = 1024 * 1024
_LENGTH = struct.Struct("<I")

_Key = tuple[int, str, str, int]
_Entry = tuple[_Key, Tuple]
_KEY = itemgetter(0)


class ByTime:
    """Add tuples, then iterate once: pairs of a timestamp in milliseconds and a tuple."""

    def __init__(
        self,
        time_of: Callable[[Tuple], int],
        codec: ValueCodec,
        make_tuple: Callable[[int, str, Sequence[object]], Tuple],
        *,
        limit: int = LIMIT,
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        """`make_tuple` gets a task, a stream and values."""
        self._time_of = time_of
        self._codec = codec
        self._make_tuple = make_tuple
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._waiting: list[_Entry] = []
        self._size = 0  # bytes of what waits
        self._runs: list[BinaryIO] = []

    def add(self, tuples: Iterable[Tuple], size: int) -> None:
        """`size` is in bytes, as they were sent. Raises what `time_of` raises."""
        time_of = self._time_of
        for tup in tuples:
            source = tup.source
            key = (time_of(tup), source.component, source.stream, source.task)
            self._waiting.append((key, tup))
        self._size += size
        if len(self._waiting) >= self._limit or self._size >= self._limit_bytes:
            self._spill()

    def __iter__(self) -> Iterator[tuple[int, Tuple]]:
        self._waiting.sort(key=_KEY)
        # (The earlier run first: tuples with the same key stay in their order.)
        entries = heapq.merge(*map(self._read, self._runs), self._taken(), key=_KEY)
        for key, tup in entries:
            yield key[0], tup

    def close(self) -> None:
        """Delete the files."""
        for run in self._runs:
            run.close()

    def _taken(self) -> Iterator[_Entry]:
        """What is in memory, which it then lets go of."""
        waiting, self._waiting = self._waiting[::-1], []
        while waiting:
            yield waiting.pop()

    def _spill(self) -> None:
        if not self._waiting:
            return
        self._waiting.sort(key=_KEY)
        run = scratch_file()
        self._runs.append(run)
        fitting = _BLOCK_BYTES * len(self._waiting) // max(1, self._size)
        rows = max(1, min(_BLOCK_ROWS, fitting))
        for start in range(0, len(self._waiting), rows):
            data = self._codec.encode_rows(
                [
                    (key[0], tup.source.task, tup.source.stream, list(tup.values))
                    for key, tup in self._waiting[start : start + rows]
                ]
            )
            run.write(_LENGTH.pack(len(data)))
            run.write(data)
        self._waiting, self._size = [], 0

    def _read(self, run: BinaryIO) -> Iterator[_Entry]:
        run.seek(0)
        while head := run.read(_LENGTH.size):
            for at_ms, task, stream, values in self._codec.decode_rows(
                run.read(_LENGTH.unpack(head)[0])
            ):
                tup = self._make_tuple(task, stream, values)
                yield (at_ms, tup.source.component, stream, task), tup
