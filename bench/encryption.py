"""What lies between two workers of a host: the same topologies over TCP, plain and encrypted, and
through shared memory."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from bench.headline import LINES, ROUNDS, word_count
from bench.runs import Case, measure
from bench.tables import Table, number
from squall_common.security.curve import CURVE
from squall_engine import core

RING = "storm.messaging.ring.bytes"
_ENCRYPTED = "_encrypted"
_RING = "_ring"
# suffix of a case -> its configuration
_WAYS: Mapping[str, Mapping[str, Any]] = {
    "": {CURVE: False, RING: 0},
    _ENCRYPTED: {CURVE: True},
    _RING: {CURVE: "auto"},
}
_SIZES = (100, 1_000, 10_000)


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
        for suffix, conf in _WAYS.items():
            name = case.name + suffix
            found.append(Case(**{**fields, "name": name, "conf": {**case.conf, **conf}}))
    return found


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure. `only` names cases; each comes with the others of its topology."""
    wanted = None if only is None else {_topology(name) for name in only}
    chosen = [case for case in cases() if wanted is None or _topology(case.name) in wanted]
    report = measure(chosen, pairs, LINES, ROUNDS)
    for name, row in report["cases"].items():
        if name != _topology(name):
            plain = report["cases"][_topology(name)]
            ratios = sorted(
                with_it / without
                for with_it, without in zip(row["cpu_us_all"], plain["cpu_us_all"], strict=True)
            )
            row["times_plain"] = round(statistics.median(ratios), 2)
            row["times_plain_all"] = [round(ratio, 2) for ratio in ratios]
    return report


def _topology(name: str) -> str:
    return name.removesuffix(_ENCRYPTED).removesuffix(_RING)


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for name, row in report["cases"].items():
        if name != _topology(name):
            continue
        encrypted, ring = report["cases"][name + _ENCRYPTED], report["cases"][name + _RING]
        rows.append(
            [
                row["title"],
                number(row["cpu_us_a_tuple"]),
                _times(encrypted),
                _times(ring),
                *(number(way["wall_millions_sec"]) for way in (row, encrypted, ring)),
            ]
        )
    columns = [
        "two workers of one host",
        "TCP: CPU, us a tuple",
        "encrypted",
        "shared memory",
        "TCP: M/s of time",
        "encrypted: M/s",
        "shared memory: M/s",
    ]
    note = f"Medians of {report['pairs']} alternating runs of each; every count was exact."
    return [Table("Between workers of one host", columns, rows, [note])]


def _times(row: Mapping[str, Any]) -> str:
    spread = row["times_plain_all"]
    times = f"{row['times_plain']:.2f}x ({spread[0]:.2f}-{spread[-1]:.2f})"
    return f"{number(row['cpu_us_a_tuple'])}: {times}"
