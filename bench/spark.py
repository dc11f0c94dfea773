"""Word count on Spark: topologies against hand-written code for the same job (`spark_jobs`), few
tasks against many, and the JVM options of `storm spark` against Spark's own.

The word counts run in one session on `local[2]`, by turns, after a first round that does not count.
By CPU time of all processes, which other work on the machine disturbs less, and by wall time. Each
ratio is the median over rounds. Every round's counts are checked.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import spark_history
from bench.processes import Tree, cpu_secs
from bench.runs import ROOT, RunError, WrongCountError
from bench.spark_jobs import (
    WORDS,
    bolts,
    expected_counts,
    frame,
    loops,
    make_sentences,
    on_arrow,
    on_squall,
)
from bench.tables import Table, met, number

SENTENCES, PARALLELISM = 1_000_000, 2
FEW, MANY = 4, 64  # tasks a component
REPORT_FILES, REPORT_INTERVALS = 100, 40
# Of a ratio, at most.
_WALL_GOAL, _ARROW_GOAL, _TASKS_GOAL, _OPTIONS_GOAL = 0.9, 1.1, 1.2, 1.0
Job = Callable[[Any, str, str, int], None]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    title: str
    job: Job | None = None  # None: a report
    tasks: int = PARALLELISM
    share: int = 1  # of the sentences: one of so many
    beside: str = ""  # the case that it is compared with
    by: str = "cpu"  # or "wall"
    goal: float | None = None
    options: tuple[tuple[str, str], ...] = ()  # of Spark, for a report


_CASES = [
    Case("loops", "two loops by hand, a row a word", loops),
    Case("bolts", "the same by hand, a call of a bolt a word", bolts, beside="loops"),
    Case("topology", "a topology of bolts", on_squall, beside="loops", by="wall", goal=_WALL_GOAL),
    Case("frame", "DataFrame calls, without Python", frame),
    Case("arrow", "a topology of ArrowBolts", on_arrow, beside="frame", goal=_ARROW_GOAL),
    Case("tasks_few", f"the topology, {FEW} tasks a component", on_squall, FEW, share=10),
    Case("tasks_many", f"the topology, {MANY} tasks a component", on_squall, MANY, share=10,
         beside="tasks_few", goal=_TASKS_GOAL),
    Case("report_java", "storm spark report, Java's own options", share=0,
         options=(("spark.driver.extraJavaOptions", ""),)),
    Case("report", "storm spark report, the default options", share=0, beside="report_java",
         goal=_OPTIONS_GOAL),
]  # fmt: skip


def cases() -> list[Case]:
    return list(_CASES)


def take(pairs: int, only: set[str] | None = None, sentences: int = SENTENCES) -> dict[str, Any]:
    """`pairs` rounds. Raises RunError and WrongCountError."""
    wanted = {case.name for case in _CASES} if only is None else set(only)
    wanted |= {case.beside for case in _CASES if case.name in wanted and case.beside}
    chosen = [case for case in _CASES if case.name in wanted]
    found: dict[str, list[tuple[float, float]]] = {case.name: [] for case in chosen}
    report: dict[str, Any] = {"pairs": pairs, "sentences": sentences, "counts_checked": True}
    with tempfile.TemporaryDirectory() as scratch:
        jobs = [case for case in chosen if case.job is not None]
        if jobs:
            sizes = _word_counts(jobs, Path(scratch), pairs, sentences, found)
            if "topology" in wanted:
                report["largest_mib"] = sizes
        reports = [case for case in chosen if case.job is None]
        if reports:
            report["history_rows"] = _reports(reports, Path(scratch), pairs, found)
    report["cases"] = {case.name: _row(case, found) for case in chosen}
    return report


def _word_counts(
    jobs: list[Case],
    scratch: Path,
    pairs: int,
    sentences: int,
    found: dict[str, list[tuple[float, float]]],
) -> dict[str, float]:
    """The largest resident sizes of a Python worker and of the JVM in the topology's runs, MiB."""
    try:
        from squall_spark.session import spark_session
    except ImportError as error:
        raise RunError(f"{error} (pip install 'squall[spark]')") from error
    # Spark's workers import the jobs from here.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    inputs: dict[int, Path] = {}
    counts: dict[int, dict[str, int]] = {}
    for share in {case.share for case in jobs}:
        inputs[share] = scratch / f"in-{share}"
        make_sentences(inputs[share], sentences // share)
        counts[share] = expected_counts(inputs[share])
    conf = [("spark.driver.memory", "1g"), ("spark.local.dir", str(scratch))]
    largest = {"python": 0.0, "java": 0.0}
    log = scratch / "spark.log"
    with spark_session("bench", master="local[2]", conf=conf, log_file=log) as spark:
        for turn in range(pairs + 1):  # Python workers and the JVM's compiler warm up
            print(f"word count, round {turn} of {pairs}", file=sys.stderr, flush=True)
            for case in jobs:
                out = scratch / f"out-{case.name}"
                assert case.job is not None
                with Tree() as tree:
                    cpu, start = cpu_secs(), time.perf_counter()
                    case.job(spark, str(inputs[case.share]), str(out), case.tasks)
                    secs = (cpu_secs() - cpu, time.perf_counter() - start)
                rows = spark.read.parquet(str(out)).collect()
                if {row["word"]: row["count"] for row in rows} != counts[case.share]:
                    raise WrongCountError(f"{case.name}: the counts of some words are wrong")
                if turn:
                    found[case.name].append(secs)
                if case.name == "topology":
                    for kind, mib in tree.largest_mib.items():
                        largest[kind] = max(largest[kind], mib)
    return largest


def _reports(
    reports: list[Case], scratch: Path, pairs: int, found: dict[str, list[tuple[float, float]]]
) -> int:
    rows = spark_history.make_history(scratch / "history", REPORT_FILES, REPORT_INTERVALS)
    for turn in range(1, pairs + 1):
        print(f"report, round {turn} of {pairs}", file=sys.stderr, flush=True)
        for case in reports:
            secs = spark_history.report(scratch / "history", scratch, dict(case.options))
            found[case.name].append(secs)
    return rows


def _row(case: Case, found: Mapping[str, list[tuple[float, float]]]) -> dict[str, Any]:
    mine = found[case.name]
    row: dict[str, Any] = {
        "title": case.title,
        "cpu_secs": round(statistics.median(cpu for cpu, _ in mine), 2),
        "cpu_secs_all": [round(cpu, 2) for cpu, _ in mine],
        "wall_secs": round(statistics.median(wall for _, wall in mine), 2),
        "wall_secs_all": [round(wall, 2) for _, wall in mine],
    }
    if case.beside:
        beside = found[case.beside]
        ratios = {
            by: [round(a[i] / b[i], 3) for a, b in zip(mine, beside, strict=True)]
            for i, by in enumerate(("cpu", "wall"))
        }
        row["beside"] = case.beside
        row["cpu_ratio"] = round(statistics.median(ratios["cpu"]), 2)
        row["wall_ratio"] = round(statistics.median(ratios["wall"]), 2)
        row["ratios"] = ratios
        if case.goal is not None:
            row["goal_by"], row["goal"] = case.by, case.goal
    return row


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for row in report["cases"].values():
        least, most = min(row["cpu_secs_all"]), max(row["cpu_secs_all"])
        ratios = ["", "", "", "", ""]
        if "beside" in row:
            beside = report["cases"][row["beside"]]["title"]
            ratios = [beside, f"{row['cpu_ratio']:.2f}x", f"{row['wall_ratio']:.2f}x", "", ""]
        if "goal" in row:
            by = row["goal_by"]
            what = "CPU" if by == "cpu" else "time"
            ratios[3] = f"{what} {row['goal']:g}x"
            ratios[4] = met(row[f"{by}_ratio"], row["goal"], None, at_most=True)
        cpu = f"{number(row['cpu_secs'])} ({least:.2f}-{most:.2f})"
        rows.append([row["title"], cpu, number(row["wall_secs"]), *ratios])
    columns = ["case", "CPU, s", "time, s", "beside", "CPU", "time", "goal", "met"]
    notes = [
        f"Medians of {report['pairs']} rounds by turns, ratios of the two runs of a round. "
        f"{report['sentences']:,} sentences of {WORDS} words, a tenth of them for the number of "
        "tasks; every count was exact."
    ]
    if "largest_mib" in report:
        sizes = report["largest_mib"]
        notes.append(
            f"The largest Python worker of the topology had {sizes['python']:.0f} MiB, and the JVM "
            f"{sizes['java']:.0f} MiB (its heap is limited to 1 GiB)."
        )
    if "history_rows" in report:
        notes.append(f"The history has {report['history_rows']:,} rows.")
    return [Table("Word count on Spark", columns, rows, notes)]
