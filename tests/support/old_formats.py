"""Epochs, savepoints and stored state as older versions of Squall have written them.

A writer of its own, by the layouts that docs/reference/state-formats.md describes: plain msgpack,
struct and CRC-32, and nothing of Squall's, so that a change of Squall's own writer and reader
together is noticed.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

GROUPS = 128
TASK = -1  # the group of what belongs to a task, not to a key

_pack = msgspec.msgpack.encode


def group_of(word: str) -> int:
    """The key group of a text."""
    return zlib.crc32(b"s" + word.encode()) % GROUPS


def task_of(word: str, tasks: int) -> int:
    """The task of a text, by its group."""
    return group_of(word) * tasks // GROUPS


def first_group(task: int, tasks: int) -> int:
    """The first group of a task."""
    return -(-task * GROUPS // tasks)


@dataclass
class Task:
    """What an epoch has of a task. `segments`: (rows, deleted keys, whether it is the base)."""

    segments: Sequence[tuple[Sequence[Sequence[Any]], Sequence[Any], bool]] = ()
    keys: int = 0
    bound: int = 0
    positions: Mapping[Any, Any] = field(default_factory=dict)
    batches: Mapping[tuple[Any, ...], Sequence[Any]] = field(default_factory=dict)


def block(rows: Sequence[Sequence[Any]], deleted: Sequence[Any] = ()) -> bytes:
    """Two frames, each behind its length: deleted keys, then entries."""
    frames = [_pack([[key] for key in deleted]) if deleted else b"", _pack(rows) if rows else b""]
    return b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)


def segment(head: Sequence[Any], tail: Sequence[Any], blocks: Mapping[int, bytes]) -> bytes:
    """Version 1. `head` is of its footer before the blocks, `tail` what comes behind them."""
    magic = b"SQSTSEG\x01"
    parts, places, offset = [magic], [], 8
    for group in sorted(blocks):
        data = blocks[group]
        places.append([group, offset, len(data), zlib.crc32(data)])
        parts.append(data)
        offset += len(data)
    footer = _pack([*head, places, *tail])
    trailer = struct.pack("<II8s", zlib.crc32(footer), len(footer), magic)
    return b"".join([*parts, footer, trailer])


def reference(name: str, data: bytes, entries: int, epoch: int, groups: Any, base: bool) -> Any:
    """How manifests and later segments name a segment."""
    checksum = struct.unpack("<I", data[-16:-12])[0]
    return [name, len(data), checksum, entries, epoch, groups, base]


def sealed(magic: bytes, body: bytes) -> bytes:
    """Behind its magic and its checksum."""
    return magic + struct.pack("<I", zlib.crc32(body)) + body


class OldFolder:
    """The folder of a topology, as `topology.state.url` names it."""

    def __init__(self, folder: Path, topology: str = "words") -> None:
        self._folder, self._topology = folder, topology

    def write(self, name: str, data: bytes) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def components(
        self, tasks: Mapping[str, Sequence[Task]], *, top: str, version: int, epoch: int
    ) -> dict[str, Any]:
        """Write the segments; returns the components of a manifest of this version."""
        found = {}
        for component, parts in tasks.items():
            listed = []
            for index, task in enumerate(parts):
                refs = self._segments(component, index, len(parts), task, top, epoch)
                positions = _pack([list(one) for one in task.positions.items()])
                batches = [
                    _pack([list(name), *([row] for row in rows)])
                    for name, rows in task.batches.items()
                ]
                part = [refs, task.keys, task.bound, positions if task.positions else b"", batches]
                listed.append(part if version == 1 else [*part, b""])
            groups = GROUPS if any(task.segments for task in parts) else 0
            found[component] = [groups, listed]
        return found

    def _segments(
        self, component: str, index: int, count: int, task: Task, top: str, epoch: int
    ) -> list[Any]:
        refs: list[Any] = []
        first = epoch - len(task.segments) + 1
        for number, (rows, deleted, base) in enumerate(task.segments, start=first):
            name = f"{top}segments/{component}/{index:05}/00000001-{number:012}"
            blocks = self.blocks(rows, deleted)
            entries = len(rows) + len(deleted)
            sizes = (entries, task.keys, task.bound, base)
            data = segment(
                [self._topology, component, index, count, GROUPS, 1, number, *sizes],
                [[] if base else list(refs)],
                blocks,
            )
            self.write(name, data)
            groups = [first_group(index, count), first_group(index + 1, count) - 1]
            refs.append(reference(name, data, entries, number, groups, base))
        return refs

    @staticmethod
    def blocks(rows: Sequence[Sequence[Any]], deleted: Sequence[Any] = ()) -> dict[int, bytes]:
        """Blocks by group; keys that begin with $ belong to the task, and rows of four to their
        owners."""

        def of(key: str) -> int:
            return TASK if key.startswith("$") else group_of(key)

        def of_row(row: Sequence[Any]) -> int:
            return of(row[3] if len(row) > 3 else row[0])

        groups = {of_row(row) for row in rows} | {of(key) for key in deleted}
        return {
            group: block(
                [row for row in rows if of_row(row) == group],
                [key for key in deleted if of(key) == group],
            )
            for group in groups
        }

    def epoch(
        self,
        tasks: Mapping[str, Sequence[Task]],
        *,
        version: int = 1,
        epoch: int = 7,
        timed: bool = False,
        history: str | None = None,
    ) -> None:
        """An epoch and its record. The first records had no history, the first manifests of version
        1 no time."""
        components = self.components(tasks, top=f"{self._topology}/", version=version, epoch=epoch)
        manifest = [self._topology, 1, epoch, components]
        if timed:
            manifest.append(1_700_000_000_000)
        self.write(
            f"{self._topology}/manifests/00000001-{epoch:012}",
            sealed(b"SQSTMAN" + bytes([version]), _pack(manifest)),
        )
        record = {
            "version": 3,
            "generation": 1,
            "coordinator": 1,
            "epoch": epoch,
            "manifest": {"generation": 1, "epoch": epoch, "what": "manifest"},
        }
        if history is not None:
            record["history"] = history
        body = _pack(record)
        self.write(f"{self._topology}/record", sealed(b"SQREC\0\0\x01", body))

    def savepoint(self, tasks: Mapping[str, Sequence[Task]], *, version: int = 1) -> None:
        """A savepoint whose place this folder is: the first ones had no time of their request."""
        components = self.components(tasks, top="", version=version, epoch=7)
        manifest = [self._topology, 1, 7, components, 1_700_000_000_000]
        body = _pack([self._topology, "before", f"{self._topology}@5be0117d9f31", manifest])
        self.write("savepoint", sealed(b"SQSTSAV" + bytes([version]), body))

    def stored(self, component: str, tasks: Sequence[Sequence[Sequence[Any]]]) -> None:
        """State of the provider `store`, by the rows of each task: its first layout, without a
        marker."""
        for index, rows in enumerate(tasks):
            sizes = (len(rows), len(rows), 0, True)
            data = segment(
                [self._topology, component, index, len(tasks), GROUPS, 1, 41, *sizes],
                [[]],
                self.blocks(rows),
            )
            folder = f"{self._topology}/{component}/{index:05}"
            self.write(f"{folder}/000001-5be0117d.fence", b"")
            self.write(f"{folder}/000001-5be0117d-000000000041.segment", data)
