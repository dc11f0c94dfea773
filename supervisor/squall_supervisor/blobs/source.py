"""Where a supervisor's files come from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from squall_common.security.credentials import TopologyCredentials


class LocalizeError(Exception):
    """A topology, or one of its blobs, could not be fetched or unpacked; nothing of it is left."""


class BlobError(Exception):
    """A blob could not be fetched this time."""


class BlobSource(Protocol):
    """Where blobs come from: Nimbus. It seals the secrets of topologies with `sealing_key`, which
    must be published in the supervisor's entry in ZooKeeper."""

    sealing_key: str

    async def fetch(self, keys: dict[str, Path]) -> dict[str, int]:
        """Write each blob to its file, which must not exist; returns their versions. Raises
        BlobError."""
        ...

    async def versions(self, keys: list[str]) -> dict[str, int]:
        """The current versions. Raises BlobError."""
        ...

    async def topology_key(self, topology_id: str, supervisor_id: str) -> bytes:
        """The key of a topology that is assigned to this supervisor. Raises BlobError."""
        ...

    async def topology_credentials(
        self, topology_id: str, supervisor_id: str
    ) -> TopologyCredentials | None:
        """The credentials of a topology that is assigned to this supervisor; None if it has none.
        Raises BlobError."""
        ...
