"""What Nimbus signs for supervisors: a record a topology, and a manifest a node.

A record says what a topology is: its owner, whom its workers run as, and the hashes of what they
run. A manifest says, completely, what one node runs: a record and executors for each slot.
ZooKeeper only carries them, both in one `Bundle`: a supervisor launches what the newest manifest
that it has seen lists, and stops a worker only because a newer one no longer lists it. A node that
is deleted, rolled back or forged changes nothing.

    gate = ManifestGate("node-7", trust)
    bundle = gate.take(text)      # raises RecordError for an older or a foreign one
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from squall_common.security.identity import IdentityError, check_name
from squall_common.security.jws import SignatureError
from squall_common.security.signing import LEEWAY_SECS, SigningKey, Trust, Use

_RECORD = "squall-topology"
_MANIFEST = "squall-manifest"
LIFE_SECS = 30 * 86_400
_BUNDLE_BYTES_MAX = 32_000_000  # unpacked


class RecordError(ValueError):
    """A record or a manifest does not count. The text is for the log."""


@dataclass(frozen=True, slots=True)
class TopologyRecord:
    """What a topology is. `hashes` are those of its blobs, SHA-256 in hexadecimal, by key."""

    id: str
    owner: str
    run_as: str | None
    hashes: Mapping[str, str]
    revision: int
    issued: int

    def sign(self, key: SigningKey, now: float) -> str:
        """The record's text. Raises SignatureError if the key may not sign any more."""
        payload = {
            "cluster": key.cluster,
            "id": self.id,
            "owner": self.owner,
            "run_as": self.run_as,
            "hashes": dict(self.hashes),
            "revision": self.revision,
            "iat": self.issued,
        }
        return key.sign(payload, _RECORD, now)

    @classmethod
    def verify(cls, text: str, trust: Trust) -> TopologyRecord:
        """Raises RecordError."""
        try:
            payload = trust.verify(text, _RECORD, Use.RECORD).payload
            run_as = payload["run_as"]
            return cls(
                _text(payload, "id"),
                check_name(_text(payload, "owner")),
                None if run_as is None else check_name(run_as),
                {str(key): str(value) for key, value in payload["hashes"].items()},
                _natural(payload, "revision"),
                _natural(payload, "iat"),
            )
        except (SignatureError, IdentityError) as error:
            raise RecordError(f"topology record: {error}") from None
        except (KeyError, TypeError, AttributeError):
            raise RecordError("topology record: it cannot be read") from None

    def may_begin(self, now: float) -> bool:
        """Whether a topology that a node does not run yet may begin by this record."""
        return now <= self.issued + LIFE_SECS + LEEWAY_SECS

    def is_half_over(self, now: float) -> bool:
        """Whether it is time to sign it again."""
        return now >= self.issued + LIFE_SECS / 2


def record_hash(text: str) -> str:
    """The hash by which a manifest names a record."""
    return hashlib.sha256(text.encode()).hexdigest()


def next_sequence(last: int, now: float) -> int:
    """The sequence of the next manifest: it grows though the clock goes back."""
    return max(last + 1, int(now * 1000))


@dataclass(frozen=True, slots=True)
class SlotWork:
    """The work of one slot. `number` is that of the assignment by which the slot got it: the first
    part of its workers' incarnations."""

    topology_id: str
    record: str  # the hash of its record
    executors: tuple[tuple[int, int], ...]  # the first and the last task of each, sorted
    number: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that one node runs, by port."""

    node: str
    sequence: int
    slots: Mapping[int, SlotWork] = field(default_factory=dict)

    def sign(self, key: SigningKey, now: float) -> str:
        """The manifest's text. Raises SignatureError if the key may not sign any more."""
        payload = {
            "cluster": key.cluster,
            "node": self.node,
            "sequence": self.sequence,
            "iat": int(now),
            "slots": {
                str(port): [one.topology_id, one.record, [*one.executors], one.number]
                for port, one in self.slots.items()
            },
        }
        return key.sign(payload, _MANIFEST, now)

    @classmethod
    def verify(cls, text: str, trust: Trust) -> Manifest:
        """Raises RecordError."""
        try:
            payload = trust.verify(text, _MANIFEST, Use.RECORD).payload
            slots = {}
            for port, (topology_id, digest, executors, number) in payload["slots"].items():
                tasks = tuple((int(first), int(last)) for first, last in executors)
                slots[int(port)] = SlotWork(str(topology_id), str(digest), tasks, int(number))
            return cls(_text(payload, "node"), _natural(payload, "sequence"), slots)
        except SignatureError as error:
            raise RecordError(f"manifest: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError):
            raise RecordError("manifest: it cannot be read") from None


@dataclass(frozen=True, slots=True)
class Bundle:
    """A node's manifest, with the records that it lists, as they travel together: one without the
    other is of no use."""

    manifest: str
    records: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Packed, and fast: the records of one Nimbus have most of their bytes in common."""
        value = {"manifest": self.manifest, "records": list(self.records)}
        return zlib.compress(json.dumps(value).encode(), 1)

    @classmethod
    def from_bytes(cls, data: bytes) -> Bundle:
        """The inverse. Nothing in it is verified. Raises RecordError."""
        try:
            unpack = zlib.decompressobj()
            plain = unpack.decompress(data, _BUNDLE_BYTES_MAX)
            if not unpack.eof:
                raise ValueError("it is too long")
            value = json.loads(plain)
            return cls(str(value["manifest"]), tuple(str(one) for one in value["records"]))
        except (zlib.error, ValueError, KeyError, TypeError, RecursionError):
            raise RecordError("manifest: its bundle cannot be read") from None

    def verify(self, trust: Trust) -> tuple[Manifest, dict[str, TopologyRecord]]:
        """The manifest, and the records of its topologies by their ids. Raises RecordError unless
        each slot's record is there."""
        manifest = Manifest.verify(self.manifest, trust)
        texts = {record_hash(text): text for text in self.records}
        records: dict[str, TopologyRecord] = {}
        for port, one in manifest.slots.items():
            text = texts.get(one.record)
            if text is None:
                raise RecordError(f"manifest: the record of port {port} is missing")
            record = records.get(one.topology_id)
            if record is None:
                record = records[one.topology_id] = TopologyRecord.verify(text, trust)
            if record.id != one.topology_id:
                raise RecordError(f"manifest: port {port} has the record of {record.id!r}")
        return manifest, records


class ManifestGate:
    """What one node goes by: the newest manifest that it has seen. The caller keeps the bundle and
    `known` on its disk before it acts on what `take` returns, and gives them to `restore` when it
    starts."""

    def __init__(self, node: str, trust: Trust) -> None:
        self._node = node
        self._trust = trust
        self.highest = 0
        self.current: Manifest | None = None
        self.records: Mapping[str, TopologyRecord] = {}
        # Topologies that may run here whatever the age of their records: they were young enough
        # when this node first saw them.
        self.known: frozenset[str] = frozenset()

    def restore(self, bundle: Bundle, known: Collection[str], past: Trust) -> None:
        """Go on from what this node's own disk has kept, although `past` may trust a Nimbus that
        was revoked since: it was good when it was kept. Raises RecordError."""
        manifest, records = bundle.verify(past)
        self._check_node(manifest)
        self.highest, self.current, self.records = manifest.sequence, manifest, records
        self.known = frozenset(known) & frozenset(records)

    def take(self, bundle: Bundle, now: float) -> Manifest:
        """The manifest, which is newer than all before it. Raises RecordError, and changes
        nothing."""
        manifest, records = bundle.verify(self._trust)
        self._check_node(manifest)
        if manifest.sequence <= self.highest:
            raise RecordError(
                f"manifest: its sequence {manifest.sequence} is not above {self.highest}"
            )
        self.known = frozenset(
            i for i, record in records.items() if i in self.known or record.may_begin(now)
        )
        self.highest, self.current, self.records = manifest.sequence, manifest, records
        return manifest

    def record(self, topology_id: str) -> TopologyRecord:
        """The record by which workers of a topology may begin. Raises RecordError unless the newest
        manifest lists it, and if it had expired before this node heard of it."""
        record = self.records.get(topology_id)
        if record is None:
            raise RecordError(f"the manifest lists nothing of {topology_id}")
        if topology_id not in self.known:
            raise RecordError(f"the record of {topology_id} has expired")
        return record

    def _check_node(self, manifest: Manifest) -> None:
        if manifest.node != self._node:
            raise RecordError(f"manifest: it is of node {manifest.node!r}, not {self._node!r}")


def _text(payload: Mapping[str, Any], key: str) -> str:
    value = payload[key]
    if not isinstance(value, str) or not value:
        raise SignatureError(f"its {key} is not a text")
    return value


def _natural(payload: Mapping[str, Any], key: str) -> int:
    value = payload.get(key)
    if type(value) is not int or not 0 <= value < 2**53:
        raise SignatureError(f"its {key} is not a number")
    return value
