"""What to do with the workers that a supervisor finds when it starts.

Each folder under `workers` stands for a launch. Its worker may be alive (it outlived the previous
supervisor), be dead, or never have been started. From what was found, this module decides which
workers to take over, which to end and which folders to remove; `discovery` finds them, the daemon
acts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from squall_common.worker_files.launch_spec import Incarnation
from squall_supervisor.records.processes import ProcessIdentity
from squall_supervisor.records.worker_record import WorkerRecord


@dataclass(frozen=True, slots=True)
class FoundWorker:
    """One folder under `workers`.

    `record` is None if its file is missing or spoiled; `process` is the living process, which
    matches the record in pid, start time and boot (or was found by its arguments, if the record
    names none); `launch` is the incarnation in the launch file, None without one.
    """

    worker_id: str
    record: WorkerRecord | None
    process: ProcessIdentity | None
    launch: Incarnation | None


@dataclass(frozen=True, slots=True)
class AdoptionPlan:
    """`adopt` by port; `end` are living workers that cannot be adopted, and why; `remove` are
    folders without a process."""

    adopt: dict[int, FoundWorker] = field(default_factory=dict)
    end: list[tuple[FoundWorker, str]] = field(default_factory=list)
    remove: list[str] = field(default_factory=list)


def plan_adoption(found: Iterable[FoundWorker], ports: Iterable[int]) -> AdoptionPlan:
    """Adopt a living worker if everything matches: pid, start time and boot (see FoundWorker), the
    incarnation in record and launch file, and a port of ours. Of two on one port, the one with the
    newer incarnation stays."""
    own = frozenset(ports)
    plan = AdoptionPlan()
    for worker in sorted(found, key=lambda one: one.worker_id):
        if worker.process is None:
            plan.remove.append(worker.worker_id)
            continue
        record = worker.record
        if record is None:
            plan.end.append((worker, "its record cannot be read"))
        elif record.worker_id != worker.worker_id or worker.launch != record.incarnation:
            plan.end.append((worker, "its record and its launch file do not agree"))
        elif record.port not in own:
            plan.end.append((worker, f"port {record.port} is not a slot of this supervisor"))
        else:
            rival = plan.adopt.get(record.port)
            plan.adopt[record.port] = worker
            if rival is not None:
                newer, older = sorted((worker, rival), key=_incarnation, reverse=True)
                plan.adopt[record.port] = newer
                plan.end.append((older, f"a newer worker runs on port {record.port}"))
    return plan


def _incarnation(worker: FoundWorker) -> Incarnation:
    return worker.record.incarnation if worker.record is not None else Incarnation(0, 0)
