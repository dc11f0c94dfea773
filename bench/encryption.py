"""What encryption between workers costs: the same topologies over TCP, plain and encrypted."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from bench.headline import LINES, ROUNDS, word_count
from bench.runs import Case, measure
from bench.tables import Table, number
from squall_common.security.curve import CURVE
from squall_engine import core

_ENCRYPTED = "_encrypted"
_SIZES = (100, 10_000)


def _plain() -> list[Case]:
    found = [
        word_count("word_count", core=core.NAME, workers=2, title="word count, acked, half crosses")
    ]
    for size in _SIZES:
        total = min(200_000, 200_000_000 // size)
        found.append(
            Case(
                f"bytes_{size}", "shapes.payloads", {"size": size, "total": total}, total,
                executed={"sink": total}, messages=total, workers=2, first_worker={"sink": 1},
                core=core.NAME, title=f"spout -> bolt, acked, all cross, {size:,} bytes each",
            )
        )  # fmt: skip
    return found


def cases() -> list[Case]:
    found = []
    for case in _plain():
        fields = {name: getattr(case, name) for name in Case.__slots__}
        for name, encrypted in ((case.name, False), (case.name + _ENCRYPTED, True)):
            found.append(Case(**{**fields, "name": name, "conf": {**case.conf, CURVE: encrypted}}))
    return found


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure. `only` names cases; each comes with the other one of its pair."""
    wanted = None if only is None else {name.removesuffix(_ENCRYPTED) for name in only}
    chosen = [
        case for case in cases() if wanted is None or case.name.removesuffix(_ENCRYPTED) in wanted
    ]
    report = measure(chosen, pairs, LINES, ROUNDS)
    for name, row in report["cases"].items():
        if name.endswith(_ENCRYPTED):
            plain = report["cases"][name.removesuffix(_ENCRYPTED)]
            ratios = sorted(
                with_it / without
                for with_it, without in zip(row["cpu_us_all"], plain["cpu_us_all"], strict=True)
            )
            row["times_plain"] = round(statistics.median(ratios), 2)
            row["times_plain_all"] = [round(ratio, 2) for ratio in ratios]
    return report


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for name, row in report["cases"].items():
        if not name.endswith(_ENCRYPTED):
            continue
        plain = report["cases"][name.removesuffix(_ENCRYPTED)]
        spread = row["times_plain_all"]
        rows.append(
            [
                row["title"],
                number(plain["cpu_us_a_tuple"]),
                number(row["cpu_us_a_tuple"]),
                f"{row['times_plain']:.2f}x ({spread[0]:.2f}-{spread[-1]:.2f})",
                number(plain["wall_millions_sec"]),
                number(row["wall_millions_sec"]),
            ]
        )
    columns = [
        "two workers over TCP",
        "plain: CPU, us a tuple",
        "encrypted: CPU, us a tuple",
        "times plain",
        "plain: M/s of time",
        "encrypted: M/s of time",
    ]
    note = f"Medians of {report['pairs']} alternating runs of each; every count was exact."
    return [Table("What encryption costs", columns, rows, [note])]
