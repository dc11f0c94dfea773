"""All slots of a supervisor, and what they share: topologies on disk, and workers that no slot
wants."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from squall_common.cluster.slot_reports import SlotReport
from squall_common.daemon.logs import get_logger
from squall_supervisor.blobs.source import LocalizeError
from squall_supervisor.launch.node import Node
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.worker_record import WorkerRecord
from squall_supervisor.slots.adoption import FoundWorker, plan_adoption
from squall_supervisor.slots.discovery import find_workers, open_found, remove_left
from squall_supervisor.slots.disk_room import DiskRoom
from squall_supervisor.slots.reports import report_of
from squall_supervisor.slots.runner import SlotRunner
from squall_supervisor.slots.table import State

log = get_logger(__name__)

_LOOK_SECS = 15.0


class Slots:
    """`changed` is called when a slot's state or worker changed."""

    def __init__(self, node: Node, *, changed: Callable[[], None] = lambda: None) -> None:
        self._node = node
        self._changed = changed
        self._something_changed = asyncio.Event()
        self._look_until = 0.0  # on the node's clock
        self._updating = asyncio.Lock()
        settings = node.settings
        self._disk_room = DiskRoom(
            (settings.workers_dir, settings.artifacts_dir), node.tasks, changed=self._on_change
        )
        self.runners = {
            port: SlotRunner(
                port,
                node,
                self._disk_room,
                changed=self._on_change,
                wait_released=self._wait_released,
            )
            for port in settings.ports
        }

    @property
    def used_ports(self) -> tuple[int, ...]:
        """The ports on which a worker is running."""
        return tuple(port for port, runner in self.runners.items() if runner.process is not None)

    @property
    def offered_ports(self) -> tuple[int, ...]:
        """The ports that Nimbus may use: all of them unless the disk is full."""
        idle = [port for port, runner in self.runners.items() if runner.slot.wanted is None]
        return self._disk_room.offered(self._node.settings.ports, idle)

    def reports(self) -> dict[int, SlotReport]:
        """The state of each port that is to run something."""
        now, refused = self._node.clock.monotonic(), self._node.localizer.refuses
        found = {p: report_of(one.slot, refused, now) for p, one in self.runners.items()}
        return {port: report for port, report in found.items() if report is not None}

    @property
    def wanted(self) -> dict[int, PortAssignment]:
        """The work of each port."""
        return {
            port: runner.slot.wanted
            for port, runner in self.runners.items()
            if runner.slot.wanted is not None
        }

    def want(self, ports: Mapping[int, PortAssignment]) -> None:
        """Set what every port is to run from now on. A port that is not in `ports` is to run
        nothing."""
        for port, runner in self.runners.items():
            runner.want(ports.get(port))

    async def adopt(self) -> None:
        """Take over the workers that outlived the previous supervisor, end those that cannot be
        adopted, and remove the folders of those that are gone."""
        workers_dir = self._node.settings.workers_dir
        machine = self._node.machine
        found = await asyncio.to_thread(find_workers, machine, workers_dir)
        plan = plan_adoption(found, self.runners)
        folders = {worker.worker_id: worker for worker in found}
        # Before any slot starts a worker of its own, whose cgroup is not known here.
        await asyncio.to_thread(self._sweep_cgroups, folders)
        for port, worker in plan.adopt.items():
            process = open_found(machine, worker, workers_dir)
            if process is None or worker.record is None or worker.process is None:
                plan.remove.append(worker.worker_id)  # it ended just now
                continue
            if worker.record.process is None:
                record = worker.record.with_process(worker.process)
                await asyncio.to_thread(_write_record, record, workers_dir / record.worker_id)
            self.runners[port].adopt(worker.record, process)
        for worker_id in plan.remove:
            await asyncio.to_thread(self._remove_left, folders[worker_id])
        # Until they are gone they may hold ports that new workers need.
        await asyncio.gather(*(self._end(worker, why) for worker, why in plan.end))

    def _sweep_cgroups(self, keep: Collection[str]) -> None:
        if self._node.cgroups is not None:
            for worker_id in self._node.cgroups.sweep(keep):
                log.warning("cgroup_left_behind_removed", worker_id=worker_id)

    def _remove_left(self, worker: FoundWorker) -> None:
        node = self._node
        remove_left(node.machine, worker, node.settings.workers_dir, node.cgroups)

    async def _end(self, worker: FoundWorker, why: str) -> None:
        """End a worker that no slot drives."""
        workers_dir = self._node.settings.workers_dir
        process = open_found(self._node.machine, worker, workers_dir)
        if process is None:
            return
        log.warning("stray_worker_ended", worker_id=worker.worker_id, pid=process.pid, why=why)
        try:
            await process.stop(self._node.settings.slot.worker_shutdown_secs)
        finally:
            process.close()
        await asyncio.to_thread(self._remove_left, worker)

    def forgive(self) -> None:
        """This process was stopped for a while: do not count heartbeats as late yet."""
        for runner in self.runners.values():
            runner.forgive()

    async def remove_unused_topologies(self) -> None:
        """Remove from the disk the topologies that no slot has or wants."""
        localizer = self._node.localizer
        for topology_id in await asyncio.to_thread(localizer.topologies):
            if topology_id not in self._topologies_in_use():
                try:
                    await localizer.remove(topology_id)
                except OSError as error:  # tried again at the next change
                    log.warning("topology_not_removed", topology_id=topology_id, error=error)

    def _topologies_in_use(self) -> set[str]:
        slots = [runner.slot for runner in self.runners.values()]
        both = [slot.wanted for slot in slots] + [slot.assignment for slot in slots]
        return {one.topology_id for one in both if one is not None}

    def worker_dirs(self) -> dict[str, list[Path]]:
        """The folders of the workers that run, by topology."""
        found: dict[str, list[Path]] = {}
        for runner in self.runners.values():
            assignment, process = runner.slot.assignment, runner.process
            if assignment is not None and process is not None:
                folder = self._node.settings.workers_dir / process.worker_id
                found.setdefault(assignment.topology_id, []).append(folder)
        return found

    def placed_anew(self) -> None:
        """A topology of this node has another assignment: a rebalance may have changed its
        configuration, too."""
        self._look_until = self._node.clock.monotonic() + _LOOK_SECS

    async def update_moved(self) -> None:
        """The same as `update_blobs`, for some seconds after `placed_anew`: workers that were
        starting meanwhile may have begun with what was here before."""
        if self._node.clock.monotonic() < self._look_until:
            await self.update_blobs()

    def slot_dirs(self) -> dict[tuple[int, str], Path]:
        """The folders of the workers that run, by port and topology."""
        found: dict[tuple[int, str], Path] = {}
        for port, runner in self.runners.items():
            assignment, process = runner.slot.assignment, runner.process
            if assignment is not None and process is not None:
                folder = self._node.settings.workers_dir / process.worker_id
                found[port, assignment.topology_id] = folder
        return found

    async def update_blobs(self) -> None:
        """Ask Nimbus whether a running topology has changed, and notify its slots."""
        async with self._updating:
            await self._update_blobs()

    async def _update_blobs(self) -> None:
        running = (State.WAITING_FOR_WORKER_START, State.RUNNING)

        def users() -> list[tuple[SlotRunner, str]]:
            return [
                (runner, runner.slot.assignment.topology_id)
                for runner in self.runners.values()
                if runner.slot.state in running and runner.slot.assignment is not None
            ]

        for topology_id in sorted({used for _, used in users()}):
            worker_dirs = [
                self._node.settings.workers_dir / runner.process.worker_id
                for runner, used in users()
                if used == topology_id and runner.process is not None
            ]
            try:
                changed = await self._node.localizer.changed(topology_id)
                if not changed:
                    changed = await self._node.localizer.update_blobs(topology_id, worker_dirs)
            except LocalizeError as error:
                log.info("blob_versions_not_known", topology_id=topology_id, error=error)
                continue
            except Exception as error:  # a problem of this topology; the others are next
                log.error("blobs_not_updated", topology_id=topology_id, error=error, exc_info=error)
                continue
            if changed:
                log.info("topology_changed", topology_id=topology_id)
                for runner, used in users():
                    if used == topology_id:
                        runner.blobs_changed()

    async def _wait_released(self, topology_id: str) -> None:
        """Wait until no worker of this node runs a topology."""
        while any(
            (runner.slot.worker_id is not None or runner.slot.launching)
            and runner.slot.assignment is not None
            and runner.slot.assignment.topology_id == topology_id
            for runner in self.runners.values()
        ):
            self._something_changed.clear()
            await self._something_changed.wait()

    def _on_change(self) -> None:
        self._something_changed.set()
        self._changed()

    async def close(self) -> None:
        """Release all workers, which run on."""
        await asyncio.gather(*(runner.close() for runner in self.runners.values()))


def _write_record(record: WorkerRecord, worker_dir: Path) -> None:
    try:
        record.write(worker_dir)
    except OSError as error:
        log.error("worker_record_not_written", worker_dir=worker_dir, error=error)
