"""Finds the workers that this node has, from their folders and the process table, and removes the
leftovers of workers that ended while no supervisor watched."""

from __future__ import annotations

import os
from pathlib import Path

from squall_common.daemon.logs import get_logger
from squall_supervisor.confine.cgroups import Cgroups
from squall_supervisor.launch.machine import Machine
from squall_supervisor.launch.worker_process import WORKER_ID_VARIABLE, WorkerProcess
from squall_supervisor.records.processes import ProcessIdentity
from squall_supervisor.records.worker_dir import remove_worker_dir
from squall_supervisor.records.worker_record import LAUNCH_FILE, WorkerRecord, read_launch
from squall_supervisor.slots.adoption import FoundWorker

log = get_logger(__name__)


def find_workers(machine: Machine, workers_dir: Path) -> list[FoundWorker]:
    """Every folder under `workers_dir`, with what is known of its worker. Blocks: reads files, and
    all of /proc if a record does not identify its process."""
    try:
        names = sorted(os.listdir(workers_dir))
    except FileNotFoundError:
        return []
    return [_find(machine, workers_dir / name) for name in names if (workers_dir / name).is_dir()]


def _find(machine: Machine, worker_dir: Path) -> FoundWorker:
    launch = read_launch(worker_dir)
    record: WorkerRecord | None
    try:
        record = WorkerRecord.read(worker_dir)
    except (OSError, ValueError):
        record = None
    return FoundWorker(
        worker_id=worker_dir.name,
        record=record,
        process=_living_process(machine, record, worker_dir),
        launch=None if launch is None else launch.incarnation,
    )


def _living_process(
    machine: Machine, record: WorkerRecord | None, worker_dir: Path
) -> ProcessIdentity | None:
    if record is not None and record.process is not None:
        return record.process if machine.lives(record.process) else None
    # Its supervisor died while starting it: the launch file's path is one of its arguments.
    mark = f"{WORKER_ID_VARIABLE}={worker_dir.name}"
    found = machine.find(str(worker_dir / LAUNCH_FILE), mark)
    return min(found, key=lambda one: one.start_ticks) if found else None


def open_found(machine: Machine, worker: FoundWorker, workers_dir: Path) -> WorkerProcess | None:
    """A found worker's process, checked again; None if it has ended meanwhile."""
    if worker.process is None:
        return None
    pid_dir = workers_dir / worker.worker_id / "pids"
    return machine.open(worker.process, worker_id=worker.worker_id, pid_dir=pid_dir)


def remove_left(
    machine: Machine, worker: FoundWorker, workers_dir: Path, cgroups: Cgroups | None
) -> None:
    """Kill the processes that an ended worker had started, and remove its cgroup and its folder."""
    worker_dir = workers_dir / worker.worker_id
    leader = worker.record.process if worker.record is not None else None
    if leader is not None:
        killed = machine.kill_leftovers(
            leader, worker_id=worker.worker_id, pid_dir=worker_dir / "pids"
        )
        if killed:
            log.info("worker_leftovers_killed", worker_id=worker.worker_id, processes=killed)
    if cgroups is not None:
        cgroups.remove(worker.worker_id)
    remove_worker_dir(worker_dir)
