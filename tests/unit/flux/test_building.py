from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from squall import Bolt, CustomGrouping, Spout, _submit
from squall_common.errors import InvalidTopologyError
from squall_common.topology.arguments import instantiate
from squall_common.topology.model import GroupingKind, PythonObject, ShellObject
from squall_flux.building import Built, build
from squall_flux.definition import load_definition
from squall_flux.entry import run
from squall_flux.substitution import Filter

MODULE = "flux_test_words"
SOURCE = """
from squall import Bolt, CustomGrouping, Spout, TopologyBuilder, WindowedBolt, WorkerHook

class Windows(WindowedBolt):
    outputs = ["count"]
    def execute_window(self, window): self.emit([len(window)])

class Lines(Spout):
    outputs = {"default": ["line"], "bad": ["line"]}
    def __init__(self, path="x", *, limit=None):
        self.path, self.limit = path, limit
    def next_tuple(self): pass

class Split(Bolt):
    outputs = ["word"]
    def __init__(self, scheme=None):
        self.scheme, self.lower = scheme, False
    def keep(self, word): self.kept = word
    def execute(self, tup): pass

class Scheme:
    def __init__(self, name): self.name = name

class Broken:
    def __init__(self): raise ValueError("out of order")

class First(CustomGrouping):
    def choose_tasks(self, task, values): return self.target_tasks[:1]

def topology(fail=False):
    builder = TopologyBuilder()
    builder.spout("lines", Lines())
    return builder.build()

class Source:
    def __init__(self, id): self.id = id
    def get_topology(self, conf):
        builder = TopologyBuilder()
        builder.spout(self.id, Lines(conf["path"]))
        return builder.build()

class Hook(WorkerHook):
    def __init__(self, name="x"): self.name = name

value = 3
"""


@pytest.fixture(autouse=True)
def _module() -> Iterator[None]:
    module = types.ModuleType(MODULE)
    exec(SOURCE, module.__dict__)
    sys.modules[MODULE] = module
    yield
    del sys.modules[MODULE]


def make(folder: Path, text: str) -> Built:
    (folder / "t.yaml").write_text(text.replace("'m:", f"'{MODULE}:"))
    return build(load_definition(str(folder / "t.yaml"), Filter(), folder))


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(InvalidTopologyError) as raised:
        make(folder, text)
    return [problem.replace(f"{folder}/", "") for problem in raised.value.problems]


SPOUT = "name: t\nspouts:\n- {id: s, className: 'm:Lines'}\n"
BOLT = SPOUT + "bolts:\n- {id: b, className: 'm:Split'}\n"


def streams(grouping: str) -> str:
    return f"streams:\n- {{from: s, to: b, grouping: {grouping}}}\n"


def python_object(built: Built, id: str) -> Any:
    found = built.topology.components[id].object
    assert isinstance(found, PythonObject)
    return instantiate(found)


def test_a_plain_component_travels_as_itself(tmp_path: Path) -> None:
    text = SPOUT.replace(
        "}",
        ", constructorArgs: {limit: 3, path: p}, parallelism: 2, numTasks: 8,"
        " onHeapMemoryLoad: 64, cpuLoad: 10, config: {mine: 1}}",
    )
    built = make(tmp_path, "config: {topology.workers: 2}\n" + text)
    component = built.topology.components["s"]
    assert (built.name, built.conf, component.parallelism) == ("t", {"topology.workers": 2}, 2)
    assert isinstance(component.object, PythonObject)
    assert component.object.class_path == f"{MODULE}:Lines"
    assert (python_object(built, "s").path, python_object(built, "s").limit) == ("p", 3)
    assert component.conf == {
        "topology.tasks": 8,
        "topology.component.resources.onheap.memory.mb": 64,
        "topology.component.cpu.pcore.percent": 10,
        "mine": 1,
    }


def test_windows_are_set_by_the_configuration_of_their_bolt(tmp_path: Path) -> None:
    length = "topology.bolts.window.length.duration.ms"
    bolt = BOLT.replace("Split'}", "Windows', config: {%s: 60000, %s: late, %s: line}}")
    late, at = "topology.bolts.late.tuple.stream", "topology.bolts.tuple.timestamp.field.name"
    built = make(tmp_path, bolt % (length, late, at) + streams("{type: SHUFFLE}"))
    component = built.topology.components["b"]
    assert component.conf[length] == 60000
    assert component.streams["late"].fields == ("late_tuple",)
    assert "it has no windows" in problems(tmp_path, BOLT.replace("Split", "Windows"))[0]


def test_a_join_is_made_by_its_constructor(tmp_path: Path) -> None:
    join = (
        "{id: b, className: 'squall.windows:JoinBolt', constructorArgs: {source: s, field: line,"
        " by: component, joined: [[left, other, line, s]], select: 's:line'},"
        " config: {topology.bolts.window.length.count: 10}}"
    )
    text = SPOUT + "- {id: other, className: 'm:Lines'}\nbolts:\n- " + join + "\n"
    text += streams("{type: FIELDS, args: [line]}")
    text += "- {from: other, to: b, grouping: {type: FIELDS, args: [line]}}\n"
    component = make(tmp_path, text).topology.components["b"]
    assert component.streams["default"].fields == ("s:line",)


def test_references_properties_and_methods_arrive_in_the_worker(tmp_path: Path) -> None:
    text = (
        "components:\n- {id: scheme, className: 'm:Scheme', constructorArgs: [{ref: name}]}\n"
        "- {id: name, className: 'm:Scheme', constructorArgs: [inner]}\n"
        + BOLT.replace(
            "'m:Split'}",
            "'m:Split', constructorArgs: [{ref: scheme}], properties: [{name: lower, value: true}],"
            " configMethods: [{name: keep, args: [{reflist: [name, scheme]}]}]}",
        )
        + streams("{type: SHUFFLE}")
    )
    bolt = python_object(make(tmp_path, text), "b")
    assert isinstance(bolt, Bolt)
    assert vars(bolt)["lower"] is True
    assert vars(bolt)["scheme"].name.name == "inner"
    assert vars(bolt)["kept"] == [vars(bolt)["scheme"].name, vars(bolt)["scheme"]]


def test_a_component_that_travels_as_a_recipe_is_known_when_it_is_submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class that its topology names says nothing about it."""
    text = (
        "config: {topology.checkpoint.interval.secs: 1}\n"
        + BOLT.replace("'m:Split'}", "'m:Split', properties: [{name: auto_ack, value: false}]}")
        + streams("{type: SHUFFLE}")
    )
    built = make(tmp_path, text)
    assert list(built.made) == ["b"]
    session = _submit.Session("cluster", tmp_path / "package.zip", tmp_path, {})
    monkeypatch.setattr(_submit, "_session", session)
    with pytest.raises(InvalidTopologyError) as raised:
        run(session, [str(tmp_path / "t.yaml")], {})
    spout, bolt = raised.value.problems
    assert spout.startswith("spout 's' (Lines) cannot be read again from a position")
    assert bolt.startswith("bolt 'b' (Split) acks or anchors by hand")


def test_worker_hooks_arrive_in_the_worker_in_their_order(tmp_path: Path) -> None:
    text = SPOUT + (
        "components: [{id: scheme, className: 'm:Scheme', constructorArgs: [inner]}]\n"
        "workerHooks:\n"
        "- {id: plain, className: 'm:Hook', constructorArgs: [first]}\n"
        "- {id: made, className: 'm:Hook', properties: [{name: name, ref: scheme}]}\n"
    )
    hooks = make(tmp_path, text).topology.worker_hooks
    assert isinstance(hooks[0], PythonObject)
    assert hooks[0].class_path == f"{MODULE}:Hook"
    first, second = [instantiate(hook) for hook in hooks if isinstance(hook, PythonObject)]
    assert (first.name, second.name.name) == ("first", "inner")


def test_a_property_may_be_a_reference(tmp_path: Path) -> None:
    text = (
        "components: [{id: scheme, className: 'm:Scheme', constructorArgs: [x]}]\n"
        + BOLT.replace("'m:Split'}", "'m:Split', properties: [{name: scheme, ref: scheme}]}")
        + streams("{type: ALL}")
    )
    assert vars(python_object(make(tmp_path, text), "b"))["scheme"].name == "x"


@pytest.mark.parametrize(
    ("grouping", "kind"),
    [
        ("{type: ALL}", GroupingKind.ALL),
        ("{type: SHUFFLE}", GroupingKind.SHUFFLE),
        ("{type: LOCAL_OR_SHUFFLE}", GroupingKind.LOCAL_OR_SHUFFLE),
        ("{type: GLOBAL}", GroupingKind.GLOBAL),
        ("{type: NONE}", GroupingKind.NONE),
        ("{type: FIELDS, args: [line]}", GroupingKind.FIELDS),
        ("{type: PARTIAL_KEY, args: [line]}", GroupingKind.CUSTOM),
        ("{type: CUSTOM, customClass: {className: 'm:First'}}", GroupingKind.CUSTOM),
        (
            "{type: CUSTOM, customClass: {className: org.apache.storm.testing.NGrouping, "
            "constructorArgs: [1]}}",
            GroupingKind.CUSTOM,
        ),
    ],
)
def test_every_grouping_connects(tmp_path: Path, grouping: str, kind: GroupingKind) -> None:
    built = make(
        tmp_path,
        BOLT
        + streams(
            grouping.replace("}", ", streamId: bad}", 1) if "custom" not in grouping else grouping
        ),
    )
    ((source, found),) = built.topology.components["b"].inputs.items()
    assert (source.component, found.kind) == ("s", kind)
    assert source.stream == ("default" if "custom" in grouping else "bad")
    if found.custom is not None:
        assert isinstance(instantiate(found.custom), CustomGrouping)


def test_storms_own_example_builds(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    built = build(load_definition(str(root / "examples/flux/shell.yaml"), Filter(), tmp_path))
    split = built.topology.components["splitsentence"]
    assert split.object == ShellObject("python3", "splitsentence.py")
    assert split.conf["words.least"] == 2
    assert list(split.streams) == ["default"]


def test_a_source_builds_the_topology(tmp_path: Path) -> None:
    text = (
        "name: t\nconfig: {path: p}\ntopologySource: {className: 'm:Source', constructorArgs: [a]}"
    )
    assert python_object(make(tmp_path, text), "a").path == "p"
    assert isinstance(
        python_object(
            make(tmp_path, "name: t\ntopologySource: {className: 'm:topology'}"), "lines"
        ),
        Spout,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("spouts: []", "the definition has no name"),
        (SPOUT.replace("m:Lines", "m:Linse"), "t.yaml:3:22: module 'M' has no 'Linse'"),
        (SPOUT.replace("m:Lines", "nowhere.to:X"), "t.yaml:3:22: there is no module 'nowhere.to'"),
        (SPOUT.replace("m:Lines", "Lines"), "t.yaml:3:22: 'Lines' names no module"),
        (SPOUT.replace("m:Lines", "m:value"), "t.yaml:3:22: M:value is a int; expected a class"),
        (
            SPOUT.replace("m:Lines", "org.apache.storm.kafka.spout.KafkaSpout"),
            "t.yaml:3:22: Squall has no Java class org.apache.storm.kafka.spout.KafkaSpout; "
            "expected a Python class such as jobs.words:Split",
        ),
        (
            SPOUT.replace("m:Lines", "org.apache.storm.flux.FluxShellSpout"),
            "did you mean org.apache.storm.flux.wrappers.spouts.FluxShellSpout?",
        ),
        (
            SPOUT.replace("}", ", constructorArgs: [1, 2]}"),
            "t.yaml:3:3: 's' (M:Lines) raised TypeError: too many positional arguments",
        ),
        (SPOUT.replace("}", ", constructorArgs: {x: 2}}"), "unexpected keyword argument 'x'"),
        (SPOUT.replace("m:Lines", "m:Broken"), "'s' (M:Broken) raised ValueError: out of order"),
        (SPOUT.replace("m:Lines", "m:Split"), "t.yaml:3:3: spout 's': Split is a bolt"),
        (
            SPOUT.replace("}", ", properties: [{name: nope, value: 1}]}"),
            "Lines has no attribute 'nope'",
        ),
        (
            SPOUT.replace("}", ", constructorArgs: [{ref: x}]}"),
            "t.yaml:3:71: there is no component 'x'; components define what ref names",
        ),
        (SPOUT.replace("}", ", factoryArgs: [1]}"), "t.yaml:3:60: there is no factory"),
        (
            SPOUT.replace("}", ", factory: make, constructorArgs: [1]}"),
            "a factory takes factoryArgs",
        ),
        (BOLT + streams("{type: FIELDS}"), "t.yaml:7:30: FIELDS needs args"),
        (BOLT + streams("{type: SHUFFLE, args: [a]}"), "t.yaml:7:52: SHUFFLE takes no args"),
        (BOLT + streams("{type: CUSTOM}"), "t.yaml:7:30: CUSTOM needs customClass"),
        (
            BOLT
            + streams("{type: CUSTOM, customClass: {className: 'm:Scheme', constructorArgs: [1]}}"),
            "M:Scheme is not a CustomGrouping",
        ),
        (BOLT + streams("{type: FIELDS, args: [x]}"), "t.yaml:5:3: bolt 'b'"),
        (
            BOLT + streams("{type: ALL}").replace("to: b", "to: bb"),
            "t.yaml:7:17: there is no bolt 'bb'; did you mean 'b'?",
        ),
        (
            BOLT + streams("{type: ALL}").replace("from: s", "from: x"),
            "t.yaml:7:10: there is no spout or bolt 'x'; there are: s, b",
        ),
        (
            SPOUT + "workerHooks: [{id: h, className: 'm:Split'}]",
            "t.yaml:4:34: M:Split is not a worker hook; derive it from squall.WorkerHook",
        ),
        (
            "name: t\ntopologySource: {className: 'm:Scheme', constructorArgs: [1]}",
            "has no method 'getTopology'",
        ),
        (BOLT + "topologySource: {className: 'm:topology'}", "has no spouts, bolts, streams or"),
    ],
)
def test_what_cannot_be_built_is_refused_with_its_place(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert expected in "\n".join(problems(tmp_path, text)).replace(MODULE, "M")


def test_all_components_that_cannot_be_made_are_listed(tmp_path: Path) -> None:
    text = BOLT.replace("m:Lines", "m:Linse").replace("m:Split", "m:Splt")
    assert len(problems(tmp_path, text)) == 2


def test_references_in_a_circle_are_refused(tmp_path: Path) -> None:
    text = (
        "components:\n- {id: x, className: 'm:Scheme', constructorArgs: [{ref: y}]}\n"
        "- {id: y, className: 'm:Scheme', constructorArgs: [{ref: x}]}\n"
        + SPOUT.replace("}", ", constructorArgs: [{ref: x}]}")
    )
    (problem,) = problems(tmp_path, text)
    assert problem.endswith("components refer to each other: x -> y -> x")


def test_long_chains_and_many_objects_are_refused(tmp_path: Path) -> None:
    bean = "- {{id: c{}, className: 'm:Scheme', constructorArgs: [{{ref: c{}}}]}}\n"
    chain = "components:\n" + "".join(bean.format(i, i + 1) for i in range(100))
    text = chain + SPOUT.replace("}", ", constructorArgs: [{ref: c0}]}")
    assert "references nest more than 50 deep" in problems(tmp_path, text)[0]

    beans = "components:\n" + "".join(
        f"- {{id: c{i}, className: 'm:Scheme', constructorArgs: [x]}}\n" for i in range(120)
    )
    reflist = ", ".join(f"c{i}" for i in range(120))
    spouts = "".join(
        f"- {{id: s{i}, className: 'm:Lines', constructorArgs: [{{reflist: [{reflist}]}}]}}\n"
        for i in range(100)
    )
    found = problems(tmp_path, f"name: t\n{beans}spouts:\n{spouts}")
    assert "the definition makes more than 10,000 objects" in found[0]


def test_a_module_that_submits_when_imported_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flux_test_unguarded.py").write_text(
        "from squall import submit_topology\nsubmit_topology('x', {}, None)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    (problem,) = problems(tmp_path, SPOUT.replace("m:Lines", "flux_test_unguarded:X"))
    assert problem.startswith("t.yaml:3:22: importing this module calls submit_topology")


def test_what_an_import_raises_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flux_test_missing.py").write_text("import not_a_module_of_anybody\n")
    (tmp_path / "flux_test_raises.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    (problem,) = problems(tmp_path, SPOUT.replace("m:Lines", "flux_test_missing:X"))
    assert "No module named 'not_a_module_of_anybody' (flux_test_missing.py, line 1)" in problem
    (problem,) = problems(tmp_path, SPOUT.replace("m:Lines", "flux_test_raises.X"))
    assert "raised ZeroDivisionError: division by zero (flux_test_raises.py, line 1)" in problem
