"""What windows cost a tuple: a count by windows against the same count by a plain bolt. And by how
much a window larger than its bound in memory makes its process grow."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from bench.runs import Case, WrongCountError, measure, run
from bench.tables import Table, met, number
from bench.windowed import large_count
from squall_engine import core

TOTAL = 300_000
_PLAIN = "plain"
_TITLES = {
    _PLAIN: "a plain bolt that counts by key",
    "tuples_count": "`WindowedBolt`, tumbling, 1,000 tuples",
    "aggregate_count": "`AggregateBolt`, the same windows",
    "sliding_2": "`AggregateBolt`, `hold = False`, 1,000 tuples every 500",
    "sliding_100": "the same every 10: each tuple is in 100 windows",
    "event_2": "`AggregateBolt`, `hold = False`, 10 s of event time every 5 s, 100 keys",
    "event_100": "the same every 0.1 s: each tuple is in 100 windows, and 100 times more results",
}


def cases() -> list[Case]:
    return [
        Case(
            name,
            "windowed.counting",
            {"kind": name, "total": TOTAL},
            TOTAL,
            executed={"counted": TOTAL},
            messages=TOTAL,
            title=title,
            core=core.NAME,
        )
        for name, title in _TITLES.items()
    ]


_LARGE_MB_MIN = 100.0  # that such a window has at least
GROWN_MB_GOAL = 20.0
_IN_MEMORY = 500


def large_cases() -> list[Case]:
    """Windows of 126 MB, with 500 tuples in memory and with all."""
    return [
        Case(
            f"large_{size}_{'all' if bound is None else bound}",
            "windowed.large",
            {"size": size, "in_memory": bound},
            large_count(size),
            executed={"read": large_count(size)},
            messages=large_count(size),
            title=f"tuples of {size:,} bytes, {'all' if bound is None else f'{bound:,}'} in memory",
            core=core.NAME,
            conf={"topology.max.spout.pending": large_count(size)},
        )
        for size in (8_000, 1_000)
        for bound in (_IN_MEMORY, None)
    ]


def _take_large(pairs: int) -> dict[str, Any]:
    grown: dict[str, list[float]] = {case.name: [] for case in large_cases()}
    for _ in range(pairs):
        for case in large_cases():
            (figures,) = run(case).figures
            if figures["read_mb"] < _LARGE_MB_MIN:
                raise WrongCountError(f"{case.name}: a window had {figures['read_mb']} MB")
            grown[case.name].append(figures["grown_mb"])
    return {
        case.name: {"title": case.title, "grown_mb": statistics.median(grown[case.name])}
        for case in large_cases()
    }


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure. `only` names cases; the plain bolt is added, and large windows are left out."""
    chosen = [case for case in cases() if only is None or case.name in {*only, _PLAIN}]
    report = measure(chosen, pairs, 2_000, 1)
    if only is None:
        report["large"] = _take_large(pairs)
    return report


def tables(report: Mapping[str, Any]) -> list[Table]:
    plain = report["cases"][_PLAIN]["cpu_us_a_tuple"]
    rows = []
    for row in report["cases"].values():
        us = row["cpu_us_a_tuple"]
        more = "" if row is report["cases"][_PLAIN] else f"{us - plain:+.2f}"
        rows.append([row["title"], number(us), more])
    note = f"Medians of {report['pairs']} alternating runs of {TOTAL:,} acked tuples, one worker."
    columns = ["a spout and", "CPU, us a tuple", "more than the plain bolt"]
    found = [Table("What windows cost", columns, rows, [note])]
    if "large" in report:
        found.append(_large_table(report["large"]))
    return found


def _large_table(large: Mapping[str, Any]) -> Table:
    rows = []
    for name, row in large.items():
        goal = name == f"large_8000_{_IN_MEMORY}"
        verdict = met(row["grown_mb"], GROWN_MB_GOAL, None, at_most=True) if goal else ""
        rows.append([row["title"], number(row["grown_mb"]), verdict])
    note = (
        f"One window of 126 MB, read once. The goal is {GROWN_MB_GOAL:g} MB. The memory is that of "
        "the process, with its queues and the messages that are not acked."
    )
    return Table("Windows larger than memory", ["a window of", "MB", "goal met"], rows, [note])
