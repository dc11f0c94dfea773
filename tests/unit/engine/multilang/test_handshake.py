"""The first message, and what a child's process is."""

from __future__ import annotations

from pathlib import Path

from squall import Bolt, ShellBolt, ShellSpout, Stream, TopologyBuilder
from squall_common.component.context import TopologyContext, WorkerContext
from squall_common.config.options.typed import TopologyOptions, WorkerOptions
from squall_common.topology.model import GroupingKind, ShellObject, Topology
from squall_engine.multilang.build import child_environment, resources_dir, timeout_secs
from squall_engine.multilang.handshake import handshake


class Sink(Bolt):
    outputs = []

    def execute(self, tup):
        pass


def topology() -> Topology:
    builder = TopologyBuilder()
    builder.spout("lines", ShellSpout("ruby", "lines.rb", outputs=["line", "n"]))
    split = ShellBolt(
        "python3",
        "split.py",
        outputs={"default": ["word"], "errors": Stream(["why"], direct=True)},
    )
    builder.bolt("split", split).fields("lines", "line", "n")
    builder.bolt("count", Sink()).fields("split", "word").direct("split", stream="errors")
    builder.bolt("all", Sink()).global_("split")
    return builder.build()


def context(code_dir: Path | None = None) -> TopologyContext:
    worker = WorkerContext(
        topology_id="t-1-1",
        topology=topology(),
        conf={"topology.debug": False},
        task_to_component={1: "all", 2: "count", 3: "lines", 4: "split"},
        worker_tasks=(4,),
        worker_port=6700,
        code_dir=code_dir,
        pid_dir=None,
        wake=lambda: None,
    )
    return TopologyContext(worker, 4, worker.conf)


def test_the_context_is_storms() -> None:
    assert handshake({"topology.debug": False}, context(), "/pids") == {
        "conf": {"topology.debug": False},
        "pidDir": "/pids",
        "context": {
            "task->component": {"1": "all", "2": "count", "3": "lines", "4": "split"},
            "taskid": 4,
            "componentid": "split",
            "stream->target->grouping": {
                "default": {
                    "count": {"type": "FIELDS", "fields": ["word"]},
                    "all": {"type": "FIELDS", "fields": []},
                },
                "errors": {"count": {"type": "DIRECT"}},
            },
            "streams": ["default", "errors"],
            "stream->outputfields": {"default": ["word"], "errors": ["why"]},
            "source->stream->grouping": {
                "lines": {"default": {"type": "FIELDS", "fields": ["line", "n"]}}
            },
            "source->stream->fields": {"lines": {"default": ["line", "n"]}},
        },
    }


def test_every_grouping_has_its_thrift_name() -> None:
    from squall_engine.multilang.handshake import _TYPES

    assert set(_TYPES) == set(GroupingKind)


def test_data_without_a_thrift_field_travels_in_the_component_conf() -> None:
    builder = TopologyBuilder()
    spout = ShellSpout(
        "./py/bin/python",
        "-s json module.Class",
        outputs=["x"],
        environment={"A": "1"},
        change_child_cwd=False,
        serializer="msgpack",
    )
    builder.spout("s", spout, conf={"topology.debug": True})
    component = builder.build().components["s"]
    assert component.object == ShellObject("./py/bin/python", "-s json module.Class")
    assert component.conf == {
        "topology.multilang.environment": {"A": "1"},
        "topology.multilang.change.child.cwd": False,
        "topology.multilang.serializer": "msgpack",
        "topology.debug": True,
    }


def test_the_environment_of_a_child() -> None:
    own = {"PATH": "/bin", "PYTHONUNBUFFERED": "1", "PYTHONPATH": "/squall", "A": "0"}
    conf = {
        "topology.environment": {"A": 1, "PYTHONPATH": "/mine", "BAD=NAME": "x"},
        "topology.multilang.environment": {"B": "2"},
    }
    env = child_environment(own, TopologyOptions.read(conf), Path("/res"))
    libraries = env.pop("LD_LIBRARY_PATH").split(":")
    assert libraries[0].startswith("/res/Linux-")
    assert libraries[1] == "/res"
    assert env == {"PATH": "/bin", "PYTHONPATH": "/squall:/mine", "A": "1", "B": "2"}


def test_where_resources_are(tmp_path: Path) -> None:
    code = tmp_path / "stormdist" / "code"
    code.mkdir(parents=True)
    assert resources_dir(context(code)) == code
    (tmp_path / "stormdist" / "resources").mkdir()
    assert resources_dir(context(code)) == tmp_path / "stormdist" / "resources"
    (code / "resources").mkdir()
    assert resources_dir(context(code)) == code / "resources"


def test_the_timeout_defaults_to_the_supervisors() -> None:
    worker = WorkerOptions(supervisor_worker_timeout_secs=20.0)
    assert timeout_secs(TopologyOptions(), worker) == 20
    assert timeout_secs(TopologyOptions(topology_subprocess_timeout_secs=5.0), worker) == 5
