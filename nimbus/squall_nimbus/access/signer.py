"""What Nimbus signs, and when: a change with all that follows from it, and what is due again.

Nothing is signed that was read unsigned: a state comes from the ledger and from the call that
changes it, the hashes in its record from the blobs that this leader has just written for an
authenticated call. It is composed here, without waiting; `signed_store` writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from squall_common.cluster import codec, paths
from squall_common.cluster.store import (
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Op,
    Set,
    StoreError,
)
from squall_common.daemon.clock import Clock
from squall_common.errors import SquallError
from squall_common.names import ANONYMOUS
from squall_common.security.records import Bundle, Manifest, TopologyRecord
from squall_common.security.signing import SigningKey, Use
from squall_common.security.takeover import Taken, Takeover
from squall_common.security.topology_states import Catalog, TopologyState, sign_notice
from squall_nimbus.access.keys import SigningKeys
from squall_nimbus.access.lasting_trust import Basis, LastingTrust
from squall_nimbus.access.ledger import Change, KeptManifest, KeptState, Ledger, slots_of
from squall_nimbus.access.takeover import check_hashes, first_state


class Signer:
    """Composes what is signed. `hashes_of(topology_id)` returns the hashes of a topology's blobs by
    key, as this leader has just written them."""

    def __init__(
        self, ledger: Ledger, keys: SigningKeys, lasting: LastingTrust, clock: Clock
    ) -> None:
        self.ledger = ledger
        self.hashes_of: Callable[[str], Mapping[str, str]] = lambda topology_id: {}
        self._keys = keys
        self._lasting = lasting
        self._clock = clock
        self._due: dict[str, dict[str, str]] = {}  # topology -> hashes that its record lacks

    # What a change comes to

    def compose(self, ops: Sequence[Op]) -> tuple[Change, dict[str, bytes]]:
        """What operations come to: what is newly signed, and the texts that are only written
        again. Raises NoNodeError and NodeExistsError as the store would."""
        now = self._clock.time()
        key = self._keys.key(Use.RECORD)
        bases: dict[str, bytes | None] = {}
        assignments: dict[str, bytes | None] = {}
        renewed: set[str] = set()
        nodes: set[str] = set()
        rewrite: dict[str, bytes] = {}
        catalog_due = False
        topologies = set(self.ledger.catalog.topologies)
        for index, op in enumerate(ops):
            if isinstance(op, Check):
                continue
            value = None if isinstance(op, Delete) else op.value
            if (topology_id := paths.below(paths.STORMS, op.path)) is not None:
                known = self.ledger.states.get(topology_id)
                if isinstance(op, Set) and known is None:
                    raise _at(NoNodeError(op.path), index)  # nothing signed to go on from
                _check(op, topology_id in topologies, index)
                bases[topology_id] = value
                topologies.discard(topology_id) if value is None else topologies.add(topology_id)
            elif (topology_id := paths.below(paths.ASSIGNMENTS, op.path)) is not None:
                known = self.ledger.states.get(topology_id)
                if topology_id not in topologies or known is None:
                    raise _at(NoNodeError(op.path), index)
                _check(op, known.state.assignment is not None, index)
                assignments[topology_id] = value
            elif (topology_id := paths.below(paths.SIGNED_STATES, op.path)) is not None:
                known = self.ledger.states.get(topology_id)
                if (
                    known is not None
                    and not self.is_due(known, now)
                    and self._lasting.holds_state(known)
                ):
                    rewrite[op.path] = known.text
                elif known is not None:
                    renewed.add(topology_id)
            elif (node := paths.below(paths.MANIFESTS, op.path)) is not None:
                nodes.add(node)
            elif op.path == paths.CATALOG:
                catalog_due = True
        change = Change()
        for topology_id in bases.keys() | assignments.keys() | renewed:
            if topology_id not in topologies:
                gone = self.ledger.states.get(topology_id)
                change.states[topology_id] = None
                nodes |= set() if gone is None else set(gone.slots)
                continue
            kept = self.ledger.states.get(topology_id)
            after = self._next_state(topology_id, kept, bases, assignments, key, now)
            change.states[topology_id] = after
            if kept is None or after.slots != kept.slots or after.record != kept.record:
                nodes |= set(after.slots) | (set() if kept is None else set(kept.slots))
        if topologies != self.ledger.catalog.topologies:
            change.catalog = Catalog(self.ledger.next_number(now), frozenset(topologies))
            change.catalog_text = change.catalog.sign(key, now).encode()
        elif catalog_due:
            self._put_catalog_right(change, rewrite, key, now)
        for node in sorted(nodes):
            self._sign_manifest(node, change, rewrite, key, now)
        return change, rewrite

    def _next_state(
        self,
        topology_id: str,
        kept: KeptState | None,
        bases: Mapping[str, bytes | None],
        assignments: Mapping[str, bytes | None],
        key: SigningKey,
        now: float,
    ) -> KeptState:
        number = self.ledger.next_number(now)
        before = None if kept is None else kept.state
        base = bases.get(topology_id) or (before.base if before is not None else b"")
        assignment = assignments.get(topology_id, None if before is None else before.assignment)
        same_base = before is not None and base == before.base
        same_assignment = before is not None and assignment == before.assignment
        record, text = self._record(topology_id, base, kept, key, now)
        state = TopologyState(
            topology_id,
            number,
            base,
            before.base_number if before is not None and same_base else number,
            text,
            assignment,
            before.assignment_number if before is not None and same_assignment else number,
        )
        slots = slots_of(topology_id, assignment)
        return KeptState(state, state.sign(key, now).encode(), record, slots)

    def _record(
        self, topology_id: str, base: bytes, kept: KeptState | None, key: SigningKey, now: float
    ) -> tuple[TopologyRecord, str]:
        """A topology's record: a new one at its submit, and when something in it is due."""
        if kept is None:
            owner = codec.decode_storm_base(paths.storm(topology_id), base).owner
            if owner is None or owner == ANONYMOUS:
                raise SquallError(f"{topology_id} was submitted by no one that proved who it is")
            hashes = dict(self.hashes_of(topology_id))
            record = TopologyRecord(topology_id, owner, owner, hashes, 1, int(now))
            return record, record.sign(key, now)
        due = self._due.get(topology_id, {})
        if not due and not kept.record.is_half_over(now) and self._lasting.holds_record(kept):
            return kept.record, kept.state.record
        old = kept.record
        hashes = {**old.hashes, **due}
        record = TopologyRecord(old.id, old.owner, old.run_as, hashes, old.revision + 1, int(now))
        return record, record.sign(key, now)

    def _put_catalog_right(
        self, change: Change, rewrite: dict[str, bytes], key: SigningKey, now: float
    ) -> None:
        text, catalog = self.ledger.catalog_text, self.ledger.catalog
        if self._lasting.holds_catalog(text):
            rewrite[paths.CATALOG] = text
            return
        change.catalog = Catalog(self.ledger.next_number(now), catalog.topologies)
        change.catalog_text = change.catalog.sign(key, now).encode()

    def _sign_manifest(
        self, node: str, change: Change, rewrite: dict[str, bytes], key: SigningKey, now: float
    ) -> None:
        """Sign what a node is to run, unless the newest manifest says just that."""
        work, records = self.ledger.work_of(node, change)
        known = self.ledger.manifests.get(node)
        same = known is not None and dict(known.manifest.slots) == work
        if known is not None and same and self._lasting.holds_manifest(known):
            rewrite[paths.manifest(node)] = known.data
            return
        manifest = Manifest(node, self.ledger.next_number(now), work)
        data = Bundle(manifest.sign(key, now), tuple(records)).to_bytes()
        change.manifests[node] = KeptManifest(manifest, data)

    def take_over(self, takeover: Takeover, there: Mapping[str, Taken]) -> Change:
        """The first states and the first catalog of a cluster that was open. Raises SquallError if
        they are not what was confirmed."""
        now, key = self._clock.time(), self._keys.key(Use.RECORD)
        change = Change()
        for name, taken in sorted(there.items()):
            hashes = self.hashes_of(name)
            check_hashes(takeover, name, hashes)
            number = self.ledger.next_number(now)
            change.states[name] = first_state(name, taken, hashes, key, number=number, now=now)
        change.catalog = Catalog(self.ledger.next_number(now), frozenset(change.states))
        change.catalog_text = change.catalog.sign(key, now).encode()
        return change

    def notice(self, op: Op) -> Op:
        """An operation with what Nimbus asks of daemons (`paths.is_notice`), signed; any other as
        it is."""
        if not paths.is_notice(op.path) or not isinstance(op, Create | Set):
            return op
        now = self._clock.time()
        number = self.ledger.next_number(now)
        value = sign_notice(op.path, op.value, number, self._keys.key(Use.RECORD), now)
        if isinstance(op, Create):
            return Create(op.path, value, op.ephemeral)
        return Set(op.path, value, op.version)

    # What is due

    def is_due(self, kept: KeptState, now: float) -> bool:
        """Whether its record is to be signed again."""
        return kept.state.id in self._due or kept.record.is_half_over(now)

    def blobs_written(self, keys: Mapping[str, str]) -> bool:
        """Note the hashes of blobs; returns whether a record lists another one."""
        found = False
        for topology_id, kept in self.ledger.states.items():
            due = {
                key: digest
                for key, digest in keys.items()
                if key in kept.record.hashes and kept.record.hashes[key] != digest
            }
            if due:
                self._due.setdefault(topology_id, {}).update(due)
                found = True
        return found

    def written(self, change: Change) -> None:
        """A change is in ZooKeeper: what is in it is no longer due."""
        for topology_id, kept in change.states.items():
            due = self._due.pop(topology_id, {})
            hashes = {} if kept is None else kept.record.hashes
            left = {key: digest for key, digest in due.items() if hashes.get(key) != digest}
            if left and kept is not None:  # written meanwhile
                self._due[topology_id] = left

    def behind(self, basis: Basis) -> set[str]:
        """Nodes whose manifests are not what the topologies say, after a crash in between, or were
        signed by a Nimbus that was revoked, or under a CA that does not stay."""
        change = Change()
        listed = {node for kept in self.ledger.states.values() for node in kept.slots}
        found = set()
        for node in listed | self.ledger.manifests.keys():
            known = self.ledger.manifests.get(node)
            work = self.ledger.work_of(node, change)[0]
            good = known is not None and dict(known.manifest.slots) == work
            if known is not None and good and basis != self._lasting.checked:
                good = self._lasting.holds_manifest(known)
            if not good:
                found.add(node)
        return found


def _check(op: Op, exists: bool, index: int) -> None:
    if isinstance(op, Create) and exists:
        raise _at(NodeExistsError(op.path), index)
    if not isinstance(op, Create) and not exists:
        raise _at(NoNodeError(op.path), index)


def _at(error: StoreError, index: int) -> StoreError:
    error.index = index
    return error
