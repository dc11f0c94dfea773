"""By what a worker proves to ZooKeeper which topology it belongs to: JSON, mode 0600, in its
folder.

Its supervisor writes it before the launch, and replaces it when the cluster's digest changes:

    {"payloads": ["words-1-17:6f1c..."], "daemons": [["digest", "squall:3iz..."]]}

`payloads` are shown to ZooKeeper, the current one first; `daemons` are the identities that get all
rights on what the worker makes. Where a cluster has no digest, there is no such file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

from squall_common.cluster.access.digests import Digests, StoreAccess, worker_access
from squall_common.cluster.access.lists import Identity

ZOOKEEPER_FILE = "zookeeper.json"
_BYTES_MAX = 65_536


def zookeeper_json(digests: Digests, topology_id: str) -> bytes:
    """The content of the file for a topology's workers."""
    value = {
        "payloads": digests.payloads_of(topology_id),
        "daemons": [[one.scheme, one.id] for one in digests.daemons()],
    }
    return json.dumps(value).encode()


def read_zookeeper_file(path: Path, topology_id: str) -> StoreAccess | None:
    """How a worker opens its sessions; None if there is no file. Raises OSError, and ValueError for
    a file that is not one of ours."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size > _BYTES_MAX:
                raise ValueError(f"{path} is too large")
            value = json.load(file)
    except FileNotFoundError:
        return None
    try:
        payloads = tuple(map(str, value["payloads"]))
        daemons = tuple(Identity(str(scheme), str(name)) for scheme, name in value["daemons"])
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a file of digests") from error
    return worker_access(topology_id, payloads, daemons)


class ZooKeeperFile:
    """Reads the file again when it is another one than before."""

    def __init__(self, path: Path, topology_id: str) -> None:
        self._path = path
        self._topology_id = topology_id
        self._seen: tuple[int, int] | None = None

    def read(self) -> StoreAccess | None:
        """What it says now. Raises OSError and ValueError."""
        return read_zookeeper_file(self._path, self._topology_id)

    def follow(self, take: Callable[[StoreAccess], None]) -> None:
        """Call `take` with the file's content if it changed since the last call. Raises OSError and
        ValueError."""
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return
        seen = (found.st_ino, found.st_mtime_ns)
        if seen != self._seen and (access := self.read()) is not None:
            self._seen = seen
            take(access)
