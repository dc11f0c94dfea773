"""Ends all workers of this node, for maintenance and at the end of a development cluster.

A supervisor that stops leaves its workers running, so that it can be restarted without disturbing
them. This is the other way: `storm kill_workers`, once the supervisor is stopped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall_common.errors import ConfigError
from squall_supervisor.confine.cgroups import Cgroups, cgroups_of
from squall_supervisor.launch.machine import Machine
from squall_supervisor.records.worker_record import read_launch
from squall_supervisor.settings import SupervisorSettings
from squall_supervisor.slots.adoption import FoundWorker, plan_adoption
from squall_supervisor.slots.discovery import find_workers, open_found, remove_left


@dataclass(frozen=True, slots=True)
class KilledWorker:
    """A worker that was ended. Topology and port are unknown if its launch file is spoiled."""

    worker_id: str
    topology_id: str
    port: int
    pid: int


def kill_workers(conf: Mapping[str, Any]) -> list[KilledWorker]:
    """End every living worker of this node, and everything that it started: SIGTERM, then SIGKILL
    after `supervisor.worker.shutdown.sleep.secs`. Also end the leftovers of workers that ended
    before. Only processes that match what was noted of them are touched (see `discovery`). A
    running supervisor starts them again: see `node_lock.supervisor_runs`."""
    settings = SupervisorSettings.from_conf(conf)
    return asyncio.run(_kill_all(settings))


async def _kill_all(settings: SupervisorSettings) -> list[KilledWorker]:
    machine = Machine()
    found = find_workers(machine, settings.workers_dir)
    # Any port: a slot that was removed from the configuration may still have its worker.
    ports = {worker.record.port for worker in found if worker.record is not None}
    plan = plan_adoption(found, ports)
    cgroups = _cgroups(settings)
    for worker in found:
        # Without a process in its record, a running supervisor may be launching it.
        if worker.process is None and worker.record is not None and worker.record.process:
            await asyncio.to_thread(remove_left, machine, worker, settings.workers_dir, cgroups)
    living = [*plan.adopt.values(), *(worker for worker, _ in plan.end)]
    killed = await asyncio.gather(*(_kill(machine, worker, settings, cgroups) for worker in living))
    return sorted((one for one in killed if one is not None), key=lambda one: one.port)


def _cgroups(settings: SupervisorSettings) -> Cgroups | None:
    """Workers are ended even where their cgroups cannot be removed."""
    try:
        return cgroups_of(
            settings.cgroups, local_dir=settings.local_dir, margin_mb=settings.memory_margin_mb
        )
    except ConfigError:
        return None


async def _kill(
    machine: Machine,
    worker: FoundWorker,
    settings: SupervisorSettings,
    cgroups: Cgroups | None,
) -> KilledWorker | None:
    launch = read_launch(settings.workers_dir / worker.worker_id)
    process = open_found(machine, worker, settings.workers_dir)
    if process is None:
        return None
    try:
        await process.stop(settings.slot.worker_shutdown_secs)
    finally:
        process.close()
    await asyncio.to_thread(remove_left, machine, worker, settings.workers_dir, cgroups)
    if launch is None:  # spoiled; the process was found nevertheless
        return KilledWorker(worker.worker_id, "", 0, process.pid)
    return KilledWorker(worker.worker_id, launch.topology_id, launch.port, process.pid)
