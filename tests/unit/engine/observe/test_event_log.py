"""The sample of what components emit: switched on and off while a topology runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.support.engine_cluster import EngineCluster

from squall import Bolt, Spout, TopologyBuilder
from squall_common.cluster.values import DebugOptions
from squall_engine.observe.event_log import EventEdge, EventLog

ALL = DebugOptions(True, 100.0)
OFF = DebugOptions(False, 100.0)


class Numbers(Spout):
    outputs: ClassVar[list[str]] = ["n"]
    left = 0

    def open(self, conf: Any, context: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if Numbers.left:
            Numbers.left -= 1
            self.next += 1
            self.emit([f"n{self.next}\n"], message_id=self.next)


class Pass(Bolt):
    outputs: ClassVar[list[str]] = ["n"]

    def execute(self, tup: Any) -> None:
        self.emit([tup["n"]])


@pytest.mark.parametrize("workers", [1, 2])
def test_a_tuple_is_an_event_once_and_names_its_message(tmp_path: Path, workers: int) -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("first", Pass(), parallelism=2).all("numbers")
    builder.bolt("second", Pass(), parallelism=2).shuffle("numbers").shuffle("first")
    with EngineCluster(builder.build(), workers) as cluster:
        made: list[EventLog] = []
        for number, engine in enumerate(cluster.engines):
            made.append(engine.make_event_log())
            made[-1].write_to(tmp_path / f"events-{number}.log")

        def sample(options: dict[str, DebugOptions]) -> None:
            for one in made:
                one.sample("test-1-0", options)

        def emit(count: int) -> None:
            Numbers.left = count
            cluster.run_for(5)
            assert not Numbers.left

        emit(10)
        assert not list(tmp_path.iterdir())
        sample({"numbers": ALL})
        emit(20)
        sample({"test-1-0": ALL, "numbers": OFF})
        emit(5)
        sample({})
        emit(10)
        wrapped = [
            outgoing.edge
            for engine in cluster.engines
            for group in engine._flow._groups
            for outgoing in group.outgoing_edges
        ]
        assert not [edge for edge in wrapped if isinstance(edge, EventEdge)]
        for one in made:
            one.close()
    lines = [line for file in tmp_path.iterdir() for line in file.read_text().splitlines()]
    of_numbers = [line for line in lines if line.split()[1] == "numbers"]
    assert len(of_numbers) == 20
    assert sorted(
        int(line.partition("[message id ")[2].partition("]")[0]) for line in of_numbers
    ) == [*range(11, 31)]
    assert any(line.endswith("['n11\\n']") for line in of_numbers)
    of_first = [line for line in lines if line.split()[1] == "first"]
    assert len(of_first) == 10  # both tasks of the all grouping, to one consumer
    assert all("[tree " in line or "[message id " in line for line in of_first)
    assert not [line for line in lines if line.split()[1] == "second"]  # nobody consumes it


def test_a_share_is_sampled(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("first", Pass()).shuffle("numbers")
    with EngineCluster(builder.build(), 1) as cluster:
        log = cluster.engines[0].make_event_log()
        log.write_to(tmp_path / "events.log")
        log.sample("test-1-0", {"test-1-0": DebugOptions(True, 10.0)})
        Numbers.left = 1_500
        cluster.run_for(20)
        log.close()
        assert log.dropped == 0
    lines = (tmp_path / "events.log").read_text().splitlines()
    assert 75 < len(lines) < 300


def test_without_a_place_to_write_nothing_is_sampled(tmp_path: Path) -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("first", Pass()).shuffle("numbers")
    with EngineCluster(builder.build(), 1) as cluster:
        log = cluster.engines[0].make_event_log()
        log.write_to(tmp_path / "nowhere" / "events.log")
        log.sample("test-1-0", {"test-1-0": ALL})
        Numbers.left = 10
        cluster.run_for(5)
        log.close()
    assert not list(tmp_path.iterdir())
