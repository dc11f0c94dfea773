"""The first leader of a cluster that was open signs what a person has confirmed of it
(`squall_common.security.takeover`, `storm admin secure`).

    no catalog, and a takeover that counts     nothing is answered: it is pending
    the leader's next round                    it signs a state for each topology, then the catalog
    a catalog                                  it is done, and counts no longer

A leader that ends between two of its writes leaves states that no catalog lists, which no one
believes; the next leader signs them again. What was confirmed must be what is still there: a
topology that was changed or submitted since refuses it, with the reason in the log, and a killed
one is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from squall_common.cluster import codec, paths
from squall_common.cluster.store import NoNodeError, Store
from squall_common.errors import SquallError
from squall_common.security.records import TopologyRecord
from squall_common.security.signing import SigningKey
from squall_common.security.takeover import Taken, Takeover
from squall_common.security.topology_states import TopologyState
from squall_nimbus.access.ledger import KeptState, slots_of


async def still_there(takeover: Takeover, inner: Store) -> dict[str, Taken]:
    """The confirmed topologies that have not been killed. Raises SquallError if anything has
    changed since, and the store's errors."""
    listed = set(await _children(inner, paths.STORMS))
    if new := sorted(listed - takeover.topologies.keys()):
        raise _again(f"{', '.join(new)} was submitted")
    found = {}
    for topology_id, taken in takeover.topologies.items():
        if topology_id not in listed:
            continue  # killed: it does not come back
        try:
            base, _ = await inner.get(paths.storm(topology_id))
        except NoNodeError:
            continue
        if base != taken.base:
            raise _again(f"{topology_id} was changed")
        found[topology_id] = taken
    return found


def _again(what: str) -> SquallError:
    return SquallError(
        f"the takeover of the open cluster is refused: {what} after it was confirmed",
        hint="Stop every Nimbus, and run 'storm admin secure begin' and 'confirm' again.",
    )


async def _children(inner: Store, path: str) -> list[str]:
    try:
        return await inner.children(path)
    except NoNodeError:
        return []


def check_hashes(takeover: Takeover, topology_id: str, hashes: Mapping[str, str]) -> None:
    """Raises SquallError unless a topology's blobs, as they lie on this disk, are those that were
    confirmed."""
    for key, digest in hashes.items():
        if takeover.blobs.get(key) != digest:
            raise _again(f"the blob {key} of {topology_id} was changed")


def first_state(
    topology_id: str,
    taken: Taken,
    hashes: Mapping[str, str],
    key: SigningKey,
    *,
    number: int,
    now: float,
) -> KeptState:
    """A topology's first signed state: as it was confirmed, with its owner. Raises
    CorruptStateError for bytes that are none."""
    base = codec.decode_storm_base(paths.storm(topology_id), taken.base)
    base = replace(base, owner=taken.owner, principal=taken.owner)
    assignment = None
    if taken.assignment is not None:
        found = codec.decode_assignment(paths.assignment(topology_id), taken.assignment)
        assignment = codec.encode_assignment(replace(found, owner=taken.owner))
    record = TopologyRecord(topology_id, taken.owner, taken.owner, dict(hashes), 1, int(now))
    state = TopologyState(
        topology_id,
        number,
        codec.encode_storm_base(base),
        number,
        record.sign(key, now),
        assignment,
        number,
    )
    return KeptState(
        state, state.sign(key, now).encode(), record, slots_of(topology_id, assignment)
    )


class Mirrors:
    """The unsigned nodes of topologies that ran before the cluster was secured. Their workers read
    them until they are launched again, so that they follow what is signed; no one else does."""

    def __init__(self, inner: Store, known: Callable[[], Collection[str]]) -> None:
        self._inner = inner
        self._known = known
        self._there: dict[str, bool] = {}  # by topology: whether it has such nodes

    async def follow(self, states: Mapping[str, KeptState | None]) -> None:
        """Write what has been signed, where such nodes are. Raises the store's errors."""
        for topology_id, kept in states.items():
            base, assignment = paths.storm(topology_id), paths.assignment(topology_id)
            if topology_id not in self._there:
                self._there[topology_id] = await self._inner.exists(base) is not None
            if self._there[topology_id]:
                await self._put(base, None if kept is None else kept.state.base)
                await self._put(assignment, None if kept is None else kept.state.assignment)
            if kept is None:
                del self._there[topology_id]
        for topology_id in self._there.keys() - set(self._known()):
            del self._there[topology_id]

    async def _put(self, path: str, value: bytes | None) -> None:
        if await self._inner.exists(path) is None:
            if value is not None:
                await self._inner.create(path, value)
        elif value is None:
            await self._inner.delete_tree(path)
        else:
            await self._inner.set(path, value)
