"""State of stateful bolts between micro-batches: files in the checkpoint folder.

    CHECKPOINT/state/COMPONENT/TASK/000000000007.delta      the changes of batch 7
    CHECKPOINT/state/COMPONENT/TASK/000000000010.snapshot   everything after batch 10

A task of batch N loads the state after batch N-1 and writes the state after batch N under N's name,
in one step. If its driver died before the batch was committed, Spark runs the batch again, with the
same number and the same input: it loads N-1 again and replaces the files of N, so that every tuple
is in the state once. The folder is a local path (the same on every machine) or a URL that fsspec
supports.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError
from squall_common.names import encode_znode
from squall_engine.embed import ValueCodec

SNAPSHOT_EVERY = 10  # batches
_FILE = re.compile(r"(?P<batch>\d{12})\.(?P<kind>delta|snapshot)")
_ABSENT = object()


class StateDamagedError(SquallError):
    """A file of the state is missing or cannot be read; the message names it."""


@dataclass(frozen=True, slots=True)
class StateAt:
    """Where the state of a component's tasks is, for one micro-batch. Sent to Spark's workers."""

    checkpoint: str
    component: str
    batch: int

    def open(self, index: int, codec: ValueCodec) -> DurableState:
        """The state of a task after the previous batch. Raises StateDamagedError."""
        place = f"{self.checkpoint}/state/{encode_znode(self.component)}/{index}"
        return DurableState(Folder(place), self.batch, codec)


class DurableState:
    """A `KeyValueState` that is written when its batch ends. Until then, all of it is in memory."""

    def __init__(self, folder: Folder, batch: int, codec: ValueCodec) -> None:
        self._folder = folder
        self._batch = batch
        self._codec = codec
        self._values: dict[Hashable, Any] = {}
        self._changed: dict[Hashable, None] = {}
        self._load()

    # ---- for bolts ----

    def get(self, key: Hashable, default: Any = None) -> Any:
        return self._values.get(key, default)

    def put(self, key: Hashable, value: Any) -> None:
        self._values[key] = value
        self._changed[key] = None

    def delete(self, key: Hashable) -> None:
        if self._values.pop(key, _ABSENT) is not _ABSENT:
            self._changed[key] = None

    def iterate(self) -> Iterator[tuple[Any, Any]]:
        return iter(list(self._values.items()))

    def __len__(self) -> int:
        return len(self._values)

    # ---- files ----

    def _load(self) -> None:
        wanted = self._batch - 1
        if wanted < 0:
            return
        files = self._files()
        snapshots = [n for n, kind in files if kind == "snapshot" and n <= wanted]
        first = max(snapshots, default=-1)
        if snapshots:
            self._apply(f"{first:012}.snapshot")
        for batch in range(first + 1, wanted + 1):
            if (batch, "delta") not in files:
                raise StateDamagedError(
                    f"the state after batch {batch} is missing: there is no {batch:012}.delta in "
                    f"{self._folder.url}",
                    hint="a stream needs its state to continue; start with a new --checkpoint",
                )
            self._apply(f"{batch:012}.delta")

    def _files(self) -> set[tuple[int, str]]:
        found = (_FILE.fullmatch(name) for name in self._folder.names())
        return {(int(m["batch"]), m["kind"]) for m in found if m is not None}

    def _apply(self, name: str) -> None:
        try:
            rows = self._codec.decode_rows(memoryview(self._folder.read(name)))
            for key, present, value in rows:
                if present:
                    self._values[key] = value
                else:
                    self._values.pop(key, None)
        except Exception as error:
            raise StateDamagedError(
                f"the state file {self._folder.url}/{name} cannot be read: {error}"
            ) from error

    def commit(self) -> None:
        """The batch has succeeded: write its changes, and now and then the whole state. Raises
        OSError, and ValueNotEncodableError for a value of a type that cannot be emitted."""
        rows = [[key, key in self._values, self._values.get(key)] for key in self._changed]
        self._folder.write(f"{self._batch:012}.delta", self._codec.encode_rows(rows))
        if self._batch and self._batch % SNAPSHOT_EVERY == 0:
            everything = [[key, True, value] for key, value in self._values.items()]
            self._folder.write(f"{self._batch:012}.snapshot", self._codec.encode_rows(everything))
            # This batch may run again, from the state before it: the previous snapshot stays.
            oldest = self._batch - SNAPSHOT_EVERY
            for batch, kind in self._files():
                if batch < oldest or (batch == oldest and kind == "delta" and oldest > 0):
                    self._folder.delete(f"{batch:012}.{kind}")
