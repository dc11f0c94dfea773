"""Timers of components: `TopologyContext.call_later`."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from squall import Bolt, TopologyBuilder
from squall.testing import FeederSpout, TopologyTest
from squall_engine.timing import Timers


class Source(FeederSpout):
    outputs = ("n",)


class Rings(Bolt):
    outputs = ("what",)
    auto_ack = False

    def prepare(self, conf: Any, context: Any) -> None:
        self.thread = threading.get_ident()
        self.held: list[Any] = []
        context.call_later(0.25, lambda: self.ring("prepared"))

    def ring(self, what: str) -> None:
        assert threading.get_ident() == self.thread
        self.emit([what], anchors=self.held)
        for tup in self.held:
            self.ack(tup)
        self.held = []

    def execute(self, tup: Any) -> None:
        if tup["n"] == -1:
            self.context.call_later(0, self.fails)
            self.ack(tup)
            return
        self.held.append(tup)
        self.context.call_later(tup["n"], lambda: self.ring(f"after {tup['n']}"))

    def fails(self) -> None:
        raise ValueError("on a timer")


class BlockingRings(Rings):
    blocking = True


def topology(bolt: Bolt) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("s", Source())
    builder.bolt("b", bolt).shuffle("s")
    return builder


def test_timers_ring_in_order_at_their_time() -> None:
    with TopologyTest(topology(Rings())) as test:
        test.run_for(0.3)
        test.feed("s", [0.5], message_id="first")
        test.feed("s", [0.1], message_id="second")
        test.run_for(1)
        found = [(one.values[0], one.time) for one in test.emitted("b")]
        assert [what for what, _ in found] == ["prepared", "after 0.1", "after 0.5"]
        assert [at for _, at in found] == pytest.approx([0.25, 0.4, 0.8], abs=0.005)
        # What a timer emits and acks is settled like anything else.
        assert sorted(test.acked("s")) == ["first", "second"]


def test_an_error_on_a_timer_is_reported() -> None:
    with TopologyTest(topology(Rings())) as test:
        test.feed("s", [-1], message_id=1)
        test.run_for(0.1)
        assert [str(one.error) for one in test.errors] == ["on a timer"]
        assert test.died is None
        test.run_for(0.3)
        assert len(test.emitted("b")) == 1  # the others go on


def test_a_blocking_component_is_called_on_its_thread() -> None:
    with TopologyTest(topology(BlockingRings())) as test:
        test.run_until(lambda: len(test.emitted("b")) == 1)
        test.feed("s", [0.2], message_id=1)
        test.run_until(lambda: len(test.emitted("b")) == 2)
        test.run_until(lambda: test.acked("s") == [1])
        assert test.errors == []


def test_a_cancelled_timer_does_not_ring() -> None:
    timers, rung = Timers(), []
    first = timers.add(1.0, 7, lambda: rung.append(1))
    timers.add(2.0, 7, lambda: rung.append(2))
    first.cancel()
    assert timers.next_due(9.0) == 2.0
    assert [timer.due for timer in timers.take_due(5.0)] == [2.0]
    assert timers.next_due(9.0) == 9.0
    assert timers.take_due(5.0) == []


def test_timers_that_were_cancelled_are_not_kept_until_they_are_due() -> None:
    timers = Timers()
    kept = [timers.add(3600.0 + i, 7, list) for i in range(100)]
    for i in range(20_000):
        timers.add(7200.0 - i / 10, 7, list).cancel()
    assert len(timers) < 2_000
    assert timers.take_due(9_999.0) == kept


def test_timers_that_are_due_together_ring_in_the_order_they_were_added() -> None:
    timers = Timers()
    for task in (3, 1, 2):
        timers.add(1.0, task, list)
    assert [timer.task for timer in timers.take_due(1.0)] == [3, 1, 2]
