"""Components that cannot have checkpoints are named from their classes."""

from __future__ import annotations

from typing import Any

import pytest

from squall import (
    Bolt,
    RewindableSpout,
    Spout,
    StatefulBolt,
    TopologyBuilder,
    TransactionalSink,
    Tuple,
    WindowedBolt,
)
from squall.windows import tumbling
from squall_common.component.checkpoints import class_problems
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import InvalidTopologyError
from squall_common.topology.system import validate_topology


class Source(RewindableSpout):
    outputs = ["word"]

    def next_tuple(self) -> None: ...


class AsyncSource(RewindableSpout):
    outputs = ["word"]

    async def next_tuple(self) -> None: ...


class Plain(Spout):
    outputs = ["word"]

    def next_tuple(self) -> None: ...


class One(Bolt):
    outputs = ["word"]

    def execute(self, tup: Tuple) -> None: ...


class Batches(StatefulBolt):
    auto_anchor = False

    def execute_batch(self, tuples: list[Tuple]) -> None: ...


class Columns(Bolt):
    def execute_columns(self, columns: Any) -> None: ...


class Coroutines(StatefulBolt):
    async def execute(self, tup: Tuple) -> None: ...


class Windows(WindowedBolt):
    windows = tumbling(count=3)

    def execute_window(self, window: Any) -> None: ...


class ByHand(Bolt):
    auto_ack = False

    def execute(self, tup: Tuple) -> None: ...


class AsyncSink(TransactionalSink):
    async def execute(self, tup: Tuple) -> None: ...


def problems(bolt: Bolt, spout: Spout | None = None, *, by_field: bool = True) -> list[str]:
    builder = TopologyBuilder()
    builder.spout("words", spout or Source())
    declarer = builder.bolt("bolt", bolt)
    if by_field:
        declarer.fields("words", "word")
    else:
        declarer.shuffle("words")
    return list(class_problems(builder.build()))


@pytest.mark.parametrize("kind", [One, Batches, Columns, Coroutines, Windows, TransactionalSink])
def test_every_kind_of_bolt_can_have_checkpoints(kind: type[Bolt]) -> None:
    assert problems(kind()) == []


@pytest.mark.parametrize(
    ("bolt", "spout", "by_field", "problem"),
    [
        (One(), Plain(), True, "spout 'words' (Plain) cannot be read again from a position"),
        (One(), AsyncSource(), True, "spout 'words' (AsyncSource) is async"),
        (ByHand(), None, True, "bolt 'bolt' (ByHand) acks or anchors by hand"),
        (AsyncSink(), None, True, "bolt 'bolt' (AsyncSink) is a transactional sink"),
        (Batches(), None, False, "bolt 'bolt' (Batches) keeps state by key, and groups 'words'"),
    ],
)
def test_what_cannot_is_named(
    bolt: Bolt, spout: Spout | None, by_field: bool, problem: str
) -> None:
    (found,) = problems(bolt, spout, by_field=by_field)
    assert found.startswith(problem)


def test_dead_letters_of_a_bolt_need_checkpoints() -> None:
    builder = TopologyBuilder()
    builder.spout("words", Source())
    builder.bolt("one", One()).shuffle("words")
    builder.bolt("letters", One()).shuffle("one", stream="__dead_letter")
    topology = builder.build()
    with pytest.raises(InvalidTopologyError, match="dead letters of the bolt 'one'"):
        validate_topology(topology, TopologyOptions.read({}))
    validate_topology(topology, TopologyOptions.read({"topology.checkpoint.interval.secs": 1}))
