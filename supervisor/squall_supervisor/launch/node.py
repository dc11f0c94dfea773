"""What all slots of a supervisor share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from squall_common.daemon.clock import Clock
from squall_common.daemon.loop.background import BackgroundTasks
from squall_supervisor.blobs.localizer import Localizer
from squall_supervisor.confine.cgroups import Cgroups
from squall_supervisor.launch.launcher import WorkerCommand, worker_command
from squall_supervisor.launch.machine import Machine
from squall_supervisor.records.exits import EndReports, RecentExits
from squall_supervisor.settings import SupervisorSettings


class LaunchNumbers(Protocol):
    """Gives each launch of this supervisor a rising number of its own."""

    def next(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Node:
    """One node, as its slots see it."""

    settings: SupervisorSettings
    conf: Mapping[str, Any]  # the daemon's configuration, handed to workers
    supervisor_id: str
    import_path: list[str]
    environ: Mapping[str, str]  # of the supervisor
    clock: Clock
    localizer: Localizer
    launch_numbers: LaunchNumbers
    tasks: BackgroundTasks
    crashed: Callable[[str, BaseException], None]  # called for a bug: this process is to end
    # Shows a message among a topology's errors: its id, a port, the message.
    trouble: Callable[[str, int, str], None] = lambda topology_id, port, message: None
    ends: EndReports = field(default_factory=EndReports)
    exits: RecentExits = field(default_factory=RecentExits)
    # Returns the certificate of the cluster's CA, in PEM; None in an open cluster.
    ca: Callable[[], str] | None = None
    cgroups: Cgroups | None = None  # None: workers have none
    command: WorkerCommand = worker_command
    machine: Machine = field(default_factory=Machine)
    # Takes (topology id, event, text, host:port) for the history of a topology.
    record_event: Callable[[str, str, str, str], None] = lambda topology_id, name, text, place: None
    # A topology as last read (squall_common.worker_files.last_known), for its workers; called in
    # threads.
    last_known: Callable[[str], bytes | None] = lambda topology_id: None
    # What a topology's workers show to ZooKeeper (squall_common.worker_files.zookeeper_file).
    zookeeper_file: Callable[[str], bytes | None] = lambda topology_id: None
    secured: bool = False  # whether the cluster is: its workers prove who they are
