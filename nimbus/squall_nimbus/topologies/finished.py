"""Topologies that have run: kept on this Nimbus' disk, so that their logs can still be found."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from squall_common.daemon.files import write_atomic
from squall_common.daemon.logs import get_logger

log = get_logger(__name__)

_ENTRIES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class FinishedTopology:
    """A topology that was removed at `time_secs` (epoch)."""

    topology_id: str
    owner: str | None
    time_secs: int


class FinishedTopologies:
    """The last removed topologies, oldest first; at most 1000, and none older than the age."""

    def __init__(self, file: Path, *, age_secs_max: float) -> None:
        self._file = file
        self._age_secs_max = age_secs_max
        self._entries: dict[str, FinishedTopology] = {}

    def open(self) -> None:
        """Read the file; if it cannot be read, start a new one (nothing depends on it)."""
        try:
            entries = json.loads(self._file.read_bytes())
            self._entries = {e["topology_id"]: FinishedTopology(**e) for e in entries}
        except FileNotFoundError:
            self._file.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError, TypeError, KeyError) as error:
            log.warning("history_unreadable", file=self._file, error=error)

    def add(self, topology_id: str, owner: str | None, now_epoch_secs: int) -> None:
        """Remember a topology that is being removed; repeating this changes nothing. If the disk is
        full, it is remembered until the next restart: a removal, which frees space on the disk,
        does not wait for the write."""
        if topology_id in self._entries:
            return
        self._entries[topology_id] = FinishedTopology(topology_id, owner, now_epoch_secs)
        self._prune(now_epoch_secs)
        data = json.dumps([asdict(entry) for entry in self._entries.values()]).encode()
        try:
            write_atomic(self._file, data)
        except OSError as error:
            log.warning("history_not_written", file=self._file, error=error)

    def ids(self, now_epoch_secs: int) -> list[str]:
        """Return the remembered ids."""
        return [one.topology_id for one in self.entries(now_epoch_secs)]

    def entries(self, now_epoch_secs: int) -> list[FinishedTopology]:
        """Return what is remembered."""
        self._prune(now_epoch_secs)
        return list(self._entries.values())

    def _prune(self, now_epoch_secs: int) -> None:
        oldest = now_epoch_secs - self._age_secs_max
        kept = [e for e in self._entries.values() if e.time_secs >= oldest][-_ENTRIES_MAX:]
        self._entries = {entry.topology_id: entry for entry in kept}
