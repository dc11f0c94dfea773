"""The same windows in local mode, and on Spark as a batch and as a stream."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.support import spark_topologies as st
from tests.support.seeds import drawn_seed
from tests.support.spark_plans import plan_for

from squall import LocalCluster, TopologyBuilder, WindowedBolt
from squall.windows import EventTime, Windows, session, sliding, tumbling
from squall_spark.batch import run_batch
from squall_spark.plan import SparkPlan
from squall_spark.stream.query import run_stream

Row = tuple[str, int, int]
Pane = tuple[Any, ...]
Case = tuple[type[WindowedBolt], Windows]
AT = EventTime("at", watermark_interval_secs=0.02)
LONG_AFTER = 100_000_000
CASES: list[Case] = [
    (st.Panes, tumbling(secs=2, key="key", event_time=AT)),
    (st.WindowSums, sliding(secs=4, every_secs=1, key="key", event_time=AT)),
    (st.PanesByMethod, session(gap_secs=1, key="key", event_time=EventTime(
        watermark_interval_secs=0.02
    ))),
]  # fmt: skip


def rows_of(seed: int, count: int = 120) -> list[Row]:
    """Rows in the order of time, and one for each key that closes its windows."""
    chooser = random.Random(seed)
    times = sorted(chooser.sample(range(30_000), count))
    rows = [(chooser.choice("abcdef"), at, n) for n, at in enumerate(times, start=1)]
    return [*rows, *((key, LONG_AFTER, -n) for n, key in enumerate("abcdef", start=1))]


def write(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "".join(
            json.dumps(dict(zip(("key", "at", "number"), row, strict=True))) + "\n" for row in rows
        )
    )


def topology(cases: Sequence[Case], spout: Any = None) -> TopologyBuilder:
    """A windowed bolt for each case: panes0, panes1 ..."""
    builder = TopologyBuilder()
    builder.spout("events", spout or st.Events())
    for number, (made, windows) in enumerate(cases):
        panes = builder.bolt(f"panes{number}", made(), parallelism=2).windowed(windows)
        panes.fields("events", "key")
    return builder


def plan(folder: Path, out: Path, **kind: bool) -> SparkPlan:
    outputs = [f"panes{number}={out}/{number}" for number in range(len(CASES))]
    return plan_for(topology(CASES), [f"events=json:{folder}"], outputs, **kind)


def read(folder: Path) -> list[Pane]:
    return closed(
        [tuple(row.values()) for row in pq.read_table(folder, partitioning=None).to_pylist()]
    )


def closed(rows: Iterable[Sequence[Any]]) -> list[Pane]:
    """The panes before the last rows, by key and time."""
    panes = [tuple(tuple(v) if isinstance(v, list) else v for v in row) for row in rows]
    return sorted(pane for pane in panes if pane[3] < LONG_AFTER)


def in_local_mode(rows: list[Row], wanted: Sequence[list[Pane]]) -> list[list[Pane]]:
    """The panes of each case, once there are as many as wanted."""
    builder = topology(CASES, st.GivenEvents([list(row) for row in rows]))
    record = builder.bolt("record", st.Records())
    for number in range(len(CASES)):
        record.global_(f"panes{number}")
    st.RECORDED.clear()

    def found() -> list[list[Pane]]:
        recorded = list(st.RECORDED)
        return [
            closed(row for component, row in recorded if component == f"panes{number}")
            for number in range(len(CASES))
        ]

    with LocalCluster() as cluster:
        cluster.submit_topology("windows", {}, builder.build())
        # (Not until it is drained: what is in the last windows waits.)
        cluster.wait_until(lambda: sum(map(len, found())) >= sum(map(len, wanted)), 60)
    return found()


def test_local_mode_batch_and_stream_have_the_same_panes(spark: Any, tmp_path: Path) -> None:
    with drawn_seed("SQUALL_WINDOWS_SEED") as seed:
        check_panes(spark, tmp_path, seed)


def check_panes(spark: Any, tmp_path: Path, seed: int) -> None:
    rows = rows_of(seed)
    shuffled = random.Random(seed).sample(rows, len(rows))
    write(tmp_path / "all" / "0.jsonl", shuffled[:50])
    write(tmp_path / "all" / "1.jsonl", shuffled[50:])
    run_batch(spark, plan(tmp_path / "all", tmp_path / "batch"), None)
    batch = [read(tmp_path / "batch" / str(number)) for number in range(len(CASES))]
    assert all(batch)
    assert in_local_mode(rows, batch) == batch
    # The files arrive one by one, and the query is started anew for each.
    for number, part in enumerate((rows[:45], rows[45:46], rows[46:])):
        write(tmp_path / "in" / f"{number}.jsonl", random.Random(number).sample(part, len(part)))
        job = plan(tmp_path / "in", tmp_path / "stream", streaming=True)
        run_stream(spark, job, None, checkpoint=str(tmp_path / "cp"), available_now=True)
    stream = [read(tmp_path / "stream" / str(number)) for number in range(len(CASES))]
    assert stream == batch


def test_rows_of_an_old_file_are_late_on_a_stream(spark: Any, tmp_path: Path) -> None:
    windows = tumbling(secs=2, key="key", event_time=EventTime("at", late_stream="late"))
    files = [
        [("a", 1_000, 1), ("a", 5_000, 2), ("b", 500, 3)],
        [("a", 1_500, 4), ("a", 5_500, 5), ("b", 9_000, 6)],
    ]
    for n, rows in enumerate(files):
        write(tmp_path / "in" / f"{n}.jsonl", rows)
        job = plan_for(
            topology([(st.Panes, windows)]),
            [f"events=json:{tmp_path}/in"],
            [f"panes0={tmp_path}/out", f"panes0:late=json:{tmp_path}/late"],
            streaming=True,
        )
        run_stream(spark, job, None, checkpoint=str(tmp_path / "cp"), available_now=True)
    late = [
        json.loads(line)["late_tuple"]["values"]["number"]
        for path in sorted((tmp_path / "late").glob("batch=*/*.json"))
        for line in path.read_text().splitlines()
    ]
    assert late == [4]
    assert [pane[:2] for pane in read(tmp_path / "out")] == [
        ("a", (1,)),
        ("a", (2, 5)),  # `b` is in the same task: its last row advances the watermark of both
        ("b", (3,)),
    ]
