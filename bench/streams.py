"""What streams cost: word count as fused steps against bolts written by hand, and a chain of
functions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from bench.runs import Case, measure
from bench.tables import Table, number
from bench.topologies import WORDS_A_LINE
from squall_engine import core

LINES, ROUNDS = 2_000, 30
TOTAL = 300_000
GOAL_RATIO = 1.15
_KINDS = {"bolts": "bolts written by hand", "streams": "streams"}
_WHAT = {
    "words": "word count with running counts",
    "chain": "a function of each number, four times",
}


def cases() -> list[Case]:
    """Both programs, as bolts and as streams."""
    found = []
    for kind in _KINDS:
        lines = LINES * ROUNDS
        words = lines * WORDS_A_LINE
        found.append(
            Case(
                f"words_{kind}",
                "streamed.word_count",
                {"kind": kind, "lines": LINES, "rounds": ROUNDS},
                words,
                executed={"split": lines, "count": words},
                messages=lines,
                words_of=(LINES, ROUNDS),
                title=f"{_WHAT['words']}, {_KINDS[kind]}",
                core=core.NAME,
            )
        )
        found.append(
            Case(
                f"chain_{kind}",
                "streamed.chain",
                {"kind": kind, "total": TOTAL},
                TOTAL,
                executed={"add3": TOTAL},
                messages=TOTAL,
                title=f"{_WHAT['chain']}, {_KINDS[kind]}",
                core=core.NAME,
            )
        )
    return found


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure. `only` names cases; what they are compared with is added."""
    whats = None if only is None else {name.partition("_")[0] for name in only}
    chosen = [one for one in cases() if whats is None or one.name.partition("_")[0] in whats]
    report = measure(chosen, pairs)
    for what in _WHAT:
        bolts, streams = (report["cases"].get(f"{what}_{kind}") for kind in _KINDS)
        if bolts is not None:
            ratios = [
                mine / theirs
                for mine, theirs in zip(streams["cpu_us_all"], bolts["cpu_us_all"], strict=True)
            ]
            streams["ratio_to_bolts"] = round(statistics.median(ratios), 2)
            streams["ratios_to_bolts"] = [round(ratio, 2) for ratio in sorted(ratios)]
    return report


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for name, row in report["cases"].items():
        ratio = row.get("ratio_to_bolts")
        verdict = ""
        if name == "words_streams":
            verdict = f"{GOAL_RATIO:.2f}x: {'yes' if ratio <= GOAL_RATIO else 'NO'}"
        shown = "" if ratio is None else f"{ratio:.2f}x"
        rows.append([row["title"], number(row["cpu_us_a_tuple"]), shown, verdict])
    note = f"Medians of {report['pairs']} alternating runs of acked tuples, one worker."
    columns = ["program", "CPU, us a word or number", "of bolts", "goal"]
    return [Table("What streams cost", columns, rows, [note])]
