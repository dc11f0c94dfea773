"""Reads once for all open pages, and tells them what has changed.

A `Feed` has a state (JSON) and a version that grows with each change. A page gets the state, and
then the changes: the parts that differ, part by part, of `components` name by name. One that missed
a change gets the whole state again: nothing is queued for a slow reader but the last version.

While a page watches a topology, Nimbus is read once a second; otherwise every ten seconds, so that
its time series go on. What costs Nimbus more is read less often (`NimbusGateway`).
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import Any

from squall_common.daemon import fast_json
from squall_common.daemon.background import BackgroundTasks
from squall_common.daemon.logs import get_logger
from squall_thrift import storm
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

log = get_logger(__name__)

_CLUSTER_SECS = 0.5
_WATCHED_SECS = 1.0
_UNWATCHED_SECS = 10.0
_KEEP_ALIVE_SECS = 15.0
# Topologies whose time series are kept; more are read only while a page watches them.
_TOPOLOGIES_MAX = 100
_CODE_AGE_SECS = 60.0
_VERSIONS_KEPT = 8
# Some 10 ms.
_EXECUTORS_ON_LOOP_MAX = 500


class Feed:
    """A state and its versions."""

    def __init__(self) -> None:
        self.version = 0
        self.state: dict[str, Any] | None = None
        self.watchers = 0
        self._changes: OrderedDict[int, bytes] = OrderedDict()  # from a version to the next
        self._changed = asyncio.Event()

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
        self.watchers += 1
        seen = since
        try:
            while True:
                changed = self._changed
                if self.state is not None and seen != self.version:
                    change = self._changes.get(seen) if seen is not None else None
                    if change is None:
                        seen = self.version
                        yield self.whole()
                    else:
                        assert seen is not None
                        seen += 1
                        yield change
                    continue
                try:
                    async with asyncio.timeout(_KEEP_ALIVE_SECS):
                        await changed.wait()
                except TimeoutError:
                    yield None
        finally:
            self.watchers -= 1


def difference(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The parts of a state that differ; of `components` those that differ, null for one that is
    gone."""
    change = {
        name: value
        for name, value in new.items()
        if name != "components" and old.get(name) != value
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
    return change


class Hub:
    """The feeds of the cluster and of its topologies."""

    def __init__(
        self,
        nimbus: NimbusGateway,
        *,
        logviewer_port: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._nimbus = nimbus
        self._logviewer_port = logviewer_port
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
            pause = _CLUSTER_SECS if self.cluster.watchers else 2 * _WATCHED_SECS
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
                    supervisor_json(one, self._logviewer_port) for one in cluster.supervisors
                ],
                "nimbuses": [nimbus_json(one, self._logviewer_port) for one in cluster.nimbuses],
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
                if not await self._look_at_topology(topology_id, feed, state) and not feed.watchers:
                    return
                pause = _WATCHED_SECS if feed.watchers else _UNWATCHED_SECS
                least = max(
                    self._nimbus.pause_secs("getTopologyInfoWithOpts", topology_id, WITHOUT_ERRORS),
                    _WATCHED_SECS,
                )
                await asyncio.sleep(least)
                if pause > least and not feed.watchers:
                    try:
                        async with asyncio.timeout(pause - least):
                            await woken.wait()
                    except TimeoutError:
                        pass
        finally:
            del self._topologies[topology_id], self._woken[topology_id]

    async def _look_at_topology(self, topology_id: str, feed: Feed, state: TopologyState) -> bool:
        """Whether there is such a topology."""
        nimbus = self._nimbus
        try:
            cluster: storm.ClusterSummary = await nimbus.read("getClusterInfo")
            summary = next((one for one in cluster.topologies if one.id == topology_id), None)
            if summary is None:
                feed.put({**(feed.state or {}), "gone": True})
                return False
            look = Look(
                summary,
                await nimbus.read("getTopology", topology_id, max_age_secs=_CODE_AGE_SECS),
                await nimbus.read("getTopologyPageInfo", topology_id, ALL_TIME, False),
                await nimbus.read("getTopologyInfoWithOpts", topology_id, WITHOUT_ERRORS),
            )
        except Exception as error:
            feed.put(_failed(feed.state, error))
            return True
        large = len(look.info.executors) > _EXECUTORS_ON_LOOP_MAX
        feed.put({"error": None, **await off_loop_if(large, state.look, look, self._clock())})
        return True


def _failed(state: dict[str, Any] | None, error: Exception) -> dict[str, Any]:
    """The last state, with why it is not newer."""
    found = problem(error)
    if found is None:
        log.error("live_feed_failed", error=error, exc_info=error)
        return {**(state or {}), "error": "this page could not be brought up to date"}
    return {**(state or {}), "error": found[2]}
