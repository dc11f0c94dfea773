"""TopologyBuilder: what it builds, and that it lists everything it refuses, by name."""

import re
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import pytest

from squall import (
    Bolt,
    CustomGrouping,
    InvalidTopologyError,
    ShellBolt,
    ShellSpout,
    Spout,
    Stream,
    TopologyBuilder,
)
from squall_common.topology.arguments import decode_arguments, instantiate
from squall_common.topology.model import (
    ComponentKind,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    ShellObject,
    StreamInfo,
)

T = TypeVar("T")


class Lines(Spout):
    outputs = ["line"]

    def __init__(self, path: str = "x", *, options: Any = None) -> None:
        self.path = path
        self.options = options

    def next_tuple(self) -> None: ...


class Split(Bolt):
    outputs = {"default": ["word"], "errors": Stream(["why"], direct=True)}

    def execute(self, tup: Any) -> None: ...


class Sink(Bolt):
    def execute(self, tup: Any) -> None: ...


class Batches(Bolt):
    def execute_batch(self, tuples: Any) -> None: ...


class Nothing(Bolt):
    pass


class Silent(Spout):
    pass


class Yields(Bolt):
    def execute(self, tup: Any) -> Any:
        yield 1


class Odd(CustomGrouping):
    def __init__(self, step: int) -> None:
        self.step = step

    def choose_tasks(self, task: int, values: Any) -> Any:
        return self.target_tasks[:: self.step]


class Slotted(Bolt):
    __slots__ = ("limit",)

    def __init__(self) -> None:
        self.limit = 1

    def execute(self, tup: Any) -> None: ...


def problems_of(builder: TopologyBuilder) -> list[str]:
    with pytest.raises(InvalidTopologyError) as caught:
        builder.build()
    return list(caught.value.problems)


def one_problem(builder: TopologyBuilder) -> str:
    (problem,) = problems_of(builder)
    return problem


def with_bolt(bolt: Any) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("lines", Lines())
    builder.bolt("b", bolt).shuffle("lines")
    return builder


def test_a_built_topology_matches_its_description():
    builder = TopologyBuilder()
    lines = builder.spout("lines", Lines("p", options={"k": (1,)}), parallelism=2, tasks=4)
    builder.bolt("split", Split(), 3, conf={"mine": 1}).shuffle(lines)
    sink = builder.bolt("sink", Sink())
    sink.fields("split", "word").direct("split", stream="errors").global_("lines")
    topology = builder.build()

    spout, split, end = (topology.components[i] for i in ("lines", "split", "sink"))
    assert (spout.kind, spout.parallelism, spout.conf) == (
        ComponentKind.SPOUT,
        2,
        {"topology.tasks": 4},
    )
    assert spout.streams == {"default": StreamInfo(("line",))}
    assert split.streams == {
        "default": StreamInfo(("word",)),
        "errors": StreamInfo(("why",), direct=True),
    }
    assert split.conf == {"mine": 1}
    assert end.streams == {}
    kinds = {str(source): grouping.kind for source, grouping in end.inputs.items()}
    assert kinds == {
        "split": GroupingKind.FIELDS,
        "split:errors": GroupingKind.DIRECT,
        "lines": GroupingKind.GLOBAL,
    }
    assert spout.object.class_path == f"{__name__}:Lines"
    assert decode_arguments(spout.object.arguments) == (("p",), {"options": {"k": (1,)}})


def test_arguments_travel_as_they_were_when_the_constructor_was_called():
    options = [1]
    spout = Lines("p", options=options)
    options.append(2)
    builder = TopologyBuilder()
    builder.spout("lines", spout)
    arguments = builder.build().components["lines"].object.arguments
    assert decode_arguments(arguments)[1] == {"options": [1]}


class Consumes(Spout):
    def __init__(self, names: list[str]) -> None:
        self.first = names.pop()

    def next_tuple(self) -> None: ...


def test_arguments_travel_as_they_were_before_the_constructor_changed_them():
    builder = TopologyBuilder()
    builder.spout("s", Consumes(["a", "b"]))
    assert decode_arguments(builder.build().components["s"].object.arguments)[0] == (["a", "b"],)


@dataclass(frozen=True)
class Limited(Bolt):
    limit: int = 1

    def execute(self, tup: Any) -> None: ...


class Typed(Bolt, Generic[T]):
    def execute(self, tup: Any) -> None: ...


@pytest.mark.parametrize(
    "bolt", [Limited(limit=3), Typed[int]()], ids=lambda value: type(value).__name__
)
def test_dataclasses_and_generic_classes_are_components_like_any_other(bolt):
    made = instantiate(with_bolt(bolt).build().components["b"].object)
    assert type(made) is type(bolt)


def test_every_grouping_has_its_kind():
    builder = TopologyBuilder()
    builder.spout("s", Lines())
    for number, subscribe in enumerate(
        [
            lambda b: b.shuffle("s"),
            lambda b: b.fields("s", "line"),
            lambda b: b.all("s"),
            lambda b: b.global_("s"),
            lambda b: b.local_or_shuffle("s"),
            lambda b: b.none("s"),
            lambda b: b.partial_key("s", "line"),
            lambda b: b.custom("s", Odd(2)),
        ]
    ):
        subscribe(builder.bolt(f"b{number}", Sink()))
    components = builder.build().components
    groupings = [components[f"b{n}"].inputs[GlobalStreamId("s")] for n in range(8)]
    assert [g.kind.value for g in groupings] == [
        "shuffle",
        "fields",
        "all",
        "global",
        "local_or_shuffle",
        "none",
        "custom",
        "custom",
    ]
    partial, custom = (instantiate(g.custom) for g in groupings[6:])
    assert partial.fields == ("line",)
    assert (type(custom).__name__, custom.step) == ("Odd", 2)


def test_shell_components_carry_command_and_script():
    builder = TopologyBuilder()
    builder.spout("s", ShellSpout("python3", "s.py", outputs=["a"]))
    builder.bolt("b", ShellBolt("ruby", "b.rb", outputs={"x": ["y"]})).shuffle("s")
    components = builder.build().components
    assert components["s"].object == ShellObject("python3", "s.py")
    assert components["b"].streams == {"x": StreamInfo(("y",))}


def test_a_cycle_is_allowed():
    builder = TopologyBuilder()
    builder.spout("s", Lines())
    builder.bolt("a", Split()).shuffle("s").shuffle("b")
    builder.bolt("b", Split()).shuffle("a")
    assert set(builder.build().components) == {"s", "a", "b"}


def test_a_bolt_may_define_only_execute_batch():
    assert "b" in with_bolt(Batches()).build().components


class BlockingBatches(Batches):
    blocking = True


class AsyncBatches(Bolt):
    async def execute_batch(self, tuples: Any) -> None: ...


class BlockingAsync(Bolt):
    blocking = True

    async def execute(self, tup: Any) -> None: ...


class BlockingAsyncBatches(AsyncBatches):
    blocking = True


class BlockingColumns(Bolt):
    blocking = True

    def execute_columns(self, columns: Any) -> None: ...


class AsyncColumns(Bolt):
    async def execute_columns(self, columns: Any) -> None: ...


class BlockingAsyncSpout(Spout):
    blocking = True

    async def next_tuple(self) -> None: ...


@pytest.mark.parametrize("bolt", [BlockingBatches(), AsyncBatches()])
def test_batches_may_block_or_await(bolt):
    assert "b" in with_bolt(bolt).build().components


@pytest.mark.parametrize(
    ("bolt", "says"),
    [
        (BlockingAsync(), "is blocking, and its execute() is async: choose one"),
        (BlockingAsyncBatches(), "is blocking, and its execute_batch() is async: choose one"),
        (BlockingColumns(), "runs on the worker's loop: define execute_batch() instead"),
        (AsyncColumns(), "has an async execute_columns()"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_mode_that_no_worker_has_is_refused_by_build(bolt, says):
    with pytest.raises(InvalidTopologyError, match=re.escape(says)):
        with_bolt(bolt).build()


def test_a_blocking_spout_cannot_be_async():
    builder = TopologyBuilder()
    builder.spout("s", BlockingAsyncSpout())
    with pytest.raises(InvalidTopologyError, match=r"its next_tuple\(\) is async: choose one"):
        builder.build()


@pytest.mark.parametrize(
    ("bolt", "says"),
    [
        (Sink, "Sink is a class; pass an object of it: Sink(...)"),
        (lambda tup: None, "a function is not a bolt"),
        (Lines(), "Lines is a spout; add it with .spout(...)"),
        (None, "None is not a bolt"),
        (Nothing(), "Nothing does not define execute()"),
        (Yields(), "contains `yield`"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_object_that_is_not_a_bolt_is_refused(bolt, says):
    problem = one_problem(with_bolt(bolt))
    assert problem.startswith("bolt 'b': ")
    assert says in problem


def test_a_spout_without_next_tuple_is_refused():
    builder = TopologyBuilder()
    builder.spout("s", Silent())
    assert one_problem(builder) == "spout 's': Silent does not define next_tuple()"


def test_a_class_made_in_a_function_is_refused_by_name():
    class Local(Bolt):
        def execute(self, tup: Any) -> None: ...

    assert "class 'Local' is made inside a function" in one_problem(with_bolt(Local()))


def test_an_argument_that_cannot_travel_is_refused_by_name():
    builder = TopologyBuilder()
    builder.spout("lines", Lines(options={"key": lambda: 1}))
    problem = one_problem(builder)
    assert problem.startswith("spout 'lines': Lines(...): argument options['key'] cannot travel")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: setattr(s, "late", 1), "attribute 'late' was added"),
        (lambda s: setattr(s, "path", "other"), "attribute 'path' was rebound"),
        (lambda s: delattr(s, "path"), "attribute 'path' was removed"),
    ],
)
def test_a_change_after_the_constructor_is_refused_by_name(change, says):
    spout = Lines()
    change(spout)
    builder = TopologyBuilder()
    builder.spout("lines", spout)
    assert says in one_problem(builder)


def test_a_change_of_a_slot_is_detected():
    bolt = Slotted()
    bolt.limit = 2
    assert "attribute 'limit' was rebound" in one_problem(with_bolt(bolt))


@pytest.mark.parametrize(
    ("outputs", "says"),
    [
        ("word", "outputs is the text 'word'; write ['word']"),
        (7, "outputs is 7; expected a list of fields"),
        (["a", "a"], "has the field 'a' twice"),
        (["a", 3], "a field named 3"),
        ({"s": "word"}, "the fields of stream 's' are 'word'"),
        ({"__tick": ["a"]}, "begins with '__'"),
        ({"": ["a"]}, "stream id is empty"),
    ],
)
def test_bad_outputs_are_refused(outputs, says, monkeypatch):
    monkeypatch.setattr(Sink, "outputs", outputs)
    assert says in one_problem(with_bolt(Sink()))


@pytest.mark.parametrize(
    ("component_id", "says"),
    [
        ("__mine", "begins with '__'"),
        ("", "its id is empty"),
        (3, "its id is 3; expected text"),
        ("a\nb", "the character U+000A"),
    ],
)
def test_bad_ids_are_refused(component_id, says):
    builder = TopologyBuilder()
    builder.spout(component_id, Lines())
    assert says in one_problem(builder)


@pytest.mark.parametrize("parallelism", [0, -1, 1.5, True, "2"])
def test_parallelism_must_be_a_positive_whole_number(parallelism):
    builder = TopologyBuilder()
    builder.spout("s", Lines(), parallelism=parallelism)
    assert "expected a whole number of at least 1" in one_problem(builder)


def test_a_component_conf_must_be_json():
    builder = TopologyBuilder()
    builder.spout("s", Lines(), conf={"key": {1, 2}})
    assert "its conf 'key' = {1, 2} cannot be written as JSON" in one_problem(builder)


def test_all_that_is_wrong_is_listed_at_once():
    builder = TopologyBuilder()
    builder.bolt("count", Sink()).fields("splt", "word").shuffle("count")
    builder.bolt("split", Split()).direct("split").all("split", stream="errors")
    builder.bolt("split", Sink())
    problems = problems_of(builder)
    assert problems == [
        "bolt 'split': there is a component with this id already",
        "the topology has no spout: nothing would ever flow",
        "bolt 'count': subscribes to 'splt', and there is no such component "
        "(did you mean 'split'?)",
        "bolt 'count': subscribes to 'count', which declares no outputs",
        "bolt 'split': has a direct grouping on 'split', which is not a direct stream",
        "bolt 'split': has a grouping 'all' on 'split:errors', which is a direct stream; "
        "use a direct grouping",
    ]
    with pytest.raises(InvalidTopologyError) as caught:
        builder.build()
    assert str(caught.value) == "6 things are wrong with this topology:" + "".join(
        f"\n  - {problem}" for problem in problems
    )


def test_two_groupings_on_one_stream_are_refused():
    builder = TopologyBuilder()
    builder.spout("s", Lines())
    builder.bolt("b", Sink()).shuffle("s").all("s")
    assert "subscribes to 's' twice" in one_problem(builder)


def test_a_field_or_stream_that_is_not_there_is_said_with_those_that_are():
    builder = TopologyBuilder()
    builder.spout("s", Lines())
    builder.bolt("a", Sink()).fields("s", "lien")
    builder.bolt("b", Sink()).shuffle("s", stream="other")
    assert problems_of(builder) == [
        "bolt 'a': groups 's' by field 'lien', which that stream does not have "
        "(did you mean 'line'?)",
        "bolt 'b': subscribes to stream 'other' of 's', which has no such stream "
        "(it has 'default')",
    ]


def test_the_fields_of_a_partial_key_must_exist():
    builder = TopologyBuilder()
    builder.spout("s", Lines())
    builder.bolt("a", Sink()).partial_key("s", "wrd")
    assert one_problem(builder) == (
        "bolt 'a': groups 's' by field 'wrd', which that stream does not have (it has 'line')"
    )


def test_groupings_without_fields_are_refused():
    builder = TopologyBuilder()
    builder.spout("s", Lines())
    builder.bolt("a", Sink()).fields("s")
    builder.bolt("b", Sink()).partial_key("s")
    assert len(problems_of(builder)) == 2


@pytest.mark.parametrize(
    ("grouping", "says"),
    [(Odd, "Odd is a class"), (3, "3 is not a CustomGrouping")],
    ids=lambda value: type(value).__name__,
)
def test_a_custom_grouping_must_be_one(grouping, says):
    builder = TopologyBuilder()
    builder.spout("s", Lines())
    builder.bolt("a", Sink()).custom("s", grouping)
    assert says in one_problem(builder)


class Ticking(Bolt):
    component_conf: Any = {"topology.tick.tuple.freq.secs": 5, "mine": 1}

    def __init__(self, every_secs: int | None = None) -> None:
        if every_secs is not None:
            self.component_conf = {"topology.tick.tuple.freq.secs": every_secs}

    def execute(self, tup: Any) -> None: ...


@pytest.mark.parametrize(
    ("bolt", "given", "expected"),
    [
        (Ticking(), None, {"topology.tick.tuple.freq.secs": 5, "mine": 1}),
        (Ticking(7), None, {"topology.tick.tuple.freq.secs": 7}),
        (Ticking(), {"mine": 2}, {"topology.tick.tuple.freq.secs": 5, "mine": 2}),
    ],
    ids=["of the class", "of the constructor", "below the builder's"],
)
def test_a_component_brings_configuration_along(bolt: Bolt, given: Any, expected: Any) -> None:
    builder = TopologyBuilder()
    builder.spout("lines", Lines())
    builder.bolt("ticking", bolt, conf=given).shuffle("lines")
    assert builder.build().components["ticking"].conf == expected


def test_configuration_that_is_not_a_dict_is_refused() -> None:
    class Wrong(Ticking):
        component_conf = ["topology.tick.tuple.freq.secs"]

    builder = TopologyBuilder()
    builder.spout("lines", Lines())
    builder.bolt("wrong", Wrong()).shuffle("lines")
    with pytest.raises(InvalidTopologyError, match="bolt 'wrong': component_conf is"):
        builder.build()


@pytest.mark.parametrize(
    "key", ["topology.workers", "topology.message.timeout.secs", "nimbus.seeds"]
)
def test_an_option_that_cannot_count_for_one_component_is_refused_by_name(key: str) -> None:
    value = {"nimbus.seeds": ["a"]}.get(key, 3)
    builder = TopologyBuilder()
    builder.spout("lines", Lines(), conf={key: value, "mine": 1, "topology.spout.batch": 2})
    with pytest.raises(
        InvalidTopologyError, match=f"spout 'lines': its conf has {key}, which"
    ) as e:
        builder.build()
    assert len(e.value.problems) == 1


def test_a_grouping_may_be_given_as_a_value() -> None:
    by_line = Grouping(GroupingKind.FIELDS, fields=("line",))
    builder = TopologyBuilder()
    builder.spout("lines", Lines())
    builder.bolt("sink", Sink()).grouping("lines", by_line)
    built = builder.build().components["sink"]
    assert built.inputs == {GlobalStreamId("lines", "default"): by_line}
    builder.bolt("other", Sink()).grouping("lines", "fields")  # type: ignore[arg-type]
    with pytest.raises(InvalidTopologyError, match="is 'fields'; expected a Grouping"):
        builder.build()


def test_fields_may_be_given_as_a_list() -> None:
    builder = TopologyBuilder()
    builder.spout("words", Lines("x"))
    builder.bolt("a", Sink()).fields("words", ["line"])
    builder.bolt("b", Sink()).partial_key("words", ["line"])
    components = builder.build().components
    ((_, grouping),) = components["a"].inputs.items()
    assert grouping.fields == ("line",)
    builder.bolt("c", Sink()).fields("words", [])
    builder.bolt("d", Sink()).fields("words", 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidTopologyError) as caught:
        builder.build()
    assert "bolt 'c': fields('words') names no field" in str(caught.value)
    assert "bolt 'd': grouping of 'words' by 7; expected names of fields" in str(caught.value)
