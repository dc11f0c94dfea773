"""What windows cost a tuple: a count by windows against the same count by a plain bolt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.runs import Case, measure
from bench.tables import Table, number
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


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure. `only` names cases; the plain bolt is added."""
    chosen = [case for case in cases() if only is None or case.name in {*only, _PLAIN}]
    return measure(chosen, pairs, 2_000, 1)


def tables(report: Mapping[str, Any]) -> list[Table]:
    plain = report["cases"][_PLAIN]["cpu_us_a_tuple"]
    rows = []
    for row in report["cases"].values():
        us = row["cpu_us_a_tuple"]
        more = "" if row is report["cases"][_PLAIN] else f"{us - plain:+.2f}"
        rows.append([row["title"], number(us), more])
    note = f"Medians of {report['pairs']} alternating runs of {TOTAL:,} acked tuples, one worker."
    columns = ["a spout and", "CPU, us a tuple", "more than the plain bolt"]
    return [Table("What windows cost", columns, rows, [note])]
