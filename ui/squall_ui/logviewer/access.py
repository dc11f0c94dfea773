"""Who may read which logs: the lists of each topology, as Nimbus has them.

The logs of a topology stay for a while after it has ended, and Nimbus forgets its lists. So the
logviewer asks for the lists of all topologies that have logs here, every thirty seconds, and keeps
the last ones in a file of its own, which no worker can write. The logs of a topology whose lists it
never learnt are the administrators'.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from squall_common.daemon.files import write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.errors import ConfigError
from squall_common.names import topology_name_of
from squall_common.security.access import Access, OpenAccess
from squall_common.security.acl import Members, Topology, TopologyAcl
from squall_thrift import storm
from squall_thrift.serving.authorization import Call
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

T = TypeVar("T")

READ = "readLogs"
READ_DAEMONS = "readDaemonLogs"
_REFRESH_SECS = 30.0
# A topology that is not known is asked for at once, but not more often than this.
_ASK_SECS = 1.0
_ASKED_MAX = 1_000

# Asks Nimbus: ids -> the lists of those that are alive.
Fetch = Callable[[Sequence[str]], Awaitable[Mapping[str, storm.LogAccess]]]


class LogLists:
    """The lists of topologies. `topologies` gives the ids of those that have logs here."""

    def __init__(self, file: Path, fetch: Fetch, topologies: Callable[[], list[str]]) -> None:
        self._file = file
        self._fetch = fetch
        self._topologies = topologies
        self._lists: dict[str, TopologyAcl] = {}
        self._asked = float("-inf")
        self._lock = asyncio.Lock()
        self._throttle = Throttle()
        self._tasks = BackgroundTasks()

    def open(self) -> None:
        """Read the file. Raises ConfigError."""
        try:
            kept = json.loads(self._file.read_bytes())
            self._lists = {name: _acl(*fields) for name, fields in kept.items()}
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{self._file} cannot be read: {error}",
                hint="Remove it: then the logs of topologies that have ended are the "
                "administrators' alone.",
            ) from error

    def start(self) -> None:
        """Begin to ask Nimbus."""
        self._tasks.start("first log lists", self.refresh())
        self._tasks.every("log lists", _REFRESH_SECS, self.refresh)

    async def close(self) -> None:
        """End that."""
        await self._tasks.close()

    async def of(self, topology_id: str) -> Topology:
        """A topology as the object of a decision."""
        if topology_id not in self._lists:
            async with self._lock:
                if topology_id not in self._lists and time.monotonic() - self._asked > _ASK_SECS:
                    await self._ask([topology_id])
        return self.known(topology_id)

    def known(self, topology_id: str) -> Topology:
        """The same, by what is known already."""
        name = topology_id
        with contextlib.suppress(ValueError):
            name = topology_name_of(topology_id)
        return Topology(topology_id, name, self._lists.get(topology_id, _ADMINS_ONLY))

    async def refresh(self) -> None:
        """Bring the lists up to date, and forget those of topologies without logs."""
        async with self._lock:
            here = await asyncio.to_thread(self._topologies)
            for begin in range(0, len(here), _ASKED_MAX):
                await self._ask(here[begin : begin + _ASKED_MAX])
            present = set(here)
            kept = {name: acl for name, acl in self._lists.items() if name in present}
            if kept.keys() != self._lists.keys():
                self._lists = kept
                await self._keep()

    async def _ask(self, ids: Sequence[str]) -> None:
        self._asked = time.monotonic()
        try:
            found = await self._fetch(ids)
        except Exception as error:
            self._complain("log_lists_not_read", error)
            return
        lists = {
            name: _acl(one.owner, one.users, one.groups, one.logUsers, one.logGroups)
            for name, one in found.items()
        }
        if any(self._lists.get(name) != acl for name, acl in lists.items()):
            self._lists |= lists
            await self._keep()

    async def _keep(self) -> None:
        text = json.dumps({name: _fields(acl) for name, acl in self._lists.items()})
        try:
            await asyncio.to_thread(write_atomic, self._file, text.encode(), mode=0o600)
        except OSError as error:
            self._complain("log_lists_not_written", error)

    def _complain(self, event: str, error: Exception) -> None:
        if (left_out := self._throttle.left_out(event)) is not None:
            log.error(event, error=error, left_out=left_out)


class LogAccess:
    """Asks the one authorizer about the logs of topologies and daemons."""

    def __init__(self, access: Access | None = None, lists: LogLists | None = None) -> None:
        """Without arguments: of an open cluster."""
        self._access = OpenAccess() if access is None else access
        self._lists = lists

    async def may_read(self, call: Call, topology_id: str) -> bool:
        """Whether the caller may read a topology's logs; a refusal is noted."""
        if self._lists is None:
            return True
        thing = await self._lists.of(topology_id)
        try:
            self._access.require(call, READ, thing)
        except storm.AuthorizationException:
            return False
        return True

    def readable(self, call: Call, things: Iterable[T], topology_of: Callable[[T], str]) -> list[T]:
        """Those of a list that belong to topologies whose logs the caller may read."""
        lists = self._lists
        if lists is None:
            return list(things)
        return self._access.shown(call, READ, things, lambda one: lists.known(topology_of(one)))

    def require_daemons(self, call: Call) -> None:
        """Raises AuthorizationException unless the caller may read the logs of daemons."""
        self._access.authorize(call, READ_DAEMONS)

    def may_read_daemons(self, call: Call) -> bool:
        """Whether the caller may; nothing is noted."""
        return self._access.may(call, READ_DAEMONS, None)


_ADMINS_ONLY = TopologyAcl("")


def _acl(owner: Any, *lists: Any) -> TopologyAcl:
    users, groups, log_users, log_groups = lists
    return TopologyAcl(
        str(owner or ""),
        writers=Members.of(users, groups),
        logs=Members.of(log_users, log_groups),
    )


def _fields(acl: TopologyAcl) -> list[Any]:
    lists = (acl.writers.users, acl.writers.groups, acl.logs.users, acl.logs.groups)
    return [acl.owner, *map(sorted, lists)]
