"""The stages: what a partition of Spark's does with its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for

from squall import TopologyBuilder
from squall_spark.data.bad_records import FAIL
from squall_spark.plan import SparkPlan
from squall_spark.tasks import stages
from squall_spark.tasks.stages import (
    SECTIONS,
    DataInput,
    Reader,
    bolt_stage,
    bounded_stage,
    data_stage,
)
from squall_spark.tasks.task import TaskSpec

Row = tuple[int, bytes | None]


def batches(rows: Iterable[Row]) -> Iterator[pa.RecordBatch]:
    """A row a batch, but for an empty one at the start."""
    yield pa.record_batch([pa.array([], pa.int32()), pa.array([], pa.binary())], schema=SECTIONS)
    for to, data in rows:
        columns = [pa.array([to], pa.int32()), pa.array([data], pa.binary())]
        yield pa.record_batch(columns, schema=SECTIONS)


def rows(found: Iterable[pa.RecordBatch]) -> list[Row]:
    return [
        (to, data)
        for batch in found
        for to, data in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
    ]


def numbered(tasks: int) -> SparkPlan:
    builder = TopologyBuilder()
    builder.spout("numbers", st.Numbers(30), parallelism=tasks)
    builder.bolt("near", st.Told(), parallelism=tasks).local_or_shuffle("numbers")
    builder.bolt("told", st.Told(), parallelism=tasks).fields("near", "value")
    return plan_for(builder)


def of(plan: SparkPlan, component: str) -> TaskSpec:
    return TaskSpec(plan, component, from_data=False)


def test_a_partition_of_several_tasks_runs_each_with_its_own_tuples() -> None:
    plan = numbered(6)
    first = plan.stage("told").tasks[0]
    indexes = iter([pa.record_batch({"id": pa.array(range(6))})])
    emitted = rows(bounded_stage(of(plan, "numbers"), None)(indexes))
    near = rows(bolt_stage(of(plan, "near"), None, tasks=6)(batches(emitted)))
    markers: list[Row] = [(task, None) for task in plan.stage("told").tasks]
    to_told = [(to, data) for to, data in near if to >= first and to not in plan.sink_tasks]
    told: list[Row] = []
    for mine in (range(first, first + 4), range(first + 4, first + 6)):
        partition = [row for row in [*to_told, *markers] if row[0] in mine]
        told += rows(bolt_stage(of(plan, "told"), None, tasks=4)(batches(partition)))
    (sink,) = plan.sinks
    reader = Reader(plan, sink)
    found = [row for _, data in told for row in reader.rows(data or b"")]
    # A partition of its own for each task gives the same.
    alone: list[Row] = []
    for task in plan.stage("told").tasks:
        partition = [row for row in [*to_told, *markers] if row[0] == task]
        alone += rows(bolt_stage(of(plan, "told"), None)(batches(partition)))
    wanted = [row for _, data in alone for row in reader.rows(data or b"")]
    assert Counter(map(tuple, found)) == Counter(map(tuple, wanted))
    assert sorted(value for value, _, _ in found) == list(range(30))
    # Local-or-shuffle: each number stays with the task of its spout's task.
    near_tasks, spouts = plan.tasks_of("near"), plan.tasks_of("numbers")
    assert all(near_tasks.index(source) == value % 6 for value, _, source in found)
    assert len(spouts) == 6


@pytest.mark.parametrize(("bytes_each", "used"), [(100, 1), (stages._TURN_BYTES, 3)])
def test_tasks_of_a_data_set_take_portions_of_it_in_turn(
    monkeypatch: pytest.MonkeyPatch, bytes_each: int, used: int
) -> None:
    """A task that gets nothing costs nothing; the bolts beside it run all the same."""
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless(), parallelism=4)
    builder.bolt("split", st.Split(), parallelism=4).local_or_shuffle("sentences")
    plan = plan_for(builder, ["sentences=text:/in"])
    (source,) = plan.stage("sentences").sources
    monkeypatch.setattr(stages, "_partition", lambda: 0)
    started: list[int] = []
    real = stages._runner

    def runner(spec: TaskSpec, index: int, *arguments: object) -> object:
        started.append(index)
        return real(spec, index, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stages, "_runner", runner)
    stage = data_stage(
        TaskSpec(plan, "sentences", from_data=True), None, [DataInput(source, ("sentence",))],
        FAIL, tasks=4,
    )  # fmt: skip
    data = [pa.record_batch({"sentence": ["a" * bytes_each]}) for _ in range(3)]
    found = rows(stage(iter(data)))
    assert started == list(range(used))
    split = plan.tasks_of("split")
    assert [to for to, section in found if section is None] == split
    assert {to for to, section in found if section is not None} == set(split[:used])
