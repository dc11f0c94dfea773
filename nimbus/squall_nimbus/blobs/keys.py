"""Gives a topology's secrets to the supervisors that run its workers, and to no one else.

They are the key with which its workers encrypt, and its credentials. Each is a blob like the
topology's code, and is replicated with it; but no call of the blob interface reads it, and no
access list opens it. A caller asks for it on behalf of a named receiver. The answer is sealed, so
that only the daemon registered in ZooKeeper under that name can open it: a supervisor to which the
topology is assigned, or another Nimbus. It does not matter who asks.
"""

from __future__ import annotations

from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import Access
from squall_common.names import curve_blob_key, topology_of_blob
from squall_common.security.curve import CurveKey
from squall_common.security.sealing import META_KEY, SealError, nimbus_name, seal
from squall_nimbus.blobs.store import BlobStore

# On top of that: an empty list would be everybody's.
NOBODY = (Access(1, None, 0),)


class KeyRefusedError(Exception):
    """The receiver may not have the secret; the text is for the caller."""


def secret_call(key: str) -> tuple[str, str]:
    """The method of Nimbus that gives away a secret blob, and its first argument, the topology's
    id; the second is the receiver."""
    topology_id = topology_of_blob(key) or ""
    is_key = key == curve_blob_key(topology_id)
    return "getTopologyKey" if is_key else "getTopologyCredentials", topology_id


async def sealed_secret(
    state: ClusterState, blobs: BlobStore, key: str, topology_id: str, receiver: str
) -> bytes:
    """Return a topology's secret blob, sealed for a receiver ("supervisor/ID" or
    "nimbus/HOST:PORT"). Raises KeyRefusedError, BlobNotFoundError and the store's errors."""
    blobs.meta(key)
    public = await _public_key(state, topology_id, receiver)
    if not public:
        raise KeyRefusedError(f"{receiver} has not published a public key in ZooKeeper")
    try:
        return seal(blobs.read(key), public)
    except SealError as error:
        raise KeyRefusedError(f"{receiver}: {error}") from error


async def _public_key(state: ClusterState, topology_id: str, receiver: str) -> str:
    kind, _, name = receiver.partition("/")
    if kind == "supervisor":
        info = await state.supervisor(name) if _is_node(name) else None
        if info is None:
            raise KeyRefusedError(f"supervisor {name!r} is not connected")
        found = await state.assignment(topology_id)
        if found is None or all(slot.node != name for slot in found[0].executor_slot.values()):
            raise KeyRefusedError(f"{topology_id} is not assigned to supervisor {name}")
        return info.scheduler_meta.get(META_KEY, "")
    for one in await state.nimbuses():
        if nimbus_name(one.host, one.port) == receiver:
            return one.sealing_key
    raise KeyRefusedError(f"no daemon {receiver!r} is connected")


def _is_node(name: str) -> bool:
    return bool(name) and "/" not in name and name.isprintable() and name not in (".", "..")


def new_key(topology_id: str) -> bytes:
    """Return the content of the blob that holds a new topology's key. Raises SquallError."""
    return CurveKey.make(topology_id).to_bytes()
