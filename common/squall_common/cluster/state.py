"""The cluster state: typed access to what Storm keeps in ZooKeeper.

Values go in and come out as the dataclasses of `cluster.values`; their bytes are `cluster.codec`'s
business and their places are `cluster.paths`'. What cannot be read raises CorruptStateError with
its path: it is never taken for absent, so that a damaged node never makes a topology look ended.
What reads many nodes leaves the damaged ones out, and says so: none keeps the others waiting.

Large values are decoded in a thread, so that the event loop goes on. Assignments, the largest, are
decoded when they change, not at each reading (see `decoded`).

Writes that only the leader may do take `guard`: the Leadership (see `leader`), through which they
become transactions that fail once somebody else leads. Without one they are plain transactions.

Every method raises ConnectionLostError when ZooKeeper does not answer in time. A `watch` is called
once at the next change, and after every reconnection (see `store.Watcher`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from squall_common.cluster import blob_codec, codec, paths
from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.decoded import DecodedValues
from squall_common.cluster.store import (
    NODE_BYTES_MAX,
    AccessDeniedError,
    BadVersionError,
    ConnectionLostError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    Set,
    Stat,
    Store,
    Watcher,
)
from squall_common.cluster.treewalk import read_each
from squall_common.cluster.values import (
    Assignment,
    BlobHolder,
    BlobRecord,
    Credentials,
    ErrorInfo,
    LogConfig,
    NimbusInfo,
    ProfileRequest,
    StormBase,
    SupervisorInfo,
    TopologyHeartbeats,
    WorkerDrained,
    WorkerHeartbeat,
    WorkerReport,
)
from squall_common.daemon.logs import get_logger
from squall_common.names import decode_znode
from squall_common.topology.model import WorkerSlot
from squall_thrift.serving.off_loop import off_loop

if TYPE_CHECKING:
    from squall_common.cluster.stores.zookeeper import ZooKeeperOptions

log = get_logger(__name__)

_T = TypeVar("_T")

# Storm keeps as many of each component.
ERRORS_KEPT = 10

# How often an operation that others' changes spoil is tried again before its error is raised.
_ATTEMPTS = 10

# Deletions go out in transactions of at most this many nodes.
_DELETE_BATCH = 200
_RETRY_SECS = 0.5

# Values that unfold to more bytes are decoded in a thread: they take more than some 15 ms.
_DECODE_HERE_BYTES_MAX = 40_000


@dataclass(frozen=True, slots=True)
class UndecodedBeat:
    """A worker's heartbeat as it was read. `age_secs`: how long ago it came; None if that is not
    known, as of one in ZooKeeper."""

    path: str
    data: bytes
    age_secs: float | None = None

    def decode(self) -> WorkerHeartbeat:
        """Raises CorruptStateError."""
        return codec.decode_heartbeat(self.path, self.data)

    def decode_drained(self) -> WorkerDrained | None:
        """Only whether the worker has drained. Raises CorruptStateError."""
        return codec.decode_drained(self.path, self.data)


class Guard(Protocol):
    """The condition of a write: a `leader.Leadership`."""

    async def transaction(self, ops: Sequence[Op]) -> None: ...


class ClusterState:
    """Typed access over any store. `start` first, `close` at the end."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._closed = False
        self._stats_left_out: set[str] = set()  # heartbeats' paths; warned of
        self._left_behind: set[str] = set()  # likewise: paths that could not be deleted
        self._assignments: DecodedValues[Assignment] = DecodedValues()

    @classmethod
    def of(cls, options: ZooKeeperOptions, access: StoreAccess | None = None) -> ClusterState:
        """The state that the `storm.zookeeper.*` options name; not connected yet. `access` says
        how this process proves to ZooKeeper who it is."""
        from squall_common.cluster.stores.zookeeper import ZooKeeperStore

        return cls(ZooKeeperStore.of(options, access))

    async def start(self) -> None:
        """Connect and make the parents of all that is kept. Waits for ZooKeeper, also for one that
        goes away again in between; cancel to give up."""
        await self.store.start()
        while True:
            try:
                for path in paths.LAYOUT:
                    await self._ensure(path)
                return
            except ConnectionLostError as error:
                if self._closed:
                    raise
                log.warning("cluster_layout_not_made", error=error)
                await asyncio.sleep(_RETRY_SECS)

    async def close(self) -> None:
        """End the session; this process's ephemeral nodes go at once."""
        self._closed = True
        await self.store.close()

    # Topologies

    async def topology_ids(self, watch: Watcher | None = None) -> list[str]:
        """Ids of all topologies, sorted."""
        return await self._names(paths.STORMS, watch)

    async def storm_base(self, topology_id: str, watch: Watcher | None = None) -> StormBase | None:
        """A topology's status and size; None when it is unknown (the watch then waits for it)."""
        found = await self.storm_and_zxid(topology_id, watch)
        return None if found is None else found[0]

    async def storm_and_zxid(
        self, topology_id: str, watch: Watcher | None = None
    ) -> tuple[StormBase, int] | None:
        """The same, with the zxid that wrote it."""
        found = await self._read(paths.storm(topology_id), codec.decode_storm_base, watch)
        return None if found is None else (found[0], found[1].mzxid)

    async def storm_bases(self) -> dict[str, StormBase]:
        """All topologies by id."""
        ids = await self.topology_ids()
        bases = await asyncio.gather(*(self.storm_base(topology_id) for topology_id in ids))
        return {i: base for i, base in zip(ids, bases, strict=True) if base is not None}

    async def create_topology(
        self, topology_id: str, base: StormBase, *, guard: Guard | None = None
    ) -> None:
        """Make a topology known, with the parents of its heartbeats and errors, in one transaction.

        Raises NodeExistsError when the id is taken.
        """
        await self._transact(
            [
                Create(paths.storm(topology_id), codec.encode_storm_base(base)),
                Create(paths.workerbeats(topology_id)),
                Create(paths.errors(topology_id)),
            ],
            guard,
        )

    async def put_storm_base(
        self, topology_id: str, base: StormBase, *, guard: Guard | None = None
    ) -> None:
        """Write a topology's StormBase. Raises NoNodeError when it is not known (any more): only
        `create_topology` brings one to life."""
        await self._transact([Set(paths.storm(topology_id), codec.encode_storm_base(base))], guard)

    async def remove_topology(self, topology_id: str, *, guard: Guard | None = None) -> bool:
        """Delete all that is kept of a topology, its assignment first and /storms/ID last. A crash
        in the middle leaves /storms/ID, so that the next leader does it again; so may the caller
        after any error. Fine when nothing is there. Returns whether nothing is left: its workers
        may have made nodes that only they can delete, which keep no one else from anything."""
        nothing_left = True
        for parent in paths.OF_TOPOLOGY:
            path = f"{parent}/{topology_id}"
            try:
                await self._delete_tree(path, guard)
            except (AccessDeniedError, NotEmptyError) as error:
                if parent not in (paths.WORKERBEATS, paths.ERRORS):
                    raise
                nothing_left = False
                if path not in self._left_behind:
                    self._left_behind.add(path)
                    log.error("nodes_left_behind", path=path, error=error)
        return nothing_left

    async def topologies_with_state(self) -> set[str]:
        """Ids for which anything is kept, whether /storms/ID exists or not."""
        names = await asyncio.gather(*(self._names(parent) for parent in paths.OF_TOPOLOGY))
        return {name for listing in names for name in listing}

    # Assignments

    async def assignments(self, watch: Watcher | None = None) -> list[str]:
        """Ids of the topologies that have an assignment, sorted."""
        found = await self._names(paths.ASSIGNMENTS, watch)
        self._assignments.forget_others([paths.assignment(topology_id) for topology_id in found])
        return found

    async def assignment(
        self, topology_id: str, watch: Watcher | None = None
    ) -> tuple[Assignment, int] | None:
        """Where a topology's executors run, and the zxid that wrote it; None when it has none."""
        found = await self._read(
            paths.assignment(topology_id), codec.decode_assignment, watch, kept=self._assignments
        )
        return None if found is None else (found[0], found[1].mzxid)

    async def all_assignments(self) -> dict[str, tuple[Assignment, int]]:
        """All assignments that can be read, by topology id."""
        found = await self.read_assignments()
        return {i: one for i, one in found.items() if not isinstance(one, CorruptStateError)}

    async def read_assignments(
        self,
    ) -> dict[str, tuple[Assignment, int] | CorruptStateError]:
        """All assignments by topology id; of one that is damaged, why."""
        return await self._each(await self.assignments(), self.assignment)

    async def put_assignment(
        self, topology_id: str, assignment: Assignment, *, guard: Guard | None = None
    ) -> None:
        """Write a topology's assignment."""
        value = codec.encode_assignment(assignment)
        await self._put(paths.assignment(topology_id), value, guard)

    async def remove_assignment(self, topology_id: str, *, guard: Guard | None = None) -> None:
        """Delete a topology's assignment; fine when it has none."""
        await self._delete_tree(paths.assignment(topology_id), guard)

    # Supervisors

    async def supervisors(self, watch: Watcher | None = None) -> dict[str, SupervisorInfo]:
        """The supervisors that are connected and can be read, by id. The watch fires when one comes
        or goes, not when one's information changes."""
        return await self._all(paths.SUPERVISORS, codec.decode_supervisor, watch)

    async def supervisor_ids(self) -> list[str]:
        """Ids of the supervisors that are there."""
        return await self._names(paths.SUPERVISORS)

    async def supervisor(self, supervisor_id: str) -> SupervisorInfo | None:
        """One supervisor, or None when it is not there."""
        found = await self._read(paths.supervisor(supervisor_id), codec.decode_supervisor)
        return None if found is None else found[0]

    async def register_supervisor(self, supervisor_id: str, info: SupervisorInfo) -> None:
        """Announce a supervisor, or renew what is known of it; its node goes with this session.
        Call it again after LOST."""
        value = codec.encode_supervisor(info)
        await self._put_ephemeral(paths.supervisor(supervisor_id), value)

    # Heartbeats of workers

    async def setup_heartbeats(self, topology_id: str, *, guard: Guard | None = None) -> None:
        """Make the parents of a topology's heartbeats and errors; fine when they are there."""
        for path in (paths.workerbeats(topology_id), paths.errors(topology_id)):
            await self._ensure(path, guard)

    async def worker_beats(self, topology_id: str) -> dict[WorkerSlot, tuple[WorkerHeartbeat, int]]:
        """The last heartbeat of each worker of a topology, with the zxid that wrote it: a beat is
        new when that changed, whatever the worker's clock says. One that is damaged is none: its
        worker writes another within seconds, or is dead."""
        return await self._worker_beats(topology_id, codec.decode_heartbeat)

    async def worker_signs(self, topology_id: str) -> dict[WorkerSlot, tuple[WorkerHeartbeat, int]]:
        """The same without statistics, only the executors that are alive. It costs much less."""
        return await self._worker_beats(topology_id, codec.decode_signs)

    async def undecoded_worker_beats(self, topology_id: str) -> dict[WorkerSlot, UndecodedBeat]:
        """The same, for callers that decode them one by one, so that the loop is not held."""
        found = await self._worker_beats(topology_id, UndecodedBeat)
        return {slot: beat for slot, (beat, _) in found.items()}

    async def _worker_beats(
        self, topology_id: str, decode: Callable[[str, bytes], _T]
    ) -> dict[WorkerSlot, tuple[_T, int]]:
        parent = paths.workerbeats(topology_id)
        slots = {
            name: slot
            for name in await self._names(parent)
            if (slot := paths.slot_of_workerbeat(name)) is not None
        }
        found = await self._each(slots, lambda name: self._read(f"{parent}/{name}", decode))
        return {
            slots[name]: (one[0], one[1].mzxid)
            for name, one in found.items()
            if not isinstance(one, CorruptStateError)
        }

    async def topology_heartbeats(self, topology_id: str) -> TopologyHeartbeats | None:
        """What the leader last wrote about the workers that report to it; None if nothing. What is
        damaged counts as nothing: the leader writes it again."""
        path = paths.workerbeats(topology_id)
        try:
            value, _ = await self.store.get(path)
            return codec.decode_topology_heartbeats(path, value) if value else None
        except NoNodeError:
            return None
        except CorruptStateError as error:
            log.warning("value_unreadable", path=error.path, error=error.reason)
            return None

    async def put_topology_heartbeats(
        self, topology_id: str, beats: TopologyHeartbeats, *, guard: Guard | None = None
    ) -> None:
        """Write it. Raises NoNodeError when the topology is gone."""
        value = codec.encode_topology_heartbeats(beats)
        await self._transact([Set(paths.workerbeats(topology_id), value)], guard)

    async def put_worker_report(self, report: WorkerReport) -> bool:
        """Write the heartbeat of a worker that Nimbus did not take. Returns False, and writes
        nothing, once the topology's heartbeats are removed."""
        path = paths.workerbeat(report.topology_id, report.slot)
        try:
            await self._put(path, report.heartbeat, None)
        except NoNodeError:
            return False
        return True

    def encode_worker_beat(self, slot: WorkerSlot, beat: WorkerHeartbeat) -> bytes:
        """A worker's heartbeat as bytes; without its statistics where these do not fit into a node.
        From any thread."""
        value = codec.encode_heartbeat(beat)
        if len(value) > NODE_BYTES_MAX:
            # That the worker lives counts for more than what it did.
            path = paths.workerbeat(beat.topology_id, slot)
            if path not in self._stats_left_out:
                self._stats_left_out.add(path)
                log.warning("statistics_do_not_fit", path=path, bytes=len(value))
            alone = dict.fromkeys(beat.executor_stats)
            value = codec.encode_heartbeat(replace(beat, executor_stats=alone))
        return value

    def put_worker_beat_nowait(self, slot: WorkerSlot, beat: WorkerHeartbeat) -> None:
        """Write a worker's heartbeat without waiting, from any thread. Nothing is written once the
        topology's heartbeats are removed."""
        self.put_encoded_beat_nowait(beat.topology_id, slot, self.encode_worker_beat(slot, beat))

    def put_encoded_beat_nowait(self, topology_id: str, slot: WorkerSlot, value: bytes) -> None:
        """The same, for a heartbeat that is encoded already."""
        self.store.put_nowait(paths.workerbeat(topology_id, slot), value)

    async def remove_worker_beat(
        self, topology_id: str, slot: WorkerSlot, *, guard: Guard | None = None
    ) -> None:
        """Forget a worker that runs no more; fine when it is not there."""
        await self._delete_tree(paths.workerbeat(topology_id, slot), guard)

    # Errors of components

    async def report_error(self, topology_id: str, component: str, error: ErrorInfo) -> bool:
        """Add an error to a component's list, which keeps the newest ten, and make it the last.

        Returns False, and writes nothing, when the topology is gone. How often to report is the
        caller's affair.
        """
        value = codec.encode_error(error)
        parent = paths.component_errors(topology_id, component)
        try:
            await self._ensure(parent)
            await self.store.create(f"{parent}/e", value, sequence=True)
            await self._put(paths.last_error(topology_id, component), value, None)
            names = await self.store.children(parent)
        except NoNodeError:
            return False
        numbered = sorted(names, key=_sequence_of)
        old = [f"{parent}/{name}" for name in numbered[:-ERRORS_KEPT]]
        await asyncio.gather(*(self._delete_tree(path, None) for path in old))
        return True

    async def errors(self, topology_id: str, component: str) -> list[ErrorInfo]:
        """A component's errors that can be read, newest first."""
        parent = paths.component_errors(topology_id, component)
        try:
            names = sorted(await self._names(parent), key=_sequence_of, reverse=True)
        except AccessDeniedError as error:
            log.error("value_unreadable", path=parent, error=error)
            return []
        found = await self._each(
            names, lambda name: self._read(f"{parent}/{name}", codec.decode_error)
        )
        return [one[0] for one in found.values() if not isinstance(one, CorruptStateError)]

    async def last_error(self, topology_id: str, component: str) -> ErrorInfo | None:
        """The error that a component reported last, if it can be read."""
        path = paths.last_error(topology_id, component)
        try:
            found = await self._read(path, codec.decode_error)
        except AccessDeniedError as error:
            log.error("value_unreadable", path=path, error=error)
            return None
        return None if found is None else found[0]

    async def all_errors(self, topology_id: str) -> dict[str, list[ErrorInfo]]:
        """The errors of every component that has any, newest first."""
        names = await self._names(paths.errors(topology_id))
        components = [decode_znode(name) for name in names]
        found = await asyncio.gather(*(self.errors(topology_id, c) for c in components))
        return {c: errors for c, errors in zip(components, found, strict=True) if errors}

    # Nimbus

    async def nimbuses(self, watch: Watcher | None = None) -> list[NimbusInfo]:
        """Every Nimbus that is connected, sorted by host and port."""
        found = await self._all(paths.NIMBUSES, codec.decode_nimbus, watch)
        return sorted(found.values(), key=lambda one: (one.host, one.port))

    async def register_nimbus(self, info: NimbusInfo) -> None:
        """Announce a Nimbus, or renew what is known of it; its node goes with this session."""
        await self._put_ephemeral(paths.nimbus(info.host, info.port), codec.encode_nimbus(info))

    # Blobs: which version of each counts, and which Nimbus has it

    async def blob_keys(self, watch: Watcher | None = None) -> list[str]:
        """All blobs, sorted. The watch fires when one comes or goes."""
        return await self._names(paths.BLOBSTORE, watch)

    async def blob(self, key: str, watch: Watcher | None = None) -> tuple[BlobRecord, int] | None:
        """A blob's record and the version of its node; None when there is no such blob."""
        found = await self._read(paths.blob(key), blob_codec.decode_blob_record, watch)
        return None if found is None else (found[0], found[1].version)

    async def put_blobs(
        self,
        records: Sequence[tuple[BlobRecord, int | None]],
        *,
        guard: Guard | None = None,
    ) -> None:
        """Write records in one transaction: each over the node's version given with it, or (None)
        as a new blob. Raises BadVersionError, NoNodeError, NodeExistsError; then none is written.
        """
        ops: list[Op] = []
        for record, version in records:
            path = paths.blob(record.meta.key)
            value = blob_codec.encode_blob_record(record)
            ops.append(Create(path, value) if version is None else Set(path, value, version))
        await self._transact(ops, guard)

    async def remove_blob(self, key: str, *, guard: Guard | None = None) -> None:
        """Forget a blob and who has it, in one transaction; fine when it is not there."""
        await self._delete_tree(paths.blob(key), guard)

    async def blob_holders(self, key: str, watch: Watcher | None = None) -> list[BlobHolder]:
        """Every Nimbus that is connected and has a version of the blob."""
        names = await self._names(paths.blob(key), watch)
        return [one for name in names if (one := blob_codec.parse_holder(name)) is not None]

    async def announce_blob(self, key: str, holder: BlobHolder) -> bool:
        """Say that this Nimbus has a version; what its earlier sessions and versions have said is
        removed. The node goes with this session. False when there is no such blob (any more)."""
        mine = blob_codec.holder_name(holder)
        for name in await self._names(paths.blob(key)):
            other = blob_codec.parse_holder(name)
            same = other is not None and (other.host, other.port) == (holder.host, holder.port)
            if same and name != mine:
                await self._delete_tree(paths.blob_holder(key, name), None)
        try:
            await self._put_ephemeral(paths.blob_holder(key, mine), b"")
        except NoNodeError:
            return False
        return True

    # Secrets, log levels, profiling

    async def credentials(
        self, topology_id: str, watch: Watcher | None = None
    ) -> Credentials | None:
        found = await self._read(paths.credentials(topology_id), codec.decode_credentials, watch)
        return None if found is None else found[0]

    async def remove_credentials(self, topology_id: str, *, guard: Guard | None = None) -> None:
        """Delete the credentials that Storm, or an earlier version, has left in ZooKeeper; fine
        when there are none."""
        await self._delete_tree(paths.credentials(topology_id), guard)

    async def token_register(self) -> bytes | None:
        """The signed register of tokens, as it is; None if there is none. Raises StoreError."""
        try:
            return (await self.store.get(paths.TOKEN_REGISTER))[0]
        except NoNodeError:
            return None

    async def put_token_register(self, text: bytes, *, guard: Guard | None = None) -> None:
        """Replace it. Raises StoreError."""
        await self._ensure(paths.TOKEN_REGISTER.rpartition("/")[0], guard)
        await self._put(paths.TOKEN_REGISTER, text, guard)

    async def outside_keys(self, nimbuses_max: int = 32) -> dict[str, bytes]:
        """What each Nimbus has published of its keys for foreign parties, as it is, by the Nimbus'
        name; of up to `nimbuses_max` of them. Raises StoreError."""
        found: dict[str, bytes] = {}
        try:
            names = sorted(await self.store.children(paths.OUTSIDE_KEYS))
        except NoNodeError:
            return found
        for name in names[:nimbuses_max]:
            with contextlib.suppress(NoNodeError):
                found[name] = (await self.store.get(paths.outside_keys(name)))[0]
        return found

    async def put_outside_keys(self, nimbus: str, text: bytes) -> None:
        """Replace what a Nimbus has published. Raises StoreError."""
        await self._ensure(paths.SECURITY)
        await self._ensure(paths.OUTSIDE_KEYS)
        await self._put(paths.outside_keys(nimbus), text, None)

    async def log_config(self, topology_id: str, watch: Watcher | None = None) -> LogConfig | None:
        found = await self._read(paths.logconfig(topology_id), codec.decode_log_config, watch)
        return None if found is None else found[0]

    async def put_log_config(
        self, topology_id: str, config: LogConfig, *, guard: Guard | None = None
    ) -> None:
        value = codec.encode_log_config(config)
        await self._put(paths.logconfig(topology_id), value, guard)

    async def profile_requests(
        self, topology_id: str, watch: Watcher | None = None
    ) -> list[ProfileRequest]:
        found = await self._all(
            paths.profilerconfigs(topology_id), codec.decode_profile_request, watch
        )
        return [found[name] for name in sorted(found)]

    async def put_profile_request(
        self, topology_id: str, request: ProfileRequest, *, guard: Guard | None = None
    ) -> None:
        await self._ensure(paths.profilerconfigs(topology_id), guard)
        value = codec.encode_profile_request(request)
        await self._put(_profile_path(topology_id, request), value, guard)

    async def remove_profile_request(
        self, topology_id: str, request: ProfileRequest, *, guard: Guard | None = None
    ) -> None:
        """Does nothing if it does not exist."""
        await self._delete_tree(_profile_path(topology_id, request), guard)

    # Reading

    async def _names(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Children of a node that may be missing."""
        for _ in range(_ATTEMPTS):
            try:
                return await self.store.children(path, watch)
            except NoNodeError:
                if watch is None or await self.store.exists(path, watch) is None:
                    return []
        return []

    async def _read(
        self,
        path: str,
        decode: Callable[[str, bytes], _T],
        watch: Watcher | None = None,
        *,
        kept: DecodedValues[_T] | None = None,
    ) -> tuple[_T, Stat] | None:
        """A node's value, or None when it does not exist; either way the watch is set. `kept` has
        the values that need no decoding."""
        while True:
            try:
                value, stat = await self.store.get(path, watch)
            except NoNodeError:
                if watch is None or await self.store.exists(path, watch) is None:
                    return None
                continue  # it was created just now
            if kept is None:
                return await _decoded(decode, path, value), stat
            return await kept.of(path, value, partial(_decoded, decode, path, value)), stat

    async def _all(
        self, parent: str, decode: Callable[[str, bytes], _T], watch: Watcher | None
    ) -> dict[str, _T]:
        """Every child's value by name, of those that can be read; the watch is on the list of
        children only."""
        names = await self._names(parent, watch)
        found = await self._each(names, lambda name: self._read(f"{parent}/{name}", decode))
        return {
            name: one[0] for name, one in found.items() if not isinstance(one, CorruptStateError)
        }

    async def _each(
        self, names: Collection[str], read: Callable[[str], Awaitable[_T | None]]
    ) -> dict[str, _T | CorruptStateError]:
        """What `read` gives for each name, without those that are gone; damaged ones are logged.
        Raises the first other error."""
        found = await read_each(names, read)
        values: dict[str, _T | CorruptStateError] = {}
        for name, one in found.items():
            if isinstance(one, AccessDeniedError):
                # Whoever may create a node may close it to everyone else.
                one = CorruptStateError(name, str(one))
            if isinstance(one, CorruptStateError):
                log.error("value_unreadable", path=one.path, error=one.reason)
                values[name] = one
            elif isinstance(one, BaseException):
                raise one
            elif one is not None:
                values[name] = one
        return values

    # Writing

    async def _transact(self, ops: Sequence[Op], guard: Guard | None) -> None:
        await (self.store if guard is None else guard).transaction(ops)

    async def _ensure(self, path: str, guard: Guard | None = None) -> None:
        if await self.store.exists(path) is None:
            try:
                await self._transact([Create(path)], guard)
            except NodeExistsError:
                pass

    async def _put(self, path: str, value: bytes, guard: Guard | None) -> None:
        """Write a node, creating it when it is not there; its parent must exist."""
        for attempt in range(_ATTEMPTS):
            try:
                await self._transact([Set(path, value)], guard)
                return
            except NoNodeError:
                pass
            try:
                await self._transact([Create(path, value)], guard)
                return
            except NodeExistsError:
                if attempt == _ATTEMPTS - 1:
                    raise

    async def _put_ephemeral(self, path: str, value: bytes) -> None:
        """Write an ephemeral node so that it belongs to this session.

        One that an earlier process left behind goes when that one's session expires, and would
        take the registration with it: it is replaced, in one transaction.
        """
        for attempt in range(_ATTEMPTS):
            stat = await self.store.exists(path)
            ops: list[Op]
            if stat is None:
                ops = [Create(path, value, ephemeral=True)]
            elif stat.ephemeral_owner == self.store.session_id:
                ops = [Set(path, value, stat.version)]
            else:
                log.warning(
                    "stale_ephemeral_replaced", path=path, session=hex(stat.ephemeral_owner)
                )
                ops = [Delete(path, stat.version), Create(path, value, ephemeral=True)]
            try:
                await self.store.transaction(ops)
                return
            except (NoNodeError, NodeExistsError, BadVersionError):
                if attempt == _ATTEMPTS - 1:
                    raise

    async def _delete_tree(self, path: str, guard: Guard | None) -> None:
        """Delete a node and all below it, children first, each step under the guard."""
        for attempt in range(_ATTEMPTS):
            ops = await self._deletions(path)
            try:
                for start in range(0, len(ops), _DELETE_BATCH):
                    await self._transact(ops[start : start + _DELETE_BATCH], guard)
                return
            except (NoNodeError, NotEmptyError):
                if attempt == _ATTEMPTS - 1:
                    raise

    async def _deletions(self, path: str) -> list[Op]:
        try:
            names = await self.store.children(path)
        except NoNodeError:
            return []
        except AccessDeniedError:
            names = []  # to delete it takes no right on it, if there is nothing below it
        below = await asyncio.gather(*(self._deletions(f"{path}/{name}") for name in names))
        return [op for ops in below for op in ops] + [Delete(path)]


def _sequence_of(name: str) -> int:
    """The number at the end of a sequential node's name; other names sort first."""
    digits = name[-10:]
    return int(digits) if digits.isdecimal() else -1


def _profile_path(topology_id: str, request: ProfileRequest) -> str:
    slot = request.slot
    return paths.profilerconfig(topology_id, slot.node, slot.port, request.action.name)


def _decoded(decode: Callable[[str, bytes], _T], path: str, value: bytes) -> asyncio.Future[_T]:
    """Decode a node's value: at once, or a large one in a thread. Raises CorruptStateError."""
    if decode is UndecodedBeat or codec.plain_size(value) <= _DECODE_HERE_BYTES_MAX:
        done: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        done.set_result(decode(path, value))
        return done
    return asyncio.ensure_future(off_loop(decode, path, value))
