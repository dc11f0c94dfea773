"""Plans on Spark without Spark: the stages run one after the other in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from squall import TopologyBuilder
from squall_common.component.state import KeyValueState, MemoryState
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_spark.data.bindings import parse_input, parse_output
from squall_spark.plan import Sink, SparkPlan, StageKind, make_plan
from squall_spark.tasks.arrow import decode, is_arrow
from squall_spark.tasks.stages import Reader
from squall_spark.tasks.task import TaskRunner, TaskSpec
from squall_spark.traits import traits_of


def plan_for(
    builder: TopologyBuilder,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = ("/out",),
    conf: Mapping[str, Any] | None = None,
    *,
    streaming: bool = False,
) -> SparkPlan:
    """As `storm spark run` makes it."""
    topology = builder.build()
    stored = normalize_topology_conf(conf or {}, default_conf(), name="test")
    return make_plan(
        "test",
        topology,
        stored,
        traits_of(topology),
        [parse_input(text) for text in inputs],
        [parse_output(text) for text in outputs],
        streaming=streaming,
    )


def _rows(plan: SparkPlan, sink: Sink, section: bytes) -> list[Any]:
    if is_arrow(section):
        return [tuple(row.values()) for row in decode(section).to_pylist()]
    return Reader(plan, sink).rows(section)


def run_here(
    plan: SparkPlan,
    data: Mapping[str, Sequence[Sequence[Any]]] | None = None,
    *,
    code_dir: Path | None = None,
    states: dict[int, KeyValueState] | None = None,
    now_secs: float | None = None,
) -> dict[str, list[list[Any]]]:
    """The tuples of each output. `data` are the columns of data sets by spout. Of a micro-batch,
    `states` has the states by task, and `now_secs` is its time."""
    sections: dict[int, list[bytes]] = {}
    for stage in plan.stages:
        from_data = stage.kind is StageKind.DATA
        spec = TaskSpec(plan, stage.component, from_data=from_data)
        for index, task in enumerate(stage.tasks):
            state = None
            if states is not None and stage.stateful:
                state = states.setdefault(task, MemoryState())
            with TaskRunner(
                spec, index, code_dir=code_dir, state=state, now_secs=now_secs
            ) as runner:
                rows = []
                if from_data and index == 0:
                    columns = [pa.array(values) for values in (data or {})[stage.component]]
                    runner.feed_columns("default", columns)
                for section in sections.get(task, ()):
                    runner.feed((section,))
                    rows += runner.take()
                for portion in runner.finish():
                    rows += portion
            for to, section in rows:
                sections.setdefault(to, []).append(section)
    return {
        str(sink.stream): [
            list(row)
            for section in sections.get(sink.task, ())
            for row in _rows(plan, sink, section)
        ]
        for sink in plan.sinks
    }
