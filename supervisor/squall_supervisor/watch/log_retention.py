"""Chooses which of the workers' logs to delete: by age, by the size of one worker's logs and by the
size of all (Storm's LogCleaner, with its `logviewer.cleanup.*` and `logviewer.max.*` keys).

    age                 a folder of a worker that is gone, where nothing has changed for that long
    one worker's size   its oldest files, until the rest fits
    all workers' size   the oldest files of all, until the rest fits

Files that a living worker is writing to are never chosen, so its logs may stay above a limit until
they are rotated. This module only decides: `log_files` reads and deletes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from squall_supervisor.settings import RetentionLimits

# Names of files that a living worker has open. Storm's LogConstants has the same suffixes.
_CURRENT = re.compile(r".*\.(log|err|out|current|yaml|pid|metrics)")

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A file, or a folder with everything in it."""

    name: str
    bytes: int
    modified_secs: float
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class WorkerLogs:
    """The folder of the logs of one port, with those of all workers it has had."""

    topology_id: str
    folder: str
    live: bool
    modified_secs: float  # of the folder or, if that is later, of anything in it
    entries: tuple[LogEntry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)

    def deletable(self) -> Iterator[LogEntry]:
        """Entries that may be deleted before the folder as a whole."""
        for entry in self.entries:
            if not self.live or not (entry.is_folder or _CURRENT.fullmatch(entry.name)):
                yield entry


@dataclass(frozen=True, slots=True)
class Removal:
    """An entry to delete; None means the whole folder."""

    logs: WorkerLogs
    entry: LogEntry | None
    why: str


def plan_removals(
    found: Sequence[WorkerLogs], limits: RetentionLimits, now_secs: float
) -> list[Removal]:
    """What to delete. `now_secs` and modification times are of the same clock."""
    removals = []
    kept = []
    for logs in found:
        if not logs.live and now_secs - logs.modified_secs > limits.age_secs:
            removals.append(Removal(logs, None, "age"))
        else:
            kept.append(logs)
    for logs in kept:
        removals += _oldest([logs], logs.bytes - limits.worker_bytes, "size of one worker's logs")
    gone = {(id(one.logs), one.entry.name) for one in removals if one.entry is not None}
    total = sum(
        entry.bytes for logs in kept for entry in logs.entries if (id(logs), entry.name) not in gone
    )
    removals += _oldest(kept, total - limits.sum_bytes, "size of all workers' logs", gone)
    return removals


def _oldest(
    found: Iterable[WorkerLogs],
    excess_bytes: int,
    why: str,
    gone: frozenset[tuple[int, str]] | set[tuple[int, str]] = frozenset(),
) -> Iterator[Removal]:
    """The oldest entries, until they make up for the excess."""
    if excess_bytes <= 0:
        return
    candidates = [
        (entry.modified_secs, entry.name, logs, entry)
        for logs in found
        for entry in logs.deletable()
        if (id(logs), entry.name) not in gone
    ]
    for _, _, logs, entry in sorted(candidates, key=lambda one: one[:2]):
        yield Removal(logs, entry, why)
        excess_bytes -= entry.bytes
        if excess_bytes <= 0:
            return
