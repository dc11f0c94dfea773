"""Topologies that an earlier version stored run after an upgrade.

`tests/topologies/stored` holds them as the version of 2026-11-22 stored them, before its modules
moved (`stormcode.ser` of a word count with `FeederSpout` and a partial-key grouping, and of a DRPC
topology), with the components that they name.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from squall import Columns, LocalCluster, ReplayingSpout
from squall_common.component.metrics.consumers import LoggingMetricsConsumer
from squall_common.topology import import_paths
from squall_common.topology.import_paths import import_path
from squall_common.topology.model import PythonObject, Topology
from squall_common.topology.thrift import from_thrift
from squall_engine.core.known_classes import KnownClasses
from squall_engine.observe.metrics import Registration
from squall_thrift import storm
from squall_thrift.codec import from_bytes

STORED = Path(__file__).resolve().parents[2] / "topologies" / "stored"


@pytest.fixture(autouse=True)
def _components_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STORED))
    monkeypatch.delitem(sys.modules, "stored_components", raising=False)


def stored(name: str) -> Topology:
    code = (STORED / f"{name}.ser").read_bytes()
    return from_thrift(from_bytes(storm.StormTopology, code))


def test_a_stored_word_count_runs() -> None:
    with LocalCluster() as cluster:
        cluster.submit_topology("words", {}, stored("words"))
        cluster.wait_until(lambda: cluster.totals("words").get("words", {}).get("acked") == 4)
        assert cluster.totals("words")["count"]["executed"] == 4
        assert not cluster.errors("words")


def test_every_class_of_a_stored_drpc_topology_loads() -> None:
    components = stored("drpc").components.values()
    objects = [one.object for one in components if isinstance(one.object, PythonObject)]
    assert objects
    for made in objects:
        assert isinstance(import_path(made.class_path), type), made.class_path


def test_a_stored_metrics_consumer_loads() -> None:
    assert import_path("squall.metrics:LoggingMetricsConsumer") is LoggingMetricsConsumer


def test_what_was_stored_before_modules_moved_again_loads() -> None:
    assert import_path("squall_common.component.replaying:ReplayingSpout") is ReplayingSpout
    assert import_path("squall_common.component.columns:Columns") is Columns
    stored_name = "squall_common.component.metrics:LoggingMetricsConsumer"
    assert import_path(stored_name) is LoggingMetricsConsumer
    entry = {"class": stored_name.replace(":", ".")}
    assert isinstance(Registration.parse(entry).make(), LoggingMetricsConsumer)


def test_values_find_the_classes_of_a_component_whose_module_moved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "lives_here.py").write_text("class Kept: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(import_paths._STORED_MODULES, "lived_there", "lives_here")
    found = KnownClasses(["lived_there"]).find("lives_here:Kept")
    monkeypatch.delitem(sys.modules, "lives_here", raising=False)
    assert found is not None
