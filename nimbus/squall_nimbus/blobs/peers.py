"""Fetches blobs and heartbeats from another Nimbus, over the same Thrift interface that supervisors
use."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from squall_common.cluster import paths
from squall_common.cluster.convert import from_worker_report
from squall_common.cluster.state import UndecodedBeat
from squall_common.topology.model import WorkerSlot
from squall_nimbus.blobs.keys import secret_call
from squall_nimbus.blobs.replication import PeerError
from squall_nimbus.blobs.store import BlobMeta
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient, ThriftTransportError
from squall_thrift.serving.authentication import Credentials

# A Nimbus that is alive answers each call at once; one that hangs must not hold up the others.
_CALL_SECS = 10.0
_CONNECT_SECS = 2.0
_REPLY_BYTES_MAX = 64 * 1024 * 1024


class ThriftPeers:
    """Implements `replication.Peers`. `credentials` are this Nimbus' own, in a secured cluster."""

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._credentials = credentials

    async def fetch(
        self, host: str, port: int, meta: BlobMeta, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        async with _client(host, port, self._credentials) as client:
            began = await client.call("beginBlobDownload", meta.key)
            if began.version != meta.version:
                raise PeerError(f"it has version {began.version}, not {meta.version}")
            while chunk := await client.call("downloadBlobChunk", began.session):
                await write(chunk)

    async def fetch_secret(self, host: str, port: int, key: str, receiver: str) -> bytes:
        async with _client(host, port, self._credentials) as client:
            return bytes(await client.call(*secret_call(key), receiver))

    async def heartbeats(
        self, host: str, port: int, topology_id: str
    ) -> dict[WorkerSlot, UndecodedBeat]:
        async with _client(host, port, self._credentials) as client:
            return undecoded_beats(await client.call("getWorkerHeartbeats", topology_id))

    async def finished(self, host: str, port: int) -> dict[str, bool]:
        async with _client(host, port, self._credentials) as client:
            return dict(await client.call("getFinishedTopologies"))


def undecoded_beats(
    answer: Iterable[storm.SupervisorWorkerHeartbeat],
) -> dict[WorkerSlot, UndecodedBeat]:
    """What `getWorkerHeartbeats` answers, by slot."""
    reports = [from_worker_report(one, None) for one in answer]
    return {
        one.slot: UndecodedBeat(paths.workerbeat(one.topology_id, one.slot), one.heartbeat)
        for one in reports
        if one is not None and one.heartbeat
    }


@contextlib.asynccontextmanager
async def _client(
    host: str, port: int, credentials: Credentials | None
) -> AsyncIterator[ThriftClient]:
    """A connection to another Nimbus, whose errors are PeerErrors."""
    client = ThriftClient(
        storm.Nimbus,
        host,
        port,
        timeout_secs=_CALL_SECS,
        connect_timeout_secs=_CONNECT_SECS,
        frame_bytes_max=_REPLY_BYTES_MAX,
        credentials=credentials,
    )
    try:
        async with client:
            yield client
    except (
        storm.AuthorizationException,
        storm.KeyNotFoundException,
        storm.NotAliveException,
    ) as error:
        raise PeerError(f"it refused: {error.msg}") from error
    except (ThriftApplicationError, ThriftTransportError) as error:
        raise PeerError(str(error)) from error
