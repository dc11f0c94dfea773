"""One way from a topology to what runs, whatever form it comes in."""

import ast
import json
from pathlib import Path

import pytest

from squall import Bolt, Spout, TopologyBuilder
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.config.schema import TASKS_MAX
from squall_common.errors import InvalidTopologyError
from squall_common.topology.model import Executor
from squall_common.topology.prepared import prepare
from squall_common.topology.thrift import to_thrift
from squall_thrift import codec

ROOT = Path(__file__).resolve().parents[4]


class Words(Spout):
    outputs = ["word"]

    def next_tuple(self): ...


class Count(Bolt):
    def execute(self, tup): ...


def built():
    builder = TopologyBuilder()
    builder.spout("words", Words())
    builder.bolt("count", Count(), parallelism=2, conf={"topology.tasks": 3}).shuffle("words")
    return builder.build()


def conf_of(**more):
    return normalize_topology_conf({"topology.workers": 1, **more}, default_conf(), name="words")


def test_tasks_are_numbered_by_component_and_executors_are_ranges_of_them():
    prepared = prepare(built(), conf_of())
    numbered = {1: "__acker", 2: "count", 3: "count", 4: "count", 5: "words"}
    assert prepared.task_to_component == numbered
    assert prepared.executors == [Executor(1, 1), Executor(2, 3), Executor(4, 4), Executor(5, 5)]
    assert "__acker" in prepared.topology.components


def test_every_form_of_a_topology_leads_to_the_same():
    """What Nimbus schedules, a worker has to find again in the bytes that were stored."""
    conf, submitted = conf_of(), to_thrift(built())
    code, stored = codec.to_bytes(submitted), json.dumps(conf).encode()
    expected = prepare(built(), conf)
    assert prepare(submitted, conf) == expected
    assert prepare(submitted, stored) == expected
    assert prepare(code, stored) == expected


def test_what_is_prepared_is_not_prepared_again():
    conf = conf_of()
    once = prepare(built(), conf)
    assert prepare(once.topology, conf) == once


def test_a_topology_beyond_the_limit_of_tasks_is_refused():
    with pytest.raises(InvalidTopologyError, match="the limit is"):
        prepare(built(), conf_of() | {"topology.acker.executors": TASKS_MAX})


def test_a_stored_option_of_the_wrong_type_makes_the_topology_invalid():
    with pytest.raises(InvalidTopologyError, match=r"topology\.workers is 'two'; expected"):
        prepare(built(), conf_of() | {"topology.workers": "two"})


@pytest.mark.parametrize(
    ("code", "conf"),
    [(b"no thrift", b"{}"), (codec.to_bytes(to_thrift(built())), b"[1]"), (b"", b"no json")],
)
def test_damaged_bytes_are_an_error_that_readers_expect(code, conf):
    with pytest.raises((ValueError, KeyError, TypeError)):
        prepare(code, conf)


def test_nothing_else_of_the_product_compiles_a_topology():
    """A second way would sooner or later number tasks differently."""
    steps = {"system_topology", "component_tasks"}
    folders = ["common", "nimbus", "supervisor", "worker", "drpc", "pipeline", "cli", "bench"]
    importing = {
        path.name
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and steps & {alias.name for alias in node.names}
    }
    assert importing == {"prepared.py"}
