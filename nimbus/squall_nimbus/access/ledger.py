"""What Nimbus has signed, as this Nimbus knows it: the newest of each, in memory and on its disk.

    {storm.local.dir}/nimbus/security/ledger/
        catalog.jws          which topologies exist
        topologies/ID.jws    their states, with their records
        nodes/NODE.bundle    the manifests of supervisors

ZooKeeper carries the same texts to other Nimbus nodes, supervisors and workers. Whatever it shows,
a number below one that is here does not count. What lies on this disk counts on when the
certificate of the Nimbus that signed it is revoked: it was good when it was kept.

Files are written in a thread, and nothing waits for that: a crash in between leaves the text
before, and ZooKeeper, or another Nimbus, has the newer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from squall_common.cluster import codec, paths
from squall_common.daemon.files import make_private_dirs, write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import decode_znode, encode_znode
from squall_common.security.records import (
    Bundle,
    Manifest,
    RecordError,
    SlotWork,
    TopologyRecord,
    next_sequence,
    record_hash,
)
from squall_common.security.signing import Trust
from squall_common.security.topology_states import Catalog, TopologyState

log = get_logger(__name__)

# Executors of a topology by node and port.
Slots = Mapping[str, Mapping[int, tuple[tuple[int, int], ...]]]


def slots_of(topology_id: str, assignment: bytes | None) -> Slots:
    """What an assignment gives to each node. Raises CorruptStateError."""
    if assignment is None:
        return {}
    found = codec.decode_assignment(paths.assignment(topology_id), assignment)
    slots: dict[str, dict[int, tuple[tuple[int, int], ...]]] = {}
    for slot, executors in found.slots().items():
        tasks = tuple((one.task_start, one.task_end) for one in executors)
        slots.setdefault(slot.node, {})[slot.port] = tasks
    return slots


@dataclass(frozen=True, slots=True)
class KeptState:
    """A topology's state with its text, and what is derived from it."""

    state: TopologyState
    text: bytes
    record: TopologyRecord
    slots: Slots

    @classmethod
    def verify(cls, data: bytes, trust: Trust, topology_id: str) -> KeptState:
        """Raises RecordError, CorruptStateError."""
        state = TopologyState.verify(data.decode("ascii", "replace"), trust, topology_id)
        record = TopologyRecord.verify(state.record, trust)
        if record.id != topology_id:
            raise RecordError(f"state of {topology_id}: it has the record of {record.id!r}")
        return cls(state, data, record, slots_of(topology_id, state.assignment))


@dataclass(frozen=True, slots=True)
class KeptManifest:
    """A node's manifest with its bytes."""

    manifest: Manifest
    data: bytes

    @classmethod
    def verify(cls, data: bytes, trust: Trust, node: str) -> KeptManifest:
        """Raises RecordError."""
        manifest, _ = Bundle.from_bytes(data).verify(trust)
        if manifest.node != node:
            raise RecordError(f"manifest of {node}: it is of node {manifest.node!r}")
        return cls(manifest, data)


@dataclass(slots=True)
class Change:
    """What is to be signed together. A state that is None is removed."""

    catalog: Catalog | None = None
    catalog_text: bytes = b""
    states: dict[str, KeptState | None] = field(default_factory=dict)
    manifests: dict[str, KeptManifest] = field(default_factory=dict)


class Ledger:
    """`trust` refuses what a Nimbus has signed whose certificate is revoked, `past` does not."""

    def __init__(self, folder: Path, trust: Trust, past: Trust) -> None:
        self._folder = folder
        self.trust = trust
        self._past = past
        self.catalog = Catalog()
        self.catalog_text = b""
        self.states: dict[str, KeptState] = {}
        self.manifests: dict[str, KeptManifest] = {}
        self._last_number = 0
        self._unwritten: dict[Path, bytes | None] = {}  # None: to be removed

    def next_number(self, now: float) -> int:
        """A number above all before it."""
        self._last_number = next_sequence(self._last_number, now)
        return self._last_number

    def open(self) -> None:
        """Read the disk. Raises SquallError: a Nimbus that forgets what it has signed could take
        back an old state."""
        for folder in (self._folder, self._topologies, self._nodes):
            make_private_dirs(folder)
        if self._catalog_file.exists():
            self._read(self._catalog_file, lambda data, _: self._keep_catalog(data, self._past))
        for file in sorted(self._topologies.glob("*.jws")):
            self._read(file, lambda data, name: self._keep_state(name, data, self._past))
        for file in sorted(self._nodes.glob("*.bundle")):
            self._read(file, lambda data, name: self._keep_manifest(name, data, self._past))
        for topology_id in self.states.keys() - self.catalog.topologies:
            del self.states[topology_id]
            self._unwritten[self._state_file(topology_id)] = None

    def _read(self, file: Path, keep: Callable[[bytes, str], object]) -> None:
        try:
            keep(file.read_bytes(), decode_znode(file.stem))
        except (OSError, ValueError, SquallError) as error:
            raise SquallError(
                f"what this Nimbus knows to be signed, {file}, cannot be read: {error}",
                hint="Remove it to go by what ZooKeeper has.",
            ) from error

    # What others have signed

    def take_catalog(self, data: bytes) -> bool:
        """Take a catalog; return whether it is, or becomes, the newest. Raises RecordError."""
        return self._keep_catalog(data, self.trust)

    def _keep_catalog(self, data: bytes, trust: Trust) -> bool:
        if data == self.catalog_text:
            return True
        catalog = Catalog.verify(data.decode("ascii", "replace"), trust)
        if catalog.number <= self.catalog.number:
            return False
        self.adopt(Change(catalog=catalog, catalog_text=data))
        return True

    def take_state(self, topology_id: str, data: bytes) -> bool:
        """As `take_catalog`. Raises RecordError, CorruptStateError."""
        return self._keep_state(topology_id, data, self.trust)

    def _keep_state(self, topology_id: str, data: bytes, trust: Trust) -> bool:
        kept = self.states.get(topology_id)
        if kept is not None and kept.text == data:
            return True
        found = KeptState.verify(data, trust, topology_id)
        if kept is not None and found.state.number <= kept.state.number:
            return False
        self.adopt(Change(states={topology_id: found}))
        return True

    def take_manifest(self, node: str, data: bytes) -> bool:
        """As `take_catalog`. Raises RecordError."""
        return self._keep_manifest(node, data, self.trust)

    def _keep_manifest(self, node: str, data: bytes, trust: Trust) -> bool:
        kept = self.manifests.get(node)
        if kept is not None and kept.data == data:
            return True
        found = KeptManifest.verify(data, trust, node)
        if kept is not None and found.manifest.sequence <= kept.manifest.sequence:
            return False
        self.adopt(Change(manifests={node: found}))
        return True

    # What is to be signed

    def work_of(self, node: str, change: Change) -> tuple[dict[int, SlotWork], list[str]]:
        """What a node is to run once a change is made, and the texts of its records. A port that
        two topologies have while one of them moves is the newer assignment's."""
        work: dict[int, SlotWork] = {}
        records: dict[str, str] = {}
        for topology_id, kept in {**self.states, **change.states}.items():
            if kept is None or node not in kept.slots:
                continue
            records[topology_id] = kept.state.record
            digest = record_hash(kept.state.record)
            for port, executors in kept.slots[node].items():
                one = SlotWork(topology_id, digest, executors, kept.state.assignment_number)
                rival = work.get(port)
                if rival is None or (rival.number, rival.topology_id) < (one.number, topology_id):
                    work[port] = one
        self._keep_unknown(node, change, work, records)
        listed = {one.topology_id for one in work.values()}
        return work, [records[topology_id] for topology_id in sorted(listed)]

    def _keep_unknown(
        self, node: str, change: Change, work: dict[int, SlotWork], records: dict[str, str]
    ) -> None:
        """A topology that exists, and whose state is not known (it is missing in ZooKeeper, and
        was not on this disk), keeps the slots that the node's manifest gives it."""
        kept = self.manifests.get(node)
        unknown = self.catalog.topologies - self.states.keys() - change.states.keys()
        if kept is None or not unknown:
            return
        texts = {record_hash(text): text for text in Bundle.from_bytes(kept.data).records}
        for port, one in kept.manifest.slots.items():
            if one.topology_id in unknown and port not in work:
                work[port], records[one.topology_id] = one, texts[one.record]

    def adopt(self, change: Change) -> None:
        """Go by a change that was published."""
        if change.catalog is not None:
            self.catalog, self.catalog_text = change.catalog, change.catalog_text
            self._seen(change.catalog.number)
            self._unwritten[self._catalog_file] = change.catalog_text
            for topology_id in self.states.keys() - change.catalog.topologies:
                change.states.setdefault(topology_id, None)
        for topology_id, kept in change.states.items():
            file = self._state_file(topology_id)
            if kept is None:
                self.states.pop(topology_id, None)
                self._unwritten[file] = None
            else:
                self.states[topology_id] = kept
                self._seen(kept.state.number)
                self._unwritten[file] = kept.text
        for node, one in change.manifests.items():
            self.manifests[node] = one
            self._seen(one.manifest.sequence)
            self._unwritten[self._nodes / f"{encode_znode(node)}.bundle"] = one.data

    def _seen(self, number: int) -> None:
        self._last_number = max(self._last_number, number)

    # The disk

    @property
    def _catalog_file(self) -> Path:
        return self._folder / "catalog.jws"

    @property
    def _topologies(self) -> Path:
        return self._folder / "topologies"

    @property
    def _nodes(self) -> Path:
        return self._folder / "nodes"

    def _state_file(self, topology_id: str) -> Path:
        return self._topologies / f"{encode_znode(topology_id)}.jws"

    async def write(self) -> None:
        """Write what is not on the disk yet; what cannot be written is tried again by the next
        call."""
        while self._unwritten:
            unwritten, self._unwritten = self._unwritten, {}
            try:
                await asyncio.to_thread(_write, unwritten)
            except OSError as error:
                self._unwritten = {**unwritten, **self._unwritten}
                log.error("ledger_not_written", folder=self._folder, error=error)
                return


def _write(files: Mapping[Path, bytes | None]) -> None:
    for file, data in files.items():
        if data is None:
            file.unlink(missing_ok=True)
        else:
            write_atomic(file, data, mode=0o600)
