"""KeyedFairBolt: requests take turns."""

from __future__ import annotations

from typing import Any

import pytest

from squall import Bolt, Spout, TopologyBuilder
from squall.testing import TopologyTest
from squall_common.errors import InvalidTopologyError
from squall_drpc import KeyedFairBolt
from squall_drpc.fair import KeyedRoundRobin


class Pairs(Spout):
    """A hundred tuples of one request, then one each of two others, at once."""

    outputs = ["id", "number"]

    def open(self, conf: Any, context: Any) -> None:
        self.pairs = [("big", n) for n in range(100)] + [("small", 0), ("tiny", 0)]

    def next_tuple(self) -> None:
        pairs, self.pairs = self.pairs, []
        for number, pair in enumerate(pairs):
            self.emit(pair, message_id=number)


class Pass(Bolt):
    outputs = ["id", "number"]

    def execute(self, tup: Any) -> None:
        if tup[1] == 50:
            raise ValueError("fifty")
        self.emit(tup.values)


def test_a_small_request_does_not_wait_for_a_big_one() -> None:
    builder = TopologyBuilder()
    builder.spout("pairs", Pairs())
    conf = {"topology.bolt.async.concurrency": 1_000}
    builder.bolt("fair", KeyedFairBolt(Pass()), conf=conf).shuffle("pairs")
    with TopologyTest(builder.build()) as test:
        test.run_until(lambda: len(test.acked("pairs")) + len(test.failed("pairs")) == 102)
        passed = [emitted.values[0] for emitted in test.emitted("fair")]
        assert passed.index("small") < 5
        assert passed.index("tiny") < 5
        assert len(passed) == 101
        assert test.failed("pairs") == [50]


def test_queues_take_turns_and_leave_nothing() -> None:
    queues: KeyedRoundRobin[str] = KeyedRoundRobin()
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        queues.add(item[0], item)
    assert len(queues) == 6
    assert [queues.next() for _ in range(7)] == ["a1", "b1", "c1", "a2", "c2", "a3", None]
    assert not queues._queues


@pytest.mark.parametrize("bolt", [None, Bolt()])
def test_only_a_bolt_with_execute_can_be_fair(bolt: Any) -> None:
    with pytest.raises(InvalidTopologyError, match=r"not a Bolt that defines execute"):
        KeyedFairBolt(bolt)
