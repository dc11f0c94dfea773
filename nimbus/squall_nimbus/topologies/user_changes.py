"""User changes to a running topology: sampling, log levels, profiling, credentials."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

from squall_common.cluster.leader import Fence
from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import (
    DebugOptions,
    LogConfig,
    LogLevel,
    LogLevelAction,
    ProfileAction,
    ProfileRequest,
    SavepointRequest,
    TopologyStatus,
)
from squall_common.daemon.clock import Clock
from squall_common.daemon.folders import is_relative
from squall_common.daemon.logs import LEVELS, get_logger
from squall_common.errors import InvalidTopologyError, SquallError
from squall_common.names import topology_name_of
from squall_common.state.savepoint import name_problem
from squall_common.topology.model import WorkerSlot
from squall_nimbus.topologies.credentials import CredentialsKeeper
from squall_nimbus.topologies.lifecycle_shell import LifecycleShell

log = get_logger(__name__)

_PROFILE_SECS = 600  # how long a request without an end is valid

_LOGGERS_MAX = 1_000  # of one topology


class UserChanges:
    """Stored in ZooKeeper, where workers and supervisors see them; credentials are not
    (`squall_nimbus.topologies.credentials`)."""

    def __init__(
        self,
        state: ClusterState,
        lifecycle: LifecycleShell,
        credentials: CredentialsKeeper,
        *,
        clock: Clock,
        fence: Callable[[], Awaitable[Fence]],
    ) -> None:
        self._state = state
        self._lifecycle = lifecycle
        self._credentials = credentials
        self._clock = clock
        self._fence = fence

    async def resolve(self, id_or_name: str) -> str:
        """Return the id of a live topology; some calls pass either its id or its name. Raises
        TopologyNotAliveError."""
        if id_or_name in await self._state.topology_ids():
            return id_or_name
        return (await self._lifecycle.find(id_or_name))[0]

    async def debug(self, name: str, component: str, options: DebugOptions) -> None:
        """Sample a component's tuples, or (with no component) the whole topology's. Raises
        SquallError for an invalid percentage, and for a component that the topology does not
        have."""
        if not 0 <= options.sampling_pct <= 100:
            raise SquallError(
                f"sampling percentage {options.sampling_pct} is not between 0 and 100"
            )
        async with self._lifecycle.locks.hold(name):
            topology_id, base = await self._lifecycle.find(name)
            if component and component not in base.component_executors:
                raise SquallError(f"topology {name!r} has no component {component!r}")
            fence = await self._fence()
            debug = {**base.component_debug, (component or topology_id): options}
            await self._state.put_storm_base(
                topology_id, replace(base, component_debug=debug), guard=fence
            )

    async def ask_savepoint(self, name: str, request: SavepointRequest) -> None:
        """Ask a topology that takes checkpoints for a savepoint, or withdraw a request (one without
        a name, with its time). Raises InvalidTopologyError if that is not possible now."""
        if not request.name:
            await self._withdraw_savepoint(name, request.asked_ms)
            return
        if (why := name_problem(request.name)) is not None:
            raise InvalidTopologyError(f"{request.name!r} cannot be a savepoint's name: {why}")
        if request.folder is not None and is_relative(request.folder):
            raise InvalidTopologyError(
                f"the folder {request.folder!r} is relative: each worker would take it for another "
                "one; give a URL, or a path that begins with /"
            )
        async with self._lifecycle.locks.hold(name):
            topology_id, base = await self._lifecycle.find(name)
            if base.status not in (TopologyStatus.ACTIVE, TopologyStatus.INACTIVE):
                raise InvalidTopologyError(
                    f"topology {name!r} is {base.status.name}: no savepoint can be asked for now"
                )
            fence = await self._fence()
            await self._state.put_storm_base(
                topology_id, replace(base, savepoint=request), guard=fence
            )

    async def _withdraw_savepoint(self, name: str, asked_ms: int) -> None:
        """One that is no longer the last, or of a topology that is being killed, stays."""
        async with self._lifecycle.locks.hold(name):
            topology_id, base = await self._lifecycle.find(name)
            asked = base.savepoint
            if asked is None or asked.asked_ms != asked_ms or base.status is TopologyStatus.KILLED:
                return
            fence = await self._fence()
            await self._state.put_storm_base(
                topology_id, replace(base, savepoint=None), guard=fence
            )

    async def set_log_levels(self, id_or_name: str, changes: Mapping[str, LogLevel]) -> None:
        """Change levels of named loggers; those that are not named stay."""
        topology_id = await self.resolve(id_or_name)
        async with self._lifecycle.locks.hold(topology_name_of(topology_id)):
            fence = await self._fence()
            stored = await self._state.log_config(topology_id) or LogConfig()
            levels = {
                logger: replace(level, action=LogLevelAction.UNCHANGED)
                for logger, level in stored.levels.items()
            }
            now_ms = int(self._clock.time() * 1000)
            for logger, level in changes.items():
                if not logger:
                    raise SquallError("a logger's name may not be empty (the root is ROOT)")
                if level.action is LogLevelAction.REMOVE:
                    levels.pop(logger, None)
                elif level.action is LogLevelAction.UPDATE:
                    for text in (level.target_level, level.reset_level):
                        if text is not None and text.upper() not in LEVELS:
                            known = ", ".join(LEVELS)
                            raise SquallError(f"{text!r} is not a log level (known: {known})")
                    secs = level.reset_timeout_secs or 0
                    epoch_ms = now_ms + secs * 1000 if secs > 0 else None
                    levels[logger] = replace(level, reset_epoch_ms=epoch_ms)
            if len(levels) > _LOGGERS_MAX:
                raise SquallError(f"more than {_LOGGERS_MAX} loggers have levels of their own")
            await self._state.put_log_config(topology_id, LogConfig(levels), guard=fence)

    async def log_config(self, id_or_name: str) -> LogConfig:
        """Return the levels that were set. Raises TopologyNotAliveError."""
        return await self._state.log_config(await self.resolve(id_or_name)) or LogConfig()

    async def profile(
        self, topology_id: str, slots: Iterable[WorkerSlot], action: ProfileAction,
        until_ms: int | None,
    ) -> None:  # fmt: skip
        """Ask workers for a profiling action."""
        await self.resolve(topology_id)
        fence = await self._fence()
        if until_ms is None:
            until_ms = int(self._clock.time() * 1000) + _PROFILE_SECS * 1000
        for slot in slots:
            if "/" in slot.node:
                raise SquallError(f"{slot.node!r} is not a host name")
            request = ProfileRequest(slot, action, until_ms)
            await self._state.put_profile_request(topology_id, request, guard=fence)

    async def pending_profiles(
        self, topology_id: str, slots: Iterable[WorkerSlot], action: ProfileAction
    ) -> list[ProfileRequest]:
        """Return the requests for some workers that have not been carried out yet."""
        await self.resolve(topology_id)
        places = set(slots)
        return [
            request
            for request in await self._state.profile_requests(topology_id)
            if request.action is action and request.slot in places
        ]

    async def put_credentials(self, name: str, creds: Mapping[str, str], owner: str | None) -> None:
        """Replace a topology's credentials, which are never logged."""
        async with self._lifecycle.locks.hold(name):
            topology_id, base = await self._lifecycle.find(name)
            if owner is not None and base.owner and owner != base.owner:
                raise SquallError(f"{name} is owned by {base.owner}, not by {owner}")
            await self._credentials.replace(topology_id, creds, await self._fence())
        log.info("credentials_replaced", topology_id=topology_id, keys=len(creds))
