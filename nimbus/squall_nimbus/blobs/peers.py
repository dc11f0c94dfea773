"""Fetches blobs from another Nimbus, over the same Thrift interface that supervisors use."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from squall_nimbus.blobs.replication import PeerError
from squall_nimbus.blobs.store import BlobMeta
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient, ThriftTransportError

# A Nimbus that is alive answers each call at once; one that hangs must not hold up the others.
_CALL_SECS = 10.0
_CONNECT_SECS = 2.0
_REPLY_BYTES_MAX = 64 * 1024 * 1024


class ThriftPeers:
    """Implements `replication.Peers`."""

    async def fetch(
        self, host: str, port: int, meta: BlobMeta, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        async with _client(host, port) as client:
            began = await client.call("beginBlobDownload", meta.key)
            if began.version != meta.version:
                raise PeerError(f"it has version {began.version}, not {meta.version}")
            while chunk := await client.call("downloadBlobChunk", began.session):
                await write(chunk)

    async def fetch_key(self, host: str, port: int, topology_id: str, receiver: str) -> bytes:
        async with _client(host, port) as client:
            return bytes(await client.call("getTopologyKey", topology_id, receiver))


@contextlib.asynccontextmanager
async def _client(host: str, port: int) -> AsyncIterator[ThriftClient]:
    """A connection to another Nimbus, whose errors are PeerErrors."""
    client = ThriftClient(
        storm.Nimbus,
        host,
        port,
        timeout_secs=_CALL_SECS,
        connect_timeout_secs=_CONNECT_SECS,
        frame_bytes_max=_REPLY_BYTES_MAX,
    )
    try:
        async with client:
            yield client
    except (storm.AuthorizationException, storm.KeyNotFoundException) as error:
        raise PeerError(f"it refused: {error.msg}") from error
    except (ThriftApplicationError, ThriftTransportError) as error:
        raise PeerError(str(error)) from error
