"""Passes the heartbeats of this node's workers on to Nimbus, many in one call.

Each worker lays its heartbeat into its folder (`squall_common.worker_files.report_file`). Which
topology, slot and executors it reports for is what the supervisor started it for: a worker cannot
report for another. What was delivered is removed, which tells the worker that its supervisor does
this for it.

Nimbus answers which topologies somebody watches. Their workers are let know (`watch_file`), and
their reports are looked for more often. Those of large topologies also lay sums by component there
(`sums_file`), which are passed on in the same way but are not waited for: they are no heartbeat.
Nimbus also answers that somebody asks about the state of tasks (`state_questions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from squall_common.client.reporting import ReportSender, Way
from squall_common.cluster.values import SumsReport, WorkerReport
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.topology.model import Executor, WorkerSlot
from squall_common.worker_files.report_file import read_report, remove_report
from squall_common.worker_files.sums_file import take_sums
from squall_common.worker_files.watch_file import Pace, pace_of, write_watch
from squall_supervisor.slots.runner import SlotRunner
from squall_supervisor.watch.state_questions import StateQuestions

log = get_logger(__name__)


def look_secs(period_secs: float) -> float:
    """How often to look, for workers that report once a period: a report waits for a twelfth of it
    on average."""
    return min(1.0, period_secs / 6)


# How long workers report more often after Nimbus has said so, and how often they are let know.
_WATCH_SECS = 8.0
_WATCH_AGAIN_SECS = 2.0
# Reports of watched topologies are looked for this many times a period of theirs.
_LOOKS = 3


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
    """`run` looks regularly."""

    def __init__(
        self,
        runners: Mapping[int, SlotRunner],
        sender: ReportSender,
        *,
        supervisor_id: str,
        workers_dir: Path,
        period_secs: float,
        clock: Clock,
    ) -> None:
        """`period_secs`: workers report once in this time."""
        self._runners = runners
        self._sender = sender
        self._period_secs = period_secs
        self._clock = clock
        self._supervisor_id = supervisor_id
        self._workers_dir = workers_dir
        self._bad: set[Path] = set()  # folders whose report could not be read; logged
        # Folders of workers that were let know that they are watched, and when.
        self._watched_at: dict[Path, float] = {}
        self._watch_failed = False
        self._questions = StateQuestions(sender, clock=clock)

    async def run(self) -> None:
        """Deliver reports until cancelled."""
        while True:
            await asyncio.sleep(self._pause_secs())
            try:
                await self.look()
            except Exception as error:
                log.error("reports_not_delivered", error=error, exc_info=error)

    def _pause_secs(self) -> float:
        paces = self._paces(self._workers()).values()
        soonest = (one.sums_secs or one.report_secs for one in paces)
        looks = [look_secs(self._period_secs), *(secs / _LOOKS for secs in soonest)]
        return min([*looks, self._questions.pause_secs])

    def _paces(self, workers: Iterable[_Worker]) -> dict[Path, Pace]:
        """How often the workers are to report whose topology is watched, by folder."""
        watched = self._sender.watched
        found = {
            one.folder: pace_of(watched[one.topology_id], len(one.executors))
            for one in workers
            if one.topology_id in watched
        }
        # (Of many small workers that are watched, neither comes more often than usual.)
        return {
            folder: pace
            for folder, pace in found.items()
            if (pace.sums_secs or pace.report_secs) < self._period_secs
        }

    async def look(self) -> None:
        """Deliver what there is."""
        workers = self._workers()
        if not workers:
            return
        found = await asyncio.to_thread(self._read, workers)
        if found:
            await self._send(workers, found)
        paces = self._paces(workers)
        fast = [one for one in workers if one.folder in paces and paces[one.folder].sums_secs]
        if fast:
            await self._sender.send_sums(await asyncio.to_thread(self._take_sums, fast))
        if self._questions.are_open:
            folders = {(one.topology_id, one.slot.port): one.folder for one in workers}
            await self._questions.pass_on(folders)

    async def _send(self, workers: Sequence[_Worker], found: Sequence[_Found]) -> None:
        way = await self._sender.send([one.report for one in found])
        if way is not Way.NOWHERE:
            folders = {one.folder for one in workers}
            self._watched_at = {f: at for f, at in self._watched_at.items() if f in folders}
            watched = self._to_let_know(workers)
            await asyncio.to_thread(_remove, found)
            if watched:
                await asyncio.to_thread(self._let_know, watched)

    def _to_let_know(self, workers: Iterable[_Worker]) -> dict[Path, Pace]:
        """Those of the workers whose topology is watched that are due to be let know again."""
        now = self._clock.monotonic()
        return {
            folder: pace
            for folder, pace in self._paces(workers).items()
            if now - self._watched_at.get(folder, float("-inf")) >= _WATCH_AGAIN_SECS
        }

    def _let_know(self, watched: Mapping[Path, Pace]) -> None:
        now = self._clock.monotonic()
        for folder, pace in watched.items():
            try:
                write_watch(folder, pace, now + _WATCH_SECS)
                self._watched_at[folder] = now
                self._watch_failed = False
            except OSError as error:  # the disk is full, or the worker has ended
                if not self._watch_failed:
                    log.info("watch_not_written", folder=folder, error=error)
                self._watch_failed = True

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

    def _take_sums(self, workers: Sequence[_Worker]) -> list[SumsReport]:
        found = []
        for one in workers:
            try:
                sums = take_sums(one.folder)
            except (OSError, ValueError) as error:
                if one.folder not in self._bad:
                    self._bad.add(one.folder)
                    log.warning("sums_not_read", folder=one.folder, error=error)
                continue
            if sums is not None:
                found.append(SumsReport(one.topology_id, one.slot, one.run, sums))
        return found


def _remove(found: Sequence[_Found]) -> None:
    for one in found:
        try:
            remove_report(one.folder, one.inode)
        except OSError as error:  # its worker then reports alone as well
            log.warning("report_not_removed", folder=one.folder, error=error)
