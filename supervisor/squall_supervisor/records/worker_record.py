"""The supervisor's notes on each worker, in the worker's own folder: `worker.json`.

The record is written before the process is started (so that, if the supervisor dies in between, the
next one finds that a launch was tried) and again with the process's identity. The launch file
beside it is the one that the worker reads; both contain the incarnation, and a worker is accepted
as ours only if they agree.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from squall_common.daemon.files import write_atomic
from squall_common.topology.model import Executor
from squall_common.worker_files.launch_spec import Incarnation, LaunchSpec
from squall_supervisor.confine.limits import NO_LIMITS, WorkerLimits
from squall_supervisor.confine.ownership import read_own
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.processes import ProcessIdentity

RECORD_FILE = "worker.json"
LAUNCH_FILE = "launch.json"


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker of this node. `process` is None from before its start until it is known."""

    worker_id: str
    port: int
    assignment: PortAssignment
    launch: int  # its launch number; with the assignment's zxid its incarnation
    timeout_secs: float  # of its heartbeats
    process: ProcessIdentity | None = None
    limits: WorkerLimits = NO_LIMITS

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(self.assignment.zxid, self.launch)

    def with_process(self, process: ProcessIdentity) -> WorkerRecord:
        return replace(self, process=process)

    def write(self, worker_dir: Path) -> None:
        """Raises OSError."""
        process = self.process
        value = {
            "worker_id": self.worker_id,
            "port": self.port,
            "assignment": assignment_to_json(self.assignment),
            "launch": self.launch,
            "timeout_secs": self.timeout_secs,
            "process": None
            if process is None
            else [process.pid, process.start_ticks, process.boot_id],
            "limits": [
                self.limits.memory_mb,
                self.limits.memory_key,
                self.limits.cpu_percent,
            ],
        }
        write_atomic(worker_dir / RECORD_FILE, json.dumps(value).encode(), mode=0o600)

    @classmethod
    def read(cls, worker_dir: Path) -> WorkerRecord:
        """Raises OSError, or ValueError if the file is not a worker record of ours."""
        try:
            value = json.loads(read_own(worker_dir / RECORD_FILE))
            process = value["process"]
            memory_mb, memory_key, cpu_percent = value.get("limits") or (None, "", None)
            return cls(
                worker_id=str(value["worker_id"]),
                port=int(value["port"]),
                assignment=assignment_from_json(value["assignment"]),
                launch=int(value["launch"]),
                timeout_secs=float(value["timeout_secs"]),
                process=None
                if process is None
                else ProcessIdentity(int(process[0]), int(process[1]), str(process[2])),
                limits=WorkerLimits(
                    None if memory_mb is None else float(memory_mb),
                    str(memory_key),
                    None if cpu_percent is None else float(cpu_percent),
                ),
            )
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(
                f"{worker_dir / RECORD_FILE} is not a worker record: {error!r}"
            ) from error


def read_launch(worker_dir: Path) -> LaunchSpec | None:
    """The launch file of a worker, or None if it is missing or not ours."""
    try:
        return LaunchSpec.parse(read_own(worker_dir / LAUNCH_FILE))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def assignment_to_json(assignment: PortAssignment) -> dict[str, Any]:
    return {
        "topology_id": assignment.topology_id,
        "executors": [[e.task_start, e.task_end] for e in assignment.executors],
        "zxid": assignment.zxid,
        "owner": assignment.owner,
    }


def assignment_from_json(value: dict[str, Any]) -> PortAssignment:
    """Raises KeyError, TypeError or ValueError."""
    owner = value["owner"]
    return PortAssignment(
        topology_id=str(value["topology_id"]),
        executors=tuple(Executor(int(first), int(last)) for first, last in value["executors"]),
        zxid=int(value["zxid"]),
        owner=None if owner is None else str(owner),
    )
