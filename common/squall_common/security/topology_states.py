"""What Nimbus signs for itself, the next leader, and workers: a catalog, and a state a topology.

The catalog lists, completely, the topologies that exist. The state of one says its size and status
(Storm's StormBase), and where its executors run (its Assignment), with the record by which
supervisors run it (`squall_common.security.records`). Each has a number that grows: whoever has
seen one takes none with a lower number, and a state counts only while the catalog lists its
topology. So a ZooKeeper that is rolled back or forged neither ends a topology nor revives one.

Numbers are epoch milliseconds or more, of one counter for all (`next_sequence`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall_common.security.jws import SignatureError, b64, unb64
from squall_common.security.records import RecordError
from squall_common.security.signing import SigningKey, Trust, Use

_CATALOG = "squall-catalog"
_STATE = "squall-state"
_NOTICE = "squall-notice"


@dataclass(frozen=True, slots=True)
class Catalog:
    """The topologies that exist, by id."""

    number: int = 0
    topologies: frozenset[str] = frozenset()

    def sign(self, key: SigningKey, now: float) -> str:
        """Its text. Raises SignatureError if the key may not sign any more."""
        payload = {
            "cluster": key.cluster,
            "number": self.number,
            "topologies": sorted(self.topologies),
            "iat": int(now),
        }
        return key.sign(payload, _CATALOG, now)

    @classmethod
    def verify(cls, text: str, trust: Trust) -> Catalog:
        """Raises RecordError."""
        try:
            payload = trust.verify(text, _CATALOG, Use.RECORD).payload
            listed = payload["topologies"]
            if not isinstance(listed, list):
                raise SignatureError("its topologies are not a list")
            return cls(natural(payload, "number"), frozenset(str(one) for one in listed))
        except SignatureError as error:
            raise RecordError(f"catalog: {error}") from None
        except KeyError:
            raise RecordError("catalog: it cannot be read") from None


@dataclass(frozen=True, slots=True)
class TopologyState:
    """One topology. `base` and `assignment` are the bytes that Storm keeps at /storms/ID and
    /assignments/ID; the numbers beside them are those of the states that changed them last."""

    id: str
    number: int
    base: bytes
    base_number: int
    record: str  # the text of its record
    assignment: bytes | None = None
    assignment_number: int = 0

    def sign(self, key: SigningKey, now: float) -> str:
        """Its text. Raises SignatureError if the key may not sign any more."""
        payload = {
            "cluster": key.cluster,
            "id": self.id,
            "number": self.number,
            "base": b64(self.base),
            "base_number": self.base_number,
            "record": self.record,
            "assignment": None if self.assignment is None else b64(self.assignment),
            "assignment_number": self.assignment_number,
            "iat": int(now),
        }
        return key.sign(payload, _STATE, now)

    @classmethod
    def verify(cls, text: str, trust: Trust, topology_id: str) -> TopologyState:
        """Raises RecordError, also for that of another topology."""
        try:
            payload = trust.verify(text, _STATE, Use.RECORD).payload
            if payload["id"] != topology_id:
                raise SignatureError(f"it is of {payload['id']!r}")
            assignment = payload["assignment"]
            return cls(
                topology_id,
                natural(payload, "number"),
                unb64(str(payload["base"])),
                natural(payload, "base_number"),
                str(payload["record"]),
                None if assignment is None else unb64(str(assignment)),
                natural(payload, "assignment_number"),
            )
        except SignatureError as error:
            raise RecordError(f"state of {topology_id}: {error}") from None
        except KeyError:
            raise RecordError(f"state of {topology_id}: it cannot be read") from None


def sign_notice(path: str, value: bytes, number: int, key: SigningKey, now: float) -> bytes:
    """What Nimbus asks of daemons at a path of ZooKeeper. Raises SignatureError."""
    payload = {
        "cluster": key.cluster,
        "path": path,
        "value": b64(value),
        "number": number,
        "iat": int(now),
    }
    return key.sign(payload, _NOTICE, now).encode()


@dataclass(frozen=True, slots=True)
class Notice:
    """A value at a path of ZooKeeper that a Nimbus has signed."""

    value: bytes
    number: int
    issued: float


def verify_notice(path: str, data: bytes, trust: Trust) -> Notice:
    """Raises RecordError, also for one that was signed for another path."""
    try:
        signed = trust.verify(data.decode("ascii", "replace"), _NOTICE, Use.RECORD)
        if signed.payload["path"] != path:
            raise SignatureError("it is of another path")
        return Notice(
            unb64(str(signed.payload["value"])), natural(signed.payload, "number"), signed.at
        )
    except SignatureError as error:
        raise RecordError(f"{path}: {error}") from None
    except KeyError:
        raise RecordError(f"{path}: it cannot be read") from None


def natural(payload: Mapping[str, Any], key: str) -> int:
    """A number that JSON keeps exactly. Raises SignatureError."""
    value = payload.get(key)
    if type(value) is not int or not 0 <= value < 2**53:
        raise SignatureError(f"its {key} is not a number")
    return value
