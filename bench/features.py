"""What each feature costs that is on by default: word count with and without it, by turns. All runs
have the modules in Python, since a stub cannot change those that are compiled."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

from bench.headline import LINES, ROUNDS, word_count
from bench.runs import Case, measure
from bench.stubs import STUBS
from bench.tables import Table, number
from squall_engine import core

_ADDED = "with_"
_ALL = {1: "all_features", 2: "all_features_two_workers"}


def cases() -> list[Case]:
    """With everything, without each, and without acking. Cuts need the compiled core."""
    found = [
        word_count(
            name, core=core.NAME, workers=workers, title=f"everything on, {workers} worker(s)"
        )
        for workers, name in _ALL.items()
    ]
    for name, stub in STUBS.items():
        if core.COMPILED or not stub.cuts:
            found.append(
                word_count(
                    f"without_{name}", core=core.NAME, workers=stub.workers, stubs=[name],
                    title=stub.title,
                )
            )  # fmt: skip
    # Off by default: here the runs with everything on are those without it.
    found.append(
        word_count(
            f"{_ADDED}history",
            core=core.NAME,
            conf={"topology.history.enable": True},
            title="topology.history.enable (what it adds)",
        )
    )
    found.append(
        word_count("without_acking", acked=False, core=core.NAME, title="acking as a whole")
    )
    return [dataclasses.replace(case, modules="python") for case in found]


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure. `only` names cases; what they are compared with is added."""
    chosen = [
        case for case in cases() if only is None or case.name in only or case.name in _ALL.values()
    ]
    report = measure(chosen, pairs, LINES, ROUNDS)
    for name, row in report["cases"].items():
        sign = -1 if name.startswith(_ADDED) else 1
        whole = report["cases"][_ALL[row["workers"]]]
        if row is not whole:
            differences = sorted(
                sign * (with_it - without)
                for with_it, without in zip(whole["cpu_us_all"], row["cpu_us_all"], strict=True)
            )
            row["cost_us"] = round(statistics.median(differences), 4)
            # The middle half: a smaller cost cannot be distinguished from noise.
            quarter = len(differences) // 4
            row["cost_us_range"] = [differences[quarter], differences[-1 - quarter]]
    return report


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for row in report["cases"].values():
        cost = share = spread = ""
        if "cost_us" in row:
            whole = report["cases"][_ALL[row["workers"]]]["cpu_us_a_tuple"]
            cost = f"{row['cost_us']:+.3f}"
            low, high = row["cost_us_range"]
            spread = f"{low:+.3f} .. {high:+.3f}"
            share = f"{100 * row['cost_us'] / whole:+.0f} %"
        us = number(row["cpu_us_a_tuple"])
        rows.append([row["title"], str(row["workers"]), us, cost, spread, share])
    note = (
        f"Medians of {report['pairs']} alternating runs, each with one feature removed for the "
        "bench only; the cost is the median difference from the runs with everything on. A middle "
        "half that spans zero is noise. The engine's modules were not compiled in any of them."
    )
    columns = [
        "word count without",
        "workers",
        "CPU, us a word",
        "cost, us",
        "middle half",
        "share",
    ]
    return [Table("What features cost", columns, rows, [note])]
