"""Uploaded packages: `{storm.local.dir}/nimbus/inbox/stormjar-{uuid}.jar`.

A client names its upload by a handle, which is only the file's name: Storm hands out the path on
the server and accepts any path back, which let a client read files of Nimbus (CVE-2026-82426). A
finished upload can be submitted any number of times, under other names and even after a kill, until
it has not been used for `nimbus.inbox.jar.expiration.secs`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from squall_common.daemon.files import make_private_dirs, sync_dir
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_nimbus.blobs.disk_reserve import DiskReserve
from squall_nimbus.blobs.sessions import Sessions
from squall_nimbus.blobs.store import disk_errors

log = get_logger(__name__)

_HANDLE = re.compile(r"stormjar-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.jar")
_UPLOADS_MAX = 256


class _Upload:
    """A package being uploaded, in a file that ends in `.part`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.resumed = False  # chunks come with their offsets
        self.file: BinaryIO = path.open("wb")

    def write(self, chunk: bytes) -> None:
        self.file.write(chunk)
        self.size += len(chunk)

    def finish(self, target: Path) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self.path, target)
        sync_dir(target.parent)

    def abort(self) -> None:
        with contextlib.suppress(OSError):  # closing flushes, which may fail on a full disk
            self.file.close()
        self.path.unlink(missing_ok=True)


class Inbox:
    """Uploads, in progress and finished."""

    def __init__(
        self,
        folder: Path,
        *,
        idle_secs: float,
        keep_secs: float,
        upload_bytes_max: int,
        clock: Callable[[], float],
        reserve: DiskReserve | None = None,
    ) -> None:
        self._reserve = reserve or DiskReserve(folder, 0)
        self._folder = folder
        self._keep_secs = keep_secs
        self._upload_bytes_max = upload_bytes_max
        self._sessions = Sessions[_Upload](
            "file upload", idle_secs=idle_secs, limit=_UPLOADS_MAX, clock=clock,
            close=_Upload.abort,
        )  # fmt: skip

    def open(self) -> None:
        """Make the folder, and remove uploads that an earlier process did not finish."""
        make_private_dirs(self._folder)
        for part in self._folder.glob("*.part"):
            part.unlink()

    def sessions_of(self, peer: str) -> int:
        """How many uploads of a peer are under way."""
        return self._sessions.count(peer)

    def begin(self, peer: str = "") -> str:
        """Return a handle for a new upload. Raises SquallError."""
        self._sessions.check_room(peer)
        self._reserve.check("the upload")
        handle = f"stormjar-{uuid.uuid4()}.jar"
        with disk_errors("the upload", self._folder):
            upload = _Upload(self._folder / f"{handle}.part")
        return self._sessions.add(upload, peer=peer, session=handle)

    async def chunk(self, handle: str, chunk: bytes) -> None:
        """Append. Raises SquallError for a full disk or too large a file, which ends the upload and
        removes it."""
        async with self._sessions.use(handle) as upload:
            if upload.resumed:
                raise SquallError(f"upload {handle!r} was resumed over another connection")
            await self._append(handle, upload, chunk)

    async def chunk_at(self, handle: str, offset: int, chunk: bytes) -> int:
        """Append a chunk at `offset`, unless it is already there, and return the size. Resumes an
        upload whose connection broke: late chunks from the old connection are refused from now on.
        Raises as `chunk` does, and for an offset that leaves a gap."""
        async with self._sessions.use(handle) as upload:
            upload.resumed = True
            if not 0 <= offset <= upload.size:
                raise SquallError(f"upload {handle!r} has {upload.size} bytes, not {offset}")
            await self._append(handle, upload, chunk[upload.size - offset :])
            return upload.size

    async def _append(self, handle: str, upload: _Upload, chunk: bytes) -> None:
        try:
            if upload.size + len(chunk) > self._upload_bytes_max:
                raise SquallError(
                    f"the package is larger than {self._upload_bytes_max} bytes",
                    hint="The limit is nimbus.upload.bytes.max.",
                )
            self._reserve.check("the upload", len(chunk))
            with disk_errors("the upload", self._folder):
                await asyncio.to_thread(upload.write, chunk)
        except SquallError:
            self._sessions.remove(handle)
            upload.abort()
            raise

    async def finish(self, handle: str) -> None:
        """End the upload: it is complete, and can be submitted from now on."""
        async with self._sessions.use(handle) as upload:
            self._sessions.remove(handle)
            try:
                with disk_errors("the upload", self._folder):
                    await asyncio.to_thread(upload.finish, self._folder / handle)
            except SquallError:
                upload.abort()
                raise

    def finished(self, handle: str) -> Path | None:
        """Return the file of a finished upload, or None for anything else. Its time to live starts
        again."""
        if _HANDLE.fullmatch(handle) is None:
            return None
        path = self._folder / handle
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def expire(self) -> None:
        """Remove idle uploads, and finished ones that have not been used for a long time."""
        for handle in self._sessions.expire():
            log.info("upload_expired", handle=handle)
        oldest = time.time() - self._keep_secs
        for path in self._folder.glob("stormjar-*.jar"):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()

    def close(self) -> None:
        """End the uploads in progress."""
        self._sessions.close_all()
