"""Linear DRPC topologies in one process: results, failures, and that nothing is left behind."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from squall import Bolt, LocalCluster
from squall.testing import TopologyTest
from squall_common.errors import InvalidTopologyError
from squall_drpc import BatchBolt, DRPCError, LinearDRPCTopologyBuilder, LocalDRPC
from squall_drpc.batched.coordinated import CoordinatedBolt

REACH = Path(__file__).resolve().parents[3] / "examples" / "reach"


class Exclaim(Bolt):
    outputs = ["id", "result"]

    def execute(self, tup: Any) -> None:
        request, text = tup.values
        if text == "bad":
            raise ValueError("bad text")
        self.emit([request, text + "!"])


class AsyncExclaim(Exclaim):
    async def execute(self, tup: Any) -> None:  # type: ignore[override]
        super().execute(tup)


class Split(Bolt):
    outputs = ["id", "word"]

    def execute(self, tup: Any) -> None:
        for word in tup[1].split():
            self.emit([tup[0], word])


class Count(BatchBolt):
    outputs = ["id", "count"]

    def __init__(self, start: list[int]) -> None:
        self.start = start

    def prepare(self, conf: Any, context: Any) -> None:
        self.count = self.start.pop()

    def execute(self, tup: Any) -> None:
        if tup[1] == "bad":
            raise ValueError("bad word")
        if tup[1] != "lost":
            self.count += 1

    def finish_batch(self) -> None:
        self.emit([self.request_id, self.count])


class Sum(BatchBolt):
    outputs = ["id", "sum"]

    def prepare(self, conf: Any, context: Any) -> None:
        self.sum = 0

    def execute(self, tup: Any) -> None:
        self.sum += tup["count"]

    def finish_batch(self) -> None:
        self.emit([self.request_id, self.sum])


class Forgetful(Bolt):
    """Neither acks nor fails what says so."""

    outputs = ["id", "count"]
    auto_ack = False

    def execute(self, tup: Any) -> None:
        self.emit([tup[0], 1])
        if tup[1] != "forget":
            self.ack(tup)


@pytest.fixture
def drpc() -> Iterator[LocalDRPC]:
    with LocalDRPC() as server:
        yield server


def counting(parallelism: int = 3) -> LinearDRPCTopologyBuilder:
    builder = LinearDRPCTopologyBuilder("count")
    builder.add_bolt(Split(), parallelism)
    builder.add_bolt(Count([0]), parallelism).fields("id", "word")
    builder.add_bolt(Sum(), parallelism).fields("id")
    return builder


def left_in(users: Iterable[Any]) -> dict[str, int]:
    """What the tasks of a topology still hold of requests, by component."""
    left: dict[str, int] = {}
    for user in users:
        name = user.context.this_component_id
        if isinstance(user, CoordinatedBolt):
            left[name] = left.get(name, 0) + len(user.coordination) + user.coordination.remembered
            left[name] += len(getattr(user.delegate, "_open", ()))
        elif hasattr(user, "waiting"):
            left[name] = left.get(name, 0) + user.waiting
        elif hasattr(user, "_pending"):
            left[name] = left.get(name, 0) + len(user._pending)
    return left


def answers(test: TopologyTest, asked: list[Future[str]]) -> list[str]:
    test.run_until(lambda: all(one.done() for one in asked), 120)
    return [str(one.exception() or one.result()) for one in asked]


@pytest.mark.parametrize("bolt", [Exclaim(), AsyncExclaim()], ids=["sync", "async"])
def test_one_bolt_is_a_function(drpc: LocalDRPC, bolt: Bolt) -> None:
    builder = LinearDRPCTopologyBuilder("exclaim")
    builder.add_bolt(bolt, 3)
    with TopologyTest(builder.create_local_topology(drpc)) as test:
        asked = [drpc.submit("exclaim", text) for text in ("a", "bad", "c")]
        first, second, third = answers(test, asked)
        assert (first, third) == ("a!", "c!")
        assert "the topology failed the request" in second
        test.run_for(100)
        assert not any(left_in(test._engine.users()).values())


def test_each_step_sees_all_of_a_request_before_it_finishes(drpc: LocalDRPC) -> None:
    with TopologyTest(counting().create_local_topology(drpc)) as test:
        texts = ["", "one", "a b c d e f", "to be or not to be", " ".join(map(str, range(200)))]
        asked = [drpc.submit("count", text) for text in texts * 5]
        assert answers(test, asked) == ["0", "1", "6", "6", "200"] * 5
        test.run_until_idle()
        assert not any(left_in(test._engine.users()).values()), "at once, without any timeout"
        assert test.failed("spout") == []


def test_thousands_of_requests_leave_nothing(drpc: LocalDRPC) -> None:
    with LocalCluster() as cluster:
        conf = {"topology.testing.always.try.serialize": False}
        cluster.submit_topology("count", conf, counting(2).create_local_topology(drpc))
        engine = cluster._topologies._running["count"].engine
        for _ in range(3):
            asked = [drpc.submit("count", "a b") for _ in range(1_000)]
            assert {one.result(60) for one in asked} == {"2"}
        cluster.wait_drained("count")
        left = left_in(built.task.user for built in engine.built)
        assert set(left) == {"bolt0", "bolt1", "bolt2", "join-result", "spout"}
        assert not any(left.values())


def test_a_failure_in_any_step_fails_the_request_at_once_and_is_cleaned_up(
    drpc: LocalDRPC,
) -> None:
    with TopologyTest(counting().create_local_topology(drpc)) as test:
        [answer] = answers(test, [drpc.submit("count", "good bad good")])
        assert "the topology failed the request" in answer
        assert test._now() < 5, "at once, not at the timeout"
        assert answers(test, [drpc.submit("count", "good")]) == ["1"]
        test.run_for(100)
        assert not any(left_in(test._engine.users()).values())


def test_a_stuck_request_fails_at_the_timeout_and_is_cleaned_up(drpc: LocalDRPC) -> None:
    builder = LinearDRPCTopologyBuilder("f")
    builder.add_bolt(Split(), 2)
    builder.add_bolt(Forgetful(), 2).shuffle()
    builder.add_bolt(Sum(), 2).fields("id")
    with TopologyTest(builder.create_local_topology(drpc)) as test:
        first, second = answers(test, [drpc.submit("f", "x forget"), drpc.submit("f", "x y")])
        assert second == "2"
        assert "did not complete it in time" in first
        test.run_for(120)
        assert not any(left_in(test._engine.users()).values())


def test_several_attempts_hide_a_failure(drpc: LocalDRPC) -> None:
    FailsFirst.failures = 2
    builder = LinearDRPCTopologyBuilder("f", attempts=3)
    builder.add_bolt(FailsFirst())
    builder.add_bolt(Count([0]), 2).fields("id", "result")
    builder.add_bolt(Sum(), 2).fields("id")
    with TopologyTest(builder.create_local_topology(drpc)) as test:
        assert answers(test, [drpc.submit("f", "x")]) == ["1"]
        ids = [emitted.values[0] for emitted in test.emitted("prepare-request", "default")]
        assert len(ids) == len(set(ids)) == 3, "each attempt has an id of its own"
        test.run_for(120)
        assert not any(left_in(test._engine.users()).values())


class FailsFirst(Exclaim):
    failures = 0

    def execute(self, tup: Any) -> None:
        super().execute(tup)  # half of the work is done
        if FailsFirst.failures:
            FailsFirst.failures -= 1
            raise ValueError("not yet")


def test_in_a_local_cluster(drpc: LocalDRPC) -> None:
    with LocalCluster() as cluster:
        cluster.submit_topology("count", {}, counting().create_local_topology(drpc))
        assert drpc.execute("count", "a b c", timeout_secs=60) == "3"
        with pytest.raises(DRPCError, match="the topology failed the request"):
            drpc.execute("count", "bad", timeout_secs=60)
        with pytest.raises(DRPCError, match="no answer from function 'nobody'"):
            drpc.execute("nobody", timeout_secs=0.05)


def test_the_reach_example_is_exact(drpc: LocalDRPC, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REACH))
    try:
        import reach
        from followers import World

        world = World()
        urls = [world.url(number) for number in range(30)] + ["http://other.example/1"]
        with LocalCluster({"topology.testing.always.try.serialize": False}) as cluster:
            topology = reach.linear_builder().create_local_topology(drpc)
            cluster.submit_topology("reach", {}, topology)
            asked = {url: drpc.submit("reach", url) for url in urls}
            for url, answer in asked.items():
                assert int(answer.result(100)) == world.reach(url)
    finally:
        for module in ("reach", "followers"):
            sys.modules.pop(module, None)


class Three(Bolt):
    outputs = ["id", "a", "b"]

    def execute(self, tup: Any) -> None: ...


class Columns(Bolt):
    outputs = ["id", "a"]

    def execute_columns(self, columns: Any) -> None: ...


def test_an_invalid_step_is_refused_by_name() -> None:
    with pytest.raises(InvalidTopologyError, match="needs at least one bolt"):
        LinearDRPCTopologyBuilder("f").create_remote_topology()
    builder = LinearDRPCTopologyBuilder("f")
    builder.add_bolt(Exclaim())
    builder.add_bolt(Three())
    with pytest.raises(InvalidTopologyError) as caught:
        builder.create_remote_topology()
    assert caught.value.problems == (
        "bolt 1 (Three) has no grouping: add_bolt(...).shuffle(), .fields(...) ...",
        "the last bolt (Three) must emit two fields: the request's id, the result",
    )
    builder = LinearDRPCTopologyBuilder("f")
    builder.add_bolt(Split())
    builder.add_bolt(Sum(), 2).shuffle()
    with pytest.raises(InvalidTopologyError, match="group it by fields, on the request's id alone"):
        builder.create_remote_topology()
    builder = LinearDRPCTopologyBuilder("f")
    builder.add_bolt(Columns())
    with pytest.raises(InvalidTopologyError, match="Columns defines execute_columns"):
        builder.create_remote_topology()
