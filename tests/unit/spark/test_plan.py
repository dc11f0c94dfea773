"""The planner: what Spark cannot run is refused by name, and the rest becomes stages."""

from __future__ import annotations

import pytest
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for

from squall import InvalidTopologyError, ShellSpout, TopologyBuilder
from squall.windows import EventTime, Windows, session, sliding, tumbling
from squall_spark.data.bindings import Format, StreamName
from squall_spark.plan import StageKind, near_tasks


def sentences() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless(), parallelism=2)
    return builder


def refused(builder: TopologyBuilder, *args: object, **kwargs: object) -> tuple[str, ...]:
    with pytest.raises(InvalidTopologyError) as caught:
        plan_for(builder, *args, **kwargs)  # type: ignore[arg-type]
    return caught.value.problems


def word_count() -> TopologyBuilder:
    builder = sentences()
    builder.bolt("split", st.Split(), parallelism=2).shuffle("sentences")
    builder.bolt("count", st.Count(), parallelism=3).fields("split", "word")
    return builder


def test_a_topology_becomes_stages_sources_first() -> None:
    plan = plan_for(word_count(), ["sentences=/in/*.parquet"], ["counts.d"])
    assert [(s.component, s.kind, len(s.tasks), s.inputs, s.readers) for s in plan.stages] == [
        ("sentences", StageKind.DATA, 2, (), 1),
        ("split", StageKind.BOLT, 2, ("sentences",), 1),
        ("count", StageKind.BOLT, 3, ("split",), 2),
    ]
    (sink,) = plan.sinks
    assert (sink.stream, sink.fields, sink.path, sink.format) == (
        StreamName("count"),
        ("word", "count"),
        "counts.d/count",
        Format.PARQUET,
    )


def test_a_spout_without_data_and_without_an_end_is_refused() -> None:
    assert refused(word_count()) == (
        "spout 'sentences' has no end (its class defines no exhausted()); "
        "give it data: --input sentences=PATH",
    )


def test_a_bounded_spout_that_depends_on_acks_is_refused() -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", st.AckedNumbers(3))
    builder.bolt("told", st.Told()).shuffle("numbers")
    (problem,) = refused(builder)
    assert problem.startswith("spout 'numbers' depends on acks")


def test_a_shell_spout_needs_data() -> None:
    builder = TopologyBuilder()
    builder.spout("shell", ShellSpout("python3", "spout.py", outputs=["word"]))
    builder.bolt("count", st.Count()).shuffle("shell")
    assert refused(builder)[0].startswith("spout 'shell' has no end")
    assert plan_for(builder, ["shell=/in.json"]).stages


def test_a_cycle_is_refused_with_its_path() -> None:
    builder = sentences()
    builder.bolt("a", st.Split()).shuffle("sentences").shuffle("c")
    builder.bolt("b", st.Told()).shuffle("a")
    builder.bolt("c", st.Told()).shuffle("b")
    (problem,) = refused(builder, ["sentences=/in.txt"], [])
    assert problem == "a -> b -> c -> a is a cycle: Spark computes a component once"


def test_ticks_are_the_stages_and_not_the_engines() -> None:
    builder = sentences()
    ticked = builder.bolt("ticked", st.Ticked()).shuffle("sentences")
    ticked.conf({"topology.tick.tuple.freq.secs": 1})
    plan = plan_for(builder, ["sentences=/in.txt"])
    assert plan.stage("ticked").tick_secs == 1
    assert plan.topology.components["ticked"].conf["topology.tick.tuple.freq.secs"] is None
    everywhere = plan_for(word_count(), ["sentences=/in.txt"], conf={
        "topology.tick.tuple.freq.secs": 3
    })  # fmt: skip
    assert [stage.tick_secs for stage in everywhere.stages] == [None, 3, 3]


def test_windows_by_the_clock_are_refused_in_a_batch_job_alone() -> None:
    builder = sentences()
    builder.bolt("windows", st.Windows()).windowed(tumbling(secs=10)).shuffle("sentences")
    (problem,) = refused(builder, ["sentences=/in.txt"])
    assert problem.startswith("bolt 'windows' has windows by the clock")
    plan = plan_for(builder, ["sentences=socket:h:1"], streaming=True)
    assert plan.stage("windows").stateful


@pytest.mark.parametrize(
    ("windows", "by_time"),
    [
        (tumbling(count=10), False),
        (tumbling(secs=10, event_time=EventTime("sentence")), True),
        (session(gap_secs=10, event_time=EventTime("sentence")), True),
        (sliding(count=10, every_secs=5, event_time=EventTime("sentence")), True),
    ],
)
def test_windows_in_event_time_get_their_tuples_in_order(windows: Windows, by_time: bool) -> None:
    builder = sentences()
    builder.bolt("windows", st.Windows()).windowed(windows).shuffle("sentences")
    for streaming in (False, True):
        stage = plan_for(builder, ["sentences=/in.txt"], streaming=streaming).stage("windows")
        assert (stage.windowed, stage.by_time, stage.stateful) == (True, by_time, streaming)


def test_all_problems_are_reported_at_once() -> None:
    problems = refused(word_count(), ["split=/in.txt", "nobody=/in.txt"], ["cnt=/o", "count:x=/o"])
    assert len(problems) == 6
    assert "--input split: 'split' is a bolt (spouts: 'sentences')" in problems
    assert "--input nobody: 'nobody' is not a component (spouts: 'sentences')" in problems
    assert any("there is no component 'cnt'" in problem for problem in problems)
    assert any("'count' has no stream 'x' (it has 'default')" in problem for problem in problems)
    assert "--output /o is given twice" in problems


def test_an_output_of_everything_needs_a_stream_without_a_consumer() -> None:
    builder = sentences()
    builder.bolt("split", st.Split()).shuffle("sentences")
    builder.bolt("end", st.Silent()).shuffle("split")
    (problem,) = refused(builder, ["sentences=/in.txt"])
    assert problem.startswith("--output /out: every stream is consumed; name one")
    plan = plan_for(builder, ["sentences=/in.txt"], ["split=/out"])
    assert [stage.readers for stage in plan.stages] == [1, 3, 0]


def test_a_stream_that_bolts_read_must_be_bound_too() -> None:
    builder = TopologyBuilder()
    builder.spout("shop", st.TwoStreams())
    builder.bolt("a", st.Told()).shuffle("shop", "orders").shuffle("shop", "refunds")
    (problem,) = refused(builder, ["shop:orders=/in.json"])
    assert problem == (
        "spout 'shop': 'a' reads its stream 'refunds'; bind that too: --input shop:refunds=PATH"
    )
    assert plan_for(builder, ["shop:orders=/in.json", "shop:refunds=/in.csv"]).stages


def test_streaming_takes_stateful_and_stateless_bolts_only() -> None:
    (problem,) = refused(word_count(), ["sentences=socket:h:1"], streaming=True)
    assert problem == (
        "bolt 'count' would lose its data between two micro-batches: derive it from "
        "squall.StatefulBolt, or set `stateless = True` in its class"
    )
    builder = sentences()
    builder.bolt("split", st.Split()).shuffle("sentences")
    builder.bolt("count", st.RunningCount()).fields("split", "word")
    plan = plan_for(builder, ["sentences=socket:h:1"], streaming=True)
    assert [stage.stateful for stage in plan.stages] == [False, False, True]


def test_local_or_shuffle_does_not_move_tuples_when_both_have_as_many_tasks() -> None:
    builder = sentences()
    builder.bolt("same", st.Split(), parallelism=2).local_or_shuffle("sentences")
    builder.bolt("more", st.Split(), parallelism=3).local_or_shuffle("sentences")
    plan = plan_for(builder, ["sentences=/in.txt"])
    assert {stage.component: stage.moves for stage in plan.stages} == {
        "sentences": True,
        "same": False,
        "more": True,
    }
    first, second = plan.tasks_of("sentences")
    same, more = plan.tasks_of("same"), plan.tasks_of("more")
    assert near_tasks(plan, first) == {same[0], more[0], more[2]}
    assert near_tasks(plan, second) == {same[1], more[1]}
