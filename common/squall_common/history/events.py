"""The daemons' part in the history of topologies: adding events, and removing old files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

from squall_common.daemon.clock import Clock
from squall_common.daemon.folders import Folder
from squall_common.daemon.logs import get_logger
from squall_common.history.schema import TEXT_CHARS_MAX, Row
from squall_common.history.settings import is_on
from squall_common.history.writer import HistoryWriter, expire

log = get_logger(__name__)

_ROTATION_SECS = 5.0
_TOPOLOGIES_MAX = 10_000
EXPIRE_EVERY_SECS = 3600.0


class DaemonHistory:
    """The events of one daemon. Nothing is started before a topology that has a history has one."""

    def __init__(
        self,
        url: str,
        *,
        retention_hours: float = 0.0,
        name: str,
        clock: Clock,
        topology_conf: Callable[[str], Mapping[str, Any]],
    ) -> None:
        """`url` is that of `history_url`; files of more than `retention_hours` expire, and none at
        0. `name` (a role and a place) names the daemon in the rows.
        `topology_conf(topology_id)` gives a topology's configuration as it is now; it raises
        LookupError when it is not here yet, or gone."""
        self._folder = Folder(url)
        self._retention_hours = retention_hours
        self._name = name
        self._clock = clock
        self._topology_conf = topology_conf
        self._on: dict[str, bool] = {}  # by topology id, as it was when it was last read
        self._writer: HistoryWriter | None = None

    def is_on(self, topology_id: str) -> bool:
        """Whether the topology has a history, by its configuration: a rebalance may have changed
        it. Of one whose configuration is gone, as it was."""
        try:
            found = is_on(self._topology_conf(topology_id))
        except LookupError:
            pass
        except Exception as error:  # damaged: no reason to end a daemon
            log.warning("history_of_topology_unknown", topology_id=topology_id, error=error)
        else:
            if topology_id not in self._on and len(self._on) >= _TOPOLOGIES_MAX:
                self._on.clear()
            self._on[topology_id] = found
        return self._on.get(topology_id, False)

    @property
    def known(self) -> list[str]:
        """Ids of the topologies that are known to have a history."""
        return [topology_id for topology_id, on in self._on.items() if on]

    def record_event(self, topology_id: str, name: str, text: str = "", place: str = "") -> None:
        """Something happened to a topology, at a slot (host:port) if `place` says so. Never waits,
        never raises."""
        if not self.is_on(topology_id):
            return
        if self._writer is None:
            started_ms = int(self._clock.time() * 1000)
            self._writer = HistoryWriter(
                self._folder,
                worker=self._name,
                incarnation=f"{started_ms:x}.{os.getpid()}",
                clock=self._clock,
                rotation_secs=_ROTATION_SECS,
            )
            self._writer.start()
        at_ms = int(self._clock.time() * 1000)
        text = text[:TEXT_CHARS_MAX]
        self._writer.add(topology_id, [Row(at_ms, "event", name, stream=place, text=text)])

    def forget(self, topology_id: str) -> None:
        """The topology is gone."""
        self._on.pop(topology_id, None)

    async def expire(self) -> None:
        """Delete what is older than storm.history.retention.hours. Of several daemons that share
        the folder all may do it."""
        if not self._retention_hours:
            return
        folder = self._folder
        before = self._clock.time() - 3600 * self._retention_hours
        try:
            deleted = await asyncio.to_thread(expire, folder, before)
        except Exception as error:  # of a URL's file system: anything
            log.warning("history_not_expired", folder=folder.url, error=error)
            return
        if deleted:
            log.info("history_expired", folder=folder.url, files=deleted)

    async def close(self, secs: float = 2.0) -> None:
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close, secs)
