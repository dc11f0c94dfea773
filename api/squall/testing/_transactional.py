"""What the contract of transactional sinks needs: a source, and a sink that kills its process."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from squall import RewindableSpout, RowBatch, TransactionalSink
from squall_common.topology.arguments import instantiate
from squall_common.topology.model import PythonObject


class GivenTuple:
    """A tuple as far as `TransactionalSink.row` needs it."""

    is_tick = False
    source_component, source_task, source_stream = "records", 1, "default"

    def __init__(self, fields: Sequence[str], values: Sequence[Any]) -> None:
        self.fields, self.values = list(fields), list(values)
        self._by_name = dict(zip(fields, values, strict=True))

    def __getitem__(self, key: str | int) -> Any:
        return self.values[key] if isinstance(key, int) else self._by_name[key]

    def get(self, field: str, default: Any = None) -> Any:
        return self._by_name.get(field, default)


class GrowingLines(RewindableSpout):
    """Emits the lines of a file that grows, tab-separated into fields."""

    def __init__(self, path: Path, fields: Sequence[str]) -> None:
        self._path = path
        self.outputs = list(fields)

    def open(self, conf: Any, context: Any) -> None:
        self._file = self._path.open("rb")

    def seek(self, positions: Mapping[Any, Any]) -> None:
        self._file.seek(positions.get("all", 0))

    def next_tuple(self) -> None:
        start = self._file.tell()
        line = self._file.readline()
        if not line.endswith(b"\n"):
            self._file.seek(start)
            return
        self.emit(line.decode()[:-1].split("\t"), position=("all", start + len(line)))

    def close(self) -> None:
        self._file.close()


class KillingSink(TransactionalSink):
    """A sink in whose first commits the process is killed: before the sink under test has
    committed, and at the next start before anyone knows that it has."""

    def __init__(self, class_path: str, arguments: str, folder: Path) -> None:
        """`folder` has a file for each kill that has happened."""
        self._inner: TransactionalSink = instantiate(PythonObject(class_path, arguments.encode()))
        self._folder = folder

    def _bind(self, collector: Any, context: Any) -> None:
        super()._bind(collector, context)
        self._inner._bind(collector, context)

    def prepare(self, conf: Any, context: Any) -> Any:
        return self._inner.prepare(conf, context)

    def row(self, tup: Any) -> Any:
        return self._inner.row(tup)

    def commit(self, batches: Sequence[RowBatch]) -> None:
        self._kill_once("before")
        self._inner.commit(batches)
        self._kill_once("after")

    def cleanup(self) -> Any:
        return self._inner.cleanup()

    def _kill_once(self, when: str) -> None:
        try:
            (self._folder / when).open("x").close()
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)
