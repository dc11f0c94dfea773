"""Chooses which of the workers' logs to delete: by age, by the size of one worker's logs and by the
size of all (Storm's LogCleaner, with its `logviewer.cleanup.*` and `logviewer.max.*` keys).

    age                 a folder of a worker that is gone, in which nothing has changed for so long
    one worker's size   its oldest files, until the rest fits
    all workers' size   the oldest files of all, until the rest fits

What a living worker writes to now is never chosen, so that its logs may stay above a limit until it
turns them over. Decisions only: `log_files` looks and deletes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from squall_supervisor.settings import RetentionLimits

# Of a living worker: what it has open, as its name says. Storm's LogConstants has the same ends.
_CURRENT = re.compile(r".*\.(log|err|out|current|yaml|pid|metrics)")

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A file, or a folder with all that is in it."""

    name: str
    bytes: int
    modified_secs: float
    is_folder: bool = False


@dataclass(frozen=True, slots=True)
class WorkerLogs:
    """The folder of one worker's logs: of a port, over all the workers it has had."""

    topology_id: str
    folder: str
    live: bool
    modified_secs: float  # of the folder or, if that is later, of anything in it
    entries: tuple[LogEntry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries)

    def deletable(self) -> Iterator[LogEntry]:
        """What may go before the folder as a whole does."""
        for entry in self.entries:
            if not self.live or not (entry.is_folder or _CURRENT.fullmatch(entry.name)):
                yield entry


@dataclass(frozen=True, slots=True)
class Removal:
    """An entry to delete; None: the whole folder."""

    logs: WorkerLogs
    entry: LogEntry | None
    why: str


def plan_removals(
    found: Sequence[WorkerLogs], limits: RetentionLimits, now_secs: float
) -> list[Removal]:
    """What to delete. `now_secs` and times of modification are of one clock."""
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
    """The oldest entries, until they make up for what is too much."""
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
