"""Blobs from Nimbus, over its Thrift interface, in chunks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from squall_common.client.nimbus import NimbusClient
from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.logs import get_logger
from squall_common.errors import NimbusError
from squall_common.security.credentials import TopologyCredentials
from squall_common.security.curve import CurveKey
from squall_common.security.sealing import Receiver, supervisor_name
from squall_supervisor.blobs.source import BlobError
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError

log = get_logger(__name__)

_T = TypeVar("_T")
_FIRST_PAUSE_SECS = 0.1

# A client of the leading Nimbus: `call(method, *args)` and an async context manager.
Connect = Callable[[], Awaitable[Any]]


class NimbusBlobs:
    """Implements `blob_source.BlobSource`.

    A broken connection or a new leader costs only the blob that was under way, not those that are
    whole: after a pause the rest is fetched over a new connection, up to `retries_max` times.
    """

    def __init__(self, connect: Connect, *, retries_max: int) -> None:
        self._connect = connect
        self._retries_max = retries_max
        self._receiver = Receiver()
        self.sealing_key = self._receiver.public

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any], *, retries_max: int) -> NimbusBlobs:
        # A single try: callers that ask for the blobs come back by themselves.
        options = ClientOptions.read(conf)
        once = msgspec.structs.replace(options, storm_nimbus_retry_times=0)
        return cls(lambda: NimbusClient.connect(once), retries_max=retries_max)

    async def fetch(self, keys: dict[str, Path]) -> dict[str, int]:
        versions: dict[str, int] = {}

        async def fetch_missing(nimbus: Any) -> dict[str, int]:
            for key, path in keys.items():
                if key not in versions:
                    versions[key] = await _fetch(nimbus, key, path)
            return versions

        return await self._with_nimbus(fetch_missing)

    async def versions(self, keys: list[str]) -> dict[str, int]:
        async def ask(nimbus: Any) -> dict[str, int]:
            return {key: (await nimbus.call("getBlobMeta", key)).version for key in keys}

        return await self._with_nimbus(ask)

    async def topology_key(self, topology_id: str, supervisor_id: str) -> bytes:
        async def ask(nimbus: Any) -> bytes:
            sealed: bytes = await nimbus.call(
                "getTopologyKey", topology_id, supervisor_name(supervisor_id)
            )
            return sealed

        try:
            key = self._receiver.open(await self._with_nimbus(ask))
            CurveKey.from_bytes(key, topology_id)
        except ValueError as error:
            # It may be sealed for the previous supervisor, whose entry ours has yet to replace.
            raise BlobError(f"the key of {topology_id} cannot be read: {error}") from error
        return key

    async def topology_credentials(
        self, topology_id: str, supervisor_id: str
    ) -> TopologyCredentials | None:
        async def ask(nimbus: Any) -> bytes | None:
            try:
                sealed: bytes = await nimbus.call(
                    "getTopologyCredentials", topology_id, supervisor_name(supervisor_id)
                )
            except storm.KeyNotFoundException:
                return None
            return sealed

        try:
            sealed = await self._with_nimbus(ask)
            if sealed is None:
                return None
            return TopologyCredentials.from_bytes(self._receiver.open(sealed), topology_id)
        except ValueError as error:
            raise BlobError(f"the credentials of {topology_id} cannot be read: {error}") from error

    async def _with_nimbus(self, action: Callable[[Any], Awaitable[_T]]) -> _T:
        pause_secs = _FIRST_PAUSE_SECS
        for attempt in range(self._retries_max + 1):
            try:
                async with await self._connect() as nimbus:
                    return await action(nimbus)
            except storm.AuthorizationException as error:
                raise BlobError(f"Nimbus refused: {error.msg}") from error
            except storm.KeyNotFoundException as error:
                raise BlobError(f"Nimbus has no such blob: {error.msg}") from error
            except (NimbusError, ThriftApplicationError, _BrokenError) as error:
                if attempt == self._retries_max:
                    raise BlobError(str(error)) from error
                log.warning("download_interrupted", error=error, retry_in_secs=pause_secs)
                await asyncio.sleep(pause_secs)
                pause_secs *= 2
        raise AssertionError("unreachable")


class _BrokenError(Exception):
    """Fewer or more bytes arrived than announced."""


async def _fetch(nimbus: Any, key: str, path: Path) -> int:
    """Write one blob to a file; returns its version."""
    began: storm.BeginDownloadResult = await nimbus.call("beginBlobDownload", key)
    size = began.data_size
    received = 0
    with path.open("wb") as file:
        # The empty chunk at the end also closes the session on Nimbus.
        while chunk := await nimbus.call("downloadBlobChunk", began.session):
            received += len(chunk)
            if size is not None and received > size:
                break
            await asyncio.to_thread(file.write, chunk)
    if size is not None and received != size:
        raise _BrokenError(f"{key}: received {received} bytes, but Nimbus announced {size}")
    return int(began.version)
