"""Gives workers the digests by which ZooKeeper knows them (decision 0130).

A worker that is launched has its file from the start. One that ran before gets it here, and the
next one when the cluster's digest changes. A worker of a version that knows no digests cannot use
it: this supervisor publishes the topologies of such workers, and Nimbus leaves their nodes open.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from squall_common.cluster.access.digests import Digests
from squall_common.daemon.logs import get_logger
from squall_common.worker_files.zookeeper_file import ZOOKEEPER_FILE, zookeeper_json
from squall_supervisor.blobs.credentials import give_file
from squall_supervisor.records.worker_record import read_launch
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

LOOK_SECS = 1.0


class ZooKeeperFiles:
    """`running()` returns the folders of the workers that run now, by port and topology;
    `changed()` is called when `without` says something else."""

    def __init__(
        self,
        digests: Digests,
        running: Callable[[], Mapping[tuple[int, str], Path]],
        changed: Callable[[], None],
    ) -> None:
        self._digests = digests
        self._running = running
        self._changed = changed
        self._given: dict[Path, bool] = {}  # whether its worker can use it
        self._last: tuple[str, ...] | None = None
        self._throttle = Throttle()

    def content_for(self, topology_id: str) -> bytes:
        """The file of a worker that is launched now."""
        return zookeeper_json(self._digests, topology_id)

    async def look(self) -> None:
        """Give the file to the workers that have none of this supervisor's; once each
        `LOOK_SECS`."""
        running = dict(self._running())
        folders = set(running.values())
        self._given = {folder: able for folder, able in self._given.items() if folder in folders}
        for (_, topology_id), folder in running.items():
            if folder not in self._given:
                await asyncio.to_thread(self._give, folder, topology_id)
        if (now := self.without()) != self._last:
            self._last = now
            self._changed()

    def without(self) -> tuple[str, ...]:
        """The topologies of workers here that cannot show a digest, or cannot yet; sorted."""
        return tuple(
            sorted(
                {
                    topology_id
                    for (_, topology_id), folder in self._running().items()
                    if not self._given.get(folder, False)
                }
            )
        )

    def published(self) -> str:
        """The same, as this supervisor's entry in ZooKeeper has it."""
        return json.dumps(self.without(), separators=(",", ":"))

    def _give(self, folder: Path, topology_id: str) -> None:
        spec = read_launch(folder)
        try:
            give_file(folder, ZOOKEEPER_FILE, self.content_for(topology_id))
        except OSError as error:  # its worker has just ended, or the disk is full
            if (left_out := self._throttle.left_out(folder.name)) is not None:
                log.warning(
                    "zookeeper_digest_not_given",
                    worker_id=folder.name,
                    error=error,
                    left_out=left_out,
                )
        else:
            self._given[folder] = spec is not None and spec.shows_digest
