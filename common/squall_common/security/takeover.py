"""What the CA has confirmed of an open cluster, so that it becomes a secured one (`storm admin
secure`): which topologies there are, whose they are, and the bytes that they run.

Nothing in an open cluster's ZooKeeper is signed, and a Nimbus of a secured one signs nothing that
it has read there. So a person confirms it: the CA's key signs this list, at /security/takeover. The
first leader of the secured cluster goes by it, once: as soon as there is a catalog, and when its
time is over, it counts no longer.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from squall_common.names import ANONYMOUS
from squall_common.security import jws
from squall_common.security.certificates import Anchor
from squall_common.security.identity import IdentityError, check_name
from squall_common.security.jws import SignatureError, b64, unb64
from squall_common.security.signing import LEEWAY_SECS, verify_by_ca
from squall_common.security.topology_states import natural

_TYPE = "squall-takeover"
# From the confirmation to the first leader of the secured cluster, in seconds.
TAKEOVER_SECS = 86_400


@dataclass(frozen=True, slots=True)
class Taken:
    """A topology. `base` and `assignment` are the bytes at /storms/ID and /assignments/ID; a
    topology without an assignment does not run yet."""

    owner: str
    base: bytes
    assignment: bytes | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """All topologies by id, and the hashes (SHA-256) of all blobs by key."""

    topologies: Mapping[str, Taken]
    blobs: Mapping[str, str]
    confirmed: int  # seconds since the epoch

    def sign(self, cluster: str, key: EllipticCurvePrivateKey) -> str:
        """The text, by the CA's key."""
        topologies = {
            name: {
                "owner": one.owner,
                "base": _packed(one.base),
                "assignment": None if one.assignment is None else _packed(one.assignment),
            }
            for name, one in self.topologies.items()
        }
        payload = {
            "cluster": cluster,
            "topologies": topologies,
            "blobs": dict(self.blobs),
            "confirmed": self.confirmed,
        }
        return jws.sign(payload, {"typ": _TYPE}, key)

    @classmethod
    def verify(cls, text: str, cluster: str, ca: Anchor, now: float) -> Takeover:
        """Raises SignatureError: it is not the CA's, of another cluster, or its time is over."""
        payload = verify_by_ca(text.strip(), ca, typ=_TYPE)
        if payload.get("cluster") != cluster:
            raise SignatureError(f"it is of cluster {payload.get('cluster')!r}")
        confirmed = natural(payload, "confirmed")
        if not confirmed - LEEWAY_SECS <= now <= confirmed + TAKEOVER_SECS:
            raise SignatureError("it was not confirmed within the last day: confirm it again")
        try:
            topologies = {str(name): _taken(one) for name, one in payload["topologies"].items()}
            blobs = {str(key): str(digest) for key, digest in payload["blobs"].items()}
        except (KeyError, TypeError, AttributeError):
            raise SignatureError("it cannot be read") from None
        return cls(topologies, blobs, confirmed)


def _taken(value: Mapping[str, Any]) -> Taken:
    owner = str(value["owner"])
    try:
        check_name(owner)
    except IdentityError as error:
        raise SignatureError(str(error)) from None
    if owner == ANONYMOUS:
        raise SignatureError("a topology has no owner")
    assignment = value["assignment"]
    return Taken(
        owner,
        _unpacked(str(value["base"])),
        None if assignment is None else _unpacked(str(assignment)),
    )


def _packed(value: bytes) -> str:
    """Compressed: all topologies are to fit into one node of ZooKeeper."""
    return b64(zlib.compress(value))


def _unpacked(text: str) -> bytes:
    """Raises SignatureError. (What it unpacks to is not bounded: the CA has signed it.)"""
    try:
        return zlib.decompress(unb64(text))
    except zlib.error:
        raise SignatureError("it cannot be read") from None
