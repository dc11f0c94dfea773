"""The topologies of this node as they were last read, in memory and on disk: for workers that are
started while ZooKeeper is away, by this supervisor or by the next one.

    {storm.local.dir}/supervisor/last-known/TOPOLOGY_ID

Files are written in a thread after each change, and nothing waits for that: after a full disk, or a
crash in between, a worker that starts without ZooKeeper gets what was on disk before.

This knowledge is valid only while a supervisor was here: Nimbus moves the work of a node whose
supervisor was silent for a session timeout. A supervisor that was away for that long (stopped,
replaced, or the machine was off) may know something out of date, and gives nothing out until it has
read ZooKeeper. The file `alive` beside the folder says until when there was one, and in which boot.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from squall_common.cluster.values import StormBase
from squall_common.daemon.files import make_dirs, write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.names import encode_znode
from squall_common.worker_files.last_known import LastKnown
from squall_supervisor.records.assignments import Assignments, Unreadable

log = get_logger(__name__)


class LastKnownTopologies:
    """`take` each reading; `of` returns the record for a worker. Call `live` every few seconds, and
    before the first call of `of`. Times are `Clock.boottime`."""

    def __init__(
        self, folder: Path, tasks: BackgroundTasks, *, boot_id: str, away_secs_max: float
    ) -> None:
        self._folder = folder
        self._tasks = tasks
        self._boot_id = boot_id
        self._away_secs_max = away_secs_max
        self._holds = True
        self._alive_at = self._read_alive()
        self._known: dict[str, LastKnown] = {}
        self._unsaved: set[str] = set()
        self._saving: asyncio.Task[None] | None = None

    def take(self, node: str, assignments: Assignments, bases: Mapping[str, StormBase]) -> None:
        """Remember the topologies that have work on `node`. One that could not be read stays as it
        was; one that is gone, or has moved, is forgotten."""
        self._holds = True
        before = self._known
        self._known = {
            topology_id: one
            for topology_id, read in assignments.items()
            if (one := _merge(node, read, bases.get(topology_id), before.get(topology_id)))
        }
        self._unsaved |= {i for i, one in self._known.items() if before.get(i) != one}
        if (self._unsaved or before.keys() != self._known.keys()) and self._saving is None:
            self._saving = self._tasks.start("last known topologies", self._save())

    def of(self, topology_id: str) -> bytes | None:
        """The record that a worker gets to read. May be called in any thread; reads the disk for
        topologies that this supervisor has not read itself."""
        if not self._holds:
            return None
        known = self._known.get(topology_id)
        if known is not None:
            return known.serialize()
        try:
            data = self._path(topology_id).read_bytes()
            LastKnown.parse(data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.error("last_known_unreadable", topology_id=topology_id, error=error)
            return None
        return data

    def live(self, now: float) -> None:
        """Record that a supervisor is alive; blocks for a small write."""
        if self._alive_at is None or not 0 <= now - self._alive_at < self._away_secs_max:
            self._holds = False
        self._alive_at = now
        try:
            self._alive_file.write_text(json.dumps([self._boot_id, now]))
        except OSError as error:
            log.error("last_known_not_written", path=self._alive_file, error=error)

    @property
    def _alive_file(self) -> Path:
        return self._folder.with_name("alive")

    def _read_alive(self) -> float | None:
        """Until when there was a supervisor in this boot, if known."""
        try:
            boot_id, alive_at = json.loads(self._alive_file.read_bytes())
        except (OSError, ValueError, TypeError):
            return None
        if boot_id != self._boot_id or not isinstance(alive_at, int | float):
            return None
        return float(alive_at)

    async def close(self) -> None:
        """Wait for the write that is under way."""
        if self._saving is not None:
            await asyncio.gather(self._saving, return_exceptions=True)

    def _path(self, topology_id: str) -> Path:
        return self._folder / encode_znode(topology_id)

    async def _save(self) -> None:
        try:
            while True:
                known, unsaved, self._unsaved = self._known, self._unsaved, set()
                try:
                    await asyncio.to_thread(self._write, known, unsaved)
                except OSError as error:
                    self._unsaved |= unsaved  # with the next reading that differs
                    log.error("last_known_not_written", folder=self._folder, error=error)
                    return
                if self._known is known or self._known == known:
                    return
        finally:
            self._saving = None

    def _write(self, known: Mapping[str, LastKnown], unsaved: set[str]) -> None:
        make_dirs(self._folder, mode=0o700)
        for topology_id in sorted(unsaved & known.keys()):
            write_atomic(self._path(topology_id), known[topology_id].serialize(), mode=0o600)
        keep = {encode_znode(topology_id) for topology_id in known}
        for path in self._folder.iterdir():
            if path.name not in keep:  # and files that a crash left half written
                path.unlink(missing_ok=True)


def _merge(
    node: str, read: object, base: StormBase | None, before: LastKnown | None
) -> LastKnown | None:
    if isinstance(read, Unreadable):
        return before
    assert isinstance(read, tuple)
    assignment = read[0]
    if all(slot.node != node for slot in assignment.executor_slot.values()):
        return None
    return LastKnown(assignment, base or (before.base if before else None))
