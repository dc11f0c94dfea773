"""The package, code and configuration of each topology on Nimbus' disk.

Each is a blob (supervisors and other readers fetch them by key), with a second copy in
`{storm.local.dir}/nimbus/stormdist/{topology id}/`, where Storm keeps it. Tasks and executors are
derived from code and configuration whenever they are needed, and never stored.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.cluster.store import StoreError
from squall_common.cluster.values import Access, StormBase
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.files import make_private_dirs, sync_dir, write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import (
    code_blob_key,
    conf_blob_key,
    credentials_blob_key,
    curve_blob_key,
    jar_blob_key,
    topology_of_blob,
)
from squall_common.topology.encryption import has_key
from squall_common.topology.model import Executor, Topology
from squall_common.topology.prepared import prepare
from squall_common.topology.system import compute_executors
from squall_nimbus.blobs.keys import NOBODY, new_key
from squall_nimbus.blobs.store import BlobNotFoundError, BlobStore, disk_errors
from squall_thrift import codec, storm

log = get_logger(__name__)

# How long an action on a topology waits for its code to come from another Nimbus.
_FETCH_SECS = 5.0
_FETCH_AGAIN_SECS = 60.0


@dataclass(frozen=True, slots=True)
class StoredTopology:
    """A topology as it was submitted, and what is derived from it."""

    id: str
    submitted: storm.StormTopology
    compiled: Topology  # with the system's components
    conf: Mapping[str, Any]  # normalized
    options: TopologyOptions  # the options in it
    task_to_component: Mapping[int, str]

    def component_of(self, base: StormBase) -> dict[Executor, str]:
        """Map its executors to their components, at the parallelism that its StormBase has now."""
        executors = compute_executors(self.task_to_component, base.component_executors)
        return {executor: self.task_to_component[executor.task_start] for executor in executors}

    def tasks_of(self, component: str) -> int:
        """Return how many tasks a component has."""
        return sum(1 for name in self.task_to_component.values() if name == component)

    @property
    def blob_keys(self) -> set[str]:
        """The keys of other blobs that it needs, from `topology.blobstore.map` and its
        dependencies."""
        return {
            *(self.options.topology_blobstore_map or ()),
            *(self.submitted.dependency_jars or ()),
            *(self.submitted.dependency_artifacts or ()),
        }

    @property
    def message_timeout_secs(self) -> int:
        """`topology.message.timeout.secs`, in whole seconds."""
        return round(self.options.topology_message_timeout_secs)


def compile_topology(
    topology_id: str, submitted: storm.StormTopology, conf: Mapping[str, Any] | bytes
) -> StoredTopology:
    """Derive everything. Raises the errors of `squall_common.topology.prepared.prepare`."""
    made = prepare(submitted, conf)
    return StoredTopology(
        topology_id,
        submitted,
        made.topology,
        made.conf,
        TopologyOptions.read(made.conf),
        made.task_to_component,
    )


def code_blob_keys(topology_id: str) -> tuple[str, str, str]:
    """Return the keys of the blobs that make up a topology."""
    return jar_blob_key(topology_id), code_blob_key(topology_id), conf_blob_key(topology_id)


def topology_blob_keys(topology_id: str) -> tuple[str, ...]:
    """Return the same blob keys and that of the topology's key, which some topologies do not have
    (`squall_common.security.curve.has_key`)."""
    return *code_blob_keys(topology_id), curve_blob_key(topology_id)


def all_blob_keys(topology_id: str) -> tuple[str, ...]:
    """Return the keys of all blobs that a topology may have, with that of its credentials."""
    return *topology_blob_keys(topology_id), credentials_blob_key(topology_id)


async def _from_nowhere(keys: Collection[str]) -> None:
    """Fetch nothing, because there is no other Nimbus."""


class TopologyStore:
    """The topologies whose code this Nimbus has. `ensure(keys)` fetches blobs from others."""

    def __init__(
        self,
        blobs: BlobStore,
        stormdist: Path,
        ensure: Callable[[Collection[str]], Awaitable[None]] = _from_nowhere,
    ) -> None:
        self._blobs = blobs
        self._stormdist = stormdist
        self._ensure = ensure
        self._cache: dict[str, tuple[tuple[int, int], StoredTopology]] = {}
        self._not_before: dict[str, float] = {}  # topology -> on the loop's clock

    def open(self) -> None:
        """Make the folder."""
        make_private_dirs(self._stormdist)

    async def have(self, topology_ids: Collection[str], *, retry: bool = False) -> None:
        """Fetch the code of these topologies where this Nimbus lacks it, as far as that is possible
        soon. A failed fetch is not repeated before _FETCH_AGAIN_SECS (the replication keeps
        trying), since a round must not wait for one topology, unless `retry` says that a caller is
        waiting for it."""
        now = asyncio.get_running_loop().time()
        self._not_before = {i: at for i, at in self._not_before.items() if at > now}
        lacking = {
            i: keys
            for i in topology_ids
            if (retry or i not in self._not_before)
            and (keys := [key for key in code_blob_keys(i) if key not in self._blobs])
        }
        if not lacking:
            return
        wanted = [key for keys in lacking.values() for key in keys]
        try:
            async with asyncio.timeout(_FETCH_SECS):
                await self._ensure(wanted)
        except (TimeoutError, StoreError, SquallError, BlobNotFoundError) as error:
            log.warning("code_not_fetched", keys=" ".join(wanted), error=error)
        for topology_id, keys in lacking.items():
            if any(key not in self._blobs for key in keys):
                self._not_before[topology_id] = now + _FETCH_AGAIN_SECS

    async def store(
        self, topology: StoredTopology, package: Path, owner: str | None
    ) -> tuple[str, ...]:
        """Write package, code, configuration and, if it gets one, a new key to the disk, synced;
        return the keys of these blobs. Raises SquallError."""
        return await asyncio.to_thread(self._store, topology, package, owner)

    def _store(self, topology: StoredTopology, package: Path, owner: str | None) -> tuple[str, ...]:
        code = codec.to_bytes(topology.submitted)
        conf = _conf_bytes(topology.conf)
        keys: tuple[str, ...] = code_blob_keys(topology.id)
        if has_key(topology.conf):
            self._blobs.put(curve_blob_key(topology.id), new_key(topology.id), acl=NOBODY)
            keys = topology_blob_keys(topology.id)
        acl = (Access(2, owner, 7),) if owner else ()
        self._blobs.put_file(jar_blob_key(topology.id), package, acl=acl, owner=owner)
        self._blobs.put(code_blob_key(topology.id), code, acl=acl, owner=owner)
        self._blobs.put(conf_blob_key(topology.id), conf, acl=acl, owner=owner)
        folder = self._stormdist / topology.id
        with disk_errors(f"topology {topology.id}", self._stormdist):
            folder.mkdir(exist_ok=True)
            jar = folder / "stormjar.jar"
            jar.unlink(missing_ok=True)
            source = self._blobs.path(jar_blob_key(topology.id))  # synced there
            try:
                os.link(source, jar)
            except OSError:
                shutil.copyfile(source, jar)
            write_atomic(folder / "stormcode.ser", code)
            write_atomic(folder / "stormconf.ser", conf)
            sync_dir(self._stormdist)
        return keys

    async def store_key(self, topology_id: str) -> None:
        """Make a key for a topology that has none. Raises SquallError."""

        def store() -> None:
            self._blobs.put(curve_blob_key(topology_id), new_key(topology_id), acl=NOBODY)

        await asyncio.to_thread(store)

    async def store_conf(self, topology_id: str, conf: Mapping[str, Any]) -> None:
        """Replace a topology's configuration; workers are restarted with it."""

        def store() -> None:
            data = _conf_bytes(conf)
            self._blobs.put(conf_blob_key(topology_id), data)
            with disk_errors(f"topology {topology_id}", self._stormdist):
                folder = self._stormdist / topology_id
                folder.mkdir(exist_ok=True)  # it was submitted to another Nimbus
                write_atomic(folder / "stormconf.ser", data)

        await asyncio.to_thread(store)

    def get(self, topology_id: str) -> StoredTopology:
        """Return a topology. Raises BlobNotFoundError if this Nimbus does not have its code, and
        SquallError if the code cannot be read."""
        code_key, conf_key = code_blob_key(topology_id), conf_blob_key(topology_id)
        versions = (self._blobs.meta(code_key).version, self._blobs.meta(conf_key).version)
        cached = self._cache.get(topology_id)
        if cached is not None and cached[0] == versions:
            return cached[1]
        try:
            submitted = codec.from_bytes(storm.StormTopology, self._blobs.read(code_key))
            topology = compile_topology(topology_id, submitted, self._blobs.read(conf_key))
        except Exception as error:
            # It was checked when it was stored. Whatever is wrong now (a damaged disk, a newer
            # version's format) must affect only this topology.
            raise SquallError(f"the code of {topology_id} cannot be read: {error!r}") from error
        self._cache[topology_id] = (versions, topology)
        return topology

    def ids(self) -> set[str]:
        """Return the ids of topologies of which anything is on the disk."""
        ids = {found for key in self._blobs.all_keys() if (found := topology_of_blob(key))}
        return ids | {entry.name for entry in self._stormdist.iterdir()}

    async def delete(self, topology_id: str) -> None:
        """Remove a topology's files that are not blobs; it is fine if there are none."""
        self._cache.pop(topology_id, None)
        await asyncio.to_thread(shutil.rmtree, self._stormdist / topology_id, ignore_errors=True)


def _conf_bytes(conf: Mapping[str, Any]) -> bytes:
    return json.dumps(conf, ensure_ascii=False, sort_keys=True).encode()
