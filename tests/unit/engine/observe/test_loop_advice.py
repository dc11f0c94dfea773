"""What is advised about a call that holds the loop."""

from __future__ import annotations

from typing import Any

import pytest

from squall import Bolt, Spout
from squall.streams import StreamBuilder
from squall.testing import TopologyTest
from squall.windows import tumbling
from squall_connectors.files import FolderSpout, LinesSpout, TailSpout, TransactionalFileSink
from squall_connectors.sqlite import SqliteSink
from squall_engine.observe.loop_advice import advice


def add(total: int, one: int) -> int:
    return total + one


def double(one: int) -> int:
    return 2 * one


class Numbers(Spout):
    outputs = ("n",)

    def next_tuple(self) -> None:
        pass


class Gps(Bolt):
    pass


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        ("3 tuple(s)", "blocking = True gives it a thread, async def execute lets it wait"),
        (
            "1 call(s) of next_tuple",
            "blocking = True gives it a thread, async def next_tuple lets it wait",
        ),
        ("a call of exhausted", "blocking = True gives it a thread"),
        ("a timer's call", "blocking = True gives it a thread"),
    ],
)
def test_a_users_class_can_run_elsewhere(work: str, expected: str) -> None:
    assert advice(Gps(), work) == expected
    assert advice(None, work) == expected


@pytest.mark.parametrize(
    ("made", "bounded_by"),
    [
        (LinesSpout("/tmp/*"), "line_bytes_max"),
        (TailSpout("/tmp/*", state="/tmp/state"), "in_flight_max"),
        (FolderSpout("/tmp", ["line"]), "in_flight_max"),
        (SqliteSink("/tmp/t.db", "t", ["n"]), "batch_records"),
        (TransactionalFileSink("/tmp", ["n"]), "topology.checkpoint.interval.secs"),
    ],
)
def test_a_connector_is_squalls_and_has_an_option(made: Any, bounded_by: str) -> None:
    assert advice(made, "3 tuple(s)") == (
        f"{type(made).__name__} is Squall's: more workers and executors share its work; "
        f"{bounded_by} bounds that of a call"
    )


def test_a_subclass_of_a_connector_is_the_users() -> None:
    class Own(LinesSpout):
        pass

    assert "blocking = True" in advice(Own("/tmp/*"), "1 call(s) of next_tuple")


def one(value: int) -> list[int]:
    return [value]


def components_of_streams() -> dict[str, Any]:
    builder = StreamBuilder()
    numbers = builder.source("numbers", Numbers())
    doubled = numbers.map(double).filter(bool).flat_map(one).peek(print).named("steps")
    keyed = doubled.key_by()
    keyed.count().named("count")
    keyed.reduce(add).named("fold")
    keyed.window(tumbling(secs=1)).count().named("windows")
    with TopologyTest(builder.build()) as test:
        return {id: test.instances(id)[0] for id in ("steps", "count", "fold", "windows")}


def test_a_step_of_streams_names_the_users_functions_and_lines() -> None:
    found = {id: advice(bolt, "3 tuple(s)") for id, bolt in components_of_streams().items()}
    assert "map(double), test_loop_advice.py:" in found["steps"]
    assert "filter(bool), test_loop_advice.py:" in found["steps"]
    assert found["steps"].endswith(
        "; and 1 more: map_async() for one that waits, "
        "named(ID, parallelism=N) and more workers for one that computes"
    )
    assert found["fold"].startswith("the functions of reduce(add), test_loop_advice.py:")
    for id in ("count", "windows"):
        assert found[id] == (
            "the step is Squall's: named(ID, parallelism=N) and more workers share its work"
        )
