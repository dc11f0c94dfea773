"""What can have checkpoints, and what cannot be known yet. (All that cannot have them:
tests/component/squall/test_submit_refusals.py.)"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from squall import (
    Bolt,
    RewindableSpout,
    StatefulBolt,
    TopologyBuilder,
    TransactionalSink,
    Tuple,
    WindowedBolt,
)
from squall.windows import tumbling
from squall_common.component.checkpoints import (
    Place,
    all_refusals,
    class_refusals,
    object_refusals,
    structure_refusals,
)
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import InvalidTopologyError
from squall_common.topology.model import PythonObject, Topology
from squall_common.topology.system import system_topology, validate_topology

CONF = {"topology.checkpoint.interval.secs": 1, "topology.state.url": "s3://bucket"}
OPTIONS = TopologyOptions.read(CONF)


class Source(RewindableSpout):
    outputs = ["word"]

    def seek(self, positions: Any) -> None: ...

    def next_tuple(self) -> None: ...


class One(Bolt):
    outputs = ["word"]

    def execute(self, tup: Tuple) -> None: ...


class ByHand(One):
    auto_ack = False


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


class Sink(TransactionalSink):
    def commit(self, batches: Any) -> None: ...

    async def flush(self) -> None: ...


def topology(bolt: Bolt) -> Topology:
    builder = TopologyBuilder()
    builder.spout("words", Source())
    builder.bolt("bolt", bolt).fields("words", "word")
    return builder.build()


@pytest.mark.parametrize("kind", [One, Batches, Columns, Coroutines, Windows, Sink])
def test_every_kind_of_bolt_can_have_checkpoints(kind: type[Bolt]) -> None:
    made = topology(kind())
    assert list(all_refusals(made, OPTIONS, Place.CLUSTER)) == []
    assert list(class_refusals(made, has_checkpoints=True)) == []
    for name in ("words", "bolt"):  # as a worker asks
        user = Source() if name == "words" else kind()
        assert list(object_refusals(made.components[name], user, has_checkpoints=True)) == []


def test_a_topology_without_checkpoints_may_have_what_it_likes() -> None:
    builder = TopologyBuilder()
    builder.spout("words", Source())
    builder.bolt("bolt", ByHand()).shuffle("words").shuffle("bolt")
    without = TopologyOptions.read({"topology.state.url": "a/relative/path"})
    assert list(all_refusals(builder.build(), without, Place.CLUSTER)) == []


def test_what_the_system_adds_is_not_looked_at() -> None:
    """Every spout and bolt of a compiled topology is on a cycle with its ackers."""
    compiled = system_topology(topology(One()), OPTIONS)
    assert "__acker" in compiled.components
    assert list(structure_refusals(compiled, OPTIONS)) == []


def test_a_class_that_is_not_imported_is_left_to_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing it may run anything: the whole program, if its submit is not guarded."""
    (tmp_path / "unguarded.py").write_text("raise SystemExit")
    made = topology(ByHand())
    gone = replace(made.components["bolt"], object=PythonObject("unguarded:Bolt", b""))
    other = replace(made, components={**made.components, "bolt": gone})
    monkeypatch.syspath_prepend(tmp_path)
    assert list(class_refusals(other, has_checkpoints=True)) == []
    (found,) = class_refusals(other, has_checkpoints=True, made={"bolt": ByHand()})
    assert found.what.startswith("bolt 'bolt' (ByHand) acks or anchors by hand")


def test_a_path_to_what_makes_a_component_is_no_class_of_one() -> None:
    """(Flux)"""
    made = topology(ByHand())
    recipe = replace(made.components["bolt"], object=PythonObject("builtins:dict", b""))
    other = replace(made, components={**made.components, "bolt": recipe})
    assert list(class_refusals(other, has_checkpoints=True)) == []


def test_the_time_grows_with_the_topology_and_no_faster() -> None:
    """A chain of as many components as a topology may have tasks, which ends in a cycle."""
    builder = TopologyBuilder()
    builder.spout("b0", Source())
    for number in range(1, 5_000):
        builder.bolt(f"b{number}", One()).shuffle(f"b{number - 1}")
    builder.bolt("z", One()).shuffle("b4999").shuffle("z")
    made = builder.build()
    began = time.process_time()
    (found,) = structure_refusals(made, OPTIONS)
    assert time.process_time() - began < 5
    assert found.what.startswith("the components 'z' -> 'z' are a cycle")


def test_dead_letters_of_a_bolt_need_checkpoints() -> None:
    builder = TopologyBuilder()
    builder.spout("words", Source())
    builder.bolt("one", One()).shuffle("words")
    builder.bolt("letters", One()).shuffle("one", stream="__dead_letter")
    made = builder.build()
    with pytest.raises(InvalidTopologyError, match="dead letters of the bolt 'one'"):
        validate_topology(made, TopologyOptions.read({}))
    validate_topology(made, TopologyOptions.read({"topology.checkpoint.interval.secs": 1}))
