"""Feeds: what a page is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from squall_ui.live.hub import Feed, difference


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
