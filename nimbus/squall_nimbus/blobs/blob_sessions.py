"""How clients write, read and list blobs: in chunks, over sessions that expire when idle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from squall_common.cluster.leader import Fence
from squall_common.errors import SquallError
from squall_common.names import parse_dependency_key
from squall_nimbus.blobs.disk_reserve import DiskReserve
from squall_nimbus.blobs.replication import Replication
from squall_nimbus.blobs.sessions import Sessions
from squall_nimbus.blobs.store import Access, BlobMeta, BlobStore, BlobWriter

_LIST_KEYS_MAX = 100  # keys in one answer of a listing
_SESSIONS_MAX = 512  # of each kind: each holds a file descriptor


@dataclass(slots=True)
class _Listing:
    keys: list[str]
    next: int = 0


class BlobSessions:
    """Uploads, downloads and listings under way."""

    def __init__(
        self,
        store: BlobStore,
        *,
        idle_secs: float,
        chunk_bytes: int,
        blob_bytes_max: int,
        clock: Callable[[], float],
        reserve: DiskReserve | None = None,
        check_owner: Callable[[str, int, int], None] = lambda owner, has, more: None,
    ) -> None:
        """`check_owner` raises SquallError if an owner whose blobs have so many bytes may not add
        so many more."""
        self.store = store
        self._check_owner = check_owner
        self._reserve = reserve or DiskReserve(store.folder, 0)
        self._chunk_bytes = chunk_bytes
        self._blob_bytes_max = blob_bytes_max
        self._uploads = Sessions[BlobWriter](
            "blob upload", idle_secs=idle_secs, limit=_SESSIONS_MAX, clock=clock,
            close=BlobWriter.abort,
        )  # fmt: skip
        self._downloads = Sessions[BinaryIO](
            "blob download", idle_secs=idle_secs, limit=_SESSIONS_MAX, clock=clock,
            close=lambda file: file.close(),
        )  # fmt: skip
        self._listings = Sessions[_Listing](
            "blob listing", idle_secs=idle_secs, limit=_SESSIONS_MAX, clock=clock,
            close=lambda listing: None,
        )  # fmt: skip

    def sessions_of(self, peer: str) -> int:
        """How many uploads and downloads of a peer are under way."""
        return self._uploads.count(peer) + self._downloads.count(peer)

    def begin_create(
        self, key: str, acl: tuple[Access, ...], replication: int | None = None, peer: str = "",
        owner: str | None = None,
    ) -> str:  # fmt: skip
        """Begin a new blob and return its session. Raises BlobExistsError, SquallError."""
        self._check_upload(key, peer)
        writer = self.store.write(key, create=True, acl=acl, replication=replication, owner=owner)
        return self._uploads.add(writer, peer=peer)

    def begin_update(self, key: str, peer: str = "") -> str:
        """Begin a new version of a blob and return its session. Raises BlobNotFoundError,
        SquallError."""
        self._check_upload(key, peer)
        return self._uploads.add(self.store.write(key, create=False), peer=peer)

    def _check_upload(self, key: str, peer: str) -> None:
        self._uploads.check_room(peer)
        self._reserve.check(f"blob {key}")

    async def upload_chunk(self, session: str, chunk: bytes) -> None:
        """Append a chunk. Raises SquallError for an unknown session, a full disk, or a blob that
        grows too large; the last two end the session and leave nothing behind."""
        async with self._uploads.use(session) as writer:
            if writer.size + len(chunk) > self._blob_bytes_max:
                self._uploads.remove(session)
                writer.abort()
                raise SquallError(
                    f"blob {writer.key} is larger than {self._blob_bytes_max} bytes",
                    hint="The limit is nimbus.upload.bytes.max.",
                )
            try:
                self._reserve.check(f"blob {writer.key}", len(chunk))
                if writer.owner is not None:
                    self._check_owner(writer.owner, self._bytes_of(writer.owner), len(chunk))
                await asyncio.to_thread(writer.write, chunk)
            except SquallError:
                self._uploads.remove(session)
                writer.abort()
                raise

    def _bytes_of(self, owner: str) -> int:
        """What the blobs of an owner take, with what is being uploaded."""
        uploads = sum(one.size for one in self._uploads.values() if one.owner == owner)
        return self.store.bytes_of(owner) + uploads

    async def finish_upload(self, session: str, replication: Replication, fence: Fence) -> BlobMeta:
        """Make the upload the blob's current version, here and on another Nimbus."""
        async with self._uploads.use(session) as writer:
            self._uploads.remove(session)
            try:
                dependency = parse_dependency_key(writer.key)
                if dependency is not None and dependency[0] != writer.sha256:
                    # The name is the content's hash: whoever finds it by that name must get it.
                    raise SquallError(
                        f"the content uploaded as {writer.key} has the hash {writer.sha256}"
                    )
                with replication.writing([writer.key]):
                    above = await replication.version_above(writer.key)
                    meta = await asyncio.to_thread(writer.commit, above=above)
                    await replication.publish([writer.key], fence)
                    return meta
            finally:
                writer.abort()

    async def cancel_upload(self, session: str) -> None:
        """Forget an upload."""
        async with self._uploads.use(session) as writer:
            self._uploads.remove(session)
            writer.abort()

    def begin_download(self, key: str, peer: str = "") -> tuple[str, BlobMeta]:
        """Return a session and the blob's meta. Raises BlobNotFoundError, SquallError."""
        self._downloads.check_room(peer)
        file, meta = self.store.open_read(key)
        return self._downloads.add(file, peer=peer), meta

    async def download_chunk(self, session: str) -> bytes:
        """Return the next bytes; b"" at the end, which ends the session."""
        async with self._downloads.use(session) as file:
            chunk = await asyncio.to_thread(file.read, self._chunk_bytes)
            if not chunk:
                self._downloads.remove(session)
                file.close()
            return chunk

    async def list_keys(
        self, session: str, shown: Callable[[str], bool] = lambda key: True, peer: str = ""
    ) -> tuple[list[str], str]:
        """Return some of the keys that are `shown`, and the session to pass next time; no keys at
        the end. An empty `session` starts a listing."""
        if not session:
            self._listings.check_room(peer)
            found = [key for key in self.store.all_keys() if shown(key)]
            session = self._listings.add(_Listing(found), peer=peer)
        async with self._listings.use(session) as listing:
            keys = listing.keys[listing.next : listing.next + _LIST_KEYS_MAX]
            listing.next += len(keys)
            if not keys:
                self._listings.remove(session)
            return keys, session

    def expire(self) -> None:
        """Close sessions that have been idle too long."""
        for sessions in (self._uploads, self._downloads, self._listings):
            sessions.expire()

    def close(self) -> None:
        """Close everything."""
        for sessions in (self._uploads, self._downloads, self._listings):
            sessions.close_all()
