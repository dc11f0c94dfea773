"""The key with which the workers of one topology encrypt what they send each other (CurveZMQ).

Nimbus makes one pair of keys a topology when it is submitted, and keeps it as a blob; a supervisor
hands it to its workers in a file. Every worker of the topology has the same pair: a peer that has
it counts as one of them, and no other peer does.

Whether a worker uses it says `storm.messaging.curve`, as the topology's stored configuration has
it, so that all of its workers go by the same word (`squall_common.topology.encryption`).
"""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass

from squall_common.errors import SquallError

CURVE = "storm.messaging.curve"  # true, false or "auto"
KEY_FILE = "curve.key"  # in a topology's folder at the supervisor, and in each worker's; 0600

_Z85_BYTES = 40  # of a key of 32 bytes, as ZeroMQ takes it


@dataclass(frozen=True, slots=True, repr=False)
class CurveKey:
    """A topology's pair of keys, each in Z85. It is not to be seen in a log: no `repr`."""

    topology_id: str
    public: bytes
    secret: bytes

    @classmethod
    def make(cls, topology_id: str) -> CurveKey:
        """A new one. Raises SquallError when this machine's ZeroMQ cannot."""
        require_curve()
        import zmq

        public, secret = zmq.curve_keypair()
        return cls(topology_id, public, secret)

    def __repr__(self) -> str:
        return f"CurveKey({self.topology_id!r})"

    def to_bytes(self) -> bytes:
        value = {
            "topology": self.topology_id,
            "public": self.public.decode(),
            "secret": self.secret.decode(),
        }
        return json.dumps(value).encode()

    @classmethod
    def from_bytes(cls, data: bytes, topology_id: str) -> CurveKey:
        """The inverse of `to_bytes`. Raises ValueError, which does not quote what it read, when
        these are no keys of this topology."""
        try:
            value = json.loads(data)
            key = cls(value["topology"], value["public"].encode(), value["secret"].encode())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ValueError(f"no pair of keys for {topology_id}") from None
        if key.topology_id != topology_id:
            raise ValueError(f"the keys of another topology, not of {topology_id}")
        if len(key.public) != _Z85_BYTES or len(key.secret) != _Z85_BYTES:
            raise ValueError(f"no pair of keys for {topology_id}")
        return key


def require_curve() -> None:
    """Raises SquallError when this machine's ZeroMQ was built without CURVE."""
    import zmq

    if not zmq.has("curve"):
        raise SquallError(
            f"ZeroMQ {zmq.zmq_version()} on this machine was built without CURVE: it cannot "
            "encrypt connections between workers",
            hint="Install pyzmq from its own wheels (pip install --force-reinstall pyzmq), or, if "
            f"no one else can reach the workers' ports, set {CURVE}: false.",
        )


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine to itself only. Names are not looked up: a host's own name
    often leads to loopback there and elsewhere to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
