"""Keeps the same blobs on every Nimbus: which version counts, who has it, how the others get it.

The problem: a topology's code, or a user's blob, that only one Nimbus has is lost with it, and two
that hold different bytes under one key would answer differently. So ZooKeeper says what counts:

    /blobstore/KEY                      the version that counts, its size and hash (`BlobRecord`)
    /blobstore/KEY/HOST:PORT-VERSION    ephemeral: this Nimbus has that version, fsynced

Only the leader *writes*. It puts the bytes on its own disk, then the record into ZooKeeper in a
fenced transaction, marked *pending*. Every other Nimbus sees that, fetches the bytes over Thrift,
checks their hash and announces that it has them. Once there is a second holder (or no other Nimbus
is alive) the leader removes the pending mark, and only then is the writer answered. If the leader
dies before that and no Nimbus has the pending version, the version before it counts again: no
client ever heard that the pending one was stored.

Every Nimbus *follows* the records, by watches and at regular intervals. It fetches what it lacks
and deletes what was deleted while it watched. What it holds and ZooKeeper has never heard of, it
puts aside, and deletes after a while. This never happens to the code of a live topology: a leader
that has the code when the record is missing writes the record. If no connected Nimbus has a
version, the others wait for one that does.

Announcements disappear with the session, and are made again after each reconnection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from squall_common.cluster import paths
from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.leader import Fence
from squall_common.cluster.state import ClusterState, UndecodedBeat
from squall_common.cluster.store import BadVersionError, NodeExistsError, NoNodeError, StoreError
from squall_common.cluster.values import BlobHolder, BlobMeta, BlobRecord, TopologyStatus
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import is_secret_blob, topology_of_blob
from squall_common.security.sealing import Receiver, SealError, nimbus_name
from squall_common.topology.model import WorkerSlot
from squall_nimbus.all_topologies import read_topologies
from squall_nimbus.blobs.store import BlobNotFoundError, BlobStore, key_error

log = get_logger(__name__)

# Nimbus nodes that must have a write before it is answered, if that many are alive.
_COPIES = 2
# A wait for copies looks again after this time, even if no watch fires: a Nimbus that has gone no
# longer counts.
_LOOK_SECS = 1.0
_FETCHES_MAX = 4  # at a time
_RETRY_SECS = 1.0  # after a round that could not fetch everything
_ATTEMPTS = 5


class PeerError(Exception):
    """Reading from another Nimbus failed this time."""


class Peers(Protocol):
    """The other Nimbus nodes."""

    async def fetch(
        self, host: str, port: int, meta: BlobMeta, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Hand the bytes of one version to `write`, in order. Raises PeerError, including when the
        peer now has a different version."""
        ...

    async def fetch_secret(self, host: str, port: int, key: str, receiver: str) -> bytes:
        """Return a secret blob, sealed for `receiver`. Raises PeerError."""
        ...

    async def heartbeats(
        self, host: str, port: int, topology_id: str
    ) -> dict[WorkerSlot, UndecodedBeat]:
        """Return the heartbeats of a topology's workers that report to the leader, by slot. Raises
        PeerError."""
        ...

    async def finished(self, host: str, port: int) -> dict[str, bool]:
        """Return which topologies the leader says to have finished or not. Raises PeerError."""
        ...


class Replication:
    """Replication as one Nimbus does it. `address` is its host and port; `fence()` returns the
    right to write while it leads, else None. `wait_secs`: how long a write waits for copies (-1:
    until they exist). `receiver` opens the secrets of topologies that others seal for this Nimbus.
    """

    def __init__(
        self,
        store: BlobStore,
        state: ClusterState,
        peers: Peers,
        *,
        address: tuple[str, int],
        clock: Clock,
        fence: Callable[[], Fence | None],
        wait_secs: float,
        copies: int = 1,
        keep_aside_secs: float,
        receiver: Receiver | None = None,
    ) -> None:
        self._store = store
        self._state = state
        self._peers = peers
        self._host, self._port = address
        self._receiver = receiver or Receiver()
        self._clock = clock
        self._fence = fence
        self._wait_secs = wait_secs
        self._copies = max(_COPIES, copies)
        self._keep_aside_secs = keep_aside_secs
        self._fetches = asyncio.Semaphore(_FETCHES_MAX)
        self._rounds = asyncio.Lock()
        self._busy: dict[str, int] = {}  # keys that this leader is writing
        self._published: set[str] = set()  # keys whose records this process has seen
        self._dirty: set[str] = set()
        self._all_dirty = True
        self._wake = asyncio.Event()
        self._without: set[str] = set()  # already logged
        # Called with the hashes by key of what this leader has published.
        self.on_published: Callable[[dict[str, str]], None] = lambda hashes: None

    # Writing: the leader's

    @contextmanager
    def writing(self, keys: Iterable[str]) -> Iterator[None]:
        """Leave the files under these keys to the writer until the block ends."""
        keys = list(keys)
        for key in keys:
            self._busy[key] = self._busy.get(key, 0) + 1
        try:
            yield
        finally:
            for key in keys:
                self._busy[key] -= 1
                if not self._busy[key]:
                    del self._busy[key]

    async def version_above(self, key: str) -> int:
        """Return the version that counts now, or 0 if there is no such blob: the next version must
        be higher."""
        found = await self._state.blob(key)
        return found[0].meta.version if found is not None else 0

    async def publish(self, keys: Sequence[str], fence: Fence) -> None:
        """Make the files on this disk under `keys` count, all at once, and return when others have
        them. Raises NotLeaderError and the store's errors: then it is unknown whether they count,
        but the outcome will be the same everywhere.

        If the copies take longer than the configured wait, it returns without them (as Storm does).
        """
        began = self._clock.monotonic()
        records = await self._write_records(keys, fence)
        self.on_published({key: self._store.meta(key).sha256 for key in keys})
        pending = [record for record in records if record.pending]
        if not pending:
            return
        for record in pending:
            await self._wait_copies(record.meta, began)
        await self._settle([record.meta for record in pending], fence)

    async def _write_records(self, keys: Sequence[str], fence: Fence) -> list[BlobRecord]:
        for attempt in range(_ATTEMPTS):
            pending = len(await self._live()) > 1
            records: list[tuple[BlobRecord, int | None]] = []
            for key in keys:
                meta = self._store.meta(key)
                found = await self._state.blob(key)
                if found is not None and found[0].meta.version == meta.version:
                    continue  # the answer was lost, or these bytes were already there
                previous = _good_version(found[0]) if found is not None else None
                records.append(
                    (
                        BlobRecord(meta, pending, previous if pending else None),
                        None if found is None else found[1],
                    )
                )
            try:
                if records:
                    await self._state.put_blobs(records, guard=fence)
                break
            except (BadVersionError, NodeExistsError, NoNodeError):
                if attempt == _ATTEMPTS - 1:
                    raise
        self._published.update(keys)
        for key in keys:
            await self._announce(self._store.meta(key))
        return [record for record, _ in records]

    async def _wait_copies(self, meta: BlobMeta, began: float) -> None:
        changed = asyncio.Event()

        def notice(path: str) -> None:
            changed.set()

        while True:
            changed.clear()
            holders = await self._holders(meta, notice)
            live = await self._live()
            if len(holders & live) >= min(self._copies, len(live)):
                return
            if 0 <= self._wait_secs < self._clock.monotonic() - began:
                log.warning(
                    "blob_not_replicated", key=meta.key, holders=len(holders), nimbuses=len(live),
                    waited_secs=self._wait_secs,
                )  # fmt: skip
                return
            try:
                async with asyncio.timeout(_LOOK_SECS):
                    await changed.wait()
            except TimeoutError:
                pass

    async def _settle(self, metas: Sequence[BlobMeta], fence: Fence) -> None:
        """Remove the pending mark."""
        records: list[tuple[BlobRecord, int | None]] = []
        for meta in metas:
            found = await self._state.blob(meta.key)
            if found is not None and found[0].meta.version == meta.version and found[0].pending:
                records.append((BlobRecord(found[0].meta), found[1]))
        try:
            await self._state.put_blobs(records, guard=fence)
        except (BadVersionError, NoNodeError):
            pass  # it was written or deleted again meanwhile

    async def set_meta(self, meta: BlobMeta, fence: Fence) -> None:
        """Change a blob's access list and replication; the version stays. Raises
        BlobNotFoundError."""
        with self.writing([meta.key]):
            for attempt in range(_ATTEMPTS):
                found = await self._state.blob(meta.key)
                if found is None or found[0].meta.version != meta.version:
                    raise BlobNotFoundError(meta.key)
                record = BlobRecord(meta, found[0].pending, found[0].previous)
                try:
                    await self._state.put_blobs([(record, found[1])], guard=fence)
                    break
                except (BadVersionError, NoNodeError):
                    if attempt == _ATTEMPTS - 1:
                        raise
            await asyncio.to_thread(
                self._store.set_meta, meta.key, acl=meta.acl, replication=meta.replication
            )

    async def delete(self, keys: Iterable[str], fence: Fence) -> None:
        """Delete blobs everywhere; those that do not exist are ignored."""
        keys = list(keys)
        with self.writing(keys):
            await fence.transaction([])
            for key in keys:
                await self._state.remove_blob(key, guard=fence)
                await asyncio.to_thread(self._delete_here, key)

    def _delete_here(self, key: str) -> None:
        try:
            self._store.delete(key)
        except BlobNotFoundError:
            pass

    # Asking

    async def holders(self, key: str) -> int:
        """Return how many Nimbus nodes have the version that counts."""
        found = await self._state.blob(key)
        return 0 if found is None else len(await self._holders(found[0].meta))

    async def _holders(
        self, meta: BlobMeta, watch: Callable[[str], None] | None = None
    ) -> set[tuple[str, int]]:
        return {
            (one.host, one.port)
            for one in await self._state.blob_holders(meta.key, watch)
            if one.version == meta.version
        }

    async def _live(self) -> set[tuple[str, int]]:
        found = {(one.host, one.port) for one in await self._state.nimbuses()}
        return found | {(self._host, self._port)}

    # Following: every Nimbus

    def request(self) -> None:
        """Check all records soon, because the connection is new."""
        self._all_dirty = True
        self._wake.set()

    async def follow(self, every_secs: float) -> None:
        """Keep this disk in step with the records, forever."""
        while True:
            self._wake.clear()
            wait_secs = every_secs
            try:
                if not await self.sync():
                    wait_secs = min(_RETRY_SECS, every_secs)
            except (StoreError, SquallError, BlobNotFoundError, OSError) as error:
                # BlobNotFoundError: it was deleted between two steps.
                log.info("blobs_not_followed", error=error)
                self._all_dirty = True
                wait_secs = min(_RETRY_SECS, every_secs)
            try:
                async with asyncio.timeout(wait_secs):
                    await self._wake.wait()
            except TimeoutError:
                self._all_dirty = True

    async def sync(self) -> bool:
        """Do one round. Return whether every known blob is here now."""
        async with self._rounds:
            listed = await self._state.blob_keys(self._list_changed)
            if self._all_dirty:
                self._all_dirty = False
                self._dirty.update(listed)
                await asyncio.to_thread(self._store.remove_aside, self._keep_aside_secs)
            dirty, self._dirty = self._dirty, set()
            here = set(self._store.all_keys())
            dirty |= set(listed) - self._published
            keys = sorted(dirty & set(listed))
            try:
                done = await asyncio.gather(*(self._follow_key(key) for key in keys))
                done.append(await self._look_at_unlisted(here - set(listed)))
            except BaseException:
                self._dirty |= dirty
                raise
            self._published &= {*listed, *self._store.all_keys()}
            self._dirty |= {key for key, is_done in zip(keys, done, strict=False) if not is_done}
            return all(done)

    async def ensure(self, keys: Collection[str]) -> None:
        """Fetch those of these blobs that are missing here, as far as any Nimbus has them."""
        lacking = [key for key in keys if key not in self._store]
        await asyncio.gather(*(self._follow_key(key) for key in lacking))

    def _list_changed(self, path: str) -> None:
        self._wake.set()

    def _blob_changed(self, path: str) -> None:
        self._dirty.add(paths.key_of_blob(path))
        self._wake.set()

    async def _follow_key(self, key: str) -> bool:
        """Bring one blob in step with its record; return whether it is."""
        if key_error(key) is not None:
            return True  # not ours: somebody made it by hand
        try:
            found = await self._state.blob(key, self._blob_changed)
        except CorruptStateError as error:
            log.warning("blob_record_unreadable", key=key, error=error)
            return False
        if found is None:
            return True
        record, node_version = found
        self._published.add(key)
        if key in self._busy:
            return True
        here = self._store.find(key)
        meta = record.meta
        if here is not None and (here.version, here.sha256) == (meta.version, meta.sha256):
            if here != meta:
                await asyncio.to_thread(
                    self._store.set_meta, key, acl=meta.acl, replication=meta.replication
                )
            await self._announce(meta)
        elif not await self._fetch(meta):
            return await self._without_bytes(record, node_version, here)
        fence = self._fence()
        if record.pending and fence is not None and key not in self._busy:
            await self._settle([meta], fence)  # left by an earlier leader that died
        self._without.discard(key)
        return True

    async def _fetch(self, meta: BlobMeta) -> bool:
        """Fetch one version from any Nimbus that has it; return whether it is here now."""
        # The writer announces itself just after the record exists: wait for that.
        holders = await self._holders(meta, self._blob_changed) - {(self._host, self._port)}
        async with self._fetches:
            for host, port in sorted(holders):
                try:
                    await self._copy(host, port, meta)
                except (PeerError, SquallError) as error:
                    log.info("blob_not_fetched", key=meta.key, host=host, port=port, error=error)
                    continue
                log.info("blob_fetched", key=meta.key, host=host, port=port, version=meta.version)
                await self._announce(meta)
                return True
        return False

    async def _copy(self, host: str, port: int, meta: BlobMeta) -> None:
        writer = self._store.receive(meta)  # not in a thread: a cancelled wait would lose the file
        try:

            async def write(chunk: bytes) -> None:
                if writer.size + len(chunk) > meta.size:
                    raise PeerError(f"it sent more than {meta.size} bytes")
                await asyncio.to_thread(writer.write, chunk)

            if is_secret_blob(meta.key):
                await write(await self._fetch_secret(host, port, meta.key))
            else:
                await self._peers.fetch(host, port, meta, write)
            if meta.key in self._busy:
                raise PeerError("this Nimbus is writing it")
            await asyncio.to_thread(writer.commit_as, meta)
        finally:
            writer.abort()

    async def _fetch_secret(self, host: str, port: int, key: str) -> bytes:
        own = nimbus_name(self._host, self._port)
        sealed = await self._peers.fetch_secret(host, port, key, own)
        try:
            return self._receiver.open(sealed)
        except SealError as error:
            raise PeerError(str(error)) from error

    async def _without_bytes(
        self, record: BlobRecord, node_version: int, here: BlobMeta | None
    ) -> bool:
        """Handle a version that counts but that no reachable Nimbus has. Return whether that is
        settled now."""
        meta, fence = record.meta, self._fence()
        now = await self._state.blob(meta.key)
        if now is None or now[0] != record:
            self._dirty.add(meta.key)
            self._wake.set()
            return now is None  # deleted, or written, while we looked for it
        if fence is not None and not await self._holders(meta):
            if record.pending:
                return await self._take_back(record, node_version, here, fence)
            if here is not None and here.version > meta.version:
                # Written here but never announced: we died while its record was on its way.
                with self.writing([meta.key]):
                    await self.publish([meta.key], fence)
                return True
        if meta.key not in self._without:
            self._without.add(meta.key)
            write = log.info if fence is None else log.error
            write("blob_is_nowhere", key=meta.key, version=meta.version)
        return False

    async def _take_back(
        self, record: BlobRecord, node_version: int, here: BlobMeta | None, fence: Fence
    ) -> bool:
        """Take back a write that was lost before it was answered: the version before it counts."""
        key, previous = record.meta.key, record.previous
        log.warning("unfinished_write_taken_back", key=key, version=record.meta.version)
        try:
            if previous is None:
                await self._state.remove_blob(key, guard=fence)
            else:
                await self._state.put_blobs([(BlobRecord(previous), node_version)], guard=fence)
        except (BadVersionError, NoNodeError):
            return False
        self._dirty.add(key)
        self._wake.set()
        return True

    async def _announce(self, meta: BlobMeta) -> None:
        holder = BlobHolder(self._host, self._port, meta.version)
        if not await self._state.announce_blob(meta.key, holder):
            self._wake.set()  # it was deleted meanwhile: look again

    async def _look_at_unlisted(self, keys: Collection[str]) -> bool:
        """Handle blobs that are only on this disk. Return whether their fate is settled."""
        if not keys:
            return True
        topologies = await read_topologies(self._state)
        ended = {i for i, base in topologies.bases.items() if base.status is TopologyStatus.KILLED}
        live = {*topologies.bases, *topologies.unreadable} - ended
        done = True
        for key in sorted(keys):
            if key in self._busy or await self._state.blob(key) is not None:
                continue
            if topology_of_blob(key) in live:
                if (fence := self._fence()) is not None:
                    log.warning("blob_record_restored", key=key)
                    with self.writing([key]):
                        await self.publish([key], fence)
                else:
                    done = False
            elif key in self._published:
                self._published.discard(key)
                await asyncio.to_thread(self._delete_here, key)
            else:
                log.warning("unknown_blob_put_aside", key=key)
                await asyncio.to_thread(self._store.put_aside, key)
        return done


def _good_version(record: BlobRecord) -> BlobMeta | None:
    """The last version of a blob that was confirmed to a writer."""
    return record.previous if record.pending else record.meta
