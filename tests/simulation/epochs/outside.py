"""What outlives processes: the record in ZooKeeper, the store of objects, a database, a broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from squall_engine.epochs.messages import Name, Record


@dataclass(slots=True)
class Znode:
    """Compare-and-set by version."""

    record: Record = field(default_factory=Record)

    def replace(self, new: Record) -> bool:
        """Write `new` if its version follows the present one."""
        if new.version != self.record.version + 1:
            return False
        self.record = new
        return True


@dataclass(frozen=True, slots=True)
class Kept:
    """A savepoint: its head, and copies of the parts."""

    topology: str
    asked_ms: int
    history: str
    manifest: Any
    parts: Mapping[Name, Any]


@dataclass(slots=True)
class Store:
    """Objects by name. What is written under a name that exists replaces it."""

    objects: dict[Name, Any] = field(default_factory=dict)
    savepoints: dict[str, Kept] = field(default_factory=dict)
    """By name: those whose head was written."""


# A message of a source: from a log (split, position) or a broker (-1, id).
Message = tuple[int, int]
# What a sink writes: the message, its key, and the count of the key (None: a dead letter).
Row = tuple[Message, str, int | None]
# A batch of rows that a sink has in its snapshots: (history, the task that made it, epoch).
Batch = tuple[str, int, int]


@dataclass(slots=True)
class Database:
    """Takes batches, and keeps in the same transaction up to which epoch it has those of a task."""

    rows: list[Row] = field(default_factory=list)
    applied: dict[tuple[str, int], int] = field(default_factory=dict)

    def has(self, batch: Batch) -> bool:
        history, task, epoch = batch
        return self.applied.get((history, task), -1) >= epoch

    def commit(self, batches: Mapping[Batch, Iterable[Row]], *, once: bool = True) -> None:
        """One transaction."""
        for batch, rows in sorted(batches.items()):
            if not (once and self.has(batch)):
                self.rows += rows
                self.applied[batch[:2]] = batch[2]


@dataclass(slots=True)
class Broker:
    """Delivers messages until they are acknowledged, again to whoever asks, in any order."""

    waiting: set[int]

    def acknowledge(self, number: int) -> None:
        self.waiting.discard(number)
