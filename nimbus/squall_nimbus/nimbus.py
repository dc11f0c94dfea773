"""One Nimbus: its loops, and its place in the election. `composition` puts its parts together."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall_common.cluster.leader import Fence, Leadership, NotLeaderError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import ConnectionState, StoreError
from squall_common.cluster.values import NimbusInfo
from squall_common.config.options.typed import NimbusOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.errors import SquallError
from squall_common.history.events import EXPIRE_EVERY_SECS, DaemonHistory
from squall_common.security.access import Access
from squall_common.security.sealing import Receiver
from squall_nimbus.access.objects import Objects
from squall_nimbus.access.zookeeper_lists import ZooKeeperLists
from squall_nimbus.blobs.blob_sessions import BlobSessions
from squall_nimbus.blobs.replication import Replication
from squall_nimbus.blobs.store import BlobNotFoundError, BlobStore
from squall_nimbus.blobs.uploads import Inbox
from squall_nimbus.leader import LeaderElector
from squall_nimbus.scheduler.assigner import Assigner
from squall_nimbus.scheduler.heartbeats import Heartbeats
from squall_nimbus.scheduler.monitor import AWAKE_SECS, Monitor
from squall_nimbus.scheduler.watched import WatchedTopologies
from squall_nimbus.store.topology_store import TopologyStore
from squall_nimbus.topologies.cleanup import Cleanup
from squall_nimbus.topologies.credentials import CredentialsKeeper
from squall_nimbus.topologies.finished import FinishedTopologies
from squall_nimbus.topologies.lifecycle_shell import LifecycleShell
from squall_nimbus.topologies.submit import Submitter
from squall_nimbus.topologies.user_changes import UserChanges
from squall_nimbus.views.cluster_reader import ClusterReader
from squall_nimbus.views.live_state import StateQuestions
from squall_nimbus.views.worker_metrics import WorkerMetrics

if TYPE_CHECKING:
    from squall_common.authentication.authenticator import PeerAuthenticator
    from squall_nimbus.access.outside_tokens import OutsideTokens
    from squall_nimbus.access.signed_store import SignedStore
    from squall_nimbus.access.tokens import Tokens
    from squall_nimbus.legacy.authenticator import LegacyAuthenticator

log = get_logger(__name__)

# The version that clients see. It must parse as a PEP 440 version and show that
# isTopologyNameAllowed exists (streamparse asks for 1.1.0 or later). It is the version of Storm
# whose interface this is.
STORM_VERSION = "2.8.0"
# A supervisor that goes away is checked again when its heartbeats may have become too old.
_SETTLE_SECS = 0.2
# How often a Nimbus looks at what was revoked.
_TOKENS_SECS = 10.0
# How long a new leader waits for blobs that it lacks before it begins.
_SYNC_PATIENCE_SECS = 2.0


@dataclass(kw_only=True, eq=False)
class Nimbus:
    """The daemon without its listener, put together by `composition.build_nimbus`. Call `start`
    once the listener's port is known, and `close` at the end.
    """

    options: NimbusOptions
    conf: Mapping[str, Any]  # the merged configuration, with this Nimbus' real address
    state: ClusterState
    host: str  # under which, with the port, others reach it
    port: int
    clock: Clock
    tasks: BackgroundTasks
    crashed: asyncio.Future[BaseException]  # the first background task that failed
    wake: asyncio.Event  # the cluster changed: look now
    blobs: BlobStore
    blob_sessions: BlobSessions
    receiver: Receiver
    replication: Replication
    topology_store: TopologyStore
    inbox: Inbox
    history: DaemonHistory
    finished: FinishedTopologies
    monitor: Monitor
    heartbeats: Heartbeats
    watched: WatchedTopologies
    state_questions: StateQuestions
    metrics: WorkerMetrics
    assigner: Assigner
    lifecycle: LifecycleShell
    submitter: Submitter
    cleanup: Cleanup
    leader_elector: LeaderElector
    reader: ClusterReader
    credentials: CredentialsKeeper
    user_changes: UserChanges
    objects: Objects
    access: Access
    # Of a secured cluster; None in an open one.
    tokens: Tokens | None = None
    outside: OutsideTokens | None = None  # and that has an issuer
    signed: SignedStore | None = None
    authenticator: PeerAuthenticator | None = None
    legacy: LegacyAuthenticator | None = None  # of the port for Storm's Java clients
    lists: ZooKeeperLists | None = None  # None: its nodes have no access lists
    close_audit: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self.started_at = int(self.clock.time())
        self._watching = False  # one watch at a time: each one stays until it fires
        self._term: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the disk, announce this Nimbus, stand for election. The state must be connected."""
        await asyncio.to_thread(self.blobs.open)
        self.topology_store.open()
        self.inbox.open()
        self.finished.open()
        if self.tokens is not None:
            self.tokens.open()
            await self._refresh_tokens()
            self.tasks.every("tokens", _TOKENS_SECS, self._refresh_tokens)
        if self.signed is not None:  # after the tokens, which read what was revoked
            await asyncio.to_thread(self.signed.ledger.open)
            self.tasks.start("signed states", self.signed.follow())
        if self.outside is not None:
            await asyncio.to_thread(self.outside.keys.open)
            await self._refresh_outside()
            self.tasks.every("outside keys", _TOKENS_SECS, self._refresh_outside)
        self.monitor.session_timeout_secs = self.state.store.session_timeout_secs
        self.state.store.add_listener(self._connection_changed)
        await self._announce()
        self.tasks.start(
            "blobs",
            self.replication.follow(self.options.nimbus_code_sync_freq_secs),
        )
        await self.leader_elector.start(self._gained, self._lost)
        freq = self.options.nimbus_monitor_freq_secs
        self.tasks.start("nimbus_loop", self._loop(freq))
        self.tasks.every("awake", AWAKE_SECS, self._note_awake)
        self.tasks.every("expiry", min(freq, 10.0), self._expire_sessions)
        inbox_freq = self.options.nimbus_cleanup_inbox_freq_secs
        self.tasks.every("inbox_cleanup", inbox_freq, self._expire_inbox)
        self.tasks.every("history_expiry", EXPIRE_EVERY_SECS, self.history.expire)
        renew_secs = self.options.nimbus_credential_renewers_freq_secs
        self.tasks.every("credentials", renew_secs, self._renew_credentials)

    async def close(self) -> None:
        """Step down and stop all tasks. The caller closes the state."""
        self.state.store.remove_listener(self._connection_changed)
        await self.leader_elector.close()
        await self.tasks.close()
        if self.signed is not None:
            await self.signed.ledger.write()
        await self.history.close()
        self.blob_sessions.close()
        self.inbox.close()
        self.close_audit()

    async def fence(self) -> Fence:
        """Return the right to write as the leader. Raises NotTheLeaderError."""
        return await self.leader_elector.require()

    # Leadership

    def _gained(self, leadership: Leadership) -> None:
        if self.signed is not None:
            self.signed.expire()
        self._term = self.tasks.start("take_over", self._take_over(leadership))

    def _lost(self) -> None:
        if self._term is not None:
            self._term.cancel()
            self._term = None
        self.monitor.pause()
        self.heartbeats.clear()
        self.lifecycle.step_down()
        for topology_id in self.history.known:
            self.history.record_event(topology_id, "leader lost", f"{self.host}:{self.port}")
        self.tasks.start("announce", self._announce_again())

    async def _take_over(self, leadership: Leadership) -> None:
        """Begin a term: restart all timeouts, and take over what was pending."""
        self.monitor.resume(self.clock.monotonic())
        while not leadership.ended:
            try:
                await self._announce()
                await self._settle_blobs()
                await self.lifecycle.take_over()
                topology_ids = await self.state.topology_ids()
                await self.credentials.adopt(topology_ids, self.lifecycle.locks, leadership)
                for topology_id in topology_ids:
                    self.history.record_event(
                        topology_id, "leader gained", f"{self.host}:{self.port}"
                    )
                break
            except (StoreError, SquallError, BlobNotFoundError) as error:
                log.warning("take_over_failed", error=error)
                await asyncio.sleep(0.5)
        self.wake.set()

    async def _settle_blobs(self) -> None:
        """Fetch what the records list before acting on it, as far as that is possible soon. A
        topology whose code is not here is left alone until the code arrives."""
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
                self.started_at,  # as in Storm: the time of the start, not an age
                self.leader_elector.leading,
                STORM_VERSION,
                self.receiver.public,
            )
        )

    async def _announce_again(self) -> None:
        try:
            await self._announce()
        except StoreError as error:  # the next connection does it again
            log.info("announce_failed", error=error)

    def _connection_changed(self, connection: ConnectionState) -> None:
        if connection is not ConnectionState.CONNECTED:
            self.monitor.pause()
            return
        self.tasks.start("announce", self._announce_again())
        self.replication.request()
        # Whether or not this Nimbus leads: only the leader acts on verdicts, and a term that is
        # inactive at this moment (no request has been answered yet) may continue.
        self.monitor.resume(self.clock.monotonic())
        self.wake.set()

    async def _refresh_tokens(self) -> None:
        assert self.tokens is not None
        try:
            await self.tokens.refresh()
        except StoreError as error:  # what it knows still counts
            log.info("token_register_not_read", error=error)

    async def _refresh_outside(self) -> None:
        """Without a key that is published, no identity token is issued; nothing else waits."""
        assert self.outside is not None
        try:
            await self.outside.keys.refresh()
        except (StoreError, SquallError, ValueError, OSError) as error:
            log.warning("outside_keys_not_published", error=error)

    # Loops

    async def _loop(self, freq_secs: float) -> None:
        """Check everything at every change of the supervisors, and at regular intervals."""
        while True:
            self.wake.clear()
            await self._look()
            try:
                async with asyncio.timeout(freq_secs):
                    await self.wake.wait()
                await asyncio.sleep(_SETTLE_SECS)  # changes come in bursts
            except TimeoutError:
                pass

    async def _look(self) -> None:
        leadership = self.leader_elector.leadership()
        steps: list[Callable[[], Awaitable[None]]] = []
        if not self._watching:
            steps.append(self._watch_supervisors)
        if leadership is not None:
            steps += [
                self.lifecycle.look_after,
                *(
                    []
                    if self.signed is None
                    else [functools.partial(self.signed.maintain, leadership)]
                ),
                *([] if self.lists is None else [functools.partial(self.lists.settle, leadership)]),
                functools.partial(self.assigner.judge, leadership),
                functools.partial(self.cleanup.search, leadership),
                self._forget_metrics,
            ]
        for step in steps:  # independently: a step that fails does not stop the next
            try:
                await step()
            except NotLeaderError as error:
                log.info("round_given_up", error=error)
                return
            except (StoreError, SquallError, BlobNotFoundError, OSError) as error:
                log.warning("round_failed", error=error)

    async def _forget_metrics(self) -> None:
        self.metrics.keep(await self.state.topology_ids())

    async def _watch_supervisors(self) -> None:
        self._watching = True
        try:
            await self.state.supervisors(watch=self._supervisors_changed)
        except BaseException:
            self._watching = False
            raise

    def _supervisors_changed(self, path: str) -> None:
        self._watching = False
        self.wake.set()

    async def _note_awake(self) -> None:
        if self.monitor.awake(asyncio.get_running_loop().time(), self.clock.monotonic()):
            log.warning("nimbus_was_stopped", what_now="all timeouts of workers begin anew")

    async def _renew_credentials(self) -> None:
        if self.leader_elector.leadership() is None:
            return
        try:
            await self.credentials.renew(self.lifecycle.locks, self.leader_elector.require)
        except (StoreError, SquallError) as error:
            log.warning("credentials_not_renewed", error=error)

    async def _expire_sessions(self) -> None:
        self.blob_sessions.expire()

    async def _expire_inbox(self) -> None:
        await asyncio.to_thread(self.inbox.expire)
