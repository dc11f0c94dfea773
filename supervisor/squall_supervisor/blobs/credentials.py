"""Gives workers the newest credentials of their topologies.

ZooKeeper says only that there are others (the version of their blob); Nimbus has them. A worker's
folder may belong to the topology's user, so nothing in it is trusted: the file is made in the
folder that a descriptor leads to, and stays the supervisor's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import StoreError
from squall_common.daemon.logs import get_logger
from squall_common.names import credentials_blob_key
from squall_common.security.credentials import BYTES_MAX, CREDENTIALS_FILE
from squall_supervisor.blobs.localizer import Localizer
from squall_supervisor.blobs.source import LocalizeError
from squall_supervisor.confine.ownership import opened_folder, read_own

log = get_logger(__name__)


class CredentialsUpdates:
    """`running()` returns the folders of the workers that run now, by topology."""

    def __init__(
        self,
        cluster: ClusterState,
        localizer: Localizer,
        running: Callable[[], Mapping[str, list[Path]]],
    ) -> None:
        self._cluster = cluster
        self._localizer = localizer
        self._running = running
        self._seen: dict[str, int] = {}  # topology -> version of the blob that was fetched

    async def look(self) -> None:
        """Fetch what has changed, and give it to the workers; once each
        `task.credentials.poll.secs`."""
        running = self._running()
        self._seen = {one: version for one, version in self._seen.items() if one in running}
        for topology_id, worker_dirs in running.items():
            try:
                await self._update(topology_id)
            except (StoreError, LocalizeError) as error:
                log.info("credentials_not_updated", topology_id=topology_id, error=error)
            await asyncio.to_thread(self._give, topology_id, worker_dirs)

    async def _update(self, topology_id: str) -> None:
        found = await self._cluster.blob(credentials_blob_key(topology_id))
        if found is None:
            return
        version = found[0].meta.version
        if self._seen.get(topology_id) == version:
            return
        if await self._localizer.update_credentials(topology_id):
            log.info("credentials_updated", topology_id=topology_id)
        self._seen[topology_id] = version

    def _give(self, topology_id: str, worker_dirs: list[Path]) -> None:
        """Workers that were started just before an update get it here, too."""
        try:
            data = (self._localizer.path_of(topology_id) / CREDENTIALS_FILE).read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            log.warning("credentials_unreadable", topology_id=topology_id, error=error)
            return
        for worker_dir in worker_dirs:
            try:
                give_credentials(worker_dir, data)
            except OSError as error:  # its worker has just ended, or the disk is full
                log.warning("credentials_not_given", worker_id=worker_dir.name, error=error)


def give_credentials(worker_dir: Path, data: bytes) -> bool:
    """Make `data` the credentials of a running worker; return False if they are. Raises OSError."""
    with contextlib.suppress(OSError, ValueError):
        if read_own(worker_dir / CREDENTIALS_FILE, bytes_max=8 * BYTES_MAX) == data:
            return False
    give_file(worker_dir, CREDENTIALS_FILE, data)
    return True


def give_file(worker_dir: Path, name: str, data: bytes) -> None:
    """Make or replace a file in a worker's folder, for the worker's user alone. Raises OSError."""
    with opened_folder(worker_dir) as folder:
        mine = os.fstat(folder).st_uid == os.geteuid()
        temporary = f".squall-{uuid.uuid4()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(temporary, flags, 0o600, dir_fd=folder)
            with open(fd, "wb") as file:
                file.write(data)
                if not mine:  # the folder itself lets only its user in
                    os.fchmod(file.fileno(), 0o644)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            raise
