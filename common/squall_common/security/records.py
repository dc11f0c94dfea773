"""What Nimbus signs for supervisors: a record a topology, and a manifest a node.

A record says what a topology is: its owner, whom its workers run as, and the hashes of what they
run. A manifest says, completely, what one node runs: a record for each slot. ZooKeeper only carries
them: a supervisor launches what the newest manifest that it has seen lists, and stops a worker only
because a newer one no longer lists it. A node that is deleted, rolled back or forged changes
nothing.

    gate = ManifestGate("node-7", trust)
    gate.take(text, now)      # -> the manifest; raises RecordError for an older or a foreign one
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from squall_common.security.identity import IdentityError, check_name
from squall_common.security.jws import SignatureError
from squall_common.security.signing import LEEWAY_SECS, SigningKey, Trust, Use

_RECORD = "squall-topology"
_MANIFEST = "squall-manifest"
LIFE_SECS = 30 * 86_400


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


def record_hash(text: str) -> str:
    """The hash by which a manifest names a record."""
    return hashlib.sha256(text.encode()).hexdigest()


def next_sequence(last: int, now: float) -> int:
    """The sequence of the next manifest: it grows though the clock goes back."""
    return max(last + 1, int(now * 1000))


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that one node runs: by port, the topology's id and the hash of its record."""

    node: str
    sequence: int
    slots: Mapping[int, tuple[str, str]] = field(default_factory=dict)

    def sign(self, key: SigningKey, now: float) -> str:
        """The manifest's text. Raises SignatureError if the key may not sign any more."""
        payload = {
            "cluster": key.cluster,
            "node": self.node,
            "sequence": self.sequence,
            "iat": int(now),
            "slots": {str(port): list(one) for port, one in self.slots.items()},
        }
        return key.sign(payload, _MANIFEST, now)

    @classmethod
    def verify(cls, text: str, trust: Trust) -> Manifest:
        """Raises RecordError."""
        try:
            payload = trust.verify(text, _MANIFEST, Use.RECORD).payload
            slots = {}
            for port, (topology_id, digest) in payload["slots"].items():
                slots[int(port)] = (str(topology_id), str(digest))
            return cls(_text(payload, "node"), _natural(payload, "sequence"), slots)
        except SignatureError as error:
            raise RecordError(f"manifest: {error}") from None
        except (KeyError, TypeError, ValueError, AttributeError):
            raise RecordError("manifest: it cannot be read") from None


class ManifestGate:
    """What one node goes by: the newest manifest that it has seen. `highest` is the sequence that
    its disk remembers; the caller writes it there before it acts on what `take` returns."""

    def __init__(self, node: str, trust: Trust, highest: int = 0) -> None:
        self._node = node
        self._trust = trust
        self.highest = highest
        self.current: Manifest | None = None

    def take(self, text: str) -> Manifest:
        """The manifest, which is newer than all before it. Raises RecordError, and changes
        nothing."""
        manifest = Manifest.verify(text, self._trust)
        if manifest.node != self._node:
            raise RecordError(f"manifest: it is of node {manifest.node!r}, not {self._node!r}")
        if manifest.sequence <= self.highest:
            raise RecordError(
                f"manifest: its sequence {manifest.sequence} is not above {self.highest}"
            )
        self.highest, self.current = manifest.sequence, manifest
        return manifest

    def may_launch(self, port: int, record_text: str) -> TopologyRecord:
        """The record by which a worker may begin in a slot. Raises RecordError unless the newest
        manifest lists just that record there."""
        listed = None if self.current is None else self.current.slots.get(port)
        if listed is None:
            raise RecordError(f"the manifest lists nothing for port {port}")
        record = TopologyRecord.verify(record_text, self._trust)
        if listed != (record.id, record_hash(record_text)):
            raise RecordError(f"the manifest lists another record for port {port}")
        return record


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
