"""Calls on the blob store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from squall_common.cluster.leader import Fence
from squall_common.cluster.values import Access, BlobMeta
from squall_common.names import (
    credentials_blob_key,
    curve_blob_key,
    is_secret_blob,
    topology_of_blob,
)
from squall_common.security.acl import Blob, Node
from squall_common.security.sealing import supervisor_name
from squall_nimbus.blobs.access import ADMIN, READ, WRITE, Caller, check_access, may_see, normalized
from squall_nimbus.blobs.keys import sealed_secret
from squall_nimbus.service.base import Calls, client_of, needed, operation, refused, user_of
from squall_thrift import storm
from squall_thrift.serving.authorization import Call

_REPLICATION_MAX = 1_000


def _access(meta: storm.SettableBlobMeta) -> tuple[Access, ...]:
    return tuple(Access(int(one.type), one.name, one.access) for one in meta.acl)


async def _receiver(_: Calls, arguments: tuple[Any, ...]) -> Node:
    """Whom a key is for. A Nimbus is no node: only another Nimbus may ask for it."""
    receiver: str = needed(arguments[1], "receiver")
    return Node(receiver.removeprefix(supervisor_name("")))


class BlobCalls(Calls):
    """The leader writes; any Nimbus that has the blob can read it. The authorizer decides on the
    permission of a call, and a blob's access list on what the caller may do with that blob."""

    def _caller(self, call: Call) -> Caller:
        return Caller.of(call.principal, self.nimbus.options)

    def _check_access(self, call: Call, meta: BlobMeta, bits: int) -> None:
        """Raises AuthorizationException."""
        access = self.nimbus.access
        if access.secured:
            access.require(call, call.operation, Blob(meta.key, meta.acl, bits))
            return
        why = check_access(meta.acl, self._caller(call), bits, meta.key)
        if why is not None:
            raise storm.AuthorizationException(msg=why)

    def _may_see(self, call: Call, meta: BlobMeta, action: str = "getBlobMeta") -> bool:
        """Whether the caller has any access at all: Storm's READ, WRITE or ADMIN."""
        access = self.nimbus.access
        if access.secured:
            bits = (READ, WRITE, ADMIN)
            return any(access.may(call, action, Blob(meta.key, meta.acl, bit)) for bit in bits)
        return may_see(meta.acl, self._caller(call), meta.key)

    def _allowed(self, call: Call, key: str, bits: int) -> BlobMeta:
        """Return the blob's meta if the caller has access. Raises BlobNotFoundError,
        AuthorizationException."""
        self._check_no_key(key)
        meta = self.nimbus.blobs.meta(key)
        self._check_access(call, meta, bits)
        return meta

    def _check_not_of_topology(self, key: str) -> None:
        """Refuse writes to the blobs of a topology's code: only Nimbus writes them."""
        if (topology_id := topology_of_blob(key)) is not None:
            raise storm.AuthorizationException(
                msg=f"blob {key} is part of topology {topology_id}: only Nimbus writes it"
            )

    def _check_no_key(self, key: str) -> None:
        """Refuse access to a topology's secrets: no client may learn anything about them, not even
        an administrator."""
        if is_secret_blob(key):
            raise storm.AuthorizationException(msg=f"blob {key} is for supervisors only")

    @operation("getTopologyKey", of=_receiver)
    async def getTopologyKey(
        self, call: Call, topologyId: str | None, receiver: str | None
    ) -> bytes:
        """Needs the permission that Storm's authorizers give to supervisors and administrators."""
        topology_id = needed(topologyId, "topologyId")
        return await self._sealed(curve_blob_key(topology_id), topology_id, receiver)

    @operation("getTopologyCredentials", of=_receiver)
    async def getTopologyCredentials(
        self, call: Call, topologyId: str | None, receiver: str | None
    ) -> bytes:
        """Needs the permission of `getTopologyKey`."""
        topology_id = needed(topologyId, "topologyId")
        return await self._sealed(credentials_blob_key(topology_id), topology_id, receiver)

    async def _sealed(self, key: str, topology_id: str, receiver: str | None) -> bytes:
        nimbus = self.nimbus
        return await sealed_secret(
            nimbus.state, nimbus.blobs, key, topology_id, needed(receiver, "receiver")
        )

    @operation("beginCreateBlob")
    async def beginCreateBlob(
        self, call: Call, key: str | None, meta: storm.SettableBlobMeta | None
    ) -> str:
        await self.nimbus.leader_elector.require()
        key, meta = needed(key, "key"), needed(meta, "meta")
        self._check_not_of_topology(key)
        replication = meta.replication_factor
        acl = normalized(_access(meta), self._caller(call), READ | WRITE | ADMIN)
        self._check_sessions(call)
        return self.nimbus.blob_sessions.begin_create(
            key,
            acl,
            max(1, replication) if replication else None,
            client_of(call),
            user_of(call),
        )

    @operation("beginUpdateBlob", decides=True)
    async def beginUpdateBlob(self, call: Call, key: str | None) -> str:
        await self.nimbus.leader_elector.require()
        key = needed(key, "key")
        self._check_not_of_topology(key)
        self._allowed(call, key, WRITE)
        self._check_sessions(call)
        return self.nimbus.blob_sessions.begin_update(key, client_of(call))

    @operation("uploadBlobChunk")
    async def uploadBlobChunk(self, call: Call, session: str | None, chunk: bytes | None) -> None:
        await self.nimbus.blob_sessions.upload_chunk(
            needed(session, "session"), needed(chunk, "chunk")
        )

    @operation("finishBlobUpload")
    async def finishBlobUpload(self, call: Call, session: str | None) -> None:
        """Answers once another Nimbus, if there is one, has the blob as well."""
        fence: Fence = await self.nimbus.leader_elector.require()
        await self.nimbus.blob_sessions.finish_upload(
            needed(session, "session"), self.nimbus.replication, fence
        )

    @operation("cancelBlobUpload")
    async def cancelBlobUpload(self, call: Call, session: str | None) -> None:
        await self.nimbus.blob_sessions.cancel_upload(needed(session, "session"))

    @operation("getBlobMeta", decides=True)
    async def getBlobMeta(self, call: Call, key: str | None) -> storm.ReadableBlobMeta:
        key = needed(key, "key")
        self._check_no_key(key)
        meta = self.nimbus.blobs.meta(key)
        self.nimbus.cleanup.asked_for(key)
        if not self._may_see(call, meta):
            self._check_access(call, meta, READ)
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

    @operation("setBlobMeta", decides=True)
    async def setBlobMeta(
        self, call: Call, key: str | None, meta: storm.SettableBlobMeta | None
    ) -> None:
        fence: Fence = await self.nimbus.leader_elector.require()
        key, meta = needed(key, "key"), needed(meta, "meta")
        self._check_not_of_topology(key)
        present = self._allowed(call, key, ADMIN)
        replication = meta.replication_factor
        await self.nimbus.replication.set_meta(
            replace(
                present,
                acl=normalized(_access(meta), self._caller(call), READ | ADMIN),
                replication=max(1, replication) if replication else present.replication,
            ),
            fence,
        )

    @operation("beginBlobDownload", decides=True)
    async def beginBlobDownload(self, call: Call, key: str | None) -> storm.BeginDownloadResult:
        key = needed(key, "key")
        self._allowed(call, key, READ)
        self._check_sessions(call)
        session, meta = self.nimbus.blob_sessions.begin_download(key, client_of(call))
        return storm.BeginDownloadResult(version=meta.version, session=session, data_size=meta.size)

    @operation("downloadBlobChunk")
    async def downloadBlobChunk(self, call: Call, session: str | None) -> bytes:
        return await self.nimbus.blob_sessions.download_chunk(needed(session, "session"))

    @operation("deleteBlob", decides=True)
    async def deleteBlob(self, call: Call, key: str | None) -> None:
        fence: Fence = await self.nimbus.leader_elector.require()
        key = needed(key, "key")
        self._allowed(call, key, WRITE)
        used_by = await self._users_of(key)
        if used_by:
            raise storm.IllegalStateException(
                msg=f"blob {key} is used by {', '.join(used_by)}; kill it first"
            )
        await self.nimbus.replication.delete([key], fence)

    async def _users_of(self, key: str) -> list[str]:
        """Return the live topologies that need the blob."""
        nimbus = self.nimbus
        live = {*await nimbus.state.topology_ids(), *nimbus.submitter.submitting}
        own = topology_of_blob(key)
        if own is not None:
            return [own] if own in live else []
        await nimbus.topology_store.have(live)
        return [
            topology_id
            for topology_id in sorted(live & nimbus.topology_store.ids())
            if key in nimbus.topology_store.get(topology_id).blob_keys
        ]

    @operation("listBlobs")
    async def listBlobs(self, call: Call, session: str | None) -> storm.ListBlobsResult:
        """List the keys of blobs to which the caller has any access."""
        blobs = self.nimbus.blobs

        def shown(key: str) -> bool:
            meta = blobs.find(key)
            return meta is not None and not is_secret_blob(key) and self._may_see(call, meta)

        keys, session = await self.nimbus.blob_sessions.list_keys(
            session or "", shown, client_of(call)
        )
        return storm.ListBlobsResult(keys=keys, session=session)

    @operation("getBlobReplication", decides=True)
    async def getBlobReplication(self, call: Call, key: str | None) -> int:
        """Return how many Nimbus nodes have it now; the wanted number is in its meta."""
        key = needed(key, "key")
        self._allowed(call, key, READ)
        return await self.nimbus.replication.holders(key)

    @operation("updateBlobReplication", decides=True)
    async def updateBlobReplication(
        self, call: Call, key: str | None, replication: int | None
    ) -> int:
        fence: Fence = await self.nimbus.leader_elector.require()
        key, wanted = needed(key, "key"), needed(replication, "replication")
        if not 1 <= wanted <= _REPLICATION_MAX:
            raise refused(f"replication {wanted} is not between 1 and {_REPLICATION_MAX}")
        self._check_not_of_topology(key)
        present = self._allowed(call, key, WRITE)
        await self.nimbus.replication.set_meta(replace(present, replication=wanted), fence)
        return await self.nimbus.replication.holders(key)

    @operation("createStateInZookeeper", decides=True)
    async def createStateInZookeeper(self, call: Call, key: str | None) -> None:
        # Storm's clients announce a blob after its upload, so that the other Nimbus nodes fetch it.
        # Here that happens before the upload's last call is answered.
        self._check_no_key(needed(key, "key"))
        meta = self.nimbus.blobs.find(needed(key, "key"))
        if meta is None:
            raise refused(f"there is no blob {key}")
        # Who may only write it announces it, too.
        if self.nimbus.access.secured and not self._may_see(call, meta, call.operation):
            self._check_access(call, meta, READ)

    @operation("isRemoteBlobExists", decides=True)
    async def isRemoteBlobExists(self, call: Call, blobKey: str | None) -> bool:
        key = needed(blobKey, "blobKey")
        self._check_no_key(key)
        self.nimbus.cleanup.asked_for(key)
        meta = self.nimbus.blobs.find(key)
        if meta is None:
            return False
        if self.nimbus.access.secured:
            self._check_access(call, meta, READ)
        return True
