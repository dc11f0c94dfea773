"""Passes the heartbeats of this node's workers on to Nimbus, many in one call.

Each worker lays its heartbeat into its folder (`squall_common.worker_files.report_file`). Which
topology, slot and executors it reports for is what the supervisor started it for: a worker cannot
report for another. What was delivered is removed, which tells the worker that its supervisor does
this for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from squall_common.client.reporting import ReportSender, Way
from squall_common.cluster.values import WorkerReport
from squall_common.daemon.logs import get_logger
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.worker_files.report_file import read_report, remove_report
from squall_supervisor.slots.runner import SlotRunner

log = get_logger(__name__)


def look_secs(period_secs: float) -> float:
    """How often to look, for workers that report once a period: a report waits for a twelfth of it
    on average."""
    return min(1.0, period_secs / 6)


@dataclass(frozen=True, slots=True)
class _Worker:
    folder: Path
    topology_id: str
    slot: WorkerSlot
    executors: tuple[Executor, ...]
    run: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Found:
    report: WorkerReport
    folder: Path
    inode: int


class WorkerReports:
    """`look` is called regularly, one call at a time."""

    def __init__(
        self,
        runners: Mapping[int, SlotRunner],
        sender: ReportSender,
        *,
        supervisor_id: str,
        workers_dir: Path,
    ) -> None:
        self._runners = runners
        self._sender = sender
        self._supervisor_id = supervisor_id
        self._workers_dir = workers_dir
        self._bad: set[Path] = set()  # folders whose report could not be read; logged

    async def look(self) -> None:
        """Deliver what there is."""
        workers = self._workers()
        if not workers:
            return
        found = await asyncio.to_thread(self._read, workers)
        if not found:
            return
        way = await self._sender.send([one.report for one in found])
        if way is not Way.NOWHERE:
            await asyncio.to_thread(_remove, found)

    async def close(self) -> None:
        await self._sender.close()

    def _workers(self) -> list[_Worker]:
        found = []
        for port, runner in self._runners.items():
            process, assignment, run = runner.process, runner.slot.assignment, runner.incarnation
            if process is not None and assignment is not None and run is not None:
                found.append(
                    _Worker(
                        self._workers_dir / process.worker_id,
                        assignment.topology_id,
                        WorkerSlot(self._supervisor_id, port),
                        assignment.executors,
                        (run.assignment_zxid, run.launch),
                    )
                )
        return found

    def _read(self, workers: Sequence[_Worker]) -> list[_Found]:
        found = []
        for one in workers:
            try:
                read = read_report(one.folder)
            except (OSError, ValueError) as error:
                if one.folder not in self._bad:
                    self._bad.add(one.folder)
                    log.warning("report_not_read", folder=one.folder, error=error)
                continue
            if read is not None:
                report = WorkerReport(
                    one.topology_id,
                    one.slot,
                    one.executors,
                    read.time_secs,
                    one.run,
                    read.heartbeat,
                )
                found.append(_Found(report, one.folder, read.inode))
        self._bad &= {one.folder for one in workers}
        return found


def _remove(found: Sequence[_Found]) -> None:
    for one in found:
        try:
            remove_report(one.folder, one.inode)
        except OSError as error:  # its worker then reports alone as well
            log.warning("report_not_removed", folder=one.folder, error=error)
