"""Feeds: what a page is told."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from tests.support import ui_structs

from squall_common.config.options.typed import ClientOptions
from squall_common.telemetry.sums import ComponentSums, WorkerSums, encode_sums
from squall_thrift import storm
from squall_ui.live.hub import Feed, Hub, difference
from squall_ui.live.state import TopologyState
from squall_ui.nimbus.gateway import NimbusGateway
from squall_ui.rest.text import Logviewers


async def next_of(events: Any) -> Any:
    async with asyncio.timeout(5):
        return json.loads(await anext(events))


async def test_a_page_gets_the_state_and_then_what_changes() -> None:
    feed = Feed()
    feed.put({"a": 1, "components": {"x": {"n": 1}, "y": {"n": 1}}})
    events = feed.events(None)
    assert (await next_of(events))["state"]["a"] == 1
    feed.put({"a": 1, "components": {"x": {"n": 2}, "z": {"n": 3}}})
    assert await next_of(events) == {
        "version": 2,
        "change": {"components": {"x": {"n": 2}, "y": None, "z": {"n": 3}}},
    }


async def test_nothing_is_sent_while_nothing_changes() -> None:
    feed = Feed()
    feed.put({"a": 1})
    feed.put({"a": 1})
    assert feed.version == 1


async def test_one_who_read_a_version_gets_the_changes_after_it() -> None:
    feed = Feed()
    for value in range(3):
        feed.put({"a": value})
    assert await next_of(feed.events(2)) == {"version": 3, "change": {"a": 2}}


async def test_one_who_missed_too_much_gets_the_whole_state() -> None:
    feed = Feed()
    for value in range(30):
        feed.put({"a": value})
    assert await next_of(feed.events(2)) == {"version": 30, "state": {"a": 29}}
    assert await next_of(feed.events(99)) == {"version": 30, "state": {"a": 29}}


async def test_watchers_are_counted_until_they_leave() -> None:
    feed = Feed()
    feed.put({})
    events = feed.events(None)
    await next_of(events)
    assert feed.watchers == 1
    await events.aclose()  # type: ignore[attr-defined]
    assert feed.watchers == 0


def test_a_part_that_is_gone_is_null() -> None:
    assert difference({"a": 1, "b": 2}, {"a": 1}) == {"b": None}
    assert difference({"components": {}}, {"components": {}}) == {}


async def test_who_asks_without_a_stream_gets_each_change_once_and_watches_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = Feed()
    assert feed.ask(None) == []
    for value in range(3):
        feed.put({"a": value})
    assert [json.loads(one) for one in feed.ask(1)] == [
        {"version": 2, "change": {"a": 1}},
        {"version": 3, "change": {"a": 2}},
    ]
    assert feed.ask(3) == []
    assert [json.loads(one) for one in feed.ask(None)] == [{"version": 3, "state": {"a": 2}}]
    assert feed.ask(10**15) == feed.ask(None)
    assert feed.watchers == 1
    later = time.monotonic() + 4
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert feed.watchers == 0


class LargeTopology:
    """A Nimbus with a topology of 1,000 executors; from some moment on it answers nothing dear."""

    def __init__(self) -> None:
        self.now = 0.0
        self.stuck = False

    async def connect(self, _: ClientOptions) -> LargeTopology:
        return self

    async def call(self, method: str, *_: Any, timeout_secs: float | None = None) -> Any:
        if method in ("getTopology", "getTopologyPageInfo", "getTopologyInfoWithOpts"):
            if self.stuck:
                await asyncio.Event().wait()
            return {
                "getTopology": ui_structs.code,
                "getTopologyPageInfo": ui_structs.topology_page,
                "getTopologyInfoWithOpts": ui_structs.topology_info,
            }[method]()
        if method == "getTopologySummary":
            return ui_structs.summary(num_executors=1_000)
        if method == "getWorkerSums":
            split = ComponentSums(executed=int(100 * self.now))
            sums = encode_sums(WorkerSums(int(1_000 * self.now), {"split": split}))
            return [
                storm.SupervisorWorkerHeartbeat(
                    storm_id=ui_structs.ID, executors=[], time_secs=0, port=6700, sums=sums
                )
            ]
        return None

    async def close(self) -> None: ...


async def test_a_large_topology_moves_while_nimbus_answers_nothing_dear() -> None:
    """Also when its code, which is read once a minute, would be read again."""
    nimbus = LargeTopology()
    gateway = NimbusGateway(ClientOptions(), connect=nimbus.connect, clock=lambda: nimbus.now)
    hub = Hub(gateway, logviewers=Logviewers(), clock=lambda: nimbus.now)
    feed, state = Feed(), TopologyState()
    async with asyncio.timeout(30):
        for second in range(100):
            feed.ask(None)
            nimbus.now, nimbus.stuck = float(second), second > 2
            await hub._look_at_topology(ui_structs.ID, feed, state)
    assert feed.state is not None
    assert feed.state["error"] is None
    assert feed.state["components"]["split"]["executeRate"] == 100
    await gateway.close()
