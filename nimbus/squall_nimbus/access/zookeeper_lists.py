"""Sees to it that every node of ZooKeeper has its access list (decision 0130).

The leading Nimbus closes an open cluster once all supervisors show a digest, and the nodes of a
topology once all its workers do; it goes through all nodes when its term begins, soon after, and
every ten minutes, since others may have made nodes before they saw that the cluster is closed. A
walk that is cut short is done again by the next leader: the list of a node depends on its path, and
on which topologies there are.

ZooKeeper takes no list in a transaction, but compares the version of the list that is replaced. So
a leader reads that version, confirms its term, and writes (many nodes at a time, with one
confirmation); and the first walk of a term raises the versions, even of lists that are right,
wherever leaders could differ (decision 0169). A leader that was paused before its write, while
another won, finds another version when it goes on.

The record of a topology's checkpoints has the topology's name, and outlives it. Workers may not
make it: it is made here, without content, for the topology of that name that lives now.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

from squall_common.cluster import paths
from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.access.lists import OPEN, is_open
from squall_common.cluster.access.opened import awaited, may_close
from squall_common.cluster.leader import Fence
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import (
    AccessDeniedError,
    BadVersionError,
    Create,
    NodeExistsError,
    NoNodeError,
    Stat,
    Store,
)
from squall_common.cluster.treewalk import read_each
from squall_common.cluster.values import SupervisorInfo
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import topology_name_of
from squall_nimbus.blobs.store import BlobNotFoundError
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

# Others look for the marker every few seconds (`stores.zookeeper`).
AGAIN_SECS = 30.0
# What a session with an old digest makes, or one that has not seen the marker, is closed by then.
WALK_SECS = 600.0
# Nodes for each confirmation of the term. With more, the last write would come long after it.
_WRITTEN_AT_ONCE = 256


def record_path(topology_id: str, conf: Mapping[str, Any]) -> str | None:
    """Where the record of a topology's checkpoints is; None without checkpoints."""
    options = TopologyOptions.read(conf)
    if options.topology_checkpoint_interval_secs is None or not options.topology_state_url:
        return None
    return paths.checkpoints(topology_name_of(topology_id), options.topology_state_url)


class ZooKeeperLists:
    """Call `settle` in each round of the leader, and `prepare` before a topology is created.

    `store` is the session itself, `access` what it was opened with; `state` reads what counts.
    `conf_of(topology_id)` raises BlobNotFoundError or SquallError where it is not here;
    `submitting` are the topologies that are being created.
    """

    def __init__(
        self,
        store: Store,
        access: StoreAccess,
        state: ClusterState,
        *,
        conf_of: Callable[[str], Mapping[str, Any]],
        submitting: Collection[str],
        clock: Clock,
    ) -> None:
        self._store = store
        self._lists = access.lists
        self._state = state
        self._conf_of = conf_of
        self._submitting = submitting
        self._clock = clock
        self._term: Fence | None = None
        self._fenced = False  # whether this term has raised the versions of all lists
        self._known: set[str] = set()  # topologies of which the next two are known
        self._opened: set[str] = set()
        self._records: dict[str, str] = {}  # path -> topology
        self._due: set[str] = set()  # records that are to be handed over
        self._confs: dict[str, Mapping[str, Any]] = {}  # of the known ones; a rebalance replaces it
        self._unlearned = False  # whether the code of a topology is still on its way here
        self._walk_at = 0.0
        self._throttle = Throttle()
        self._lists.opened, self._lists.records = self._opened, self._records

    async def prepare(self, topology_id: str, conf: Mapping[str, Any], term: Fence) -> None:
        """Before a topology is created: decide whether its nodes are open, and hand over the record
        of its checkpoints. Raises StoreError."""
        if not self._store.makes_lists:
            return
        if awaited(await self._state.supervisors()):
            self._opened.add(topology_id)
        path = record_path(topology_id, conf)
        if path is not None:
            self._records[path] = topology_id
            await self._hand_over([path], term)

    async def settle(self, term: Fence) -> None:
        """Close what can be closed, and look through the nodes when that is due. Raises
        StoreError."""
        if term is not self._term:
            self._known.clear()
            self._term, self._fenced, self._walk_at = term, False, 0.0
        supervisors = await self._state.supervisors()
        closing = not self._store.makes_lists
        if closing and (missing := await self._awaited(supervisors)):
            if (left_out := self._throttle.left_out("open")) is not None:
                log.warning(
                    "zookeeper_is_open",
                    supervisors=",".join(missing),
                    what_now="give storm.zookeeper.auth.payload.file to them, too, and start them",
                    left_out=left_out,
                )
            return
        held = {*self._known, *self._opened, *self._records.values()} - set(self._submitting)
        live = set(await self._state.topology_ids())
        await self._learn(live, closing=closing)
        await self._forget(held - live, term)
        await self._close_topologies(supervisors)
        now = self._clock.monotonic()
        if closing:
            self._store.begin_lists()
            self._walk_at = 0.0
        if now >= self._walk_at:
            is_first = self._walk_at == 0.0
            self._walk_at = float("inf")
            await self._walk_or_again(term)
            self._walk_at = now + (AGAIN_SECS if is_first else WALK_SECS)
            if closing:
                log.info("zookeeper_closed", open_topologies=",".join(sorted(self._opened)))
        elif self._due:  # a walk hands over all
            await self._hand_over(self._due & self._records.keys(), term)
            self._due.clear()

    async def _awaited(self, supervisors: Mapping[str, SupervisorInfo]) -> list[str]:
        """The supervisors before which an open cluster is not closed: those that show no digest,
        and those that are away, such as all of them after ZooKeeper was, while workers are placed
        there."""
        places: set[str] = set()
        for topology_id in await self._state.assignments():
            places |= await self._nodes_of(topology_id)
        return sorted({*awaited(supervisors), *(places - supervisors.keys())})

    async def _nodes_of(self, topology_id: str) -> set[str]:
        """Where its workers are placed."""
        found = await self._state.assignment(topology_id)
        return set() if found is None else {slot.node for slot in found[0].executor_slot.values()}

    async def _learn(self, live: Collection[str], *, closing: bool) -> None:
        """Find out of each topology whether it is open, and which record it has. All are open
        that were there before the cluster is closed, also those whose code is not here yet."""
        unlearned = False
        unknown = sorted(set(live) - self._known)
        for topology_id, found in (await read_each(unknown, self._is_open)).items():
            if isinstance(found, BaseException):
                raise found
            if closing or found:
                self._opened.add(topology_id)
        for topology_id in sorted(live):
            new = topology_id not in self._known
            try:
                conf = self._conf_of(topology_id)
                if not new and conf is self._confs.get(topology_id):
                    continue
                path = record_path(topology_id, conf)
            except (BlobNotFoundError, SquallError):
                unlearned |= new  # its code is still on its way: in another round
                continue
            if path is not None:
                self._records[path] = topology_id
                self._due.add(path)
            self._known.add(topology_id)
            self._confs[topology_id] = conf
        if self._unlearned and not unlearned:
            self._walk_at = 0.0  # the records that no one had
        self._unlearned = unlearned

    async def _is_open(self, topology_id: str) -> bool:
        try:
            return is_open(await self._store.access_list(paths.workerbeats(topology_id)))
        except NoNodeError:
            return False

    async def _forget(self, gone: Collection[str], term: Fence) -> None:
        """Take the records from topologies that ended, or were never created; the records
        themselves stay."""
        if not self._opened.isdisjoint(gone):
            self._walk_at = 0.0  # the parent of records was open for them, too
        self._known -= set(gone)
        self._confs = {i: conf for i, conf in self._confs.items() if i in self._known}
        self._opened -= set(gone)
        left = [path for path, topology_id in self._records.items() if topology_id in gone]
        for path in left:
            del self._records[path]
        try:
            _require(await self._write(left, term))
        except BaseException:
            self._walk_at = 0.0
            raise

    async def _close_topologies(self, supervisors: Mapping[str, SupervisorInfo]) -> None:
        for topology_id in sorted(self._opened & self._known):
            if not may_close(topology_id, await self._nodes_of(topology_id), supervisors):
                if (left_out := self._throttle.left_out(topology_id)) is not None:
                    log.warning(
                        "topology_is_open_in_zookeeper",
                        topology_id=topology_id,
                        what_now="its workers are of an earlier version: rebalance it",
                        left_out=left_out,
                    )
                continue
            self._opened.discard(topology_id)
            self._walk_at = 0.0
            log.info("topology_closed_in_zookeeper", topology_id=topology_id)

    async def _hand_over(self, records: Collection[str], term: Fence) -> None:
        """Give records of checkpoints to their topologies; make them first where there is none."""

        async def made(path: str) -> bool:
            try:
                await term.transaction([Create(path, paths.NO_RECORD)])
                return True
            except NodeExistsError:
                return False  # meanwhile

        stats = await read_each(records, self._store.exists)
        _require(stats)
        missing = [at for at, stat in stats.items() if stat is None and self._lists.of(at) != OPEN]
        found = await read_each(missing, made)
        _require(found)
        _require(await self._write([at for at in records if not found.get(at)], term))

    async def _write(self, nodes: Collection[str], term: Fence) -> dict[str, BaseException]:
        """Write the lists of nodes, right or wrong, as the leader. Returns which could not be
        written, and why. Raises NotLeaderError."""
        failed: dict[str, BaseException] = {}
        left = list(nodes)
        while left:
            now, left = left[:_WRITTEN_AT_ONCE], left[_WRITTEN_AT_ONCE:]
            stats = await read_each(now, self._store.exists)
            failed |= _errors(stats)
            versions = {
                at: stat.acl_version for at, stat in stats.items() if isinstance(stat, Stat)
            }
            if not versions:
                continue
            # Only now: whoever wins after this raises the versions that were read.
            await term.transaction([])
            write = functools.partial(self._write_one, versions)
            for path, error in _errors(await read_each(versions, write)).items():
                if isinstance(error, BadVersionError):
                    left.append(path)  # by another leader, or by ours whose answer was lost
                elif not isinstance(error, NoNodeError):
                    failed[path] = error
        return failed

    async def _write_one(self, versions: Mapping[str, int], path: str) -> None:
        await self._store.set_access_list(path, self._lists.of(path), versions[path])

    async def _walk_or_again(self, term: Fence) -> None:
        try:
            await self._walk(term)
        except BaseException:
            self._walk_at = 0.0
            raise

    async def _walk(self, term: Fence) -> None:
        """Put right the list of each node, the upper ones first."""
        records = set(self._records)
        await self._hand_over(records, term)
        self._due -= records
        level, changed = ["/"], 0
        while level:
            wrong = await read_each(level, self._is_wrong)
            failed = _errors(wrong)
            written = [at for at, one in wrong.items() if one is True or self._differs(at, records)]
            failed |= await self._write([at for at in written if at not in failed], term)
            changed += sum(wrong[at] is True and at not in failed for at in written)
            # Now: what was made before the list was right is among these.
            found = await read_each((at for at in level if at not in failed), self._store.children)
            failed |= _errors(found)
            for path in self._not_ours(failed):
                if (left_out := self._throttle.left_out(path)) is not None:
                    log.error("node_is_not_ours", path=path, left_out=left_out)
            level = []
            for path, names in found.items():
                if not isinstance(names, BaseException):
                    above = path.rstrip("/")
                    level += [
                        f"{above}/{name}"
                        for name in names
                        if not self._is_unlearned(f"{above}/{name}")
                    ]
            if "/zookeeper" in level:  # the server's own, where the root is "/"
                level.remove("/zookeeper")
        self._fenced = not self._unlearned
        if changed:
            log.info("access_lists_set", nodes=changed)

    def _is_unlearned(self, path: str) -> bool:
        """Whether it is perhaps the record of a topology that runs."""
        return (
            self._unlearned
            and path not in self._records
            and paths.below(paths.CHECKPOINTS, path) is not None
        )

    async def _is_wrong(self, path: str) -> bool:
        return await self._store.access_list(path) != self._lists.of(path)

    def _differs(self, path: str, written: Collection[str]) -> bool:
        """Whether leaders could differ in its list, and this one has not written it in its term."""
        return not self._fenced and self._lists.needs_topologies(path) and path not in written

    def _not_ours(self, failed: Mapping[str, BaseException]) -> list[str]:
        """The nodes that may not be written or read. Raises the first error of another kind; nodes
        that are gone meanwhile do not count."""
        _require(
            {
                at: one
                for at, one in failed.items()
                if not isinstance(one, AccessDeniedError | NoNodeError)
            }
        )
        return [path for path, one in failed.items() if isinstance(one, AccessDeniedError)]


def _errors(found: Mapping[str, object]) -> dict[str, BaseException]:
    return {path: one for path, one in found.items() if isinstance(one, BaseException)}


def _require(found: Mapping[str, object]) -> None:
    """Raises the first error among these."""
    for error in _errors(found).values():
        raise error
