"""Uploading a package to Nimbus in chunks, over as many connections as it takes.

A broken connection costs nothing of what is there: over a new one the chunk that was under way is
sent again with its offset (`uploadChunkAt`, which Nimbus takes once). Only a Nimbus that does not
know the upload any more, as after a change of leaders, gets the package from its start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from squall_common.daemon.logs import get_logger
from squall_common.errors import NimbusConnectionError, NimbusError
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError

if TYPE_CHECKING:
    from squall_common.client.nimbus import NimbusClient
    from squall_common.config.options.typed import ClientOptions

log = get_logger(__name__)

# As Storm's clients upload: well below nimbus.thrift.max_buffer_size.
CHUNK_BYTES = 307_200
# Without a chunk that got through in between. Each reconnection has the retries of its own that
# storm.nimbus.retry.times gives it.
_BREAKS_MAX = 5
_STARTS_MAX = 3
_READ = 1  # of a blob's access bits


async def upload_package(nimbus: NimbusClient, archive: Path, options: ClientOptions) -> str:
    """Upload a package; returns Nimbus' handle for it. Raises NimbusError when the connection
    breaks again and again, ThriftApplicationError for what Nimbus does not take."""
    with archive.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        print(f"uploading {archive.name}, {size_text(size)} ...", file=sys.stderr, flush=True)
        for start in range(1, _STARTS_MAX + 1):
            file.seek(0)
            upload = _Upload(nimbus, options, await nimbus.call("beginFileUpload"))
            with _progress(size) as advance:
                try:
                    while chunk := file.read(CHUNK_BYTES):
                        await upload.send(chunk)
                        advance(len(chunk))
                    await upload.finish()
                    return upload.location
                except ThriftApplicationError as error:
                    if start == _STARTS_MAX or not upload.is_lost(error):
                        raise
                    log.warning("upload_begins_again", reason=error)
    raise AssertionError("unreachable")


class _Upload:
    """One upload under way."""

    def __init__(self, nimbus: NimbusClient, options: ClientOptions, location: str) -> None:
        self.location = location
        self._nimbus = nimbus
        self._options = options
        self._offset = 0
        self._resumed = False

    async def send(self, chunk: bytes) -> None:
        """Send the next chunk."""
        for _ in range(_BREAKS_MAX):
            try:
                await self._send(chunk)
                break
            except NimbusConnectionError as error:
                await self._resume(error)
        else:
            await self._send(chunk)
        self._offset += len(chunk)

    async def _send(self, chunk: bytes) -> None:
        if self._resumed:
            await self._nimbus.call("uploadChunkAt", self.location, self._offset, chunk)
        else:
            await self._nimbus.call("uploadChunk", self.location, chunk)

    async def finish(self) -> None:
        """Say that all is there."""
        try:
            await self._nimbus.call("finishFileUpload", self.location)
        except NimbusConnectionError as error:
            await self._resume(error)
            try:
                await self._nimbus.call("finishFileUpload", self.location)
            except ThriftApplicationError as unknown:
                # The first call may have taken effect; if not, the submit that follows says so.
                if not self.is_lost(unknown):
                    raise

    async def _resume(self, error: NimbusConnectionError) -> None:
        log.warning("upload_interrupted", error=error)
        await self._nimbus.reconnect(self._options)
        self._resumed = True

    def is_lost(self, error: ThriftApplicationError) -> bool:
        """Whether Nimbus does not know the upload any more."""
        return self._resumed and "there is no file upload" in str(error)


async def upload_wheels(nimbus: NimbusClient, paths: Sequence[Path]) -> list[str]:
    """Upload the wheels that the cluster does not have; returns the keys of all. Raises
    NimbusError, ThriftApplicationError, storm.AuthorizationException."""
    from squall_common.packaging.dependencies import read_wheel

    wheels = [read_wheel(path) for path in paths]
    missing = [wheel for wheel in wheels if not await _has_blob(nimbus, wheel.key)]
    if not missing:
        all_of_them = "the wheel" if len(wheels) == 1 else f"all {len(wheels)} wheels"
        print(f"the cluster has {all_of_them} already", file=sys.stderr, flush=True)
    for number, wheel in enumerate(missing, 1):
        size = wheel.path.stat().st_size
        print(
            f"uploading wheel {number} of {len(missing)}: {wheel.path.name}, {size_text(size)} ...",
            file=sys.stderr,
            flush=True,
        )
        try:
            await _create_blob(nimbus, wheel.key, wheel.path)
        except storm.KeyAlreadyExistsException:
            continue  # somebody else has uploaded it meanwhile, and Nimbus has checked it
    return [wheel.key for wheel in wheels]


async def _has_blob(nimbus: NimbusClient, key: str) -> bool:
    try:
        await nimbus.call("getBlobMeta", key)
    except storm.KeyNotFoundException:
        return False
    return True


async def _create_blob(nimbus: NimbusClient, key: str, path: Path) -> None:
    # Whose blob it is follows from the connection; everybody may read what they know the hash of.
    everybody = storm.AccessControl(type=storm.AccessControlType.OTHER, access=_READ)
    session = await nimbus.call(
        "beginCreateBlob", key, storm.SettableBlobMeta(acl=[everybody], replication_factor=1)
    )
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                await nimbus.call("uploadBlobChunk", session, chunk)
    except BaseException:
        with suppress(NimbusError, ThriftApplicationError):
            await nimbus.call("cancelBlobUpload", session)
        raise
    await nimbus.call("finishBlobUpload", session)


def size_text(size: int) -> str:
    """Bytes for a person: `913 bytes`, `12.4 kB`, `3.1 MB`."""
    if size < 1000:
        return f"{size} bytes"
    for unit in ("kB", "MB", "GB"):
        size_in = size / {"kB": 1e3, "MB": 1e6, "GB": 1e9}[unit]
        if size_in < 999.95 or unit == "GB":
            return f"{size_in:.1f} {unit}"
    raise AssertionError("unreachable")


def _progress(total_bytes: int) -> AbstractContextManager[Callable[[int], None]]:
    """A progress bar on a terminal's stderr; elsewhere nothing."""
    if not sys.stderr.isatty():
        return nullcontext(lambda _bytes: None)
    from squall_common.client.progress import transfer_bar

    return transfer_bar("uploading package", total_bytes)
