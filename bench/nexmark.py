"""Nexmark: how many events a second a core processes, for each query, acked and in one worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench import auctions
from bench.runs import Case, measure
from bench.tables import Table, number
from squall_engine import core

TOTAL = 50_000


def cases(total: int = TOTAL) -> list[Case]:
    """A case for each query, except those with windows of the clock."""
    from queries import BY_THE_CLOCK, QUERIES  # type: ignore[import-not-found]

    return [
        Case(
            name,
            "auctions.query",
            {"name": name, "total": total},
            total,
            messages=total,
            title=(query.__doc__ or "").rstrip(".\n"),
            core=core.NAME,
            # Windows hold the events of ten seconds unacked.
            conf={"topology.max.spout.pending": total},
        )
        for name, query in QUERIES.items()
        if name not in BY_THE_CLOCK
    ]


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure. `only` names queries."""
    return measure([case for case in cases() if only is None or case.name in only], pairs)


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = [
        [
            name,
            row["title"],
            number(row["cpu_us_a_tuple"]),
            f"{1e3 * row['millions_a_core_sec']:,.0f}",
        ]
        for name, row in report["cases"].items()
    ]
    note = (
        f"Medians of {report['pairs']} alternating runs of {TOTAL:,} acked events, "
        f"{auctions.RATE:,} in a second of their time, one worker. Events are made before."
    )
    columns = ["query", "what it asks", "CPU, us an event", "thousand events a core second"]
    return [Table("Nexmark", columns, rows, [note])]
