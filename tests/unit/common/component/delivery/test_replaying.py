"""`ReplayingSpout`: what failed is emitted again, what was acked is forgotten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from squall import Bolt, InvalidTopologyError, ReplayingSpout, TopologyBuilder
from squall.testing import TopologyTest


class Numbers(ReplayingSpout):
    outputs = ["n"]

    def __init__(self, last: int, messages_max: int = 10_000) -> None:
        self.last = last
        self.messages_max = messages_max

    def open(self, conf: Any, context: Any) -> None:
        self.numbers: Iterator[int] = iter(range(self.last))
        self.done: list[int] = []

    def next_message(self) -> Sequence[Any] | None:
        number = next(self.numbers, None)
        return None if number is None else [number]

    def acked(self, values: Sequence[Any]) -> None:
        self.done.append(values[0])


class FailsAtFirst(Bolt):
    """Fails each number so many times."""

    outputs = ["n"]

    def __init__(self, times: int) -> None:
        self.times = times

    def prepare(self, conf: Any, context: Any) -> None:
        self.left: dict[int, int] = {}

    def execute(self, tup: Any) -> None:
        left = self.left.setdefault(tup["n"], self.times)
        if left:
            self.left[tup["n"]] = left - 1
            raise ValueError("not yet")
        self.emit([tup["n"]])


class Takes(Bolt):
    def execute(self, tup: Any) -> None:
        pass


class Keeps(Bolt):
    auto_ack = False

    def execute(self, tup: Any) -> None:
        pass


def topology(spout: ReplayingSpout, bolt: Bolt) -> Any:
    builder = TopologyBuilder()
    builder.spout("numbers", spout)
    builder.bolt("bolt", bolt).shuffle("numbers")
    return builder.build()


@pytest.mark.parametrize("times", [0, 1, 3])
def test_each_message_takes_effect_however_often_it_fails(times: int) -> None:
    with TopologyTest(topology(Numbers(20), FailsAtFirst(times))) as test:
        test.run_until(lambda: len(test.emitted("bolt")) == 20)
        test.run_until_idle()
        (spout,) = test.instances("numbers")
        assert sorted(spout.done) == list(range(20))
        assert sorted(one.values[0] for one in test.emitted("bolt")) == list(range(20))
        assert not spout._kept
        assert not spout._failed


def test_a_message_is_emitted_again_with_its_id_so_that_its_failures_are_counted() -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers(1))
    builder.bolt("bolt", FailsAtFirst(1_000)).shuffle("numbers")
    builder.bolt("letters", Takes()).shuffle("numbers", "__dead_letter")
    with TopologyTest(builder.build(), conf={"topology.max.replays": 2}) as test:
        (spout,) = test.instances("numbers")
        test.run_until(lambda: spout.done == [0])
        assert len(test.emitted("numbers", "default")) == 3


def test_a_message_that_keeps_failing_comes_again_after_longer_and_longer_waits() -> None:
    spout = Numbers(1)
    with TopologyTest(topology(spout, FailsAtFirst(10))) as test:
        test.run_for(0.08)
        assert len(test.emitted("numbers")) == 3  # twice at once
        test.run_for(0.92)
        assert len(test.emitted("numbers")) == 6  # after 0.1, 0.2 and 0.4 s
        test.run_until(lambda: len(test.emitted("bolt")) == 1)
        test.run_until_idle()
        (made,) = test.instances("numbers")
        assert made.done == [0]
        assert not made._failures
        assert not made.has_replays


def test_the_waits_have_a_limit_and_hold_nothing_else_up() -> None:
    class Patient(Numbers):
        replay_wait_secs_max = 0.3

    class FailsOne(Bolt):
        def execute(self, tup: Any) -> None:
            if tup["n"] == 0:
                raise ValueError("poison")

    builder = TopologyBuilder()
    builder.spout("numbers", Patient(50))
    builder.bolt("bolt", FailsOne()).shuffle("numbers")
    with TopologyTest(builder) as test:
        test.run_for(0.5)
        (spout,) = test.instances("numbers")
        assert sorted(spout.done) == list(range(1, 50))
        before = len(test.emitted("numbers"))
        test.run_for(6.0)
        assert 16 <= len(test.emitted("numbers")) - before <= 20


def test_no_more_messages_are_kept_than_it_says() -> None:
    with TopologyTest(topology(Numbers(100, messages_max=7), Keeps())) as test:
        test.run_until(lambda: len(test.emitted("numbers")) == 7)
        test.run_for(1.0)
        assert len(test.emitted("numbers")) == 7
        assert len(test.instances("numbers")[0]._kept) == 7


def test_a_message_that_times_out_comes_again() -> None:
    with TopologyTest(
        topology(Numbers(1), Keeps()), conf={"topology.message.timeout.secs": 5}
    ) as test:
        test.run_until(lambda: len(test.emitted("numbers")) == 3)


def test_values_that_cannot_be_emitted_are_not_kept() -> None:
    with TopologyTest(topology(Numbers(0), Keeps())) as test:
        (spout,) = test.instances("numbers")
        spout.next_message = lambda: [1, 2]
        with pytest.raises(Exception, match="field"):
            spout.next_tuple()
        assert not spout._kept


def test_an_async_source_is_refused_where_it_is_defined() -> None:
    with pytest.raises(InvalidTopologyError, match=r"Async: next_message\(\) cannot be async"):

        class Async(ReplayingSpout):
            async def next_message(self) -> Any:
                return [1]


def test_a_subclass_must_say_where_messages_come_from() -> None:
    class Nothing(ReplayingSpout):
        pass

    with pytest.raises(NotImplementedError, match=r"Nothing does not define next_message\(\)"):
        Nothing().next_message()
