"""Calls on the blob store."""

from __future__ import annotations

import asyncio

from squall_nimbus.blobs import Access
from squall_nimbus.catalog import topology_of_blob
from squall_nimbus.service.base import Calls, needed, operation, refused
from squall_thrift import storm
from squall_thrift.authorization import Call

_REPLICATION_MAX = 1_000


def _access(meta: storm.SettableBlobMeta) -> tuple[Access, ...]:
    return tuple(Access(int(one.type), one.name, one.access) for one in meta.acl)


class BlobCalls(Calls):
    """Writing goes to the leader; reading works wherever the blob is."""

    def _check_not_of_topology(self, key: str) -> None:
        """What a topology consists of is Nimbus' own to write."""
        if (topology_id := topology_of_blob(key)) is not None:
            raise storm.AuthorizationException(
                msg=f"blob {key} is part of topology {topology_id}: only Nimbus writes it"
            )

    @operation("beginCreateBlob")
    async def beginCreateBlob(
        self, call: Call, key: str | None, meta: storm.SettableBlobMeta | None
    ) -> str:
        await self.nimbus.desk.require()
        key, meta = needed(key, "key"), needed(meta, "meta")
        self._check_not_of_topology(key)
        replication = meta.replication_factor
        return self.nimbus.blob_sessions.begin_create(
            key, _access(meta), max(1, replication) if replication else None
        )

    @operation("beginUpdateBlob")
    async def beginUpdateBlob(self, call: Call, key: str | None) -> str:
        await self.nimbus.desk.require()
        key = needed(key, "key")
        self._check_not_of_topology(key)
        return self.nimbus.blob_sessions.begin_update(key)

    @operation("uploadBlobChunk")
    async def uploadBlobChunk(self, call: Call, session: str | None, chunk: bytes | None) -> None:
        await self.nimbus.blob_sessions.upload_chunk(
            needed(session, "session"), needed(chunk, "chunk")
        )

    @operation("finishBlobUpload")
    async def finishBlobUpload(self, call: Call, session: str | None) -> None:
        await self.nimbus.blob_sessions.finish_upload(needed(session, "session"))

    @operation("cancelBlobUpload")
    async def cancelBlobUpload(self, call: Call, session: str | None) -> None:
        await self.nimbus.blob_sessions.cancel_upload(needed(session, "session"))

    @operation("getBlobMeta")
    async def getBlobMeta(self, call: Call, key: str | None) -> storm.ReadableBlobMeta:
        meta = self.nimbus.blobs.meta(needed(key, "key"))
        acl = [
            storm.AccessControl(
                type=storm.AccessControlType(one.type), name=one.name, access=one.access
            )
            for one in meta.acl
        ]
        return storm.ReadableBlobMeta(
            settable=storm.SettableBlobMeta(acl=acl, replication_factor=meta.replication),
            version=meta.version,
        )

    @operation("setBlobMeta")
    async def setBlobMeta(
        self, call: Call, key: str | None, meta: storm.SettableBlobMeta | None
    ) -> None:
        await self.nimbus.desk.require()
        key, meta = needed(key, "key"), needed(meta, "meta")
        self._check_not_of_topology(key)
        replication = meta.replication_factor
        await asyncio.to_thread(
            self.nimbus.blobs.set_meta,
            key,
            acl=_access(meta),
            replication=max(1, replication) if replication else None,
        )

    @operation("beginBlobDownload")
    async def beginBlobDownload(self, call: Call, key: str | None) -> storm.BeginDownloadResult:
        session, meta = self.nimbus.blob_sessions.begin_download(needed(key, "key"))
        return storm.BeginDownloadResult(version=meta.version, session=session, data_size=meta.size)

    @operation("downloadBlobChunk")
    async def downloadBlobChunk(self, call: Call, session: str | None) -> bytes:
        return await self.nimbus.blob_sessions.download_chunk(needed(session, "session"))

    @operation("deleteBlob")
    async def deleteBlob(self, call: Call, key: str | None) -> None:
        await self.nimbus.desk.require()
        key = needed(key, "key")
        self.nimbus.blobs.meta(key)
        used_by = await self._users_of(key)
        if used_by:
            raise storm.IllegalStateException(
                msg=f"blob {key} is used by {', '.join(used_by)}; kill it first"
            )
        await asyncio.to_thread(self.nimbus.blobs.delete, key)

    async def _users_of(self, key: str) -> list[str]:
        """Live topologies that need the blob."""
        nimbus = self.nimbus
        live = {*await nimbus.state.storms(), *nimbus.submitter.submitting}
        own = topology_of_blob(key)
        if own is not None:
            return [own] if own in live else []
        return [
            topology_id
            for topology_id in sorted(live & nimbus.catalog.ids())
            if key in nimbus.catalog.get(topology_id).blob_keys
        ]

    @operation("listBlobs")
    async def listBlobs(self, call: Call, session: str | None) -> storm.ListBlobsResult:
        keys, session = await self.nimbus.blob_sessions.list_keys(session or "")
        return storm.ListBlobsResult(keys=keys, session=session)

    @operation("getBlobReplication")
    async def getBlobReplication(self, call: Call, key: str | None) -> int:
        self.nimbus.blobs.meta(needed(key, "key"))
        return 1  # the store of this Nimbus: what is wanted is in the blob's meta

    @operation("updateBlobReplication")
    async def updateBlobReplication(
        self, call: Call, key: str | None, replication: int | None
    ) -> int:
        await self.nimbus.desk.require()
        key, wanted = needed(key, "key"), needed(replication, "replication")
        if not 1 <= wanted <= _REPLICATION_MAX:
            raise refused(f"replication {wanted} is not in 1 to {_REPLICATION_MAX}")
        await asyncio.to_thread(self.nimbus.blobs.set_meta, key, replication=wanted)
        return 1

    @operation("createStateInZookeeper")
    async def createStateInZookeeper(self, call: Call, key: str | None) -> None:
        # Storm's clients announce a blob after its upload, so that other Nimbuses fetch it. The
        # blob is on this one, and it is the only one that keeps it.
        if needed(key, "key") not in self.nimbus.blobs:
            raise refused(f"there is no blob {key}")

    @operation("isRemoteBlobExists")
    async def isRemoteBlobExists(self, call: Call, blobKey: str | None) -> bool:
        return needed(blobKey, "blobKey") in self.nimbus.blobs
