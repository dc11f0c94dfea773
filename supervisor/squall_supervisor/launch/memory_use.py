"""How much memory the processes of a worker and its descendants use, from /proc."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from squall_supervisor.records.processes import ProcessIdentity, all_stats

_PROC = Path("/proc")
_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


def memory_of_workers(leaders: Collection[ProcessIdentity]) -> dict[int, int]:
    """Bytes that each worker's processes hold together, by the worker's pid: the worker, the
    processes of the session that it leads, and their descendants. Workers that have ended are left
    out. Reads all of /proc once.

    The figure is the sum of their resident sets, which counts pages that forked children share once
    for each of them. `exact_memory_of_worker` counts them once, at a cost that is worth paying only
    near a limit.
    """
    return {pid: sum(map(_resident, members)) for pid, members in _members(leaders).items()}


def exact_memory_of_worker(leader: ProcessIdentity) -> int | None:
    """The same for one worker, with each shared page divided by the number of processes that share
    it; None if the worker has ended. A process that cannot be inspected this closely counts with
    its resident set."""
    members = _members([leader]).get(leader.pid)
    if members is None:
        return None
    return sum(_proportional(pid) for pid in members)


def _members(leaders: Collection[ProcessIdentity]) -> dict[int, list[int]]:
    living = {stat.pid: stat for stat in all_stats() if not stat.ended}
    wanted = {
        one.pid: one.pid
        for one in leaders
        if one.pid in living and living[one.pid].start_ticks == one.start_ticks
    }
    owner: dict[int, int | None] = {}

    def owner_of(pid: int) -> int | None:
        """The worker that a process belongs to; found along its parents, each looked at once."""
        trail = []
        found: int | None = None
        while pid in living and pid not in owner:
            stat = living[pid]
            owner[pid] = None  # also ends a cycle, should pids change hands while we read
            trail.append(pid)
            found = wanted.get(pid) or wanted.get(stat.session)
            if found is not None:
                break
            pid = stat.parent
        else:
            found = owner.get(pid)
        for one in trail:
            owner[one] = found
        return found

    members: dict[int, list[int]] = {pid: [] for pid in wanted}
    for pid in living:
        worker = owner_of(pid)
        if worker is not None:
            members[worker].append(pid)
    return members


def _resident(pid: int) -> int:
    try:
        return int((_PROC / str(pid) / "statm").read_bytes().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0


def _proportional(pid: int) -> int:
    try:
        for line in (_PROC / str(pid) / "smaps_rollup").read_bytes().splitlines():
            if line.startswith(b"Pss:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except (OSError, ValueError, IndexError):
        pass
    return _resident(pid)
