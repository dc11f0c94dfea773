"""One Nimbus: its parts put together, its loops, and its place in the election."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from squall_common.cluster.leader import Leadership, NotLeaderError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import ConnectionState, StoreError
from squall_common.cluster.values import NimbusInfo
from squall_common.daemon.background import BackgroundTasks
from squall_common.daemon.clock import Clock, SystemClock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.history.events import EXPIRE_EVERY_SECS, DaemonHistory
from squall_common.security.sealing import Receiver
from squall_nimbus.blobs import disk_reserve
from squall_nimbus.blobs.blob_sessions import BlobSessions
from squall_nimbus.blobs.disk_reserve import DiskReserve
from squall_nimbus.blobs.peers import ThriftPeers
from squall_nimbus.blobs.replication import Peers, Replication
from squall_nimbus.blobs.store import BlobNotFoundError, BlobStore
from squall_nimbus.blobs.uploads import Inbox
from squall_nimbus.leader import LeaderDesk
from squall_nimbus.scheduler.assigner import Assigner, Fence
from squall_nimbus.scheduler.monitor import Monitor
from squall_nimbus.store.catalog import Catalog
from squall_nimbus.topologies.cleanup import Cleanup
from squall_nimbus.topologies.finished import History
from squall_nimbus.topologies.lifecycle_shell import Control
from squall_nimbus.topologies.submit import Submitter
from squall_nimbus.topologies.user_changes import Settings
from squall_nimbus.views.reader import Reader
from squall_nimbus.views.worker_metrics import WorkerMetrics

log = get_logger(__name__)

# What a client that looks for our version gets: it must parse as a PEP 440 version and say that
# isTopologyNameAllowed is there (streamparse asks for 1.1.0 or later). It is Storm's line whose
# interface this is.
STORM_VERSION = "2.8.0"
# A supervisor that goes is looked at once more when its heartbeats may have become too old.
_SETTLE_SECS = 0.2
# A new leader waits so long for blobs that it lacks before it begins.
_SYNC_PATIENCE_SECS = 2.0


class Nimbus:
    """The daemon without its listener. `conf` is the merged configuration; `address` the host and
    port under which others reach it. `start` once the listener's port is known, `close` at the end.
    """

    def __init__(
        self,
        conf: Mapping[str, Any],
        state: ClusterState,
        *,
        address: tuple[str, int],
        clock: Clock | None = None,
        peers: Peers | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        self.host, self.port = address
        # What others are told of us, and what topologies are given, is what is true of us.
        self.conf = {**conf, "nimbus.thrift.port": self.port}
        self.state = state
        self.started_at = int(self.clock.time())
        self.tasks = BackgroundTasks(self._crashed)
        self.crashed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self._wake = asyncio.Event()  # the cluster changed: look now
        self._watching = False  # one watch at a time: each that is set stays until it fires
        self._term: asyncio.Task[None] | None = None
        local = Path(conf["storm.local.dir"])
        blobs = conf.get("blobstore.dir")
        idle_secs = float(conf.get("nimbus.blobstore.expiration.secs", 600))
        upload_bytes_max = int(conf.get("nimbus.upload.bytes.max") or 2**31)
        reserve_mb = float(conf.get(disk_reserve.KEY, 512))
        monotonic = self.clock.monotonic

        self.blobs = BlobStore(Path(blobs) if blobs else local / "nimbus" / "blobs")
        self.blob_sessions = BlobSessions(
            self.blobs,
            idle_secs=idle_secs,
            chunk_bytes=int(conf.get("storm.blobstore.inputstream.buffer.size.bytes") or 262_144),
            blob_bytes_max=upload_bytes_max,
            clock=monotonic,
            reserve=DiskReserve(self.blobs.folder, reserve_mb),
        )
        delay_ms = float(conf.get("nimbus.topology.blobstore.deletion.delay.ms", 300_000))
        self.receiver = Receiver()
        self.replication = Replication(
            self.blobs,
            state,
            peers or ThriftPeers(),
            receiver=self.receiver,
            address=address,
            clock=self.clock,
            fence=lambda: self.desk.leadership(),
            wait_secs=float(conf.get("topology.max.replication.wait.time.sec", 60)),
            copies=int(conf.get("topology.min.replication.count") or 1),
            keep_aside_secs=delay_ms / 1000,
        )
        self.catalog = Catalog(
            self.blobs, local / "nimbus" / "stormdist", ensure=self.replication.ensure
        )
        self.inbox = Inbox(
            local / "nimbus" / "inbox",
            idle_secs=float(conf.get("nimbus.file.copy.expiration.secs", 600)),
            keep_secs=float(conf.get("nimbus.inbox.jar.expiration.secs", 3600)),
            upload_bytes_max=upload_bytes_max,
            clock=monotonic,
            reserve=DiskReserve(local / "nimbus" / "inbox", reserve_mb),
        )
        self.chronicle = DaemonHistory(
            self.conf,
            name=f"nimbus {self.host}:{self.port}",
            clock=self.clock,
            topology_conf=self._conf_of,
        )
        self.history = History(
            local / "nimbus" / "history.json",
            age_secs_max=60 * float(conf.get("logviewer.cleanup.age.mins") or 10_080),
        )
        self.monitor = Monitor(
            task_timeout_secs=float(conf.get("nimbus.task.timeout.secs", 45)),
            launch_secs=float(conf.get("nimbus.task.launch.secs", 120)),
            session_timeout_secs=float(conf.get("storm.zookeeper.session.timeout", 20_000)) / 1000,
        )
        self.metrics = WorkerMetrics()
        self.assigner = Assigner(
            state,
            self.catalog,
            self.monitor,
            clock=self.clock,
            master_code_dir=str(local / "nimbus" / "stormdist"),
            tell=self.chronicle.tell,
        )
        self.control = Control(
            state,
            self.catalog,
            self.replication,
            self.assigner,
            fence=self.fence,
            remove=self._remove,
            tasks=self.tasks,
            tell=self.chronicle.tell,
        )
        self.submitter = Submitter(
            state,
            self.catalog,
            self.blobs,
            self.replication,
            self.inbox,
            self.control,
            conf=self.conf,
            clock=self.clock,
            fence=self.fence,
            tell=self.chronicle.tell,
        )
        self.cleanup = Cleanup(
            state,
            self.catalog,
            self.replication,
            self.monitor,
            self.history,
            clock=self.clock,
            delay_secs=delay_ms / 1000,
            submitting=lambda: self.submitter.submitting,
        )
        self.desk = LeaderDesk(
            state,
            f"{self.host}:{self.port}",
            clock=self.clock,
            on_gained=self._gained,
            on_lost=self._lost,
        )
        self.reader = Reader(
            state, self.catalog, self.desk, copies=self.replication.holders, clock=self.clock
        )
        self.settings = Settings(state, self.control, clock=self.clock, fence=self.fence)

    async def start(self) -> None:
        """Read the disk, announce this Nimbus, stand for election. The state is connected."""
        await asyncio.to_thread(self.blobs.open)
        self.catalog.open()
        self.inbox.open()
        self.history.open()
        self.monitor.session_timeout_secs = self.state.store.session_timeout_secs
        self.state.store.add_listener(self._connection_changed)
        await self._announce()
        self.tasks.start(
            "blobs",
            self.replication.follow(float(self.conf.get("nimbus.code.sync.freq.secs", 120))),
        )
        await self.desk.start()
        freq = float(self.conf.get("nimbus.monitor.freq.secs", 10))
        self.tasks.start("nimbus_loop", self._loop(freq))
        self.tasks.every("expiry", min(freq, 10.0), self._expire_sessions)
        inbox_freq = float(self.conf.get("nimbus.cleanup.inbox.freq.secs", 600))
        self.tasks.every("inbox_cleanup", inbox_freq, self._expire_inbox)
        self.tasks.every("history_expiry", EXPIRE_EVERY_SECS, self.chronicle.expire)

    async def close(self) -> None:
        """Step down, end everything. The state is still the caller's to close."""
        self.state.store.remove_listener(self._connection_changed)
        await self.desk.close()
        await self.tasks.close()
        await self.chronicle.close()
        self.blob_sessions.close()
        self.inbox.close()

    async def fence(self) -> Fence:
        """The right to write as the leader; raises NotTheLeaderError."""
        return await self.desk.require()

    def _conf_of(self, topology_id: str) -> Mapping[str, Any]:
        """Raises LookupError for a topology that this Nimbus does not have, and SquallError when
        what it has cannot be read."""
        try:
            return self.catalog.get(topology_id).conf
        except BlobNotFoundError as error:
            raise LookupError(topology_id) from error

    async def _remove(self, topology_id: str, base: Any, fence: Fence) -> None:
        await self.cleanup.remove(topology_id, base, fence)
        self.chronicle.forget(topology_id)
        self._wake.set()  # its slots are free for others

    # Leadership

    def _gained(self, leadership: Leadership) -> None:
        self._term = self.tasks.start("take_over", self._take_over(leadership))

    def _lost(self) -> None:
        if self._term is not None:
            self._term.cancel()
            self._term = None
        self.monitor.pause()
        self.control.step_down()
        for topology_id in self.chronicle.known:
            self.chronicle.tell(topology_id, "leader lost", f"{self.host}:{self.port}")
        self.tasks.start("announce", self._announce_again())

    async def _take_over(self, leadership: Leadership) -> None:
        """Begin a term: everybody's time-outs anew, and what was pending is ours."""
        self.monitor.resume(self.clock.monotonic())
        while not leadership.ended:
            try:
                await self._announce()
                await self._settle_blobs()
                await self.control.take_over()
                for topology_id in await self.state.storms():
                    self.chronicle.tell(topology_id, "leader gained", f"{self.host}:{self.port}")
                break
            except (StoreError, SquallError, BlobNotFoundError) as error:
                log.warning("take_over_failed", error=error)
                await asyncio.sleep(0.5)
        self._wake.set()

    async def _settle_blobs(self) -> None:
        """Have what the records say before acting on it, as far as that can be done soon; a
        topology whose code is not here is left as it is until the code comes."""
        try:
            async with asyncio.timeout(_SYNC_PATIENCE_SECS):
                await self.replication.sync()
        except TimeoutError:
            log.warning("blobs_still_coming")

    async def _announce(self) -> None:
        await self.state.register_nimbus(
            NimbusInfo(
                self.host,
                self.port,
                self.started_at,  # as Storm has it: the time of the start, not an age
                self.desk.leading,
                STORM_VERSION,
                self.receiver.public,
            )
        )

    async def _announce_again(self) -> None:
        try:
            await self._announce()
        except StoreError as error:  # the next connection does it
            log.info("announce_failed", error=error)

    def _connection_changed(self, connection: ConnectionState) -> None:
        if connection is not ConnectionState.CONNECTED:
            self.monitor.pause()
            return
        self.tasks.start("announce", self._announce_again())
        self.replication.request()
        # Whoever leads: verdicts are the leader's, and a term that is not active at this moment (no
        # request has been answered yet) may go on.
        self.monitor.resume(self.clock.monotonic())
        self._wake.set()

    # Loops

    async def _loop(self, freq_secs: float) -> None:
        """Look after everything at every change of the supervisors, and regularly."""
        while True:
            self._wake.clear()
            await self._look()
            try:
                async with asyncio.timeout(freq_secs):
                    await self._wake.wait()
                await asyncio.sleep(_SETTLE_SECS)  # changes come in crowds
            except TimeoutError:
                pass

    async def _look(self) -> None:
        leadership = self.desk.leadership()
        steps: list[Callable[[], Awaitable[None]]] = []
        if not self._watching:
            steps.append(self._watch_supervisors)
        if leadership is not None:
            steps += [
                self.control.look_after,
                functools.partial(self.assigner.judge, leadership),
                functools.partial(self.cleanup.search, leadership),
                self._forget_metrics,
            ]
        for step in steps:  # each for itself: a failure of one does not keep the next from its work
            try:
                await step()
            except NotLeaderError as error:
                log.info("round_given_up", error=error)
                return
            except (StoreError, SquallError, BlobNotFoundError, OSError) as error:
                log.warning("round_failed", error=error)

    async def _forget_metrics(self) -> None:
        self.metrics.keep(await self.state.storms())

    async def _watch_supervisors(self) -> None:
        self._watching = True
        try:
            await self.state.supervisors(watch=self._supervisors_changed)
        except BaseException:
            self._watching = False
            raise

    def _supervisors_changed(self, path: str) -> None:
        self._watching = False
        self._wake.set()

    async def _expire_sessions(self) -> None:
        self.blob_sessions.expire()

    async def _expire_inbox(self) -> None:
        await asyncio.to_thread(self.inbox.expire)

    def _crashed(self, task: str, error: BaseException) -> None:
        log.error("task_crashed", task=task, error=error, exc_info=error)
        if not self.crashed.done():
            self.crashed.set_result(error)
