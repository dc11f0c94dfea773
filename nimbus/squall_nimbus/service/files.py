"""Calls that upload packages."""

from __future__ import annotations

from squall_nimbus.service.base import Calls, client_of, needed, operation, refused
from squall_thrift.serving.authorization import Call


class FileCalls(Calls):
    """The leader takes uploads: each Nimbus has its own inbox."""

    @operation("fileUpload")
    async def beginFileUpload(self, call: Call) -> str:
        await self.nimbus.leader_elector.require()
        self._check_sessions(call)
        return self.nimbus.inbox.begin(client_of(call))

    @operation("fileUpload")
    async def uploadChunk(self, call: Call, location: str | None, chunk: bytes | None) -> None:
        await self.nimbus.inbox.chunk(needed(location, "location"), needed(chunk, "chunk"))

    @operation("fileUpload")
    async def uploadChunkAt(
        self, call: Call, location: str | None, offset: int | None, chunk: bytes | None
    ) -> int:
        return await self.nimbus.inbox.chunk_at(
            needed(location, "location"), needed(offset, "offset"), needed(chunk, "chunk")
        )

    @operation("fileUpload")
    async def finishFileUpload(self, call: Call, location: str | None) -> None:
        await self.nimbus.inbox.finish(needed(location, "location"))

    @operation("fileDownload")
    async def downloadChunk(self, call: Call, id: str | None) -> bytes:
        # Storm's interface no longer has beginFileDownload, which began such a session: it could
        # read any file of Nimbus. Packages are read as blobs.
        raise refused(
            f"there is no file download {id!r}: files are downloaded with beginBlobDownload"
        )
