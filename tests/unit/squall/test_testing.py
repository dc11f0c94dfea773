"""The test kit, as users' tests call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from squall import Bolt, InvalidTopologyError, Spout, TopologyBuilder, TopologyContext, Tuple
from squall.testing import BoltTest, TopologyTest


class Window(Bolt):
    """Holds tuples until a tick, and opens and closes something that is async."""

    outputs = ["count"]
    auto_ack = False
    component_conf = {"topology.tick.tuple.freq.secs": 5}

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self.held: list[Tuple] = []
        self.life = ["open"]

    def execute(self, tup: Tuple) -> None:
        if tup.source_component != "__system":
            self.held.append(tup)
            return
        self.emit([len(self.held)], anchors=self.held)
        for one in self.held:
            (self.fail if one["n"] < 0 else self.ack)(one)
        self.held = []

    async def cleanup(self) -> None:
        self.life.append("closed")


def test_a_tuple_that_is_held_is_acked_or_failed_later() -> None:
    with BoltTest(Window(), {"numbers": ["n"]}) as test:
        kept, refused = test.execute([1]), test.execute([-1])
        assert not kept.acked
        assert not refused.failed
        assert [e.values for e in test.run_for(6)] == [[2]]
        assert (kept.acked, kept.failed) == (True, False)
        assert (refused.acked, refused.failed) == (False, True)


def test_prepare_and_cleanup_may_be_coroutines() -> None:
    with BoltTest(Window(), {"numbers": ["n"]}) as test:
        (window,) = test.test.instances("bolt")
        assert window.life == ["open"]
    assert window.life == ["open", "closed"]


def with_local_classes(times: int) -> TopologyBuilder:
    class Numbers(Spout):
        outputs = ["n"]

        def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
            self.left = 3

        def next_tuple(self) -> None:
            if self.left:
                self.left -= 1
                self.emit([self.left], message_id=self.left)

    class Multiply(Bolt):
        outputs = ["n"]

        def __init__(self, by: int) -> None:
            self.by = by

        def execute(self, tup: Tuple) -> None:
            self.emit([tup["n"] * self.by])

    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("multiply", Multiply(by=times), parallelism=2).shuffle("numbers")
    return builder


def test_classes_inside_a_test_function_run_if_the_builder_is_given() -> None:
    with TopologyTest(with_local_classes(5)) as test:
        test.run_until_idle()
        assert sorted(e.values for e in test.emitted("multiply")) == [[0], [5], [10]]
        first, second = test.instances("multiply")
        assert first is not second
        assert sorted(test.acked("numbers")) == [0, 1, 2]


def test_classes_inside_a_function_do_not_build_for_a_cluster() -> None:
    with pytest.raises(InvalidTopologyError, match="'Numbers' is made inside a function"):
        with_local_classes(5).build()


def test_a_builder_with_a_problem_is_refused_as_by_build() -> None:
    builder = with_local_classes(5)
    builder.bolt("more", Window()).shuffle("nowhere")
    with pytest.raises(InvalidTopologyError, match="nowhere") as raised:
        TopologyTest(builder)
    assert "made inside a function" not in str(raised.value)
