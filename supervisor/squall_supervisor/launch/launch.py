"""One launch of a worker: decides its launch file and confinement from the assignment, the topology
and the node, then starts it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path

from squall_common.config.for_workers import worker_conf
from squall_common.daemon.launch_spec import Incarnation, LaunchSpec
from squall_common.errors import describe
from squall_supervisor.blobs.localizer import LocalTopology
from squall_supervisor.confine.confinement import Confinement, WorkerUser
from squall_supervisor.confine.ownership import let_in
from squall_supervisor.confine.users import UserRefusedError, choose_user, environment_of, resolve
from squall_supervisor.launch.declared import declared_limits
from squall_supervisor.launch.environment import worker_environment
from squall_supervisor.launch.launcher import start_worker
from squall_supervisor.launch.node import Node
from squall_supervisor.launch.worker_process import WORKER_ID_VARIABLE, WorkerProcess
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.worker_record import WorkerRecord


class LaunchError(Exception):
    """Why no worker could be started, as a message for people."""


class Launch:
    """A launch on a port. Creating it, on the event loop, takes a launch number; `start` blocks."""

    def __init__(
        self,
        node: Node,
        port: int,
        assignment: PortAssignment,
        topology: LocalTopology,
        before: bytes | None = None,
    ) -> None:
        self.incarnation = Incarnation(assignment.zxid, node.launch_numbers.next())
        self._node = node
        self._assignment = assignment
        self._topology = topology
        self._before = before  # what the worker before it left
        worker_id = str(uuid.uuid4())
        settings = node.settings
        self._spec = LaunchSpec(
            topology_id=assignment.topology_id,
            supervisor_id=node.supervisor_id,
            hostname=settings.hostname,
            port=port,
            worker_id=worker_id,
            incarnation=self.incarnation,
            stormdist=topology.path,
            worker_dir=settings.workers_dir / worker_id,
            artifacts_dir=settings.artifacts_dir / assignment.topology_id / str(port),
            daemon_conf=worker_conf(node.conf),
        )
        self.record: WorkerRecord  # exists once `start` has begun

    def start(self) -> WorkerProcess:
        """Raises LaunchError."""
        settings = self._node.settings
        self.record = WorkerRecord(
            worker_id=self._spec.worker_id,
            port=self._spec.port,
            assignment=self._assignment,
            launch=self.incarnation.launch,
            timeout_secs=settings.worker_timeout_of(self._topology.conf),
            limits=declared_limits(self._topology, self._assignment, settings),
        )
        try:
            return self._start_as(self._user())
        except UserRefusedError as error:
            raise LaunchError(str(error)) from error
        except OSError as error:
            raise LaunchError(describe(error)) from error

    def _user(self) -> WorkerUser | None:
        """The user that the worker is to run as; None: the supervisor's own."""
        rules = self._node.settings.users
        if rules is None:
            return None
        return resolve(choose_user(rules, self._assignment.owner, self._topology.conf), rules)

    def _start_as(self, user: WorkerUser | None) -> WorkerProcess:
        node, topology, worker_id = self._node, self._topology, self._spec.worker_id
        reader = None if user is None else user.uid
        if reader is not None:
            let_in(topology.path, reader)
        cgroups, cache = node.cgroups, node.localizer.cache

        def link_blobs(folder: Path) -> None:
            if cache is not None:
                cache.link(folder, topology.blobs, reader)

        folders = () if cgroups is None else cgroups.make(worker_id, self.record.limits)
        try:
            return start_worker(
                node.machine,
                self._spec,
                self.record,
                self._environment(user),
                node.command,
                confinement=Confinement(node.settings.rlimits, folders, user),
                link_blobs=link_blobs,
                key_file=topology.key_file,
                before=self._before,
                last_known=node.last_known(self._assignment.topology_id),
            )
        except BaseException:
            if cgroups is not None:
                cgroups.remove(worker_id)
            raise

    def _environment(self, user: WorkerUser | None) -> dict[str, str]:
        environ = self._node.environ
        asked = self._topology.conf.get("topology.environment")
        return worker_environment(
            environ if user is None else environment_of(user, environ),
            asked if isinstance(asked, Mapping) else {},
            import_path=self._node.import_path,
            temporary_dir=self._spec.worker_dir / "tmp",
            marks={WORKER_ID_VARIABLE: self._spec.worker_id},
        )
