"""Topologies through Thrift: ours come back equal, foreign ones are read or refused by name."""

from dataclasses import replace

import pytest

from squall import Bolt, ShellBolt, Spout, Stream, TopologyBuilder
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import InvalidTopologyError
from squall_common.topology.model import (
    ForeignObject,
    GroupingKind,
    PythonObject,
    ShellObject,
    Topology,
)
from squall_common.topology.plan import PLAN_MAX, PlanStep
from squall_common.topology.system import system_topology, validate_topology
from squall_common.topology.thrift import from_thrift, to_thrift
from squall_thrift import codec, storm


class Words(Spout):
    outputs = {"default": ["word"], "direct": Stream(["x"], direct=True)}

    def next_tuple(self): ...


class Sink(Bolt):
    def __init__(self, limit=1):
        self.limit = limit

    def execute(self, tup): ...


def built():
    builder = TopologyBuilder()
    builder.spout("words", Words(), conf={"topology.max.spout.pending": 5, "own": [None, {"a": 1}]})
    sink = builder.bolt("sink", Sink(limit=2**80), parallelism=3)
    sink.fields("words", "word").direct("words", stream="direct")
    for kind in ("shuffle", "all", "global_", "local_or_shuffle", "none"):
        getattr(builder.bolt(kind, Sink()), kind)("words")
    builder.bolt("partial", Sink()).partial_key("words", "word")
    builder.bolt("shell", ShellBolt("ruby", "b.rb", outputs=["y"])).shuffle("words")
    return builder.build()


def over_the_wire(struct):
    return codec.from_bytes(storm.StormTopology, codec.to_bytes(struct))


def test_a_topology_comes_back_equal_over_the_wire():
    topology = built()
    assert from_thrift(over_the_wire(to_thrift(topology))) == topology


def test_a_compiled_topology_comes_back_equal_over_the_wire():
    compiled = system_topology(built(), TopologyOptions(topology_eventlogger_executors=1))
    assert from_thrift(over_the_wire(to_thrift(compiled))) == compiled


def test_what_a_component_does_comes_back_and_is_cut():
    topology = built()
    steps = (PlanStep("map(f)", ("m:f",)), PlanStep("count()", windows="tumbling 60 s"))
    sink = replace(topology.components["sink"], plan=steps)
    topology = replace(topology, components={**topology.components, "sink": sink})
    struct = over_the_wire(to_thrift(topology))
    assert from_thrift(struct) == topology
    # Any client may send anything.
    struct.bolts["sink"].common.plan = [storm.PlanStep(call="x" * 10_000)] * 1_000
    assert sum(step.size for step in from_thrift(struct).components["sink"].plan) <= PLAN_MAX


def test_a_component_without_a_plan_has_none():
    struct = over_the_wire(to_thrift(built()))
    assert struct.bolts["sink"].common.plan is None
    assert from_thrift(struct).components["sink"].plan == ()


def test_a_python_component_is_a_java_object_with_one_binary_argument():
    java = to_thrift(built()).bolts["sink"].bolt_object.java_object
    assert java.full_class_name == f"{__name__}:Sink"
    (argument,) = java.args_list
    assert argument.binary_arg.startswith(b'{"args":[],"kwargs":{"limit":')


def test_a_global_grouping_is_a_fields_grouping_without_fields():
    (grouping,) = to_thrift(built()).bolts["global_"].common.inputs.values()
    assert grouping.fields == []


def foreign(bolt_object, *, grouping=None, **common):
    """What another client may send: one spout and one bolt."""
    shell = storm.ShellComponent(execution_command="node", script="s.js")
    streams = {"default": storm.StreamInfo(output_fields=["a"], direct=False)}
    source = storm.GlobalStreamId(componentId="s", streamId="default")
    grouping = grouping or storm.Grouping(shuffle=storm.NullStruct())
    return storm.StormTopology(
        spouts={
            "s": storm.SpoutSpec(
                spout_object=storm.ComponentObject(shell=shell),
                common=storm.ComponentCommon(inputs={}, streams=streams),
            )
        },
        bolts={
            "b": storm.Bolt(
                bolt_object=bolt_object,
                common=storm.ComponentCommon(inputs={source: grouping}, streams={}, **common),
            )
        },
        state_spouts={},
    )


JAVA = storm.ComponentObject(serialized_java=b"\xac\xed")
ARGUMENTS = [
    storm.JavaObjectArg(int_arg=3),
    storm.JavaObjectArg(string_arg="x"),
    storm.JavaObjectArg(bool_arg=False),
]


def test_an_unset_hint_and_conf_are_none_and_empty():
    component = from_thrift(foreign(JAVA)).components["b"]
    assert (component.parallelism, component.conf) == (None, {})
    assert component.object == ForeignObject(b"\xac\xed")


def test_a_java_class_with_arguments_is_carried_unchanged():
    java = storm.JavaObject(full_class_name="org.example.Bolt", args_list=ARGUMENTS)
    struct = foreign(storm.ComponentObject(java_object=java))
    topology = from_thrift(struct)
    assert topology.components["b"].object == ForeignObject(
        class_name="org.example.Bolt",
        args=(("int_arg", 3), ("string_arg", "x"), ("bool_arg", False)),
    )
    assert to_thrift(topology).bolts["b"].bolt_object == struct.bolts["b"].bolt_object


def test_a_shell_script_with_spaces_stays_one_text():
    shell = storm.ShellComponent(execution_command="run", script="-s json m.C")
    found = from_thrift(foreign(storm.ComponentObject(shell=shell))).components["b"].object
    assert found == ShellObject("run", "-s json m.C")


def test_a_serialized_grouping_is_carried_unchanged():
    grouping = storm.Grouping(custom_serialized=b"\xac\xed")
    (found,) = from_thrift(foreign(JAVA, grouping=grouping)).components["b"].inputs.values()
    assert (found.kind, found.serialized) == (GroupingKind.CUSTOM_SERIALIZED, b"\xac\xed")


def test_unknown_conf_keys_lists_and_nulls_survive():
    conf = '{"my.key": [1, null, "x"], "topology.tasks": 2.0}'
    found = from_thrift(foreign(JAVA, json_conf=conf)).components["b"].conf
    assert found == {"my.key": [1, None, "x"], "topology.tasks": 2}
    assert type(found["topology.tasks"]) is int


@pytest.mark.parametrize(
    ("struct", "says"),
    [
        (foreign(JAVA, json_conf="{"), "bolt 'b': its json_conf is not JSON"),
        (foreign(JAVA, json_conf="[1]"), "expected a JSON object"),
        (foreign(JAVA, json_conf='{"a": NaN}'), "NaN is not a JSON value"),
        (foreign(storm.ComponentObject()), "component object is 0 things at once"),
        (
            foreign(
                JAVA,
                grouping=storm.Grouping(
                    custom_object=storm.JavaObject(full_class_name="a.B", args_list=[])
                ),
            ),
            "custom grouping 'a.B' is a Java class",
        ),
        (foreign(JAVA, grouping=storm.Grouping()), "grouping on 's' is 0 things at once"),
    ],
)
def test_what_no_topology_may_hold_is_refused_by_name(struct, says):
    with pytest.raises(InvalidTopologyError) as caught:
        from_thrift(struct)
    assert says in str(caught.value)


def test_an_id_shared_by_a_spout_and_a_bolt_is_refused():
    struct = foreign(JAVA)
    struct.bolts["s"] = struct.bolts.pop("b")
    with pytest.raises(InvalidTopologyError, match="there is a component with this id already"):
        from_thrift(struct)


def test_worker_hooks_in_python_travel_and_those_of_java_are_carried_unchanged():
    serialized = b"\xac\xed\x00\x05sr\x00\rorg.acme.Hook" + bytes(12)
    hook = PythonObject("hooks:Database", b'{"args":[1],"kwargs":{}}')
    topology = Topology({}, worker_hooks=(hook, ForeignObject(serialized)))
    struct = to_thrift(topology)
    assert struct.worker_hooks[1] == serialized
    found = from_thrift(over_the_wire(struct))
    assert found.worker_hooks == topology.worker_hooks
    assert [str(one) for one in found.worker_hooks] == ["Database", "Hook"]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xac\xed\x00\x05sr\x00\rorg.acme.Hook" + bytes(12), "the Java class 'org.acme.Hook'"),
        (b"\xac\xed", "a serialized object"),
        (b"\xac\xed\x00\x05sr\xff\xffshort", "a serialized object"),
        (b"\xac\xed\x00\x05sr\x00\x03a\x00b", "a serialized object"),
        (b"", "a serialized object"),
        (b"what is this", "a serialized object"),
        (b"\x0b\x00\x01\x7f\xff\xff\xff", "a serialized object"),
    ],
)
def test_a_worker_hook_that_only_a_jvm_could_run_is_refused_by_name(data, says):
    struct = foreign(JAVA)
    struct.worker_hooks = [data]
    with pytest.raises(InvalidTopologyError) as caught:
        validate_topology(from_thrift(struct))
    assert f"a worker hook that is a Java object ({says})" in str(caught.value)
