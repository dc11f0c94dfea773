"""Puts one Nimbus together: creates its parts, in the order in which they need each other."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from squall_common.cluster.leader import Fence
from squall_common.cluster.state import ClusterState
from squall_common.config.options.typed import NimbusOptions
from squall_common.daemon.background import BackgroundTasks
from squall_common.daemon.clock import Clock, SystemClock
from squall_common.daemon.logs import get_logger
from squall_common.history.events import DaemonHistory
from squall_common.history.settings import history_url
from squall_common.security.sealing import Receiver
from squall_nimbus.blobs.blob_sessions import BlobSessions
from squall_nimbus.blobs.disk_reserve import DiskReserve
from squall_nimbus.blobs.peers import ThriftPeers
from squall_nimbus.blobs.replication import Peers, Replication
from squall_nimbus.blobs.store import BlobNotFoundError, BlobStore
from squall_nimbus.blobs.uploads import Inbox
from squall_nimbus.leader import LeaderDesk
from squall_nimbus.nimbus import Nimbus
from squall_nimbus.scheduler.assigner import Assigner
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


def build_nimbus(
    options: NimbusOptions,
    conf: Mapping[str, Any],
    state: ClusterState,
    *,
    address: tuple[str, int],
    clock: Clock | None = None,
    peers: Peers | None = None,
) -> Nimbus:
    """Build a Nimbus on the running loop, without starting it. `conf` is the merged configuration,
    which topologies get below their own and clients may ask for, and `options` what Nimbus reads of
    it; `address` is the host and port under which others reach it; `peers` are the other Nimbus
    nodes, reached over Thrift unless a test says otherwise."""
    host, port = address
    clock = clock or SystemClock()
    # Others, and topologies, get the address that this Nimbus really has.
    conf = {**conf, "nimbus.thrift.port": port}
    options = msgspec.structs.replace(options, nimbus_thrift_port=port)
    local = Path(options.storm_local_dir)
    stormdist, inbox_dir = local / "nimbus" / "stormdist", local / "nimbus" / "inbox"
    blobs_dir = options.blobstore_dir
    upload_bytes_max = options.nimbus_upload_bytes_max
    reserve_mb = options.nimbus_disk_reserve_mb
    delay_secs = options.nimbus_topology_blobstore_deletion_delay_ms / 1000

    crashed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
    tasks = BackgroundTasks(functools.partial(_note_crash, crashed))
    wake = asyncio.Event()
    submitting: set[str] = set()  # ids that the submitter is working on
    desk = LeaderDesk(state, f"{host}:{port}", clock=clock)
    receiver = Receiver()
    monitor = Monitor(
        task_timeout_secs=options.nimbus_task_timeout_secs,
        launch_secs=options.nimbus_task_launch_secs,
        session_timeout_secs=options.storm_zookeeper_session_timeout / 1000,
    )
    history = History(
        local / "nimbus" / "history.json",
        age_secs_max=60 * options.logviewer_cleanup_age_mins,
    )
    blobs = BlobStore(Path(blobs_dir) if blobs_dir else local / "nimbus" / "blobs")
    blob_sessions = BlobSessions(
        blobs,
        idle_secs=options.nimbus_blobstore_expiration_secs,
        chunk_bytes=options.storm_blobstore_inputstream_buffer_size_bytes,
        blob_bytes_max=upload_bytes_max,
        clock=clock.monotonic,
        reserve=DiskReserve(blobs.folder, reserve_mb),
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
        peers or ThriftPeers(),
        receiver=receiver,
        address=address,
        clock=clock,
        fence=desk.leadership,
        wait_secs=options.topology_max_replication_wait_time_sec,
        copies=options.topology_min_replication_count,
        keep_aside_secs=delay_secs,
    )
    catalog = Catalog(blobs, stormdist, ensure=replication.ensure)
    chronicle = DaemonHistory(
        history_url(options),
        retention_hours=options.storm_history_retention_hours,
        name=f"nimbus {host}:{port}",
        clock=clock,
        topology_conf=functools.partial(_conf_of, catalog),
    )
    assigner = Assigner(
        state,
        catalog,
        monitor,
        clock=clock,
        master_code_dir=str(stormdist),
        tell=chronicle.tell,
    )
    cleanup = Cleanup(
        state,
        catalog,
        replication,
        monitor,
        history,
        clock=clock,
        delay_secs=delay_secs,
        submitting=submitting,
    )

    async def remove(topology_id: str, base: Any, fence: Fence) -> None:
        await cleanup.remove(topology_id, base, fence)
        chronicle.forget(topology_id)
        wake.set()  # its slots are free for others

    control = Control(
        state,
        catalog,
        replication,
        assigner,
        fence=desk.require,
        remove=remove,
        tasks=tasks,
        tell=chronicle.tell,
    )
    submitter = Submitter(
        state,
        catalog,
        blobs,
        replication,
        inbox,
        control,
        options=options,
        conf=conf,
        clock=clock,
        fence=desk.require,
        tell=chronicle.tell,
        submitting=submitting,
    )
    return Nimbus(
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
        catalog=catalog,
        inbox=inbox,
        chronicle=chronicle,
        history=history,
        monitor=monitor,
        metrics=WorkerMetrics(),
        assigner=assigner,
        control=control,
        submitter=submitter,
        cleanup=cleanup,
        desk=desk,
        reader=Reader(state, catalog, desk, copies=replication.holders, clock=clock),
        settings=Settings(state, control, clock=clock, fence=desk.require),
    )


def _conf_of(catalog: Catalog, topology_id: str) -> Mapping[str, Any]:
    """Raises LookupError for a topology that this Nimbus does not have, and SquallError if it
    cannot be read."""
    try:
        return catalog.get(topology_id).conf
    except BlobNotFoundError as error:
        raise LookupError(topology_id) from error


def _note_crash(crashed: asyncio.Future[BaseException], task: str, error: BaseException) -> None:
    log.error("task_crashed", task=task, error=error, exc_info=error)
    if not crashed.done():
        crashed.set_result(error)
