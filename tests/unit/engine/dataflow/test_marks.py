"""Marks of event time between tasks: none arrives before what was emitted before it."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.engine_cluster import EngineCluster, Network

from squall import Bolt, Spout, TopologyBuilder
from squall_common.names import MARK_ENDED
from squall_engine.dataflow.marks import Flying
from squall_engine.loading import ComponentStartError

COUNT = 1000
LOAD = "x" * 500  # so that credit runs out
SMALL = {"topology.worker.buffer.bytes": 65_536, "topology.executor.receive.buffer.size": 64}

SEEN: dict[int, list[tuple[int, Any]]] = defaultdict(list)
"""By task of the receiver: (task of the sender, number or mark) in the order in which they came."""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    SEEN.clear()


class InOrder(Network):
    """As links are: what is sent first arrives first."""

    def carry(self, slot: Any, peer: Any, sections: Any) -> None:
        for data in sections:
            asyncio.get_running_loop().call_soon(self.ends[peer].arrive, slot, data)


class Numbers(Spout):
    outputs = ("number",)

    def open(self, conf: Any, context: Any) -> None:
        self.next = 0

    def next_tuple(self) -> None:
        if self.next < COUNT:
            self.emit((self.next,), message_id=self.next)
            self.next += 1

    def exhausted(self) -> bool:
        return self.next >= COUNT


class Sends(Bolt):
    """Passes numbers on, and says as often as it can which was the last one."""

    outputs = ("number", "load")
    _squall_marks: Any = None

    def prepare(self, conf: Any, context: Any) -> None:
        self.last = -1
        self.ends = 0
        context.call_later(0.001, self.ring)

    def ring(self) -> None:
        if self._squall_marks.is_clear:
            self._squall_marks.send(("default", self.last, 0, "active"))
        self.context.call_later(0.001, self.ring)

    def execute(self, tup: Any) -> None:
        self.emit((tup[0], LOAD))
        self.last = max(self.last, tup[0])

    def _squall_mark(self, component: str, task: int, values: Any) -> None:
        assert (component, values[3]) == ("numbers", MARK_ENDED)
        SEEN[-self.context.this_task_id].append((task, self.last))


class Notes(Bolt):
    def prepare(self, conf: Any, context: Any) -> None:
        self.mine = SEEN[context.this_task_id]

    def execute(self, tup: Any) -> None:
        self.mine.append((tup.source_task, tup[0]))
        time.sleep(0.0003)

    def _squall_mark(self, component: str, task: int, values: Any) -> None:
        self.mine.append((task, ("mark", values[1])))


class NotesInBatches(Notes):
    execute = Bolt.execute

    def execute_batch(self, tuples: list[Any]) -> None:
        for tup in tuples:
            self.mine.append((tup.source_task, tup[0]))


class NotesInColumns(Notes):
    execute = Bolt.execute

    def execute_columns(self, columns: Any) -> None:
        self.mine += [(columns.source_task, number) for number in columns[0]]


class Plain(Bolt):
    def execute(self, tup: Any) -> None:
        pass


def topology(notes: type[Bolt]) -> Any:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    from_numbers = {"topology.bolts.watermark.from": ["numbers"]}
    builder.bolt("sends", Sends(), 3, conf=from_numbers).shuffle("numbers")
    from_sends = {"topology.bolts.watermark.from": ["sends"]}
    builder.bolt("notes", notes(), 3, conf=from_sends).shuffle("sends")
    return builder.build()


@pytest.mark.parametrize("notes", [Notes, NotesInBatches, NotesInColumns])
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("conf", [{}, SMALL], ids=["", "small"])
def test_no_mark_overtakes_what_was_emitted_before_it(
    notes: type[Bolt], workers: int, conf: dict[str, Any]
) -> None:
    with EngineCluster(topology(notes), workers, conf, network=InOrder()) as cluster:
        (spout,) = (one for engine in cluster.engines for one in engine._flow.spouts)
        cluster.run_until(lambda: spout.counts.acked.get("default") == COUNT)
        cluster.run_for(1)
        assert cluster.errors == []
        totals: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for engine in cluster.engines:
            for component, counts in engine.totals().items():
                for what, count in counts.items():
                    totals[component][what] += count
    received = {task: some for task, some in SEEN.items() if task > 0}
    assert sum(isinstance(one, int) for some in received.values() for _, one in some) == COUNT
    for some in received.values():
        marked: dict[int, int] = {}
        for task, one in some:
            if isinstance(one, tuple):
                marked[task] = one[1]
            else:
                assert one > marked.get(task, -1)
        assert len(marked) == 3
    # Nobody's tuples.
    assert totals["sends"]["emitted"] == COUNT
    assert totals["notes"]["executed"] == totals["notes"]["acked"] == COUNT


def test_the_end_of_a_source_comes_behind_all_that_it_has_emitted() -> None:
    with EngineCluster(topology(Notes), 2, SMALL, network=InOrder()) as cluster:
        cluster.run_until(lambda: sum(task < 0 for task in SEEN) == 3)
        assert max(last for task, some in SEEN.items() if task < 0 for _, last in some) == COUNT - 1


def test_a_bolt_that_does_not_know_marks_cannot_get_any() -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    conf = {"topology.bolts.watermark.from": ["numbers"]}
    builder.bolt("plain", Plain(), conf=conf).shuffle("numbers")
    cluster = EngineCluster(builder.build(), 1)
    (engine,) = cluster.engines
    with pytest.raises(ComponentStartError, match=r"watermark\.from"):
        cluster.run(engine.start())
    cluster.run(engine.stop(0))
    cluster.loop.close()


# -- values in hand --


def flying() -> tuple[Flying, list[Any]]:
    taken: list[Any] = []
    return Flying(lambda tup: taken.append(tup.name)), taken


def test_a_mark_waits_for_the_values_before_it_and_for_no_others() -> None:
    values, taken = flying()
    first, second = values.begin(), values.begin()
    values.mark(SimpleNamespace(name="a"))
    third = values.begin()
    values.mark(SimpleNamespace(name="b"))
    values.end(second)
    assert taken == []
    values.end(first)
    assert taken == ["a"]
    values.end(third)
    assert taken == ["a", "b"]


def test_a_mark_with_nothing_in_hand_is_taken_at_once() -> None:
    values, taken = flying()
    values.mark(SimpleNamespace(name="a"))
    assert taken == ["a"]
