"""Sources on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Sequence
from typing import Any

import pytest

from squall import Bolt, TopologyBuilder
from squall.testing import TopologyTest
from squall_connectors.base import AsyncSource
from squall_connectors.base.source import Record


class Numbers(AsyncSource):
    """Delivers numbers, and fails as its script says."""

    outputs = ["n"]

    def __init__(self, count: int = 100, **options: Any) -> None:
        super().__init__(**options)
        self.count = count
        self.next = 0
        self.settled: list[Hashable] = []
        self.failures: list[BaseException] = []
        self.settle_failures: list[BaseException] = []
        self.connects = 0

    async def connect(self) -> None:
        self.connects += 1
        if self.failures:
            raise self.failures.pop(0)

    async def fetch(self, limit: int) -> Sequence[Record]:
        end = min(self.count, self.next + limit)
        found: list[Record] = [(number, [number]) for number in range(self.next, end)]
        self.next = end
        if not found:
            await asyncio.sleep(1)
        return found

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        if self.settle_failures:
            raise self.settle_failures.pop(0)
        self.settled += message_ids


class Hold(Bolt):
    auto_ack = False
    held: list[Any]

    def prepare(self, conf: Any, context: Any) -> None:
        self.held = []
        self.holding = True

    def execute(self, tup: Any) -> None:
        if self.holding:
            self.held.append(tup)
        else:
            self.ack(tup)


def running(source: Numbers, **conf: Any) -> TopologyTest:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("hold", Hold()).shuffle("numbers")
    topology, _ = builder._build_for_test()
    return TopologyTest(topology, conf, objects={"numbers": source, "hold": Hold()})


def hold(test: TopologyTest) -> Hold:
    bolt: Hold = test.instances("hold")[0]
    return bolt


def test_no_more_than_the_bound_is_in_flight_and_no_more_is_read() -> None:
    source = Numbers(in_flight_max=7)
    with running(source) as test:
        test.run_for(5)
        assert len(test.emitted("numbers")) == 7
        assert source.next == 7
        for tup in hold(test).held[:3]:
            hold(test).ack(tup)
        test.run_for(1)
        assert len(test.emitted("numbers")) == 10


def test_what_is_processed_is_settled_and_a_failed_settle_is_repeated() -> None:
    source = Numbers(count=10)
    source.settle_failures = [ConnectionError("gone")] * 3
    with running(source) as test:
        hold(test).holding = False
        test.run_for(60)
        assert sorted(source.settled) == list(range(10))
        assert len(test.emitted("numbers")) == 10
        assert source.connects == 4


def test_a_server_that_is_away_is_asked_less_and_less_often() -> None:
    source = Numbers(count=10)
    source.failures = [ConnectionError("gone")] * 1_000
    with running(source) as test:
        test.run_for(60)
        assert 10 <= source.connects <= 40
        assert 1 <= len(test.errors) <= 10
        source.failures.clear()
        test.run_for(10)
        assert len(test.emitted("numbers")) == 10


def test_a_record_that_is_delivered_again_while_in_flight_is_emitted_once() -> None:
    source = Numbers(count=5)
    with running(source) as test:
        test.run_for(2)
        source.next = 0
        test.run_for(2)
        assert len(test.emitted("numbers")) == 5


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Numbers(in_flight_max=0)
