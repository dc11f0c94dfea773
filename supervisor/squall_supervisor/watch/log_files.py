"""Finds the folders of workers' logs and deletes what `log_retention` chooses.

    {storm.log.dir}/workers-artifacts/TOPOLOGY_ID/PORT/...

The folder of a port belongs to its worker's user, who may create anything in it, so it is read
through descriptors, without following links. Everything here blocks; call it in a thread.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

from squall_common.daemon.logs import get_logger
from squall_supervisor.confine.ownership import opened_folder
from squall_supervisor.records.worker_dir import remove_worker_dir
from squall_supervisor.records.worker_record import read_launch
from squall_supervisor.settings import RetentionLimits
from squall_supervisor.watch.log_retention import LogEntry, Removal, WorkerLogs, plan_removals

log = get_logger(__name__)

# At most this many files of a subfolder are counted: a worker can create any number.
_COUNTED_MAX = 100_000


def clean_up_logs(
    artifacts_dir: Path,
    workers_dir: Path,
    limits: RetentionLimits,
    *,
    wanted: Collection[tuple[str, int]],
    now_secs: float,
) -> int:
    """Delete what is too old or too large; returns the number of deleted files and folders.
    `wanted` are the topologies and ports for which workers run or may start."""
    live = {artifacts_dir / topology_id / str(port) for topology_id, port in wanted}
    live |= _launched(workers_dir) | _written_to(artifacts_dir)
    found = scan_logs(artifacts_dir, live)
    removed: Counter[tuple[str, str, str]] = Counter()
    for removal in plan_removals(found, limits, now_secs):
        if _remove(artifacts_dir, removal):
            logs = removal.logs
            removed[logs.topology_id, logs.folder, removal.why] += 1
    for (topology_id, folder, why), count in removed.items():
        log.info("worker_logs_deleted", topology_id=topology_id, port=folder, why=why, count=count)
    return removed.total()


def scan_logs(artifacts_dir: Path, live: Collection[Path]) -> list[WorkerLogs]:
    """The current folders of logs."""
    found = []
    for topology in _folders(artifacts_dir):
        for folder in _folders(topology):
            logs = _scan(folder, live=folder in live)
            if logs is not None:
                found.append(logs)
    return found


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [Path(one.path) for one in entries if one.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _scan(folder: Path, *, live: bool) -> WorkerLogs | None:
    try:
        with opened_folder(folder) as fd:
            entries = tuple(sorted(_entries(fd), key=lambda entry: entry.name))
            modified_secs = os.fstat(fd).st_mtime
    except OSError:  # gone, or owned by another user while we are not root
        return None
    newest = max([modified_secs, *(entry.modified_secs for entry in entries)])
    return WorkerLogs(folder.parent.name, folder.name, live, newest, entries)


def _entries(folder_fd: int) -> Iterator[LogEntry]:
    for name in os.listdir(folder_fd):
        try:
            found = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if stat.S_ISDIR(found.st_mode):
            yield _tree(name, folder_fd, found.st_mtime)
        else:
            yield LogEntry(name, found.st_blocks * 512, found.st_mtime)


def _tree(name: str, folder_fd: int, modified_secs: float) -> LogEntry:
    total, count = 0, 0
    try:
        for _, _, files, fd in os.fwalk(name, dir_fd=folder_fd, follow_symlinks=False):
            for file in files:
                found = os.stat(file, dir_fd=fd, follow_symlinks=False)
                total += found.st_blocks * 512
                modified_secs = max(modified_secs, found.st_mtime)
            count += len(files)
            if count > _COUNTED_MAX:
                break
    except (OSError, RecursionError):  # it changes meanwhile, or is too deep: keep the count so far
        pass
    return LogEntry(name, total, modified_secs, is_folder=True)


def _launched(workers_dir: Path) -> set[Path]:
    """Folders of logs of workers that have not been cleaned up."""
    launches = (read_launch(folder) for folder in _folders(workers_dir))
    return {launch.artifacts_dir for launch in launches if launch is not None}


def _written_to(artifacts_dir: Path) -> set[Path]:
    """Folders in which any process has a file open: another supervisor of this machine may keep its
    workers' logs in the same place."""
    begin = f"{artifacts_dir}/"
    found = set()
    for name in os.listdir("/proc"):
        if not name.isdecimal():
            continue
        try:
            for fd in os.listdir(f"/proc/{name}/fd"):
                target = os.readlink(f"/proc/{name}/fd/{fd}")
                if target.startswith(begin):
                    topology_id, _, rest = target.removeprefix(begin).partition("/")
                    found.add(artifacts_dir / topology_id / rest.partition("/")[0])
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


def _remove(artifacts_dir: Path, removal: Removal) -> bool:
    topology = artifacts_dir / removal.logs.topology_id
    folder = topology / removal.logs.folder
    try:
        if removal.entry is None:
            # A worker may have been started there in between.
            if _scan(folder, live=False) != removal.logs:
                return False
            remove_worker_dir(folder)
            if not os.listdir(topology):
                topology.rmdir()
            return not folder.exists()
        with opened_folder(folder) as fd:
            if removal.entry.is_folder:
                shutil.rmtree(removal.entry.name, dir_fd=fd, ignore_errors=True)
            else:
                os.unlink(removal.entry.name, dir_fd=fd)
    except FileNotFoundError:
        return False
    except (OSError, RecursionError) as error:
        log.warning("worker_logs_not_deleted", folder=folder, error=error)
        return False
    return True
