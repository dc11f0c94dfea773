"""Puts one Nimbus together: creates its parts, in the order in which they need each other."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from squall_common.client.nimbus import nimbus_credentials
from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.leader import Fence
from squall_common.cluster.state import ClusterState
from squall_common.config.options.typed import ClientOptions, NimbusOptions
from squall_common.daemon.clock import Clock, SystemClock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.errors import SquallError
from squall_common.history.events import DaemonHistory
from squall_common.history.settings import history_url
from squall_common.names import conf_blob_key
from squall_common.security.access import OpenAccess
from squall_common.security.quotas import Quotas
from squall_common.security.sealing import Receiver
from squall_common.topology.model import WorkerSlot
from squall_nimbus.access.objects import Objects
from squall_nimbus.access.zookeeper_lists import ZooKeeperLists
from squall_nimbus.blobs.blob_sessions import BlobSessions
from squall_nimbus.blobs.disk_reserve import DiskReserve
from squall_nimbus.blobs.peers import ThriftPeers
from squall_nimbus.blobs.replication import Peers, Replication
from squall_nimbus.blobs.store import BlobNotFoundError, BlobStore
from squall_nimbus.blobs.uploads import Inbox
from squall_nimbus.leader import LeaderElector
from squall_nimbus.nimbus import Nimbus
from squall_nimbus.scheduler.assigner import Assigner
from squall_nimbus.scheduler.heartbeats import Heartbeats
from squall_nimbus.scheduler.monitor import Monitor
from squall_nimbus.scheduler.watched import WatchedTopologies
from squall_nimbus.scheduler.worker_beats import WorkerBeats
from squall_nimbus.store.topology_store import TopologyStore, code_blob_keys
from squall_nimbus.topologies.cleanup import Cleanup
from squall_nimbus.topologies.credentials import CredentialsKeeper, load_plugins
from squall_nimbus.topologies.finished import FinishedTopologies
from squall_nimbus.topologies.lifecycle_shell import LifecycleShell
from squall_nimbus.topologies.quotas import TopologyQuotas
from squall_nimbus.topologies.submit import Submitter, no_audiences
from squall_nimbus.topologies.user_changes import UserChanges
from squall_nimbus.views.cluster_reader import ClusterReader
from squall_nimbus.views.live_state import StateQuestions
from squall_nimbus.views.worker_metrics import WorkerMetrics

if TYPE_CHECKING:
    from squall_common.authentication.files import Trusted
    from squall_common.security.worker_tokens import WorkerToken
    from squall_nimbus.access.signed_store import SignedStore

log = get_logger(__name__)


def build_nimbus(
    options: NimbusOptions,
    conf: Mapping[str, Any],
    state: ClusterState,
    *,
    address: tuple[str, int],
    clock: Clock | None = None,
    peers: Peers | None = None,
    trusted: Trusted | None = None,
    access: StoreAccess | None = None,
) -> Nimbus:
    """Build a Nimbus on the running loop, without starting it. `conf` is the merged configuration,
    which topologies get below their own and clients may ask for, and `options` what Nimbus reads of
    it; `address` is the host and port under which others reach it; `peers` are the other Nimbus
    nodes, reached over Thrift unless a test says otherwise; `trusted` is the root of trust of a
    secured cluster; `access` is what the store of `state` shows to ZooKeeper. Raises ConfigError
    for a plug-in that cannot be made."""
    host, port = address
    clock = clock or SystemClock()
    # Others, and topologies, get the address that this Nimbus really has.
    conf = {**conf, "nimbus.thrift.port": port}
    options = msgspec.structs.replace(options, nimbus_thrift_port=port)
    local = Path(options.storm_local_dir)
    stormdist, inbox_dir = local / "nimbus" / "stormdist", local / "nimbus" / "inbox"
    blobs_dir = options.blobstore_dir
    signing, session = None, state.store
    if trusted is not None:
        # Imported only where a cluster is secured: it takes some 40 ms.
        from squall_nimbus.access.secured import sign_states

        signing = sign_states(trusted, options, state, clock)
        state = ClusterState(signing.store)
    upload_bytes_max = options.nimbus_upload_bytes_max
    reserve_mb = options.nimbus_disk_reserve_mb
    delay_secs = options.nimbus_topology_blobstore_deletion_delay_ms / 1000

    crashed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    tasks = BackgroundTasks(functools.partial(_note_crash, crashed))
    wake = asyncio.Event()
    submitting: set[str] = set()  # ids that the submitter is working on
    leader_elector = LeaderElector(state, f"{host}:{port}", clock=clock)
    receiver = Receiver()
    monitor = Monitor(
        task_timeout_secs=options.nimbus_task_timeout_secs,
        launch_secs=options.nimbus_task_launch_secs,
        session_timeout_secs=options.storm_zookeeper_session_timeout / 1000,
    )
    heartbeats = Heartbeats(monitor)
    peers = peers or ThriftPeers(nimbus_credentials(ClientOptions.read(conf)))
    worker_beats = WorkerBeats(state, heartbeats, leader_elector, peers, clock=clock)
    finished = FinishedTopologies(
        local / "nimbus" / "history.json",
        age_secs_max=60 * options.logviewer_cleanup_age_mins,
    )
    blobs = BlobStore(Path(blobs_dir) if blobs_dir else local / "nimbus" / "blobs")
    quotas = Quotas.of(options.nimbus_quotas)
    blob_sessions = BlobSessions(
        blobs,
        idle_secs=options.nimbus_blobstore_expiration_secs,
        chunk_bytes=options.storm_blobstore_inputstream_buffer_size_bytes,
        blob_bytes_max=upload_bytes_max,
        clock=clock.monotonic,
        reserve=DiskReserve(blobs.folder, reserve_mb),
        check_owner=quotas.check_blob_bytes,
    )
    inbox = Inbox(
        inbox_dir,
        idle_secs=options.nimbus_file_copy_expiration_secs,
        keep_secs=options.nimbus_inbox_jar_expiration_secs,
        upload_bytes_max=upload_bytes_max,
        clock=clock.monotonic,
        reserve=DiskReserve(inbox_dir, reserve_mb),
    )
    replication = Replication(
        blobs,
        state,
        peers,
        receiver=receiver,
        address=address,
        clock=clock,
        fence=leader_elector.leadership,
        wait_secs=options.topology_max_replication_wait_time_sec,
        copies=options.topology_min_replication_count,
        keep_aside_secs=delay_secs,
    )
    if signing is not None:
        replication.on_published = signing.store.blobs_written
    topology_store = TopologyStore(blobs, stormdist, ensure=replication.ensure)
    history = DaemonHistory(
        history_url(options),
        retention_hours=options.storm_history_retention_hours,
        name=f"nimbus {host}:{port}",
        clock=clock,
        topology_conf=functools.partial(_conf_of, topology_store),
    )
    assigner = Assigner(
        state,
        topology_store,
        monitor,
        heartbeats,
        clock=clock,
        master_code_dir=str(stormdist),
        record_event=history.record_event,
    )
    cleanup = Cleanup(
        state,
        topology_store,
        replication,
        monitor,
        finished,
        clock=clock,
        delay_secs=delay_secs,
        submitting=submitting,
    )

    async def remove(topology_id: str, base: Any, fence: Fence) -> None:
        await cleanup.remove(topology_id, base, fence)
        history.forget(topology_id)
        wake.set()  # its slots are free for others

    lifecycle = LifecycleShell(
        state,
        topology_store,
        replication,
        assigner,
        beats=worker_beats.of,
        fence=leader_elector.require,
        remove=remove,
        tasks=tasks,
        record_event=history.record_event,
    )
    populators = "nimbus.autocredential.plugins.classes"
    renewers = "nimbus.credential.renewers.classes"
    credentials = CredentialsKeeper(
        state,
        blobs,
        replication,
        topology_store,
        clock=clock,
        populating=load_plugins(
            populators, options.nimbus_autocredential_plugins_classes, "populate_credentials"
        ),
        renewing=load_plugins(renewers, options.nimbus_credential_renewers_classes, "renew"),
    )
    outside = None
    if signing is not None and options.storm_identity_issuer is not None:
        from squall_nimbus.access.secured import issue_outside

        outside = issue_outside(
            signing,
            options,
            state,
            declared=functools.partial(_declared, blobs, topology_store),
            clock=clock,
        )
    lists = None
    if access is not None:
        lists = ZooKeeperLists(
            session,
            access,
            state,
            conf_of=lambda topology_id: topology_store.get(topology_id).conf,
            submitting=submitting,
            clock=clock,
        )
    submitter = Submitter(
        state,
        topology_store,
        blobs,
        replication,
        inbox,
        lifecycle,
        credentials,
        options=options,
        conf=conf,
        clock=clock,
        fence=leader_elector.require,
        record_event=history.record_event,
        submitting=submitting,
        quotas=TopologyQuotas(quotas, state, blobs.bytes_of),
        audience_problems=no_audiences if outside is None else outside.problems,
        prepare=None if lists is None else lists.prepare,
    )
    secured = None
    if signing is not None:
        from squall_nimbus.access.secured import secure

        secured = secure(
            signing,
            options,
            state,
            fence=leader_elector.require,
            clock=clock,
            worker_ended=functools.partial(_worker_ended, signing.store, leader_elector),
        )
        signing.store.signer.hashes_of = functools.partial(content_hashes, blobs, topology_store)
        signing.store.changed = wake.set
    return Nimbus(
        objects=Objects(state, topology_store),
        access=OpenAccess() if secured is None else secured.access,
        tokens=None if secured is None else secured.tokens,
        outside=outside,
        signed=None if signing is None else signing.store,
        lists=lists,
        authenticator=None if secured is None else secured.authenticator,
        legacy=None if secured is None else secured.legacy,
        close_audit=(lambda: None) if secured is None else secured.close,
        options=options,
        conf=conf,
        state=state,
        host=host,
        port=port,
        clock=clock,
        tasks=tasks,
        crashed=crashed,
        wake=wake,
        blobs=blobs,
        blob_sessions=blob_sessions,
        receiver=receiver,
        replication=replication,
        topology_store=topology_store,
        inbox=inbox,
        history=history,
        finished=finished,
        monitor=monitor,
        heartbeats=heartbeats,
        watched=WatchedTopologies(monitor.executors),
        state_questions=StateQuestions(clock.monotonic),
        metrics=WorkerMetrics(),
        assigner=assigner,
        lifecycle=lifecycle,
        submitter=submitter,
        cleanup=cleanup,
        leader_elector=leader_elector,
        reader=ClusterReader(
            state,
            topology_store,
            leader_elector,
            beats=worker_beats.of,
            ends=worker_beats.ends,
            finished_by_leader=worker_beats.finished_by_leader,
            copies=replication.holders,
            clock=clock,
        ),
        credentials=credentials,
        user_changes=UserChanges(
            state, lifecycle, credentials, clock=clock, fence=leader_elector.require
        ),
    )


def content_hashes(
    blobs: BlobStore, topology_store: TopologyStore, topology_id: str
) -> dict[str, str]:
    """The hashes of what a topology's workers run, by the keys of the blobs: its own, and those
    that it names. Raises BlobNotFoundError, SquallError."""
    keys = {*code_blob_keys(topology_id), *topology_store.get(topology_id).blob_keys}
    return {key: blobs.meta(key).sha256 for key in sorted(keys)}


async def _declared(
    blobs: BlobStore, topology_store: TopologyStore, topology_id: str
) -> tuple[tuple[str, ...], str, str]:
    """The audiences that a topology declares, the blob that says so, and the hash of its bytes.
    Raises SquallError."""
    await topology_store.have([topology_id])
    key = conf_blob_key(topology_id)
    try:
        # Its hash first: of what was replaced meanwhile, it is an old one, which is not signed.
        digest = blobs.meta(key).sha256
        topology = topology_store.get(topology_id)
    except BlobNotFoundError as error:
        raise SquallError(f"this Nimbus does not have the code of {topology_id} yet") from error
    return topology.options.topology_identity_audiences, key, digest


def _conf_of(topology_store: TopologyStore, topology_id: str) -> Mapping[str, Any]:
    """Raises LookupError for a topology that this Nimbus does not have, and SquallError if it
    cannot be read."""
    try:
        return topology_store.get(topology_id).conf
    except BlobNotFoundError as error:
        raise LookupError(topology_id) from error


def _worker_ended(
    signed: SignedStore, leader_elector: LeaderElector, token: WorkerToken
) -> str | None:
    """Why a worker's token counts no longer: the leader goes by what it has signed, and by another
    Nimbus a worker only asks who leads."""
    name, node, port = token.topology_id, token.node, token.port
    if not leader_elector.leading or signed.is_on(name, node, port):
        return None
    return f"{name} is not on {WorkerSlot(node, port)}"


def _note_crash(crashed: asyncio.Future[BaseException], task: str, error: BaseException) -> None:
    log.error("task_crashed", task=task, error=error, exc_info=error)
    if not crashed.done():
        crashed.set_result(error)
