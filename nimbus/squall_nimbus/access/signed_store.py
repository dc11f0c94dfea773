"""The cluster state of a Nimbus in a secured cluster: it believes what Nimbus has signed.

Nimbus reads and writes topologies (/storms/ID) and where they run (/assignments/ID) as in an open
cluster. This store stands between: it reads from the ledger, not from ZooKeeper, and writes a
signed state in place of the two nodes, with the catalog and the manifests of the supervisors that
are concerned, in the same transaction: what `signer` composes.

    /security/catalog, /security/topologies/ID, /security/nodes/NODE

Every Nimbus follows these nodes, and keeps what is newer on its own disk. The leader puts right
what was deleted, rolled back or forged, and signs again what is half through its life or was
signed by a Nimbus whose certificate was revoked (`maintain`).

A cluster that was open before begins with what a person has confirmed (`takeover`).

Supervisors sign their entries in /supervisors: unsigned ones, and older ones than were seen, are
left out. What Nimbus asks of daemons (`paths.is_notice`) is signed on its way out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from squall_common.authentication.files import Trusted
from squall_common.cluster import paths
from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.leader import Fence
from squall_common.cluster.store import (
    NODE_BYTES_MAX,
    Check,
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
    StoreError,
    Watcher,
)
from squall_common.cluster.stores.proxy import StoreProxy
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.security.jws import SignatureError
from squall_common.security.records import RecordError
from squall_common.security.registrations import Registration
from squall_common.security.takeover import Taken, Takeover
from squall_common.security.topology_states import verify_notice
from squall_nimbus.access.keys import SigningKeys
from squall_nimbus.access.lasting_trust import LastingTrust
from squall_nimbus.access.ledger import Change, KeptState, Ledger, slots_of
from squall_nimbus.access.signer import Signer
from squall_nimbus.access.takeover import Mirrors, still_there
from squall_thrift.serving.off_loop import off_loop_if
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

_ATTEMPTS = 8
_FOLLOW_SECS = 10.0
_RETRY_SECS = 1.0
# A takeover waits so long for the supervisors whose workers are to run on.
NODES_SECS = 300.0
# A larger value is taken apart in a thread.
_ON_LOOP_BYTES_MAX = 16_000
_SIGNED_PARENTS = (paths.SECURITY, paths.SIGNED_STATES, paths.MANIFESTS)


class SignedStore(StoreProxy):
    """`revoked()` returns the serial numbers of revoked certificates. `changed()` is called when
    something must be put right."""

    def __init__(
        self,
        inner: Store,
        ledger: Ledger,
        keys: SigningKeys,
        trusted: Trusted,
        *,
        revoked: Callable[[], Collection[int]],
        clock: Clock,
    ) -> None:
        super().__init__(inner)
        self.ledger = ledger
        self.changed: Callable[[], object] = lambda: None
        self._lasting = LastingTrust(trusted, revoked, ledger.trust)
        self.signer = Signer(ledger, keys, self._lasting, clock)
        self._trusted = trusted
        self._revoked = revoked
        self._clock = clock
        self._lock = asyncio.Lock()  # of signing and of reading what was signed
        self._stale = True  # ZooKeeper may have something newer than the ledger
        self._watched: set[str] = set()  # paths that have not changed since they were read
        self._there: set[str] = set()  # signed nodes that exist, as far as known
        self._wrong: set[str] = set()  # signed nodes that are not what the ledger has
        self._unknown: RecordError | None = None  # why the only catalog there is does not count
        self._takeover: Takeover | None = None  # what is to be taken over from an open cluster
        self._pending_since: float | None = None  # monotonic: since when it could be
        self._is_foreign = False  # whether topologies of an open cluster are all there is
        self._mirrors = Mirrors(inner, lambda: ledger.catalog.topologies)
        self._mirrors_due = True  # the leader before may have ended before it wrote them
        self._registrations: dict[str, int] = {}  # node -> the highest number seen
        self._wake = asyncio.Event()
        self._throttle = Throttle()

    # Reading

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        if (topology_id := paths.below(paths.STORMS, path)) is not None:
            kept = await self._kept(topology_id, watch)
            return kept.state.base, _stat(kept.state.base_number)
        if (topology_id := paths.below(paths.ASSIGNMENTS, path)) is not None:
            kept = await self._kept(topology_id, watch)
            if kept.state.assignment is None:
                raise NoNodeError(path)
            return kept.state.assignment, _stat(kept.state.assignment_number)
        if (node := paths.below(paths.SUPERVISORS, path)) is not None:
            value, stat = await self.inner.get(path, watch)
            return self._registration(node, value), stat
        if paths.is_notice(path):
            value, stat = await self.inner.get(path, watch)
            try:
                return verify_notice(path, value, self.ledger.trust).value, stat
            except RecordError as error:
                self._refused(path, error)
                raise CorruptStateError(path, str(error)) from error
        return await self.inner.get(path, watch)

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        if _is_mirrored(path):
            try:
                return (await self.get(path, watch))[1]
            except NoNodeError:
                return None
        return await self.inner.exists(path, watch)

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        if path in (paths.STORMS, paths.ASSIGNMENTS):
            await self._fresh()
            if watch is not None:
                await self.inner.exists(paths.CATALOG, watch)
            if path == paths.STORMS:
                return sorted(self.ledger.catalog.topologies)
            states = self.ledger.states
            return sorted(i for i, kept in states.items() if kept.state.assignment is not None)
        if _is_mirrored(path):
            await self.get(path, watch)
            return []
        return await self.inner.children(path, watch)

    async def _kept(self, topology_id: str, watch: Watcher | None) -> KeptState:
        """Raises NoNodeError; CorruptStateError if the topology exists and its state is unknown."""
        await self._fresh()
        if watch is not None:
            await self.inner.exists(paths.signed_state(topology_id), watch)
        if topology_id not in self.ledger.catalog.topologies:
            raise NoNodeError(paths.storm(topology_id))
        kept = self.ledger.states.get(topology_id)
        if kept is None:
            raise CorruptStateError(paths.signed_state(topology_id), "no signed state is known")
        return kept

    async def work(self, topology_id: str) -> KeptState | None:
        """The signed state of a topology: where it runs, and whose it is; None if it does not
        exist, or is not known. Raises StoreError."""
        try:
            return await self._kept(topology_id, None)
        except (NoNodeError, CorruptStateError):
            return None

    def is_on(self, topology_id: str, node: str, port: int) -> bool:
        """Whether a topology has a slot, by what was signed last as far as is known here."""
        kept = self.ledger.states.get(topology_id)
        return (
            kept is not None
            and topology_id in self.ledger.catalog.topologies
            and port in kept.slots.get(node, {})
        )

    def _registration(self, node: str, value: bytes) -> bytes:
        """A supervisor's own words; no bytes at all, which cannot be decoded, if they are not."""
        try:
            found = Registration.verify(
                value,
                node,
                self._trusted.cluster,
                self._trusted.ca,
                self._revoked(),
                self._clock.time(),
            )
            if found.number < self._registrations.get(node, 0):
                raise RecordError(f"registration of {node}: it is an older one")
        except RecordError as error:
            self._refused(node, error)
            return b""
        self._registrations[node] = found.number
        return found.value

    # Following

    def expire(self) -> None:
        """Read ZooKeeper before the next answer: this Nimbus begins to lead."""
        self._stale = self._mirrors_due = True
        self._watched.clear()

    async def _fresh(self) -> None:
        if self._stale:
            async with self._lock:
                if self._stale:
                    await self._refresh()
        self._require_catalog()

    def _require_catalog(self) -> None:
        """Raise CorruptStateError on a Nimbus that does not know which topologies exist: with an
        empty disk, while the catalog is forged, or of a Nimbus that was revoked. None would seem
        to exist, and all would be ended."""
        if self.ledger.catalog_text:
            return
        if self._unknown is not None:
            raise CorruptStateError(paths.CATALOG, str(self._unknown))
        if self._takeover is not None:
            raise CorruptStateError(paths.TAKEOVER, "the leader has not taken the cluster over yet")
        if self._is_foreign:
            raise CorruptStateError(
                paths.STORMS,
                "these are topologies of an open cluster: 'storm admin secure' takes them over; or "
                "delete the node, and submit them again",
            )

    async def follow(self) -> None:
        """Keep the ledger in step with ZooKeeper, and the disk with the ledger, forever."""
        while True:
            wait_secs = _FOLLOW_SECS
            self._wake.clear()
            try:
                await self.look()
            except StoreError as error:
                log.info("signed_states_not_read", error=error)
                wait_secs = _RETRY_SECS
                await self.ledger.write()
            if self._wrong:
                self.changed()
            try:
                async with asyncio.timeout(wait_secs):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def look(self) -> None:
        """Take what is newer in ZooKeeper, and write it to the disk. Raises the store's errors."""
        async with self._lock:
            await self._refresh()
        await self.ledger.write()

    async def _refresh(self) -> None:
        """Read what has changed. The caller holds the lock. Raises the store's errors."""
        await self._look(paths.CATALOG, self.ledger.take_catalog, self.ledger.catalog_text)
        await self._look_for_takeover()
        for topology_id in sorted(self.ledger.catalog.topologies):
            kept = self.ledger.states.get(topology_id)

            def take_state(data: bytes, topology_id: str = topology_id) -> bool:
                return self.ledger.take_state(topology_id, data)

            text = b"" if kept is None else kept.text
            await self._look(paths.signed_state(topology_id), take_state, text)
        nodes = set(self.ledger.manifests)
        try:
            nodes.update(await self.inner.children(paths.MANIFESTS))
        except NoNodeError:
            pass
        for node in sorted(nodes):
            known = self.ledger.manifests.get(node)

            def take_manifest(data: bytes, node: str = node) -> bool:
                return self.ledger.take_manifest(node, data)

            data = b"" if known is None else known.data
            await self._look(paths.manifest(node), take_manifest, data)
        self._stale = False

    async def _look_for_takeover(self) -> None:
        """Before there is a catalog: is this the first start of a cluster that was open?"""
        self._takeover, self._is_foreign = None, False
        if self.ledger.catalog_text or self._unknown is not None:
            return
        try:
            data, _ = await self.inner.get(paths.TAKEOVER, self._fired)
            self._takeover = await off_loop_if(
                len(data) > _ON_LOOP_BYTES_MAX,
                Takeover.verify,
                data.decode("ascii", "replace"),
                self._trusted.cluster,
                self._trusted.ca,
                self._clock.time(),
            )
            return
        except NoNodeError:
            await self.inner.exists(paths.TAKEOVER, self._fired)
        except SignatureError as error:
            self._refused(paths.TAKEOVER, error)
        try:
            self._is_foreign = bool(await self.inner.children(paths.STORMS, self._fired))
        except NoNodeError:
            pass

    async def _look(self, path: str, take: Callable[[bytes], bool], kept: bytes) -> None:
        """Read one node if it has changed since the last reading."""
        if path in self._watched:
            return
        self._watched.add(path)
        try:
            try:
                data, _ = await self.inner.get(path, self._fired)
            except NoNodeError:
                self._there.discard(path)
                if await self.inner.exists(path, self._fired) is not None:
                    self._watched.discard(path)  # it was created just now
                    self._wake.set()
                    return
                if kept:
                    self._refused(path, "it is missing")
                    self._wrong.add(path)
                elif path == paths.CATALOG:
                    self._unknown = None
                return
        except BaseException:
            self._watched.discard(path)
            raise
        self._there.add(path)
        try:
            large = len(data) > _ON_LOOP_BYTES_MAX and data != kept
            newest = await off_loop_if(large, take, data)
            if not newest:
                raise RecordError(f"{path}: it is older than what was signed last")
        except (RecordError, CorruptStateError) as error:
            self._refused(path, error)
            if kept:
                self._wrong.add(path)
            elif path == paths.CATALOG:
                self._unknown = RecordError(str(error))
        else:
            self._wrong.discard(path)

    def _fired(self, path: str) -> None:
        self._watched.discard(path)
        self._wake.set()

    def _refused(self, what: str, why: object) -> None:
        if (left_out := self._throttle.left_out(what)) is not None:
            log.error("unsigned_state_refused", what=what, reason=why, left_out=left_out)

    # Writing

    async def transaction(self, ops: Sequence[Op]) -> None:
        mine = [op for op in ops if _is_mirrored(op.path) or _is_signed(op.path)]
        try:
            await self._transact(ops, mine)
        except SignatureError as error:
            raise SquallError(
                f"this Nimbus cannot sign: {error}",
                hint="Has its certificate expired, or is its clock wrong?",
            ) from error

    async def _transact(self, ops: Sequence[Op], mine: Sequence[Op]) -> None:
        if any(op.path == paths.TAKEOVER for op in ops):
            async with self._lock:
                await self._take_over([op for op in ops if isinstance(op, Check)])
            self._wake.set()  # the disk is behind
            return
        if not mine:
            await self.inner.transaction([self.signer.notice(op) for op in ops])
            return
        async with self._lock:
            if self._stale:
                await self._refresh()
            self._require_catalog()
            large = sum(len(op.value) for op in mine if isinstance(op, Create | Set))
            change, rewrite = await off_loop_if(
                large > _ON_LOOP_BYTES_MAX, self.signer.compose, ops
            )
            await self._write(ops, change, rewrite)
            await self._mirror(change)
        self._wake.set()  # the disk is behind

    async def _write(self, ops: Sequence[Op], change: Change, rewrite: Mapping[str, bytes]) -> None:
        """Publish a change with the operations beside it, then go by it."""
        others = [
            i for i, op in enumerate(ops) if not (_is_mirrored(op.path) or _is_signed(op.path))
        ]
        guards: list[Op] = [op for op in ops if isinstance(op, Check)]
        texts: dict[str, bytes | None] = dict(rewrite)
        if change.catalog is not None:
            texts[paths.CATALOG] = change.catalog_text
        for topology_id, kept in change.states.items():
            texts[paths.signed_state(topology_id)] = None if kept is None else kept.text
        manifests = {paths.manifest(node): one.data for node, one in change.manifests.items()}
        size = sum(map(len, manifests.values())) + sum(len(text or b"") for text in texts.values())
        apart = size > NODE_BYTES_MAX // 2  # many nodes, many topologies on each
        await self._ensure_parents()
        first = texts if apart else {**texts, **manifests}
        await self._publish([ops[i] for i in others], first, others)
        behind = change.manifests if apart else {}
        if apart:
            change.manifests = {}
        self.ledger.adopt(change)
        self._wrong -= first.keys()
        self.signer.written(change)
        for node, one in behind.items():
            path = paths.manifest(node)
            await self._publish(guards, {path: one.data}, range(len(guards)))
            self.ledger.adopt(Change(manifests={node: one}))
            self._wrong.discard(path)

    async def _mirror(self, change: Change) -> None:
        try:
            await self._mirrors.follow(change.states)
        except StoreError as error:  # what is signed is written: the call has succeeded
            log.warning("workers_of_the_open_cluster_not_informed", error=error)

    async def _wait_for_nodes(self, there: Mapping[str, Taken]) -> None:
        """Raise SquallError while a node that runs something has not registered with its
        certificate: its work would be moved at once, as that of a lost node. Not forever: it may
        be lost."""
        if self._pending_since is None:
            self._pending_since = self._clock.monotonic()
        nodes = {node for name, one in there.items() for node in slots_of(name, one.assignment)}
        missing = [node for node in sorted(nodes) if not await self._is_registered(node)]
        waited = self._clock.monotonic() - self._pending_since
        if missing and waited < NODES_SECS:
            raise SquallError(
                f"the takeover waits for supervisors to start with their certificates: "
                f"{', '.join(missing)}",
                hint=f"After {NODES_SECS:.0f} s their work is moved to other nodes.",
            )

    async def _take_over(self, guards: Sequence[Op]) -> None:
        """Sign what was confirmed of a cluster that was open. The caller holds the lock. Raises
        SquallError if it is not what is there, and the store's errors."""
        await self._refresh()
        if self._takeover is None:
            return
        there = await still_there(self._takeover, self.inner)
        await self._wait_for_nodes(there)
        change = self.signer.take_over(self._takeover, there)
        await self._ensure_parents()
        for name, kept in change.states.items():
            assert kept is not None
            await self._publish(guards, {paths.signed_state(name): kept.text}, range(len(guards)))
        # Last: until then no state counts, and the next leader begins anew.
        await self._publish(guards, {paths.CATALOG: change.catalog_text}, range(len(guards)))
        self.ledger.adopt(change)
        self._takeover = None
        log.info("open_cluster_taken_over", topologies=sorted(change.states))
        await self._mirror(change)
        try:
            await self.inner.delete(paths.TAKEOVER)
        except StoreError as error:  # it counts no longer
            log.info("takeover_not_removed", error=error)

    async def _publish(
        self, others: Sequence[Op], texts: Mapping[str, bytes | None], indexes: Sequence[int]
    ) -> None:
        """One transaction. Whether a signed node exists is only assumed: others may delete it."""
        for attempt in range(_ATTEMPTS):
            signed = [op for path, text in texts.items() for op in self._put(path, text)]
            try:
                await self.inner.transaction([*others, *signed])
            except (NoNodeError, NodeExistsError) as error:
                at = error.index
                if at is None or at < len(others) or attempt == _ATTEMPTS - 1:
                    error.index = None if at is None or at >= len(others) else indexes[at]
                    raise
                op = signed[at - len(others)]
                if isinstance(op, Create) and isinstance(error, NoNodeError):
                    self._there.difference_update(_SIGNED_PARENTS)
                    await self._ensure_parents()
                else:
                    self._there ^= {op.path}
            except NotEmptyError as error:
                at = error.index
                if at is None or at < len(others) or attempt == _ATTEMPTS - 1:
                    raise
                path = signed[at - len(others)].path  # nothing of ours lies below it
                await self.inner.delete_tree(path)
                self._there.discard(path)
            except (ConnectionLostError, asyncio.CancelledError):
                self._stale = True  # it may have arrived
                self._watched.clear()
                raise
            except StoreError as error:
                if error.index is not None and error.index < len(others):
                    error.index = indexes[error.index]
                raise
            else:
                for path, text in texts.items():
                    self._there.discard(path) if text is None else self._there.add(path)
                return

    def _put(self, path: str, text: bytes | None) -> Iterable[Op]:
        if path in self._there:
            return [Delete(path)] if text is None else [Set(path, text)]
        return [] if text is None else [Create(path, text)]

    async def _ensure_parents(self) -> None:
        for path in _SIGNED_PARENTS:
            if path not in self._there:
                try:
                    if await self.inner.exists(path) is None:
                        await self.inner.transaction([Create(path)])
                except NodeExistsError:
                    pass
                self._there.add(path)

    # What the leader looks after

    def blobs_written(self, keys: Mapping[str, str]) -> None:
        """Note the hashes of blobs that this leader has just written for an authenticated call: the
        records that list them are signed again, with the next change or the next round."""
        if self.signer.blobs_written(keys):
            self.changed()

    async def maintain(self, fence: Fence) -> None:
        """Put right what is wrong in ZooKeeper, sign again what is due, and see to it that each
        supervisor has a manifest. Once a round. Raises NotLeaderError and the store's errors."""
        async with self._lock:
            await self._refresh()
            pending = self._takeover is not None
        if pending:
            await fence.transaction([Delete(paths.TAKEOVER)])
        async with self._lock:
            self._require_catalog()
            wrong = sorted(self._wrong)
        for path in wrong:
            await fence.transaction([Set(path, b"")])
        self._wrong.difference_update(wrong)
        await self._mirror_all()
        now, basis = self._clock.time(), self._lasting.basis()
        for topology_id, kept in list(self.ledger.states.items()):
            due = self.signer.is_due(kept, now)
            if due or (basis != self._lasting.checked and not self._lasting.holds_state(kept)):
                # (Not the state of this round's begin: it may have changed since.)
                await fence.transaction([Set(paths.signed_state(topology_id), b"")])
                log.info("record_signed_again", topology_id=topology_id)
        nodes = {
            node
            for node in await self._supervisors()
            if node not in self.ledger.manifests and await self._is_registered(node)
        }
        for node in sorted(nodes | self.signer.behind(basis)):
            await fence.transaction([Set(paths.manifest(node), b"")])
        if basis != self._lasting.checked and self.ledger.catalog_text:
            await fence.transaction([Set(paths.CATALOG, b"")])
        self._lasting.checked = basis

    async def _mirror_all(self) -> None:
        """Once, when this Nimbus begins to lead."""
        if not self._mirrors_due:
            return
        try:
            for topology_id in sorted(self.ledger.states):
                async with self._lock:
                    if (kept := self.ledger.states.get(topology_id)) is not None:
                        await self._mirrors.follow({topology_id: kept})
        except StoreError as error:  # nothing else waits for it: again in the next round
            log.warning("workers_of_the_open_cluster_not_informed", error=error)
        else:
            self._mirrors_due = False

    async def _supervisors(self) -> list[str]:
        try:
            return await self.inner.children(paths.SUPERVISORS)
        except NoNodeError:
            return []

    async def _is_registered(self, node: str) -> bool:
        try:
            return (await self.get(paths.supervisor(node)))[0] != b""
        except NoNodeError:
            return False


def _is_mirrored(path: str) -> bool:
    """Whether a signed state stands for the node at this path."""
    return any(paths.below(parent, path) for parent in (paths.STORMS, paths.ASSIGNMENTS))


def _is_signed(path: str) -> bool:
    """Whether what lies at this path is signed here, whoever writes it: only that."""
    return path == paths.CATALOG or any(
        paths.below(parent, path) for parent in (paths.SIGNED_STATES, paths.MANIFESTS)
    )


def _stat(number: int) -> Stat:
    return Stat(0, number, number, 0, 0)
