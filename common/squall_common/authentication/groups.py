"""The groups of a user, from a map or from the operating system.

Looked up off the loop and kept for two minutes. While the source fails, the last answer counts for
five minutes more, and after that no group does. No program is started: a user's name never reaches
a shell (CVE-2021-38294 of Storm).
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from squall_common.daemon.logs import get_logger

log = get_logger(__name__)

_KEPT_SECS = 120.0
_STALE_SECS = 300.0
_USERS_MAX = 10_000

Source = Callable[[str], frozenset[str]]


def fixed_groups(table: Mapping[str, Sequence[str]]) -> Source:
    """From a map."""
    known = {user: frozenset(groups) for user, groups in table.items()}
    return lambda user: known.get(user, frozenset())


def system_groups(user: str) -> frozenset[str]:
    """From the operating system; none for a user that it does not have. Raises OSError."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        return frozenset()
    names = set()
    for number in os.getgrouplist(user, entry.pw_gid):
        try:
            names.add(grp.getgrgid(number).gr_name)
        except KeyError:
            continue  # a group without a name
    return frozenset(names)


class GroupOptions(Protocol):
    """The options that say where groups come from."""

    @property
    def storm_group_mapping_service(self) -> str: ...

    @property
    def storm_group_mapping_service_params(self) -> Mapping[str, Any] | None: ...


def groups_source(options: GroupOptions) -> Source:
    """What the options name."""
    if options.storm_group_mapping_service.endswith("FixedGroupsMapping"):
        params = options.storm_group_mapping_service_params or {}
        return fixed_groups(params.get("storm.fixed.group.mapping") or {})
    return system_groups


class Groups:
    """Looks groups up."""

    def __init__(self, source: Source, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._known: dict[str, tuple[float, frozenset[str]]] = {}

    async def of(self, user: str) -> frozenset[str]:
        """The groups of a user. Never raises."""
        now = self._clock()
        at, groups = self._known.get(user, (float("-inf"), frozenset()))
        if now - at < _KEPT_SECS:
            return groups
        try:
            groups = await asyncio.to_thread(self._source, user)
        except OSError as error:
            log.warning("groups_unknown", user=user, error=error)
            return groups if now - at < _KEPT_SECS + _STALE_SECS else frozenset()
        if len(self._known) >= _USERS_MAX:
            self._known.clear()
        self._known[user] = (now, groups)
        return groups
