"""What a topology with checkpoints cannot have is named when it is submitted."""

from __future__ import annotations

from typing import Any

from squall_common.config.options.typed import TopologyOptions
from squall_common.topology.model import (
    Component,
    ComponentKind,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    PythonObject,
    ShellObject,
    Topology,
)
from squall_nimbus.topologies.checkpoints import checkpoint_problems

CONF = {"topology.checkpoint.interval.secs": 1, "topology.state.url": "s3://bucket"}
PYTHON = PythonObject("a:B", b'{"args":[],"kwargs":{}}')


def bolt(name: str, *inputs: str, kind: Any = GroupingKind.SHUFFLE, **more: Any) -> Component:
    found = {GlobalStreamId(one): Grouping(kind) for one in inputs}
    return Component(name, ComponentKind.BOLT, more.pop("object", PYTHON), found, **more)


def problems(*bolts: Component, **conf: Any) -> list[str]:
    spout = Component("words", ComponentKind.SPOUT, PYTHON)
    components = {one.id: one for one in (spout, *bolts)}
    return checkpoint_problems(Topology(components), TopologyOptions.read({**CONF, **conf}))


def test_a_topology_of_bolts_in_a_row_has_no_problem() -> None:
    assert problems(bolt("a", "words"), bolt("b", "a", "words")) == []


def test_a_topology_without_checkpoints_has_none() -> None:
    none = {"topology.checkpoint.interval.secs": None, "topology.state.url": None}
    assert problems(bolt("a", "words", "a"), **none) == []


def test_a_missing_place_and_another_provider_are_named() -> None:
    (found,) = problems(**{"topology.state.url": None})
    assert "topology.state.url is not" in found
    (found,) = problems(**{"topology.state.provider": "redis"})
    assert "topology.state.provider is set" in found


def test_a_relative_path_is_named_wherever_it_would_be_used() -> None:
    for url in ("checkpoints", "./checkpoints", "~/checkpoints"):
        (found,) = problems(**{"topology.state.url": url})
        assert "relative path" in found
    none = {"topology.checkpoint.interval.secs": None, "topology.state.url": "state"}
    (found,) = problems(**none, **{"topology.state.provider": "store"})
    assert "'state', a relative path" in found
    assert problems(**none) == []
    assert problems(**{"topology.state.url": "file:///state"}) == []


def test_shell_components_are_named() -> None:
    (found,) = problems(bolt("a", "words", object=ShellObject("node", "a.js")))
    assert found == "bolt 'a' is a shell component, which has no checkpoints"


def test_replays_are_named() -> None:
    (found,) = problems(bolt("a", "words", conf={"topology.max.replays": 3}))
    assert "sets topology.max.replays" in found


def test_state_without_a_fields_grouping_is_named() -> None:
    (found,) = problems(bolt("a", "words", conf={"topology.state.max.parallelism": 128}))
    assert "groups 'words' by shuffle" in found


def test_cycles_are_named() -> None:
    (found,) = problems(bolt("a", "words", "c"), bolt("b", "a"), bolt("c", "b"), bolt("d", "c"))
    assert found.startswith("'a', 'b', 'c' lie on a cycle")
    (found,) = problems(bolt("a", "words", "a"))
    assert found.startswith("'a' lie on a cycle")
