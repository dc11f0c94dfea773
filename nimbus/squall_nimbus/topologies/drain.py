"""Decides from the workers' reports whether a topology whose spouts are off has drained.

One report says that one worker had nothing in flight at one moment; a tuple from another worker may
have arrived since. So Nimbus asks twice:

    all workers report drained   -> ask again: write the status anew, with a new zxid
    all report, for that writing, the same work as before   -> drained

A report names the writing of the status that switched the worker's spouts off, so the second
reports were all made after the last of the first had arrived. Between a worker's two reports it did
nothing. So at the moment between the two rounds no worker had anything in flight, no link carried
anything, and no spout could emit: nothing can follow (Mattern's four counters, 1987).

Reports from before the kill name another writing, those of a restarted worker another run, and a
worker without a report is not drained. A new leader begins again with the first round.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Set
from dataclasses import dataclass

from squall_common.cluster.values import WorkerDrained
from squall_common.topology.model import WorkerSlot


class Verdict(enum.Enum):
    """What follows from one look at the reports."""

    WAIT = "a worker has something in flight, or has not reported"
    ASK_AGAIN = "all have drained once: ask again, by writing the status anew"
    DRAINED = "nothing is in flight"


@dataclass(frozen=True, slots=True)
class DrainReading:
    """What Nimbus has read at one look."""

    status_zxid: int  # of the writing of /storms/ID
    slots: Set[WorkerSlot]  # of the topology's assignment
    placed: bool  # every executor has a slot
    reports: Mapping[WorkerSlot, WorkerDrained | None]  # from every worker that has a heartbeat


class DrainWatch:
    """The rounds of one wait."""

    def __init__(self) -> None:
        self._first: Mapping[WorkerSlot, tuple[str, int]] | None = None
        self._first_zxid = 0

    def look(self, reading: DrainReading) -> Verdict:
        """Take a reading, and decide."""
        if not reading.slots and not reading.reports:
            return Verdict.DRAINED  # it has no workers
        if not reading.slots or not reading.placed:
            return Verdict.WAIT  # workers that it once had may still run
        found: dict[WorkerSlot, tuple[str, int]] = {}
        for slot in reading.slots:
            report = reading.reports.get(slot)
            if report is None or report.status_zxid != reading.status_zxid:
                return Verdict.WAIT
            found[slot] = (report.run, report.work)
        if self._first == found and self._first_zxid != reading.status_zxid:
            return Verdict.DRAINED
        self._first, self._first_zxid = found, reading.status_zxid
        return Verdict.ASK_AGAIN
