"""A supervisor: it makes the workers of one node match the work that Nimbus assigned to it.

    ZooKeeper -> AssignmentSync -> desired_ports -> Slots -> SlotRunner per port -> worker processes

It owns no state of record: ZooKeeper says what runs where, and the workers' folders say what it
started. So it may die at any moment; its workers run on, and the next supervisor adopts them. If
ZooKeeper goes away, nothing changes until it is back, but workers that die are started again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall_common.client.reporting import Connect, ReportSender
from squall_common.cluster import slot_reports, worker_exits
from squall_common.cluster.access.digests import Digests
from squall_common.cluster.access.opened import META_KEY as WITHOUT_DIGEST
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import AccessDeniedError, ConnectionState, StoreError
from squall_common.cluster.values import UNHEALTHY_KEY, Assignment, StormBase, SupervisorInfo
from squall_common.config.options.typed import SupervisorOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.history.events import EXPIRE_EVERY_SECS, DaemonHistory
from squall_common.history.settings import history_url
from squall_common.security.sealing import META_KEY
from squall_supervisor.blobs.credentials import CredentialsUpdates
from squall_supervisor.blobs.localizer import Localizer
from squall_supervisor.blobs.source import BlobSource
from squall_supervisor.blobs.worker_tokens import LOOK_SECS as TOKENS_LOOK_SECS
from squall_supervisor.blobs.worker_tokens import WorkerTokens
from squall_supervisor.blobs.zookeeper_files import LOOK_SECS as ZOOKEEPER_LOOK_SECS
from squall_supervisor.blobs.zookeeper_files import ZooKeeperFiles
from squall_supervisor.launch.node import Node
from squall_supervisor.node.health import NodeHealth
from squall_supervisor.node.installed_version import installed_version
from squall_supervisor.node.neighbourhood import Neighbourhood, Probe
from squall_supervisor.node.registration import Registration
from squall_supervisor.node.sync import AssignmentSync
from squall_supervisor.node.topology_errors import TopologyErrors
from squall_supervisor.records.assignments import (
    Assignments,
    PortAssignment,
    Unreadable,
    desired_ports,
)
from squall_supervisor.records.exits import RecentExits
from squall_supervisor.records.last_known import LastKnownTopologies
from squall_supervisor.records.saved_state import SavedState
from squall_supervisor.records.state_file import LocalState
from squall_supervisor.service import SupervisorService
from squall_supervisor.settings import SupervisorSettings
from squall_supervisor.slots.slots import Slots
from squall_supervisor.watch.log_files import clean_up_logs
from squall_supervisor.watch.memory import MemoryWatch
from squall_supervisor.watch.profiling import Profiling
from squall_supervisor.watch.reports import WorkerReports
from squall_thrift import storm
from squall_thrift.serving.server import ThriftServer

if TYPE_CHECKING:
    from squall_supervisor.node.manifest_sync import ManifestSync
    from squall_supervisor.records.signed_work import SignedWork

log = get_logger(__name__)

# After this long without ZooKeeper since the start, the last known work of the ports is started.
_WITHOUT_ZOOKEEPER_SECS = 5.0
# The log says that ZooKeeper does not answer after the first time span, and then regularly.
_WAITING_FIRST_SECS = 2.0
_WAITING_LOG_SECS = 10.0
# How often this process checks whether it was itself stopped.
_PULSE_SECS = 0.2
_MOVED_SECS = 1.0
_STALL_SECS = 2.0
# How often it notes that it is alive: see last_known.
_ALIVE_SECS = 2.0


class FirstCrash:
    """The first background task that failed unexpectedly."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.happened = asyncio.Event()

    def note(self, name: str, error: BaseException) -> None:
        """For `BackgroundTasks`: the task `name` failed."""
        if isinstance(error, AccessDeniedError):  # of the configuration, not of the program
            log.error("zookeeper_refuses", error=error)
        else:
            log.error("task_crashed", task=name, error=error, exc_info=error)
        self.error = self.error or error
        self.happened.set()


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of a supervisor; `composition.build_supervisor` puts them together."""

    settings: SupervisorSettings
    conf: Mapping[str, Any]
    clock: Clock
    cluster: ClusterState
    blobs: BlobSource
    tasks: BackgroundTasks
    crash: FirstCrash
    state: LocalState  # as the supervisor before this one left it
    saved_state: SavedState
    last_known: LastKnownTopologies
    errors: TopologyErrors
    localizer: Localizer
    history: DaemonHistory
    node: Node
    probe: Probe
    connect_nimbus: Connect
    server: Callable[..., ThriftServer]
    # Returns the certificate of a secured cluster's CA, in PEM; None in an open one.
    ca: Callable[[], str] | None
    work: SignedWork | None = None  # of a secured cluster
    digests: Digests | None = None  # for ZooKeeper; None: everyone may do everything there


class Supervisor:
    """Call `start`, then `wait_ready`; `close` leaves the workers running."""

    def __init__(self, parts: Parts) -> None:
        settings = self.settings = parts.settings
        self.id = parts.state.supervisor_id
        self._conf = parts.conf
        self._clock = parts.clock
        self._cluster = parts.cluster
        self._blobs = parts.blobs
        self._tasks = parts.tasks
        self._crashes = parts.crash
        self._saved_state = parts.saved_state
        self._last_known = parts.last_known
        self._localizer = parts.localizer
        self._history = parts.history
        self._probe = parts.probe
        self._neighbours = parts.state.neighbours  # as last known
        self._started = self._clock.monotonic()
        self._assignments: dict[str, Assignment] = {}  # as last read
        self._problems: tuple[str, ...] = ()
        self._synced = asyncio.Event()
        self._clean_up_due = asyncio.Event()

        self._exits = parts.node.exits
        self._slots = Slots(parts.node, changed=self._on_slot_change)
        # The last known work of the ports.
        self._last_ports: dict[int, PortAssignment] = {
            port: one for port, one in parts.state.ports.items() if port in self._slots.runners
        }
        self._registration = Registration(
            self._cluster, self.id, self._info, every_secs=settings.heartbeat_secs
        )
        self._health = NodeHealth(
            settings.health_check_dir,
            timeout_secs=settings.health_check_timeout_secs,
            fail_on_timeouts=settings.health_check_fail_on_timeouts,
            changed=self._registration.request,
        )
        self._profiling = Profiling(
            self._cluster,
            self._slots.runners,
            settings,
            parts.errors,
            supervisor_id=self.id,
            clock=self._clock,
            tasks=self._tasks,
        )
        self._credentials = CredentialsUpdates(
            self._cluster, self._localizer, self._slots.worker_dirs
        )
        # Of a secured cluster; None in an open one.
        self._worker_tokens = (
            None
            if parts.ca is None
            else WorkerTokens(
                parts.connect_nimbus,
                self.id,
                ca=parts.ca,
                running=self._slots.slot_dirs,
                clock=self._clock,
            )
        )
        self._zookeeper_files = (
            None
            if parts.digests is None
            else ZooKeeperFiles(
                parts.digests, self._slots.slot_dirs, lambda: self._registration.request()
            )
        )
        self._memory_watch = MemoryWatch(
            self._slots.runners,
            parts.node.machine,
            settings,
            parts.errors.begin,
            parts.node.cgroups,
        )
        self._reports = WorkerReports(
            self._slots.runners,
            ReportSender(
                parts.connect_nimbus,
                self._cluster.put_worker_report,
                clock=self._clock,
                supervisor_id=self.id,
                call_bytes_max=settings.nimbus_frame_bytes_max,
            ),
            supervisor_id=self.id,
            workers_dir=settings.workers_dir,
            period_secs=settings.report_secs,
            clock=self._clock,
        )
        self._work = parts.work
        self._sync = self._make_sync()
        self._server = parts.server(
            storm.Supervisor,
            SupervisorService(self._last_assignments, self._sync.request),
            host=settings.thrift_host,
            port=settings.thrift_port,
            frame_bytes_max=settings.thrift_frame_bytes_max,
            insecure=settings.insecure,
        )

    def _make_sync(self) -> AssignmentSync | ManifestSync:
        every_secs = self.settings.sync_secs
        if self._work is None:
            return AssignmentSync(self._cluster, self._take, node=self.id, every_secs=every_secs)
        # Imported only where a cluster is secured: it takes some 40 ms.
        from squall_supervisor.node.manifest_sync import ManifestSync

        return ManifestSync(
            self._cluster, self._work, self._take_signed, node=self.id, every_secs=every_secs
        )

    # Life.

    async def start(self) -> None:
        """Serve, adopt workers, and begin to connect. Raises OSError (the port is in use) and
        InsecureListenerError."""
        settings = self.settings
        await self._server.start()
        await self._slots.adopt()
        self._last_ports.update(self._slots.wanted)
        # Its silence counts from here, not from before a slow start.
        self._neighbourhood = Neighbourhood(
            self._cluster,
            supervisor_id=self.id,
            timeout_secs=settings.worker_timeout_secs,
            known=self._neighbours,
            on_known=self._saved_state.set_neighbours,
            on_isolated=self._on_isolated,
            clock=self._clock,
            probe=self._probe,
        )
        self._cluster.store.add_listener(self._on_connection)
        self._tasks.start("cluster", self._connect())
        self._tasks.start("without ZooKeeper", self._begin_without_zookeeper())
        self._tasks.start("neighbourhood", self._neighbourhood.run())
        self._tasks.start("pulse", self._pulse())
        self._tasks.every("alive", _ALIVE_SECS, self._note_alive)
        self._tasks.start("clean-up", self._clean_up())
        self._tasks.every("memory watch", settings.monitor_secs, self._memory_watch.look)
        self._tasks.start("reports", self._reports.run())
        self._tasks.every("blob updates", settings.blob_update_secs, self._slots.update_blobs)
        self._tasks.every("blobs of moved topologies", _MOVED_SECS, self._slots.update_moved)
        self._tasks.every("credentials", settings.credentials_poll_secs, self._credentials.look)
        if self._worker_tokens is not None:
            self._tasks.every("worker tokens", TOKENS_LOOK_SECS, self._worker_tokens.look)
        if self._zookeeper_files is not None:
            files = self._zookeeper_files
            self._tasks.every("digests for ZooKeeper", ZOOKEEPER_LOOK_SECS, files.look)
        self._tasks.every("blob clean-up", settings.cache_clean_up_secs, self._localizer.clean_up)
        if settings.log_retention.every_secs > 0:
            self._tasks.every("log clean-up", settings.log_retention.every_secs, self._clean_logs)
        if "://" not in history_url(
            SupervisorOptions.read(self._conf)
        ):  # else Nimbus does it for all
            self._tasks.every("history", EXPIRE_EVERY_SECS, self._history.expire)

    async def wait_ready(self) -> None:
        """Wait until this node is registered and has read its assignments."""
        await self._registration.done.wait()
        await self._synced.wait()

    async def wait_crashed(self, until: asyncio.Task[Any]) -> BaseException | None:
        """Wait until something fails unexpectedly, and return the error: this process must then end
        and be started again. None if `until` is done first."""
        crashed = asyncio.create_task(self._crashes.happened.wait())
        try:
            await asyncio.wait({crashed, until}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            crashed.cancel()
        return self._crashes.error

    async def close(self) -> None:
        """Stop supervising. The workers run on."""
        await self._server.stop(grace_secs=2.0)
        await self._slots.close()
        await self._localizer.close()
        await self._history.close()
        await self._saved_state.close()
        await self._last_known.close()
        await self._tasks.close()
        await self._reports.close()
        await self._cluster.close()

    @property
    def port(self) -> int:
        """The Thrift port."""
        return self._server.port

    @property
    def slots(self) -> Slots:
        return self._slots

    @property
    def exits(self) -> RecentExits:
        """The workers that ended without being asked to."""
        return self._exits

    def _last_assignments(self) -> dict[str, Assignment]:
        return self._assignments

    async def _note_alive(self) -> None:
        await asyncio.to_thread(self._last_known.live, self._clock.boottime())

    # Cluster state.

    async def _connect(self) -> None:
        waiting = self._tasks.start("wait for ZooKeeper", self._log_waiting())
        try:
            while True:
                try:
                    await self._cluster.start()
                    break
                except AccessDeniedError:
                    raise  # until the configuration is another one
                except StoreError as error:
                    log.warning("cluster_state_not_ready", error=error)
                    await asyncio.sleep(1.0)
        finally:
            waiting.cancel()
        self._tasks.start("assignments", self._sync.run())
        self._tasks.start("profile requests", self._profiling.run())
        if self.settings.health_check_secs > 0:
            # Before it is registered: a node that is known to be broken gets no work.
            await self._health.look()
            self._tasks.every("health checks", self.settings.health_check_secs, self._health.look)
        self._tasks.start("registration", self._registration.run())

    async def _log_waiting(self) -> None:
        wait_secs = _WAITING_FIRST_SECS
        while True:
            await asyncio.sleep(wait_secs)
            wait_secs = _WAITING_LOG_SECS
            log.warning(
                "waiting_for_zookeeper",
                servers=self.settings.zookeeper_servers,
                port=self.settings.zookeeper_port,
            )

    def _on_connection(self, state: ConnectionState) -> None:
        log.info("zookeeper_connection", state=state.value)
        if state is ConnectionState.CONNECTED:
            self._registration.request()
            self._sync.request()
            self._profiling.request()

    def _info(self) -> SupervisorInfo:
        settings = self.settings
        return SupervisorInfo(
            time_secs=int(self._clock.time()),
            hostname=settings.hostname,
            assignment_id=self.id,
            used_ports=self._slots.used_ports,
            meta=self._slots.offered_ports if self._health.problem is None else (),
            scheduler_meta={
                **settings.scheduler_meta,
                META_KEY: self._blobs.sealing_key,
                **({} if self._health.problem is None else {UNHEALTHY_KEY: self._health.problem}),
                slot_reports.META_KEY: slot_reports.serialize(self._slots.reports()),
                **(
                    {}
                    if self._zookeeper_files is None
                    else {WITHOUT_DIGEST: self._zookeeper_files.published()}
                ),
                worker_exits.META_KEY: worker_exits.serialize(
                    self._exits.listed(self._clock.time())
                ),
                worker_exits.COUNTS_KEY: worker_exits.serialize_counts(
                    self._exits.counts(self._clock.time())
                ),
            },
            uptime_secs=int(self._clock.monotonic() - self._started),
            version=installed_version(),
            resources=settings.resources,
            server_port=self.port,
        )

    async def _take(self, assignments: Assignments, bases: Mapping[str, StormBase]) -> None:
        """Act on a complete reading of the assignments."""
        self._last_known.take(self.id, assignments, bases)  # first: workers start from it
        ports = self.settings.ports
        if self._work is None:
            desired = desired_ports(assignments, self.id, ports, self._last_ports)
        else:
            desired = self._work.desired(ports, self._last_ports)
        if desired.problems != self._problems:
            self._problems = desired.problems
            for problem in desired.problems:
                log.warning("assignment_problem", problem=problem)
        before = self._assignments
        self._assignments = {
            topology_id: one[0]
            for topology_id, one in assignments.items()
            if not isinstance(one, Unreadable)
        }
        self._last_ports = dict(desired.ports)
        self._slots.want(desired.ports)
        here = {one.topology_id for one in desired.ports.values()} & before.keys()
        if any(before[one] != self._assignments.get(one) for one in here):
            self._slots.placed_anew()
        self._synced.set()
        self._saved_state.set_ports(desired.ports)
        self._saved_state.save()  # again, if the last write failed
        self._clean_up_due.set()

    async def _take_signed(
        self, assignments: Assignments | None, bases: Mapping[str, StormBase]
    ) -> None:
        """Act on the newest manifest. Without one, nothing begins and nothing ends."""
        if assignments is None:
            self._synced.set()
        else:
            await self._take(assignments, bases)

    def _on_slot_change(self) -> None:
        self._profiling.request()
        self._registration.request()
        self._clean_up_due.set()

    async def _clean_up(self) -> None:
        """Remove what no slot needs any more, once the needs of the slots are known."""
        await self._synced.wait()
        while True:
            await self._clean_up_due.wait()
            self._clean_up_due.clear()
            if self._neighbourhood.isolated:
                continue  # stopped workers may start again: their code is kept
            await self._slots.remove_unused_topologies()

    async def _clean_logs(self) -> None:
        """Delete workers' logs that are too old or exceed the limits."""
        wanted = {
            (one.topology_id, port)
            for ports in (self._last_ports, self._slots.wanted)
            for port, one in ports.items()
        }
        await asyncio.to_thread(
            clean_up_logs,
            self.settings.artifacts_dir,
            self.settings.workers_dir,
            self.settings.log_retention,
            wanted=wanted,
            now_secs=self._clock.time(),
        )

    async def _begin_without_zookeeper(self) -> None:
        try:
            await asyncio.wait_for(self._synced.wait(), _WITHOUT_ZOOKEEPER_SECS)
        except TimeoutError:
            if self._last_ports:
                log.warning("begun_without_zookeeper", ports=sorted(self._last_ports))
            self._slots.want(self._last_ports)

    def _on_isolated(self) -> None:
        """Nimbus will run the work of this node elsewhere, and says so once it can be reached
        again: until then nothing is started, not even by the next supervisor."""
        log.error(
            "node_isolated",
            silent_secs=self.settings.worker_timeout_secs,
            what_now="stopping the workers; they start again when ZooKeeper says so",
        )
        self._slots.want({})
        self._last_ports = {}
        self._saved_state.set_ports({})

    async def _pulse(self) -> None:
        """Notice that this process, and so perhaps the machine, was stopped or suspended for a
        while: its work may have been moved meanwhile."""
        while True:
            before = self._clock.boottime()
            await asyncio.sleep(_PULSE_SECS)
            stopped_secs = self._clock.boottime() - before - _PULSE_SECS
            if stopped_secs > _STALL_SECS:
                log.warning("supervisor_was_stopped", secs=round(stopped_secs, 1))
                self._slots.forgive()
                self._sync.request()
