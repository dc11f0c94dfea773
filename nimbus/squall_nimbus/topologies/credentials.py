"""The credentials of topologies, as the leader keeps and renews them.

They are a blob each (`squall_nimbus.blobs.keys`), with a number that grows. Plug-ins of the site,
classes of `nimbus.autocredential.plugins.classes` and `nimbus.credential.renewers.classes`, fill in
what a topology lacks at its submit, and renew what ends. They run in threads, one at a time for a
topology, and what one of them does wrong concerns its own result alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from squall_common.cluster.leader import Fence
from squall_common.cluster.state import ClusterState
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import ConfigError, SquallError
from squall_common.names import credentials_blob_key, topology_name_of
from squall_common.security.credentials import TopologyCredentials, check_credentials
from squall_common.topology.import_paths import import_path
from squall_nimbus.blobs.keys import NOBODY
from squall_nimbus.blobs.replication import Replication
from squall_nimbus.blobs.store import BlobNotFoundError, BlobStore
from squall_nimbus.store.locks import NamedLocks
from squall_nimbus.store.topology_store import TopologyStore

log = get_logger(__name__)

# How long a plug-in may take for one topology, and how many are called at a time. They have threads
# of their own: Nimbus needs the others for its disk.
_PLUGIN_SECS = 30.0
_PLUGINS_AT_ONCE = 2


class Populates(Protocol):
    """A class of `nimbus.autocredential.plugins.classes`, made without arguments."""

    def populate_credentials(
        self, credentials: dict[str, str], topology_conf: Mapping[str, Any], owner: str
    ) -> None:
        """Add to a topology's credentials when it is submitted, before it exists. What it raises
        refuses the submit."""
        ...


class Renews(Protocol):
    """A class of `nimbus.credential.renewers.classes`, made without arguments."""

    def renew(
        self, credentials: dict[str, str], topology_conf: Mapping[str, Any], owner: str
    ) -> None:
        """Change the credentials of a running topology that are about to end. What it raises is
        logged, and the credentials stay."""
        ...


class CredentialsKeeper:
    """`populating` and `renewing` are the site's plug-ins."""

    def __init__(
        self,
        state: ClusterState,
        blobs: BlobStore,
        replication: Replication,
        topology_store: TopologyStore,
        *,
        clock: Clock,
        populating: Sequence[Populates] = (),
        renewing: Sequence[Renews] = (),
    ) -> None:
        self._state = state
        self._blobs = blobs
        self._replication = replication
        self._topology_store = topology_store
        self._clock = clock
        self._populating = populating
        self._renewing = renewing
        self._busy: set[str] = set()  # topologies whose plug-in has not returned
        self._threads = ThreadPoolExecutor(_PLUGINS_AT_ONCE, "credentials")

    def read(self, topology_id: str) -> TopologyCredentials:
        """A topology's credentials; empty ones if it has none. Raises SquallError if they cannot be
        read."""
        try:
            data = self._blobs.read(credentials_blob_key(topology_id))
            return TopologyCredentials.from_bytes(data, topology_id)
        except BlobNotFoundError:
            return TopologyCredentials(topology_id)
        except ValueError as error:
            raise SquallError(f"the credentials of {topology_id} are damaged: {error}") from None

    async def populated(
        self, topology_id: str, values: Mapping[str, str], conf: Mapping[str, Any], owner: str
    ) -> dict[str, str]:
        """The credentials with which a topology begins. Raises SquallError."""
        found = dict(values)
        for plugin in self._populating:
            found = await self._call(
                topology_id, plugin, plugin.populate_credentials, found, conf, owner
            )
        check_credentials(found)
        return found

    async def write(self, topology_id: str, values: Mapping[str, str]) -> str:
        """Write a new version to the disk; return the key of its blob, which does not count before
        it is published. The caller holds the blob (`Replication.writing`). Raises SquallError."""
        check_credentials(values)
        key = credentials_blob_key(topology_id)
        try:
            last = self.read(topology_id).number
        except SquallError:  # damaged: it is replaced
            last = 0
        number = max(last + 1, int(self._clock.time() * 1000))
        data = TopologyCredentials(topology_id, number, values).to_bytes()
        # The version that counts may not have come here yet.
        above = await self._replication.version_above(key)
        await asyncio.to_thread(self._blobs.put, key, data, acl=NOBODY, above=above)
        return key

    async def replace(self, topology_id: str, values: Mapping[str, str], fence: Fence) -> None:
        """Replace a topology's credentials everywhere. The caller holds the topology's lock. Raises
        SquallError and the store's errors."""
        check_credentials(values)
        key = credentials_blob_key(topology_id)
        await fence.transaction([])  # we still lead, and may write
        with self._replication.writing([key]):
            await self.write(topology_id, values)
            await self._replication.publish([key], fence)

    async def adopt(self, topology_ids: Collection[str], locks: NamedLocks, fence: Fence) -> None:
        """Take what an earlier version left in ZooKeeper, in the clear, out of there."""
        for topology_id in topology_ids:
            found = await self._state.credentials(topology_id)
            if found is None:
                continue
            async with locks.hold(topology_name_of(topology_id)):
                try:
                    if self.read(topology_id).number == 0:
                        await self.replace(topology_id, found.creds, fence)
                except SquallError as error:
                    log.error("credentials_dropped", topology_id=topology_id, error=error)
                await self._state.remove_credentials(topology_id, guard=fence)
            log.info("credentials_taken_from_zookeeper", topology_id=topology_id)

    async def renew(self, locks: NamedLocks, require: Callable[[], Awaitable[Fence]]) -> None:
        """Ask the plug-ins about every topology; once each `nimbus.credential.renewers.freq.secs`.
        `require` returns the right to write. Raises NotLeaderError and the store's errors."""
        if not self._renewing:
            return
        for topology_id in await self._state.topology_ids():
            try:
                await self._renew(topology_id, locks, require)
            except (SquallError, BlobNotFoundError) as error:
                log.warning("credentials_not_renewed", topology_id=topology_id, error=error)

    async def _renew(
        self, topology_id: str, locks: NamedLocks, require: Callable[[], Awaitable[Fence]]
    ) -> None:
        base = await self._state.storm_base(topology_id)
        if base is None:
            return
        conf = self._topology_store.get(topology_id).conf
        before = await self._newest(topology_id)
        after = dict(before.values)
        for plugin in self._renewing:
            after = await self._call(
                topology_id, plugin, plugin.renew, after, conf, base.owner or ""
            )
        if after == before.values:
            return
        fence = await require()
        async with locks.hold(topology_name_of(topology_id)):
            if await self._state.storm_base(topology_id) is None:
                return  # it was removed meanwhile
            if (await self._newest(topology_id)).number != before.number:
                return  # its user has replaced them meanwhile: they are renewed next time
            await self.replace(topology_id, after, fence)
        log.info("credentials_renewed", topology_id=topology_id, owner=base.owner)

    async def _newest(self, topology_id: str) -> TopologyCredentials:
        """As `read`. Raises SquallError also while the version that counts is not here: it comes
        from another Nimbus, and what is here lacks what their user has set since."""
        key = credentials_blob_key(topology_id)
        record, here = await self._state.blob(key), self._blobs.find(key)
        if record is not None:
            meta = record[0].meta
            if here is None or (here.version, here.sha256) != (meta.version, meta.sha256):
                raise SquallError(
                    f"version {meta.version} of the credentials of {topology_id} is not here yet"
                )
        return self.read(topology_id)

    async def _call(
        self,
        topology_id: str,
        plugin: object,
        call: Callable[[dict[str, str], Mapping[str, Any], str], object],
        values: Mapping[str, str],
        conf: Mapping[str, Any],
        owner: str,
    ) -> dict[str, str]:
        """What a plug-in makes of credentials. Raises SquallError, which has no text of the
        plug-in's: it may quote a secret."""
        name = type(plugin).__name__
        if topology_id in self._busy:
            raise SquallError(f"a plug-in still works on the credentials of {topology_id}")
        changed = dict(values)
        self._busy.add(topology_id)
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._threads, call, changed, dict(conf), owner)
        work.add_done_callback(lambda done: self._ended(topology_id, done))
        patience = asyncio.timeout(_PLUGIN_SECS)
        try:
            async with patience:
                await asyncio.shield(work)
        except Exception as error:
            if patience.expired():
                raise SquallError(
                    f"{name} did not return within {_PLUGIN_SECS:.0f} s for {topology_id}"
                ) from None
            raise SquallError(
                f"{name} raised {type(error).__name__} for {topology_id}",
                hint="Its message is left out, since it may have a secret.",
            ) from None
        changed = dict(changed)  # a plug-in may have kept it
        check_credentials(changed)
        return changed

    def _ended(self, topology_id: str, work: asyncio.Future[object]) -> None:
        self._busy.discard(topology_id)
        if not work.cancelled():
            work.exception()  # the caller has it, or waits no longer


def load_plugins(key: str, paths: Sequence[str] | None, method: str) -> list[Any]:
    """Make an object of each class that a key names. Raises ConfigError."""
    made = []
    for path in paths or ():
        try:
            plugin = import_path(path)()
        except Exception as error:
            raise ConfigError(f"{key}: {path} cannot be made: {error}") from error
        if not callable(getattr(plugin, method, None)):
            raise ConfigError(f"{key}: {path} has no method {method}()")
        made.append(plugin)
    return made
