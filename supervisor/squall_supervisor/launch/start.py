"""The door of this room: starts the worker that an assignment asks for.

    request = LaunchRequest(node, port, assignment, topology, number=node.launch_numbers.next())
    process = await asyncio.to_thread(start, request)

It decides the launch file and the confinement of the worker from the request and the node, writes
its folder, and starts its process.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from squall_common.config.for_workers import worker_conf
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import ConfigError, describe
from squall_common.worker_files.launch_spec import LaunchSpec
from squall_supervisor.blobs.localizer import LocalTopology
from squall_supervisor.confine.confinement import Confinement, WorkerUser
from squall_supervisor.confine.ownership import let_in
from squall_supervisor.confine.users import UserRefusedError, choose_user, environment_of, resolve
from squall_supervisor.launch.declared_limits import declared_limits
from squall_supervisor.launch.environment import import_path, worker_environment
from squall_supervisor.launch.launcher import WorkerCommand, start_worker, worker_command
from squall_supervisor.launch.node import Node
from squall_supervisor.launch.worker_process import WORKER_ID_VARIABLE, WorkerProcess
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.worker_record import WorkerRecord


class LaunchError(Exception):
    """Why no worker could be started, as a message for people."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """A worker that is wanted on a port of this node."""

    node: Node
    port: int
    assignment: PortAssignment
    topology: LocalTopology
    number: int  # from `Node.launch_numbers`
    before: bytes | None = None  # what the worker before it left


def start(request: LaunchRequest) -> WorkerProcess:
    """Start the worker; the result has its `record`. Blocks for reads and some fsyncs: call it in a
    thread. Raises LaunchError; nothing of the worker is left then."""
    try:
        options = TopologyOptions.read(request.topology.conf)
    except ConfigError as error:
        raise LaunchError(describe(error)) from error
    record = _record(request, options)
    spec = _spec(request, record)
    try:
        user = _user(request, options)
        return _start(request, record, spec, user, _environment(request, options, spec, user))
    except UserRefusedError as error:
        raise LaunchError(str(error)) from error
    except OSError as error:
        raise LaunchError(describe(error)) from error


def _record(request: LaunchRequest, options: TopologyOptions) -> WorkerRecord:
    settings = request.node.settings
    return WorkerRecord(
        worker_id=str(uuid.uuid4()),
        port=request.port,
        assignment=request.assignment,
        launch=request.number,
        timeout_secs=settings.worker_timeout_of(options),
        limits=declared_limits(request.topology, options, request.assignment, settings),
    )


def _spec(request: LaunchRequest, record: WorkerRecord) -> LaunchSpec:
    node, topology_id = request.node, request.assignment.topology_id
    settings = node.settings
    return LaunchSpec(
        topology_id=topology_id,
        supervisor_id=node.supervisor_id,
        hostname=settings.hostname,
        port=request.port,
        worker_id=record.worker_id,
        incarnation=record.incarnation,
        stormdist=request.topology.path,
        worker_dir=settings.workers_dir / record.worker_id,
        artifacts_dir=settings.artifacts_dir / topology_id / str(request.port),
        daemon_conf=worker_conf(node.conf),
        secured=node.secured,
        ca=None if node.ca is None else node.ca(),
    )


def _user(request: LaunchRequest, options: TopologyOptions) -> WorkerUser | None:
    """The user that the worker is to run as; None: the supervisor's own."""
    rules = request.node.settings.users
    if rules is None:
        return None
    return resolve(choose_user(rules, request.assignment.owner, options), rules)


def _start(
    request: LaunchRequest,
    record: WorkerRecord,
    spec: LaunchSpec,
    user: WorkerUser | None,
    environment: dict[str, str],
) -> WorkerProcess:
    node, topology = request.node, request.topology
    reader = None if user is None else user.uid
    if reader is not None:
        let_in(topology.path, reader)
    cgroups, cache = node.cgroups, node.localizer.cache

    def link_blobs(folder: Path) -> None:
        if cache is not None:
            cache.link(folder, topology.blobs, reader)

    folders = () if cgroups is None else cgroups.make(record.worker_id, record.limits)
    try:
        return start_worker(
            node.machine,
            spec,
            record,
            environment,
            node.command,
            confinement=Confinement(node.settings.rlimits, folders, user),
            link_blobs=link_blobs,
            key_file=topology.key_file,
            credentials_file=topology.credentials_file,
            zookeeper_file=node.zookeeper_file(spec.topology_id),
            before=request.before,
            last_known=node.last_known(spec.topology_id),
        )
    except BaseException:
        if cgroups is not None:
            cgroups.remove(record.worker_id)
        raise


def _environment(
    request: LaunchRequest, options: TopologyOptions, spec: LaunchSpec, user: WorkerUser | None
) -> dict[str, str]:
    node = request.node
    return worker_environment(
        node.environ if user is None else environment_of(user, node.environ),
        options.topology_environment or {},
        import_path=node.import_path,
        temporary_dir=spec.worker_dir / "tmp",
        marks={WORKER_ID_VARIABLE: spec.worker_id},
    )


__all__ = [
    "LaunchError",
    "LaunchRequest",
    "WorkerCommand",
    "import_path",
    "start",
    "worker_command",
]
