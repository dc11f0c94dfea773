"""Columns that stay Arrow."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for, run_here

from squall import ArrowBolt, Bolt, FanOut, Stream, TopologyBuilder
from squall_spark.data.bindings import StreamName
from squall_spark.plan import SparkPlan
from squall_spark.tasks.arrow import ArrowOutput, decode, encode, is_arrow, plain_array
from squall_spark.tasks.task import TaskFailedError, TaskRunner, TaskSpec

WORDS = ["the cow jumped", "over the moon", "", "the moon"]
COUNTS = Counter(" ".join(WORDS).split())


class ArrowSplit(ArrowBolt):
    outputs = Stream({"word": str})
    stateless = True

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        words = pc.split_pattern(batch["sentence"], " ")
        flat, rows = pc.list_flatten(words), pc.list_parent_indices(words)
        kept = pc.not_equal(flat, "")
        self.emit_arrow([flat.filter(kept)], origins=rows.filter(kept))


class ColumnSplit(Bolt):
    outputs = ["word"]

    def execute_columns(self, columns: Any) -> None:
        (sentences,) = columns
        words, origins = [], []
        for row, sentence in enumerate(sentences):
            words += sentence.split()
            origins += [row] * len(sentence.split())
        self.emit_columns([words], origins=origins)


class FanOutSplit(Bolt):
    outputs = ["word"]

    def execute_columns(self, columns: Any) -> None:
        (sentences,) = columns
        found = [sentence.split() for sentence in sentences]
        words = [word for some in found for word in some]
        self.emit_columns([words], origins=FanOut(map(len, found)))


class ArrowFanOutSplit(ArrowBolt):
    outputs = Stream({"word": str})

    def execute_arrow(self, batch: pa.RecordBatch) -> None:
        found = [sentence.split() for sentence in batch["sentence"].to_pylist()]
        words = pa.array([word for some in found for word in some], pa.string())
        self.emit_arrow([words], origins=FanOut(map(len, found)))


class ColumnCount(Bolt):
    outputs = Stream({"word": str, "count": int})

    def prepare(self, conf: Any, context: Any) -> None:
        self.counts: Counter[str] = Counter()

    def execute_columns(self, columns: Any) -> None:
        self.counts.update(columns["word"])

    def flush(self) -> None:
        self.emit_columns([list(self.counts), list(self.counts.values())], origins=())


def plan(
    split: type = ArrowSplit, count: type = ColumnCount, grouping: str = "fields"
) -> SparkPlan:
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless(), parallelism=2)
    builder.bolt("split", split(), parallelism=2).local_or_shuffle("sentences")
    bolt = builder.bolt("count", count(), parallelism=3)
    if grouping == "fields":
        bolt.fields("split", "word")
    else:
        getattr(bolt, grouping)("split")
    return plan_for(builder, ["sentences=text:/in"], ["count=/out"])


@pytest.mark.parametrize(
    "split", [ArrowSplit, ArrowFanOutSplit, ColumnSplit, FanOutSplit, st.Split]
)
@pytest.mark.parametrize("count", [ColumnCount, st.Count])
def test_the_same_answer_as_tuples(split: type, count: type) -> None:
    rows = run_here(plan(split, count), {"sentences": [WORDS]})["count"]
    assert {word: n for word, n in rows} == COUNTS  # noqa: C416
    assert len(rows) == len(COUNTS)


def test_streams_are_arrow_if_all_their_consumers_take_columns() -> None:
    names = {"sentences", "split", "count"}
    assert plan().arrow_streams == {StreamName(name) for name in names}
    assert plan(count=st.Count).arrow_streams == {StreamName("sentences")}
    assert plan(split=st.Split).arrow_streams == {StreamName("count")}


def sent(wanted: SparkPlan, columns: list[Any], component: str = "split") -> dict[int, list[Any]]:
    """The rows by task that a task sends as Arrow."""
    output = ArrowOutput(wanted, component, wanted.stage(component).tasks[0])
    assert output.takes("default", columns)
    found: dict[int, list[Any]] = {}
    for task, data in output.take(end=True):
        assert is_arrow(data)
        found.setdefault(task, []).extend(decode(data).to_pydict()["word"])
    return found


VALUES = some.one_of(
    some.lists(some.one_of(some.none(), some.text(max_size=4)), min_size=1),
    some.lists(some.integers(-(2**63), 2**63 - 1), min_size=1),
    some.lists(some.floats(), min_size=1),
    some.lists(some.booleans(), min_size=1),
    some.lists(some.binary(max_size=4), min_size=1),
)


@given(VALUES)
def test_a_fields_grouping_chooses_the_tasks_of_the_engine(values: list[Any]) -> None:
    from squall_common.component.groupings import stable_hash

    wanted = plan(split=ColumnSplit)
    if plain_array(values) is None:
        return  # lone surrogates: they go through the engine
    tasks = wanted.stage("count").tasks
    expected: dict[int, list[Any]] = {}
    for value in values:
        expected.setdefault(tasks[stable_hash(value) % len(tasks)], []).append(value)
    found = sent(wanted, [values])
    assert {t: Counter(map(repr, v)) for t, v in found.items()} == {
        t: Counter(map(repr, v)) for t, v in expected.items()
    }


def test_shuffle_all_and_global() -> None:
    words = [f"w{n}" for n in range(100)]
    tasks = plan().stage("count").tasks
    shuffled = sent(plan(split=ColumnSplit, grouping="shuffle"), [words])
    assert sorted(shuffled) == list(tasks)
    assert {len(part) for part in shuffled.values()} <= {33, 34}
    assert sorted(w for part in shuffled.values() for w in part) == sorted(words)
    everywhere = sent(plan(split=ColumnSplit, grouping="all"), [words])
    assert everywhere == dict.fromkeys(tasks, words)
    assert sent(plan(split=ColumnSplit, grouping="global_"), [words]) == {tasks[0]: words}


@pytest.mark.parametrize(
    "values",
    [["a", 1], [1, 2.0], [True, 1], [2**63], [("a",)], ["\ud800"], [object()], "text"],
)
def test_other_values_go_through_the_engine(values: Any) -> None:
    wanted = plan(split=ColumnSplit)
    output = ArrowOutput(wanted, "split", wanted.stage("split").tasks[0])
    assert not output.takes("default", [values])
    assert not output.takes("default", [["a"], ["b"]])  # the engine says what is wrong
    assert not output.takes("elsewhere", [["a"]])
    assert output.take(end=True) == []


def test_values_of_a_declared_type_only() -> None:
    wanted = plan()
    output = ArrowOutput(wanted, "count", wanted.stage("count").tasks[0])
    assert not output.takes("default", [["a"], ["b"]])
    assert not output.takes("default", [["a"], [None]])
    assert not output.takes("default", [["a", "b"], [1]])
    assert output.takes("default", [pa.array(["a"]).dictionary_encode(), pa.array([1], pa.int8())])


def test_few_large_values_are_sent_before_they_fill_the_memory() -> None:
    wanted = plan(split=ColumnSplit)
    output = ArrowOutput(wanted, "split", wanted.stage("split").tasks[0])
    most = 0
    for _ in range(32):
        assert output.takes("default", [["x" * 2**20]])
        most = max(most, sum(len(data) for _, data in output.take()))
    assert 0 < most < 16 * 2**20


def test_a_batch_survives_its_way() -> None:
    batch = pa.record_batch([pa.array(["a", None]), pa.array([1, 2])], names=["x", "y"])
    back = decode(encode("late", 7, batch))
    assert back.equals(batch)
    assert back.schema.metadata == {b"stream": b"late", b"task": b"7"}


class RaisesOnColumns(Bolt):
    outputs = ["word"]

    def execute_columns(self, columns: Any) -> None:
        if columns["sentence"] == ["fail"]:
            columns.fail(0)
        if columns["sentence"] == ["few"]:
            self.emit_columns([["a", "b"]])
        if columns["sentence"] == ["many"]:
            self.emit_columns([["a", "b"]], origins=FanOut([3]))
        assert (columns.source_component, columns.source_stream) == ("sentences", "default")
        raise ValueError(f"cannot take {columns[0]}")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("x", r"^component 'split', task \d+: a tuple failed: ValueError: cannot take \['x'\]"),
        ("fail", "it failed a tuple"),
        ("few", "emit_columns: 2 tuples out of a batch of 1"),
        ("many", "emit_columns: the counts in FanOut add up to 3 for 2 tuples"),
    ],
)
def test_a_bolt_that_fails_is_named(word: str, message: str) -> None:
    wanted = plan(split=RaisesOnColumns)
    source = ArrowOutput(wanted, "sentences", wanted.stage("sentences").tasks[0])
    assert source.takes("default", [[word]])
    ((_, data),) = source.take(end=True)
    spec = TaskSpec(wanted, "split", from_data=False)
    with TaskRunner(spec, 0) as runner, pytest.raises(TaskFailedError, match=message):
        runner.feed((data,))
