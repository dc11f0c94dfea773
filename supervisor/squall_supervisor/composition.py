"""Puts one supervisor together: its folders, the state its predecessor left, and its parts, in the
order in which they need each other."""

from __future__ import annotations

import asyncio
import functools
import os
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.client.reporting import Connect, connect_by
from squall_common.cluster.access.configured import read_digests
from squall_common.cluster.access.digests import Digests
from squall_common.cluster.state import ClusterState
from squall_common.config.options.typed import SupervisorOptions
from squall_common.daemon.clock import Clock, SystemClock
from squall_common.daemon.files import make_dirs
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.history.events import DaemonHistory
from squall_common.history.settings import history_url
from squall_common.worker_files.zookeeper_file import zookeeper_json
from squall_supervisor.blobs.cache import BlobCache
from squall_supervisor.blobs.environments import Environments
from squall_supervisor.blobs.localizer import Localizer
from squall_supervisor.blobs.nimbus import NimbusBlobs
from squall_supervisor.blobs.source import BlobSource
from squall_supervisor.confine.cgroups import Cgroups, cgroups_of
from squall_supervisor.confine.ownership import open_passage
from squall_supervisor.confine.users import check_possible
from squall_supervisor.launch.machine import Machine
from squall_supervisor.launch.node import Node
from squall_supervisor.launch.start import WorkerCommand, import_path, worker_command
from squall_supervisor.node.installed_version import installed_version
from squall_supervisor.node.neighbourhood import Probe, connects
from squall_supervisor.node.topology_errors import TopologyErrors
from squall_supervisor.records.last_known import LastKnownTopologies
from squall_supervisor.records.saved_state import SavedState
from squall_supervisor.records.state_file import (
    LocalState,
    LocalStateError,
    LocalStateFile,
    recover,
)
from squall_supervisor.records.worker_record import read_launch
from squall_supervisor.settings import SupervisorSettings
from squall_supervisor.supervisor import FirstCrash, Parts, Supervisor
from squall_thrift.serving.server import ThriftServer

if TYPE_CHECKING:
    from squall_common.authentication.files import Trusted
    from squall_supervisor.records.signed_work import SignedWork

log = get_logger(__name__)


async def build_supervisor(
    conf: Mapping[str, Any],
    *,
    cluster: ClusterState | None = None,
    blobs: BlobSource | None = None,
    command: WorkerCommand = worker_command,
    clock: Clock | None = None,
    environ: Mapping[str, str] = os.environ,
    probe: Probe = connects,
    machine: Machine | None = None,
    server: Callable[..., ThriftServer] = ThriftServer,
    connect_nimbus: Connect | None = None,
    ca: Callable[[], str] | None = None,
    trusted: Trusted | None = None,
    revoked: Callable[[], Collection[int]] = frozenset,
) -> Supervisor:
    """A supervisor whose folders are made and whose state is read, but which has not started.
    `conf` is the merged configuration. Raises OSError if the disk fails, and ConfigError if workers
    cannot be confined as configured.

    `ca` returns the certificate of a secured cluster's CA, in PEM.

    Tests pass their own store, blobs, worker command and, for a simulation, machine and network.
    """
    options = SupervisorOptions.read(conf)
    settings = SupervisorSettings.of(options)
    clock = clock or SystemClock()
    digests = read_digests(options)
    if cluster is None:
        access = None if digests is None else digests.for_daemon()
        cluster = ClusterState.of(options, access)
    work = None
    if trusted is not None:
        work = _signed_work(trusted, settings, revoked, clock)
        await asyncio.to_thread(work.open)
        cluster = ClusterState(work.verified(cluster.store))
    blobs = blobs or NimbusBlobs.from_conf(conf, retries_max=settings.download_retries_max)
    machine = machine or Machine()
    crash = FirstCrash()
    tasks = BackgroundTasks(crash.note)

    cgroups = await _prepare_node(settings, environ)
    state = await asyncio.to_thread(_load_state, settings, clock)
    saved_state = SavedState(LocalStateFile(settings.state_file), state, tasks)
    last_known = await asyncio.to_thread(_last_known, settings, cluster, clock, machine, tasks)
    await asyncio.to_thread(_save_first, saved_state, settings.state_file)
    errors = TopologyErrors(cluster, settings.hostname, clock, tasks)
    localizer = _build_localizer(settings, blobs, clock, errors, state.supervisor_id, work)
    await asyncio.to_thread(localizer.prepare)
    if settings.users is not None:
        _open_passages(settings)
    history = DaemonHistory(
        history_url(options),
        retention_hours=options.storm_history_retention_hours,
        name=f"supervisor {settings.hostname}",
        clock=clock,
        topology_conf=functools.partial(_conf_of, localizer),
    )
    node = Node(
        settings=settings,
        conf=conf,
        supervisor_id=state.supervisor_id,
        import_path=import_path(environ),
        environ=environ,
        clock=clock,
        localizer=localizer,
        launch_numbers=saved_state,
        tasks=tasks,
        crashed=crash.note,
        trouble=errors.begin,
        ca=None if work is None else lambda: work.ca,
        cgroups=cgroups,
        command=command,
        machine=machine,
        record_event=history.record_event,
        last_known=functools.partial(_give_last_known, last_known, clock),
        zookeeper_file=functools.partial(_zookeeper_file, digests),
        secured=ca is not None,
    )
    return Supervisor(
        Parts(
            settings=settings,
            conf=conf,
            clock=clock,
            cluster=cluster,
            blobs=blobs,
            tasks=tasks,
            crash=crash,
            state=state,
            saved_state=saved_state,
            last_known=last_known,
            errors=errors,
            localizer=localizer,
            history=history,
            node=node,
            probe=probe,
            connect_nimbus=connect_nimbus or connect_by(conf),
            server=server,
            ca=ca,
            work=work,
            digests=digests,
        )
    )


def _signed_work(
    trusted: Trusted,
    settings: SupervisorSettings,
    revoked: Callable[[], Collection[int]],
    clock: Clock,
) -> SignedWork:
    # Imported only where a cluster is secured: it takes some 40 ms.
    from squall_supervisor.records.signed_work import SignedWork

    assert trusted.own is not None
    folder = settings.supervisor_dir / "security"
    return SignedWork(trusted, trusted.own.holder.name, folder, revoked=revoked, clock=clock)


async def _prepare_node(settings: SupervisorSettings, environ: Mapping[str, str]) -> Cgroups | None:
    """Check that workers can be confined as configured, and make the folders."""
    if settings.users is not None:
        await asyncio.to_thread(
            check_possible,
            settings.users,
            settings.local_dir,
            [settings.artifacts_dir, *map(Path, import_path(environ))],
        )
    for folder in (settings.supervisor_dir, settings.workers_dir):
        make_dirs(folder, mode=0o700)
    cgroups = cgroups_of(
        settings.cgroups, local_dir=settings.local_dir, margin_mb=settings.memory_margin_mb
    )
    if cgroups is not None:
        await asyncio.to_thread(cgroups.prepare)
        log.info("cgroups", version=cgroups.version)
    return cgroups


def _build_localizer(
    settings: SupervisorSettings,
    blobs: BlobSource,
    clock: Clock,
    errors: TopologyErrors,
    supervisor_id: str,
    work: SignedWork | None,
) -> Localizer:
    def report_bad_package(topology_id: str, message: str) -> None:
        text = f"The package cannot be unpacked on {settings.hostname}: {message}"
        errors.begin(topology_id, None, text)

    return Localizer(
        settings.stormdist_dir,
        settings.temporary_dir,
        blobs,
        clock,
        limits=settings.package_limits,
        downloads_max=settings.downloads_max,
        environments=Environments(
            settings.environments_dir,
            settings.temporary_dir,
            blobs,
            version=installed_version(),
        ),
        cache=BlobCache(
            settings.blobs_dir,
            settings.temporary_dir,
            settings.workers_dir,
            blobs,
            target_bytes=settings.cache_bytes,
            is_signed=None if work is None else work.is_signed,
        ),
        on_bad_package=report_bad_package,
        supervisor_id=supervisor_id,
        signed=None if work is None else work.hashes_of,
    )


def _open_passages(settings: SupervisorSettings) -> None:
    """Let the users that workers run as reach their files in the supervisor's folders."""
    for folder in (
        settings.supervisor_dir,
        settings.workers_dir,
        settings.stormdist_dir,
        settings.environments_dir,
        settings.blobs_dir,
    ):
        open_passage(folder)


def _load_state(settings: SupervisorSettings, clock: Clock) -> LocalState:
    file = LocalStateFile(settings.state_file)
    try:
        state = file.load()
    except LocalStateError as error:
        aside = file.put_aside()
        log.error(
            "local_state_unreadable",
            path=settings.state_file,
            why=error,
            kept_as=aside,
            what_now="starting from what the workers' folders say",
        )
        state = _recovered(settings, clock.time())
    if state is None:
        state = _recovered(settings, 0.0)
    if settings.supervisor_id is not None:
        state = replace(state, supervisor_id=settings.supervisor_id)
    return state


def _save_first(saved_state: SavedState, file: Path) -> None:
    """Write the local state. Raises OSError if there is no file yet, since this node's id would be
    lost; otherwise a supervisor can take over the workers that run, whatever the disk does."""
    try:
        saved_state.save_now()
    except OSError as error:
        if not file.exists():
            raise
        log.error("local_state_not_written", path=file, error=error)


def _recovered(settings: SupervisorSettings, epoch_secs: float) -> LocalState:
    launches = [read_launch(folder) for folder in settings.workers_dir.iterdir()]
    found = [launch for launch in launches if launch is not None]
    return recover(found, fresh_id=str(uuid.uuid4()), epoch_secs=epoch_secs)


def _last_known(
    settings: SupervisorSettings,
    cluster: ClusterState,
    clock: Clock,
    machine: Machine,
    tasks: BackgroundTasks,
) -> LastKnownTopologies:
    made = LastKnownTopologies(
        settings.last_known_dir,
        tasks,
        boot_id=machine.boot_id(),
        away_secs_max=cluster.store.session_timeout_secs,
    )
    made.live(clock.boottime())
    return made


def _give_last_known(
    last_known: LastKnownTopologies, clock: Clock, topology_id: str
) -> bytes | None:
    """For a worker that is launched now, in a thread: perhaps the first thing after a sleep."""
    last_known.live(clock.boottime())
    return last_known.of(topology_id)


def _zookeeper_file(digests: Digests | None, topology_id: str) -> bytes | None:
    return None if digests is None else zookeeper_json(digests, topology_id)


def _conf_of(localizer: Localizer, topology_id: str) -> Mapping[str, Any]:
    """Raises LookupError if the topology is not on this disk."""
    found = localizer.read(topology_id)
    if found is None:
        raise LookupError(topology_id)
    return found.conf
