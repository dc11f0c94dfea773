"""A submit, from the call to a running topology (design, "The life of a topology").

Every error that can be found is found before anything is written. Then package, code and
configuration are written and synced to the disks of this Nimbus and another one (see
`replication`), before /storms/ID makes the topology exist. From there on the life-cycle table takes
it to its first assignment and its initial status, in this process or, after a crash, in the next
leader's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall_common.cluster.leader import Fence, NotLeaderError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import ConnectionLostError, NodeExistsError, StoreError
from squall_common.cluster.values import StormBase, TopologyStatus
from squall_common.component.checkpoints import Place, all_refusals
from squall_common.component.refusals import refuse
from squall_common.config.load import normalize_topology_conf, warn_of_ignored
from squall_common.config.options.typed import NimbusOptions, TopologyOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import ConfigError, InvalidTopologyError, SquallError
from squall_common.history.settings import (
    HistoryUnavailableError,
    check_available,
    history_url,
)
from squall_common.names import (
    ANONYMOUS,
    is_secret_blob,
    make_topology_id,
    topology_name_error,
)
from squall_common.outside.audiences import audience_problems
from squall_common.packaging.blob_map import parse_blob_map
from squall_common.topology.model import Topology
from squall_common.topology.system import component_parallelism, validate_topology
from squall_common.topology.thrift import from_thrift
from squall_nimbus.blobs.access import READ, Caller, check_access
from squall_nimbus.blobs.replication import Replication
from squall_nimbus.blobs.store import BlobStore
from squall_nimbus.blobs.uploads import Inbox
from squall_nimbus.store.topology_store import (
    StoredTopology,
    TopologyStore,
    all_blob_keys,
    compile_topology,
)
from squall_nimbus.topologies.credentials import CredentialsKeeper
from squall_nimbus.topologies.lifecycle import MonitorDue
from squall_nimbus.topologies.lifecycle_shell import LifecycleShell, TopologyNotAliveError
from squall_nimbus.topologies.limits import size_problems
from squall_nimbus.topologies.package_check import PackageChecks
from squall_nimbus.topologies.quotas import TopologyQuotas, size_of
from squall_thrift import storm

log = get_logger(__name__)

# A topology of 1 MiB is checked within a second; the rest is margin for a busy machine.
_CHECK_SECS = 10.0
_CHECKS_AT_ONCE = 2  # others use these threads too


class TopologyAliveError(Exception):
    """The name is in use; the text is Storm's."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A client's request to submit."""

    name: str
    package: str  # the upload's handle
    conf: str  # JSON
    topology: storm.StormTopology
    initial_status: TopologyStatus = TopologyStatus.ACTIVE
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    owner: str | None = None
    principal: str | None = None  # the connection's user; None: it was not authenticated


def no_audiences(audiences: Sequence[str], owner: str | None, name: str) -> list[str]:
    """Where no identity tokens are issued."""
    return audience_problems(audiences, issuer=None, allowed=None)


class Submitter:
    """Takes submissions; those of the same name one after the other. `submitting` gets the ids of
    topologies that are being stored."""

    def __init__(
        self,
        state: ClusterState,
        topology_store: TopologyStore,
        blobs: BlobStore,
        replication: Replication,
        inbox: Inbox,
        lifecycle: LifecycleShell,
        credentials: CredentialsKeeper,
        *,
        options: NimbusOptions,
        conf: Mapping[str, Any],
        clock: Clock,
        fence: Callable[[], Awaitable[Fence]],
        submitting: set[str],
        quotas: TopologyQuotas,
        audience_problems: Callable[[Sequence[str], str | None, str], list[str]] = no_audiences,
        prepare: Callable[[str, Mapping[str, Any], Fence], Awaitable[None]] | None = None,
        record_event: Callable[[str, str, str], None] = lambda topology_id, name, text: None,
    ) -> None:
        """`prepare` is awaited with a topology's id and configuration, as the leader, before it is
        created."""
        self._record_event = record_event
        self._state = state
        self._topology_store = topology_store
        self._blobs = blobs
        self._replication = replication
        self._inbox = inbox
        self._lifecycle = lifecycle
        self._credentials = credentials
        self._options = options
        self._conf = conf  # below that of each topology
        self._clock = clock
        self._fence = fence
        self._prepare = prepare
        self._packages = PackageChecks()
        self._count = 0
        self._checks = asyncio.Semaphore(_CHECKS_AT_ONCE)
        self.submitting = submitting  # shared with the cleanup
        self.quotas = quotas
        self._audience_problems = audience_problems

    async def submit(self, submission: Submission) -> str:
        """Submit a topology and return its id. Raises InvalidTopologyError, TopologyAliveError,
        SquallError and the store's errors; then the topology does not exist, unless the connection
        was lost."""
        if (why := topology_name_error(submission.name)) is not None:
            raise InvalidTopologyError(why)
        async with self._lifecycle.locks.hold(submission.name):
            await self.check_name_is_free(submission.name)
            package = self._inbox.finished(submission.package)
            if package is None:
                raise InvalidTopologyError(
                    f"upload {submission.package[:200]!r} was not found, or is not finished",
                    hint="Upload the package again (uploads expire, and each Nimbus has its own).",
                )
            fence = await self._fence()
            topology = await self._checked(submission)
            await self._packages.check(submission.package, package)
            credentials = await self._credentials.populated(
                topology.id, submission.credentials, topology.conf, submission.owner or ""
            )
            size = size_of(self._base(submission, topology))
            async with self.quotas.granted(
                submission.owner or ANONYMOUS, topology.id, size, package.stat().st_size
            ):
                self.submitting.add(topology.id)
                try:
                    await self._create(topology, submission, credentials, package, fence)
                finally:
                    self.submitting.discard(topology.id)
        log.info(
            "topology_submitted", topology_id=topology.id, owner=submission.owner,
            status=submission.initial_status.name,
        )  # fmt: skip
        self._record_event(topology.id, "submitted", f"workers={topology.options.topology_workers}")
        await self._start(topology.id)
        return topology.id

    async def check_name_is_free(self, name: str) -> None:
        """Raise TopologyAliveError if it is not; a killed topology keeps its name until it is
        removed."""
        try:
            await self._lifecycle.find(name)
        except TopologyNotAliveError:
            return
        raise TopologyAliveError(f"{name} already exists on cluster")

    async def is_name_allowed(self, name: str) -> bool:
        """Return whether a topology could be submitted under the name now."""
        if topology_name_error(name) is not None:
            return False
        try:
            await self.check_name_is_free(name)
        except TopologyAliveError:
            return False
        return True

    async def _checked(self, submission: Submission) -> StoredTopology:
        """Find all problems before anything is written; in a thread, and for at most _CHECK_SECS,
        since the client controls how much there is to check."""
        self._count += 1
        now = self._clock.time()
        topology_id = make_topology_id(submission.name, self._count, int(now))
        async with self._checks:
            ends_at = time.monotonic() + _CHECK_SECS

            def check_time() -> None:
                if time.monotonic() > ends_at:
                    raise InvalidTopologyError(
                        f"the topology could not be checked within {_CHECK_SECS:.0f} s",
                        hint="Submit a smaller one, or try again when Nimbus is less busy.",
                    )

            topology, compiled = await asyncio.to_thread(
                self._check, submission, topology_id, check_time
            )
        dependencies = (*topology.dependency_jars, *topology.dependency_artifacts)
        problems = self.blob_problems(compiled.options, submission.owner, dependencies)
        problems += self.audience_problems(compiled.options, submission.owner, submission.name)
        if problems:
            raise InvalidTopologyError.listing(problems)
        if submission.topology.shared_memory:  # Storm's own default scheduler ignores it as well
            log.warning("shared_memory_ignored", topology_id=topology_id)
        return compiled

    def _check(
        self, submission: Submission, topology_id: str, check_time: Callable[[], None]
    ) -> tuple[Topology, StoredTopology]:
        """Check everything but blobs. Touches nothing that the event loop changes."""
        user_conf = parse_conf(submission.conf)
        topology = from_thrift(submission.topology)
        check_time()
        try:
            conf = normalize_topology_conf(
                user_conf, self._conf, name=submission.name, components=topology.component_confs
            )
        except ConfigError as error:
            raise InvalidTopologyError(error.message, hint=error.hint) from error
        warn_of_ignored(user_conf, topology_id=topology_id)
        # In place of whatever the client sent, as in Storm.
        conf["storm.id"] = topology_id
        conf["topology.submitter.user"] = submission.owner
        conf["topology.submitter.principal"] = submission.principal
        options = TopologyOptions.read(conf, where="topology conf")
        validate_topology(topology, options, check_time=check_time)
        refuse(all_refusals(topology, options, Place.CLUSTER))
        if options.topology_history_enable:  # say now that no history could be written
            try:
                check_available(history_url(self._options))
            except HistoryUnavailableError as error:
                raise InvalidTopologyError(error.message, hint=error.hint) from error
        check_time()
        problems = size_problems(
            self._options,
            options.topology_workers,
            sum(component_parallelism(topology, options).values()),
        )
        if problems:
            raise InvalidTopologyError.listing(problems)
        return topology, compile_topology(topology_id, submission.topology, conf)

    def blob_problems(
        self, options: TopologyOptions, owner: str | None, dependencies: Sequence[str] = ()
    ) -> list[str]:
        """List what is wrong with the blobs that a topology names: they must exist, its owner must
        be allowed to read them (a blob's key is not a secret), and their local names must do no
        harm in a worker's folder (CVE-2026-82427)."""
        caller = Caller.of(owner, self._options)
        links, problems = parse_blob_map(options.topology_blobstore_map)
        named = [(f"topology.blobstore.map names blob {link.key!r}", link.key) for link in links]
        named += [(f"dependency blob {key!r}", key) for key in dependencies]
        for what, key in named:
            if key not in self._blobs or is_secret_blob(key):
                problems.append(f"{what}, which does not exist")
            elif check_access(self._blobs.meta(key).acl, caller, READ, key) is not None:
                problems.append(f"{what}, which {caller.name} may not read")
        return problems

    def audience_problems(
        self, options: TopologyOptions, owner: str | None, name: str
    ) -> list[str]:
        """List what is wrong with the foreign parties for which a topology wants tokens."""
        return self._audience_problems(options.topology_identity_audiences, owner, name)

    def _base(self, submission: Submission, topology: StoredTopology) -> StormBase:
        return StormBase(
            name=submission.name,
            status=TopologyStatus.INACTIVE,
            prev_status=submission.initial_status,
            num_workers=topology.options.topology_workers,
            component_executors=component_parallelism(topology.compiled, topology.options),
            launch_time_secs=int(self._clock.time()),
            owner=submission.owner,
            principal=submission.principal,
            topology_version=topology.options.topology_version,
        )

    async def _create(
        self,
        topology: StoredTopology,
        submission: Submission,
        credentials: Mapping[str, str],
        package: Any,
        fence: Fence,
    ) -> None:
        keys = all_blob_keys(topology.id)
        with self._replication.writing(keys):
            await self._create_written(topology, submission, credentials, package, fence, keys)

    async def _create_written(
        self,
        topology: StoredTopology,
        submission: Submission,
        credentials: Mapping[str, str],
        package: Any,
        fence: Fence,
        keys: Sequence[str],
    ) -> None:
        try:
            stored = await self._topology_store.store(topology, package, submission.owner)
            if credentials:
                stored += (await self._credentials.write(topology.id, credentials),)
            await self._replication.publish(stored, fence)
            base = self._base(submission, topology)
            if self._prepare is not None:
                await self._prepare(topology.id, topology.conf, fence)
            await self._state.create_topology(topology.id, base, guard=fence)
        except (ConnectionLostError, NotLeaderError):
            # A write on its way may still arrive. (The same holds if this task is cancelled.) The
            # search, here or on the next leader, finds what is left over.
            raise
        except Exception as error:
            with contextlib.suppress(StoreError):  # else the search does it
                await self._replication.delete(keys, fence)
            await self._topology_store.delete(topology.id)
            if isinstance(error, NodeExistsError):  # leftovers that a search has not found yet
                raise SquallError(
                    f"state of {topology.id} already exists", hint="Try again."
                ) from error
            raise

    async def _start(self, topology_id: str) -> None:
        """Make the assignment, then set the initial status. The topology exists: if this fails, the
        monitor or the next leader does it."""
        try:
            await self._lifecycle.send(topology_id, MonitorDue())
        except (StoreError, SquallError) as error:
            log.warning("start_is_pending", topology_id=topology_id, error=error)


def parse_conf(text: str) -> dict[str, Any]:
    """Parse the JSON object of a topology's configuration. Raises InvalidTopologyError."""
    try:
        conf = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise InvalidTopologyError(f"the topology's configuration is not JSON: {error}") from error
    if not isinstance(conf, dict):
        raise InvalidTopologyError("the topology's configuration is not a JSON object")
    for key, value in conf.items():
        try:
            json.dumps([key, value], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"U+{ord(error.object[error.start]):04X}"
            raise InvalidTopologyError(
                f"the topology's configuration has half a surrogate pair ({half}) in {key!a}",
                hint="Write characters beyond U+FFFF as themselves, or as both halves.",
            ) from error
    return conf
