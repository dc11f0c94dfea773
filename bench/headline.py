"""The figures that Squall exists for: CPU a tuple against a plain Python loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.runs import Case, measure
from bench.tables import Table, met, number
from bench.topologies import WORDS_A_LINE
from squall_engine import core

LINES, ROUNDS = 20_000, 5
NUMBERS = 1_000_000


def word_count(
    name: str,
    style: str = "tuple",
    *,
    acked: bool = True,
    workers: int = 1,
    lines: int = LINES,
    rounds: int = ROUNDS,
    tasks: int | None = None,
    **more: Any,
) -> Case:
    """Every worker has a spout that emits all the lines `rounds` times, and, unless `tasks` says
    otherwise, one task of each bolt."""
    emitted = lines * rounds * workers
    arguments = {
        "style": style,
        "lines": lines,
        "rounds": rounds,
        "acked": acked,
        "spouts": workers,
        "tasks": tasks or workers,
    }
    return Case(
        name,
        "topologies.word_count",
        arguments,
        emitted * WORDS_A_LINE,
        executed={"split": emitted, "count": emitted * WORDS_A_LINE},
        messages=emitted if acked else 0,
        words_of=(lines, rounds * workers),
        workers=workers,
        **more,
    )


def numbers(
    name: str, style: str = "tuple", *, acked: bool, total: int = NUMBERS, **more: Any
) -> Case:
    return Case(
        name,
        "topologies.const_spout",
        {"style": style, "total": total, "acked": acked},
        total,
        executed={"sink": total},
        messages=total if acked else 0,
        **more,
    )


def route(name: str, kind: str, title: str, total: int = 200_000, tasks: int = 4) -> Case:
    """`tuples` are those that arrive."""
    arriving = total * (tasks if kind == "all" else 1)
    return Case(
        name,
        "shapes.routes",
        {"kind": kind, "total": total, "tasks": tasks},
        arriving,
        executed={"sink": arriving},
        messages=total,
        title=title,
    )


def cases() -> list[Case]:
    two = "two workers"
    waits = 5_000
    found = [
        word_count("word_count", title="word count, acked", goal_ratio=2.7, limit_ratio=3.2),
        word_count("word_count_readme_style", "readme", title="the same, written as in the README"),
        word_count("word_count_unacked", acked=False, title="word count, not acked"),
        word_count(
            "word_count_columns", "columns", title="word count, acked, `execute_columns`",
            loop="columns", goal_ratio=1.2, limit_ratio=1.4,
        ),
        word_count(
            "word_count_two_workers", workers=2, title=f"word count, acked, {two}",
            goal_ratio=5, limit_ratio=6,
        ),
        numbers("const_spout", acked=True, title="constant spout -> bolt, acked", goal_millions=3),
        numbers(
            "const_spout_unacked", acked=False, title="constant spout -> bolt, not acked",
            goal_millions=6,
        ),
        numbers(
            "const_spout_unacked_columns", "columns", acked=False,
            title="the same, columns of 1,000 rows", goal_millions=9,
        ),
        numbers(
            "const_spout_two_workers_columns", "columns", acked=False, workers=2,
            first_worker={"sink": 1}, title=f"the same, {two}", goal_millions=15, limit_millions=8,
        ),
        numbers(
            "table_two_workers_columns", "table", acked=False, workers=2,
            first_worker={"sink": 1}, title=f"columns of a number and a word, 1,000 rows, {two}",
        ),
        numbers(
            "table_two_workers_columns_acked", "table", acked=True, workers=2,
            first_worker={"sink": 1}, title="the same, acked",
        ),
        word_count(
            "word_count_columns_two_workers", "columns", workers=2,
            title=f"word count, acked, `execute_columns`, {two}", loop="columns",
        ),
        route("route_all", "all", "all grouping to 4 tasks, acked, a tuple that arrives"),
        route("route_direct", "direct", "direct grouping to one of 4 tasks, acked"),
        route("route_custom", "custom", "custom grouping to one of 4 tasks, acked"),
        Case(
            "async_io", "shapes.waiting", {"total": waits, "secs": 0.01}, waits,
            executed={"wait": waits}, messages=waits, goal_wall=5_000,
            conf={"topology.bolt.async.concurrency": 100},
            title="`async def execute`, 10 ms of I/O, 100 at a time",
        ),
        word_count(
            "word_count_pure", core="pure", title="word count, acked, pure Python",
            goal_ratio=6, limit_ratio=7,
        ),
    ]  # fmt: skip
    return [case for case in found if core.COMPILED or case.core == "pure"]


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure. `only` names cases."""
    chosen = [case for case in cases() if only is None or case.name in only]
    return measure(chosen, pairs, LINES, ROUNDS)


def judge(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Goal, limit, and whether they are met."""
    if "goal_ratio" in row:
        goal, limit = row["goal_ratio"], row.get("limit_ratio")
        verdict = met(row["ratio_to_plain"], goal, limit, at_most=True)
        return f"{goal:g}x", f"{limit:g}x" if limit else "", verdict
    if "goal_millions" in row:
        goal, limit = row["goal_millions"], row.get("limit_millions")
        verdict = met(row["millions_a_core_sec"], goal, limit, at_most=False)
        return f"{goal:g} M/s", f"{limit:g} M/s" if limit else "", verdict
    if "goal_wall" in row:
        goal = row["goal_wall"]
        reached = 1e6 * row["wall_millions_sec"]
        return f"{goal:,}/s of time", "", met(reached, goal, None, at_most=False)
    return "", "", ""


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for row in report["cases"].values():
        ratio = ""
        if "ratio_to_plain" in row:
            spread = row["ratios"]
            ratio = f"{row['ratio_to_plain']:.2f} ({spread[0]:.1f}-{spread[-1]:.1f})"
            if row.get("loop") == "columns":
                ratio += " of a loop over columns"
        rate = (
            f"{row['millions_a_core_sec']:.2g}"
            if "goal_wall" not in row
            else (f"{1e6 * row['wall_millions_sec']:,.0f}/s of time")
        )
        us = number(row["cpu_us_a_tuple"])
        rows.append([row["title"], row["core"], us, rate, ratio, *judge(row)])
    columns = ["case", "core", "CPU, us a tuple", "M/s of a core", "ratio to the loop by hand"]
    plain = report.get("plain_us_a_word")
    notes = [f"Medians of {report['pairs']} alternating runs of each; every count was exact."]
    if plain is not None:
        notes.append(f"The plain loop took {number(plain)} us a word.")
    return [Table("Headline figures", [*columns, "goal", "limit", "met"], rows, [" ".join(notes)])]
