"""Reads once for all open pages, and tells them what has changed.

A `Feed` has a state (JSON) and a version that grows with each change. A page gets the state, and
then the changes: the parts that differ, part by part, of `components` name by name. One that missed
a change gets the whole state again: nothing is queued for a slow reader but the last version.
A page that keeps no stream open asks for the changes again and again, and watches as well.

While a page watches a topology, Nimbus is read four times a second, and its workers report as
often (`watchTopology`); otherwise every ten seconds, so that its time series go on. What costs
Nimbus more is read less often (`NimbusGateway`): of the executors of a large topology, which are
thousands, only sums by component come four times a second (`sums`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any

from squall_common.daemon import fast_json
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError
from squall_thrift.serving.off_loop import off_loop_if
from squall_ui.live.series import Series
from squall_ui.live.state import Look, TopologyState
from squall_ui.nimbus.gateway import NimbusGateway
from squall_ui.rest.cluster import (
    cluster_summary,
    nimbus_json,
    supervisor_json,
    topology_summary,
)
from squall_ui.rest.endpoints import ALL_TIME, problem
from squall_ui.rest.graph import WITHOUT_ERRORS
from squall_ui.rest.text import Logviewers

log = get_logger(__name__)

_WATCHED_SECS = 0.25
_CLUSTER_SECS = 2.0  # while no page shows it
# Whether its workers run; and what is dear for Nimbus, and changes slowly: sums, percentiles, and
# which executors there are.
_SUMMARY_SECS = 0.4
_PAGE_SECS = 3.0
# With more executors their workers report less often, and sums by component in between.
_SUMS_EXECUTORS_MIN = 150
# With more executors their workers' heartbeats are too large to be read several times a second.
_BEATS_EXECUTORS_MAX = 600
_WATCH_AGAIN_SECS = 2.0
_FAILED_SECS = 1.0
_UNWATCHED_SECS = 10.0
_KEEP_ALIVE_SECS = 15.0
# Topologies whose time series are kept; more are read only while a page watches them.
_TOPOLOGIES_MAX = 100
_CODE_AGE_SECS = 60.0
_VERSIONS_KEPT = 8
# How long a page that asked for changes counts as one that watches: it asks four times a second.
_ASKED_SECS = 3.0
# Some 10 ms, with the percentiles.
_EXECUTORS_ON_LOOP_MAX = 100


class Feed:
    """A state and its versions."""

    def __init__(self) -> None:
        self.version = 0
        self.state: dict[str, Any] | None = None
        self._streams = 0
        self._asked_at: float | None = None
        self._changes: OrderedDict[int, bytes] = OrderedDict()  # from a version to the next
        self._changed = asyncio.Event()

    @property
    def watchers(self) -> int:
        """Streams that pages keep open, and one more if pages ask without one."""
        asked = self._asked_at is not None and time.monotonic() - self._asked_at < _ASKED_SECS
        return self._streams + asked

    def put(self, state: dict[str, Any]) -> None:
        """The state now."""
        if self.state is not None:
            change = difference(self.state, state)
            if not change:
                return
            self._changes[self.version] = fast_json.dumps(
                {"version": self.version + 1, "change": change}
            )
            while len(self._changes) > _VERSIONS_KEPT:
                self._changes.popitem(last=False)
        self.state = state
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def whole(self) -> bytes:
        """The state with its version."""
        return fast_json.dumps({"version": self.version, "state": self.state})

    async def events(self, since: int | None) -> AsyncIterator[bytes | None]:
        """Changes after a version, or the whole state; None from time to time, if nothing has
        changed. Ends never."""
        self._streams += 1
        try:
            while True:
                changed = self._changed
                found = self._after(since)
                since = self.version if found else since
                for event in found:
                    yield event
                if changed.is_set():
                    continue
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_SECS):
                        await changed.wait()
                except TimeoutError:
                    yield None
        finally:
            self._streams -= 1

    def ask(self, since: int | None) -> list[bytes]:
        """Changes after a version, or the whole state; nothing, if nothing has changed."""
        self._asked_at = time.monotonic()
        return self._after(since)

    def _after(self, since: int | None) -> list[bytes]:
        if self.state is None or since == self.version:
            return []
        wanted = range(self.version if since is None else since, self.version)
        if not wanted or any(version not in self._changes for version in wanted):
            return [self.whole()]
        return [self._changes[version] for version in wanted]


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The parts of a state that differ; of `components` those that differ, null for one that is
    gone. A time (`at`) alone is no difference."""
    change = {
        name: value
        for name, value in new.items()
        if name not in ("components", "at") and old.get(name) != value
    }
    change |= {name: None for name in old if name not in new}
    before, after = old.get("components"), new.get("components")
    if isinstance(before, dict) and isinstance(after, dict):
        components = {name: one for name, one in after.items() if before.get(name) != one}
        components |= {name: None for name in before if name not in after}
        if components:
            change["components"] = components
    elif before != after:
        change["components"] = after
    if change and "at" in new:
        change["at"] = new["at"]
    return change


class Hub:
    """The feeds of the cluster and of its topologies."""

    def __init__(
        self,
        nimbus: NimbusGateway,
        *,
        logviewers: Logviewers,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._nimbus = nimbus
        self._logviewers = logviewers
        self._clock = clock
        self._tasks = BackgroundTasks()
        self.cluster = Feed()
        self._topologies: dict[str, tuple[Feed, TopologyState]] = {}
        self._woken: dict[str, asyncio.Event] = {}

    def start(self) -> None:
        """Begin to read."""
        self._tasks.start("cluster feed", self._follow_cluster())

    async def stop(self) -> None:
        """Stop reading."""
        await self._tasks.close()

    def topology(self, topology_id: str) -> Feed:
        """The feed of a topology, which is read soon if it was not."""
        if topology_id not in self._topologies:
            self._topologies[topology_id] = (Feed(), TopologyState())
            self._woken[topology_id] = asyncio.Event()
            self._tasks.start(f"feed of {topology_id}", self._follow_topology(topology_id))
        self._woken[topology_id].set()
        return self._topologies[topology_id][0]

    def series(self, topology_id: str) -> Series | None:
        """The time series of a topology."""
        found = self._topologies.get(topology_id)
        return found[1].series if found else None

    async def _follow_cluster(self) -> None:
        while True:
            await self._look_at_cluster()
            pause = _WATCHED_SECS if self.cluster.watchers else _CLUSTER_SECS
            await asyncio.sleep(max(pause, self._nimbus.pause_secs("getClusterInfo")))

    async def _look_at_cluster(self) -> None:
        try:
            cluster: storm.ClusterSummary = await self._nimbus.read("getClusterInfo")
        except Exception as error:
            self.cluster.put(_failed(self.cluster.state, error))
            return
        self.cluster.put(
            {
                "error": None,
                "summary": cluster_summary(cluster, False),
                "topologies": [topology_summary(one) for one in cluster.topologies],
                "supervisors": [
                    supervisor_json(one, self._logviewers) for one in cluster.supervisors
                ],
                "nimbuses": [nimbus_json(one, self._logviewers) for one in cluster.nimbuses],
            }
        )
        for one in cluster.topologies[:_TOPOLOGIES_MAX]:
            if one.id not in self._topologies:
                self.topology(one.id)

    async def _follow_topology(self, topology_id: str) -> None:
        feed, state = self._topologies[topology_id]
        woken = self._woken[topology_id]
        try:
            while True:
                woken.clear()
                least = await self._look_at_topology(topology_id, feed, state)
                if least is None and not feed.watchers:
                    return
                least = max(least or 0.0, _WATCHED_SECS)
                pause = _WATCHED_SECS if feed.watchers else _UNWATCHED_SECS
                await asyncio.sleep(least)
                if pause > least and not feed.watchers:
                    try:
                        async with asyncio.timeout(pause - least):
                            await woken.wait()
                    except TimeoutError:
                        pass
        finally:
            del self._topologies[topology_id], self._woken[topology_id]

    async def _look_at_topology(
        self, topology_id: str, feed: Feed, state: TopologyState
    ) -> float | None:
        """Bring a feed up to date; the least seconds until the next time. None: there is no such
        topology."""
        nimbus = self._nimbus
        try:
            read = nimbus.read
            if feed.watchers:
                with contextlib.suppress(ThriftApplicationError):  # an earlier Nimbus
                    await read("watchTopology", topology_id, max_age_secs=_WATCH_AGAIN_SECS)
            summary = await read("getTopologySummary", topology_id, max_age_secs=_SUMMARY_SECS)
            executors = summary.num_executors or 0
            reports = sums = None
            if feed.watchers and executors > _SUMS_EXECUTORS_MIN:
                sums = await self._of_workers("getWorkerSums", topology_id)
            if feed.watchers and executors <= _BEATS_EXECUTORS_MAX:
                reports = await self._of_workers("getWorkerHeartbeats", topology_id)
            # What is dear is not waited for while sums show what changes.
            dear = read if sums is None else nimbus.read_last
            look = Look(
                summary,
                await dear("getTopology", topology_id, max_age_secs=_CODE_AGE_SECS),
                await dear(
                    "getTopologyPageInfo", topology_id, ALL_TIME, False, max_age_secs=_PAGE_SECS
                ),
                state.info
                if sums is not None and state.follows_sums and state.info is not None
                else await dear(
                    "getTopologyInfoWithOpts",
                    topology_id,
                    WITHOUT_ERRORS,
                    max_age_secs=_WATCHED_SECS if reports is None and sums is None else _PAGE_SECS,
                ),
                reports,
                sums,
            )
        except storm.NotAliveException:
            feed.put({**(feed.state or {}), "gone": True})
            return None
        except Exception as error:
            feed.put(_failed(feed.state, error))
            return _FAILED_SECS
        large = len(look.info.executors) > _EXECUTORS_ON_LOOP_MAX
        feed.put({"error": None, **await off_loop_if(large, state.look, look, self._clock())})
        if look.sums is not None:
            return nimbus.pause_secs("getWorkerSums", topology_id)
        if look.reports is not None:
            return nimbus.pause_secs("getWorkerHeartbeats", topology_id)
        return nimbus.pause_secs("getTopologyInfoWithOpts", topology_id, WITHOUT_ERRORS)

    async def _of_workers(
        self, method: str, topology_id: str
    ) -> list[storm.SupervisorWorkerHeartbeat] | None:
        """What workers reported last; None if this Nimbus does not answer that."""
        try:
            found: list[storm.SupervisorWorkerHeartbeat] = await self._nimbus.read(
                method, topology_id
            )
            return found
        except ThriftApplicationError:
            return None


def _failed(state: dict[str, Any] | None, error: Exception) -> dict[str, Any]:
    """The last state, with why it is not newer."""
    found = problem(error)
    if found is None:
        log.error("live_feed_failed", error=error, exc_info=error)
        return {**(state or {}), "error": "this page could not be brought up to date"}
    return {**(state or {}), "error": found[2]}
