"""What a cluster holds on to: files that its daemons have open, their memory, nodes in ZooKeeper,
connections to it, folders of workers. Before and after many faults it must be the same (R17).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.cluster.state import ERRORS_KEPT

if TYPE_CHECKING:
    from tests.support.netcluster import NetCluster


@dataclass(frozen=True, slots=True)
class Footprint:
    """By the name of the daemon's node."""

    open_files: Mapping[str, int]
    rss_bytes: Mapping[str, int]
    worker_folders: Mapping[str, int]
    znodes: frozenset[str]  # but topologies' errors
    errors: Mapping[str, int]  # by the path of their component; a lost worker leaves some
    connections: int  # to ZooKeeper

    @classmethod
    def take(cls, cluster: NetCluster) -> Footprint:
        """Of Nimbus, supervisors and ZooKeeper as they run now."""
        from tests.support.netcluster import NIMBUSES, SUPERVISORS

        daemons = {name: cluster.processes[name].pid for name in (*NIMBUSES, *SUPERVISORS)}
        with cluster.zookeeper() as client:
            znodes = frozenset(walk(client, "/storm"))
        # fnmatch's star matches slashes: all that is below a topology's errors, and single errors.
        below_errors = {path for path in znodes if fnmatch(path, "/storm/errors/*/*")}
        errors = [path for path in below_errors if fnmatch(path, "/storm/errors/*/*/e*")]
        return cls(
            {name: len(list(Path(f"/proc/{pid}/fd").iterdir())) for name, pid in daemons.items()},
            {name: _rss_bytes(pid) for name, pid in daemons.items()},
            {
                name: len(list((cluster.local_dir(name) / "workers").iterdir()))
                for name in SUPERVISORS
            },
            znodes - below_errors,
            Counter(path.rpartition("/")[0] for path in errors),
            cluster.zookeeper_connections(),
        )

    def grown_since(self, before: Footprint) -> list[str]:
        """What there is more of than before, memory aside."""
        grown = [
            f"{what} of {name}: {now[name]}, was {then[name]}"
            for what, now, then in (
                ("open files", self.open_files, before.open_files),
                ("folders of workers", self.worker_folders, before.worker_folders),
            )
            for name in now
            if now[name] > then[name]
        ]
        if self.connections > before.connections:
            grown.append(f"connections to ZooKeeper: {self.connections}, were {before.connections}")
        for path, count in self.errors.items():
            if count > max(ERRORS_KEPT, before.errors.get(path, 0)):
                grown.append(f"errors below {path}: {count}, at most {ERRORS_KEPT} are kept")
        return grown + [f"znode {path}" for path in sorted(self.znodes - before.znodes)]

    def memory_since(self, before: Footprint) -> dict[str, float]:
        """Each daemon's memory as a multiple of what it was."""
        return {name: round(self.rss_bytes[name] / before.rss_bytes[name], 3)
                for name in self.rss_bytes}  # fmt: skip


def walk(client: Any, path: str) -> Iterator[str]:
    """Every path below one (a KazooClient, which has no types)."""
    from kazoo.exceptions import NoNodeError

    try:
        children = client.get_children(path)
    except NoNodeError:  # it went meanwhile
        return
    for child in children:
        below = f"{path.rstrip('/')}/{child}"
        yield below
        yield from walk(client, below)


def _rss_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} has ended")
