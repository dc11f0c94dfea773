"""Checks the memory of this node's workers, and notifies the slots of those that use too much."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from squall_common.daemon.logs import get_logger
from squall_supervisor.confine.cgroups import Cgroups
from squall_supervisor.confine.limits import MemoryGuard, Verdict
from squall_supervisor.launch.machine import Machine
from squall_supervisor.launch.worker_process import WorkerProcess
from squall_supervisor.records.processes import ProcessIdentity
from squall_supervisor.settings import SupervisorSettings
from squall_supervisor.slots.runner import SlotRunner

log = get_logger(__name__)


class MemoryWatch:
    """`report(topology_id, port, message)` shows a message among the topology's errors. Workers
    without a limit cost nothing; if no worker of the node has one, nothing is read."""

    def __init__(
        self,
        runners: Mapping[int, SlotRunner],
        machine: Machine,
        settings: SupervisorSettings,
        report: Callable[[str, int, str], None],
        cgroups: Cgroups | None = None,
    ) -> None:
        self._runners = runners
        self._machine = machine
        self._settings = settings
        self._report = report
        self._cgroups = cgroups
        self._guards: dict[ProcessIdentity, MemoryGuard] = {}
        self._reported: set[ProcessIdentity] = set()

    async def look(self) -> None:
        """One look at all of them; call it regularly."""
        await self._look_at_kills()
        watched = {
            runner.process.identity: runner
            for runner in self._runners.values()
            if runner.process is not None
            and runner.limits.memory_mb is not None
            and not self._kernel_watches(runner.process)
        }
        self._guards = {
            one: self._guards.get(one) or self._guard(runner) for one, runner in watched.items()
        }
        self._reported &= watched.keys()
        if not watched:
            return
        used = await asyncio.to_thread(self._machine.memory_of_workers, list(watched))
        for identity, runner in watched.items():
            amount = used.get(identity.pid)
            if amount is None:
                continue
            guard = self._guards[identity]
            if amount > guard.soft_bytes:
                exact = await asyncio.to_thread(self._machine.exact_memory_of_worker, identity)
                if exact is None:
                    continue
                amount = min(amount, exact)
            self._judge(identity, runner, guard, amount)

    async def _look_at_kills(self) -> None:
        """The kernel may have killed a child of a worker that lives on: that is reported, too."""
        if self._cgroups is None:
            return
        for runner in self._runners.values():
            process, limits, assignment = runner.process, runner.limits, runner.slot.assignment
            if process is not None and assignment is not None:
                kills = await asyncio.to_thread(self._cgroups.oom_kills, process.worker_id)
                if runner.process is process:  # else its slot reports it after the exit
                    runner.report_oom_kills(process, limits, assignment.topology_id, kills)

    def _kernel_watches(self, process: WorkerProcess) -> bool:
        """A worker that was started before cgroups were switched on has none."""
        return self._cgroups is not None and self._cgroups.limits_memory(process.worker_id)

    def _guard(self, runner: SlotRunner) -> MemoryGuard:
        return MemoryGuard(
            runner.limits,
            margin_mb=self._settings.memory_margin_mb,
            hard_multiplier=self._settings.memory_hard_multiplier,
        )

    def _judge(
        self, identity: ProcessIdentity, runner: SlotRunner, guard: MemoryGuard, used: int
    ) -> None:
        verdict = guard.look(used)
        assignment = runner.slot.assignment
        if verdict is Verdict.FINE or assignment is None:
            return
        process = runner.process
        if process is None or process.identity != identity:
            return  # it ended while we looked
        if not runner.memory_exceeded(used, far=verdict is Verdict.FAR_OVER):
            return
        if identity in self._reported:
            return
        self._reported.add(identity)
        why = guard.explain(f"{self._settings.hostname}:{runner.port}", used)
        log.error(
            "worker_over_memory_limit",
            topology_id=assignment.topology_id,
            port=runner.port,
            worker_id=process.worker_id,
            pid=process.pid,
            why=why,
        )
        self._report(assignment.topology_id, runner.port, why)
