"""One task of a topology over sections: what a partition on Spark does, without Spark."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for, run_here

from squall import TopologyBuilder
from squall_common.component.groupings import stable_hash
from squall_common.config.options.typed import TopologyOptions
from squall_common.topology.system import component_tasks
from squall_spark.tasks.task import TaskFailedError

SENTENCES = ["the cow jumped", "over the moon", "the moon"]


def numbers(count: int = 20, parallelism: int = 2) -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("numbers", st.Numbers(count), parallelism=parallelism)
    return builder


def test_word_count_over_a_data_set() -> None:
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless())
    builder.bolt("split", st.Split(), parallelism=2).shuffle("sentences")
    builder.bolt("count", st.Count(), parallelism=3).fields("split", "word")
    plan = plan_for(builder, ["sentences=/in.txt"])
    out = run_here(plan, {"sentences": [SENTENCES]})
    assert dict(map(tuple, out["count"])) == Counter(" ".join(SENTENCES).split())


def test_a_fields_grouping_picks_the_task_that_the_cluster_would() -> None:
    builder = numbers()
    builder.bolt("pair", st.Pair(7)).shuffle("numbers")
    builder.bolt("told", st.Told(), parallelism=3).fields("pair", "key")
    plan = plan_for(builder)
    cluster = component_tasks(builder.build(), TopologyOptions.read(plan.conf))
    tasks = sorted(task for task, component in cluster.items() if component == "told")
    out = run_here(plan)["told"]
    assert len(out) == 20
    for key, task, _ in out:
        assert task == tasks[stable_hash(key) % 3]


def test_tasks_have_the_numbers_of_the_cluster_ackers_included() -> None:
    builder = numbers()
    builder.bolt("told", st.Told(), parallelism=2).shuffle("numbers")
    plan = plan_for(builder, conf={"topology.workers": 3})
    cluster = component_tasks(builder.build(), TopologyOptions.read(plan.conf))
    mine = {t: c for t, c in plan.task_to_component.items() if t not in plan.sink_tasks}
    assert mine == {t: c for t, c in cluster.items() if c != "__acker"}
    assert min(mine) == 4  # after three ackers


@pytest.mark.parametrize("grouping", ["shuffle", "all", "global_", "local_or_shuffle", "none"])
def test_emit_returns_the_tasks_that_get_the_tuple(grouping: str) -> None:
    builder = numbers()
    builder.bolt("sends", st.Sends(), parallelism=2).shuffle("numbers")
    getattr(builder.bolt("told", st.Told(), parallelism=3), grouping)("sends")
    out = run_here(plan_for(builder))
    said = Counter((value, task) for value, tasks in out["sends:sent"] for task in tasks)
    got = Counter((value, task) for value, task, _ in out["told"])
    assert said == got
    assert len(got) == (60 if grouping == "all" else 20)


def test_emit_on_a_stream_that_only_an_output_reads_goes_nowhere() -> None:
    builder = numbers()
    builder.bolt("sends", st.Sends()).shuffle("numbers")
    out = run_here(plan_for(builder))
    assert {tuple(tasks) for _, tasks in out["sends:sent"]} == {()}
    assert len(out["sends"]) == 20


def test_local_or_shuffle_stays_in_its_partition() -> None:
    builder = numbers(parallelism=2)
    builder.bolt("told", st.Told(), parallelism=2).local_or_shuffle("numbers")
    plan = plan_for(builder)
    assert [stage.moves for stage in plan.stages if stage.component == "told"] == [False]
    sources, reported = plan.tasks_of("numbers"), plan.tasks_of("told")
    for _, task, source in run_here(plan)["told"]:
        assert reported.index(task) == sources.index(source)


def test_shuffle_spreads_evenly() -> None:
    builder = numbers(90, parallelism=1)
    builder.bolt("told", st.Told(), parallelism=3).shuffle("numbers")
    counts = Counter(task for _, task, _ in run_here(plan_for(builder))["told"])
    assert set(counts.values()) == {30}


def test_direct_custom_and_partial_key_groupings() -> None:
    builder = numbers()
    builder.bolt("direct", st.SendsDirect("target")).shuffle("numbers")
    builder.bolt("target", st.Told(), parallelism=3).direct("direct")
    builder.bolt("largest", st.Told(), parallelism=3).custom("numbers", st.Largest())
    builder.bolt("pair", st.Pair(2)).shuffle("numbers")
    builder.bolt("partial", st.Told(), parallelism=4).partial_key("pair", "key")
    plan = plan_for(builder)
    out = run_here(plan)
    targets = plan.tasks_of("target")
    assert all(task == targets[value % 3] for value, task, _ in out["target"])
    assert {task for _, task, _ in out["largest"]} == {plan.tasks_of("largest")[-1]}
    by_key: dict[str, set[int]] = {}
    for key, task, _ in out["partial"]:
        by_key.setdefault(key, set()).add(task)
    assert all(len(tasks) <= 2 for tasks in by_key.values())


@pytest.mark.parametrize(
    "bolt", [st.Doubles, st.DoublesAsync, st.DoublesBatch, st.DoublesColumns, st.DoublesThread]
)
def test_every_kind_of_bolt_runs(bolt: type) -> None:
    builder = numbers()
    builder.bolt("doubles", bolt(), parallelism=2).shuffle("numbers")
    values = sorted(value for (value,) in run_here(plan_for(builder))["doubles"])
    flushed = [-1, -1] if bolt is st.DoublesThread else []
    assert values == flushed + [2 * n for n in range(20)]


def test_values_keep_their_types_between_tasks() -> None:
    builder = numbers()
    builder.bolt("rich", st.Rich()).shuffle("numbers")
    builder.bolt("types", st.TypesOf(), parallelism=2).fields("rich", "number")
    out = run_here(plan_for(builder))["types"]
    assert {kind for _, kind in out} == {type(value).__name__ for value in st.Rich.VALUES}


@pytest.mark.parametrize(
    ("bolt", "message"),
    [
        (st.Raises, r"component 'b', task \d+: a tuple failed: ValueError: cannot take \d+"),
        (st.Fails, r"component 'b', task \d+: it failed a tuple, and Spark cannot replay it"),
        (st.Prepares, r"component 'b': prepare\(\) failed: RuntimeError: no database here"),
    ],
)
def test_a_failure_ends_the_task_and_names_the_component(bolt: type, message: str) -> None:
    builder = numbers()
    builder.bolt("b", bolt()).shuffle("numbers")
    with pytest.raises(TaskFailedError, match=message):
        run_here(plan_for(builder))


def test_a_spout_that_raises_ends_its_task() -> None:
    builder = TopologyBuilder()
    builder.spout("source", st.RaisingSpout(3))
    builder.bolt("told", st.Told()).shuffle("source")
    with pytest.raises(TaskFailedError, match=r"'source'.*next_tuple\(\).*the source is gone"):
        run_here(plan_for(builder))


def test_a_reported_error_is_shown_and_the_task_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    builder = numbers(3)
    builder.bolt("b", st.Complains()).shuffle("numbers")
    assert len(run_here(plan_for(builder))["b"]) == 3
    assert "odd, but fine" in capsys.readouterr().err


def test_a_task_makes_the_same_choices_when_it_runs_again() -> None:
    builder = numbers(50)
    builder.bolt("told", st.Told(), parallelism=5).shuffle("numbers")
    plan = plan_for(builder)
    assert run_here(plan) == run_here(plan)
