"""Sections that wait for the turn of their task: in memory, beyond a limit in temporary files."""

from __future__ import annotations

import contextlib
import os
import struct
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

LIMIT_BYTES = 64 * 1024 * 1024  # of all tasks together, in memory
_LENGTH = struct.Struct("<Q")


def scratch_file() -> BinaryIO:
    """A temporary file without a name, where Spark's own are."""
    place = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return tempfile.TemporaryFile(dir=place if os.path.isdir(place) else None)


class Spools(contextlib.ExitStack):
    """The sections of several tasks, each in the order in which they came."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        super().__init__()
        self._limit_bytes = limit_bytes
        self._size = 0
        self._waiting: dict[int, list[bytes]] = {}
        self._files: dict[int, BinaryIO] = {}

    def add(self, task: int, section: bytes | None) -> None:
        """Add a section of a task. None: the task is here, at least."""
        waiting = self._waiting.setdefault(task, [])
        if section is not None:
            waiting.append(section)
            self._size += len(section)
            if self._size > self._limit_bytes:
                self._spill()

    def tasks(self) -> list[int]:
        """The tasks, sorted."""
        return sorted(self._waiting)

    def take(self, task: int) -> Iterator[bytes]:
        """The sections of a task, once."""
        file = self._files.get(task)
        if file is not None:
            file.seek(0)
            while head := file.read(_LENGTH.size):
                yield file.read(_LENGTH.unpack(head)[0])
            file.close()
        waiting, self._waiting[task] = self._waiting[task][::-1], []
        while waiting:
            yield waiting.pop()

    def _spill(self) -> None:
        for task, waiting in self._waiting.items():
            if waiting and task not in self._files:
                self._files[task] = self.enter_context(scratch_file())
            for section in waiting:
                self._files[task].write(_LENGTH.pack(len(section)))
                self._files[task].write(section)
            waiting.clear()
        self._size = 0
