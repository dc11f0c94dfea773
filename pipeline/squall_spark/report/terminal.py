"""The report in a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from squall_spark.report.choose import show_time
from squall_spark.report.page import latency_of
from squall_spark.report.plots import clock, number

Report = dict[str, Any]
_SHOWN = 10


def plain(value: object) -> str:
    """Text from a topology, without characters that control a terminal."""
    return "".join(c if c.isprintable() else "\ufffd" for c in str(value))


def show(report: Report, out: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=out, highlight=False)

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    def table(
        title: str, head: Sequence[str], rows: Iterable[Sequence[object]],
        numbers: Iterable[int] = (),
    ) -> None:  # fmt: skip
        made = Table(
            title=title, title_justify="left", title_style="bold", box=None, pad_edge=False
        )
        right = set(numbers)
        for index, name in enumerate(head):
            # A number folded over two lines would read as two numbers.
            made.add_column(
                name,
                justify="right" if index in right else "left",
                overflow="fold",
                no_wrap=index in right,
            )
        count = 0
        for row in rows:
            count += 1
            made.add_row(*(Text(plain(value)) for value in row))
        if count:
            console.print()
            console.print(made)

    topology = report["topology"]
    begin, end = (show_time(report[key] / 1000) for key in ("from_ms", "to_ms"))
    console.print(Text(f"{plain(topology['id'])}, {begin} to {end}"))
    for sentence in report["verdict"]:
        console.print(Text(plain(sentence)))
    for note in report["notes"]:
        console.print(Text(f"note: {plain(note)}"))
    table(
        "Components",
        ("component", "tasks", "tuples", "failed", "p50 ms", "p95 ms", "p99 ms", "capacity", "peak",
         "skew"),
        [
            (
                component, of["tasks"],
                number(of["emitted"] if of["kind"] == "spout" else of["executed"]),
                number(of["failed"]),
                *(number(latency_of(of)[name]) for name in ("p50", "p95", "p99")),
                share(of["capacity"]), share(of["capacity_peak"]), share(of["skew"]["ratio"]),
            )
            for component, of in report["components"].items()
        ],
        range(1, 10),
    )  # fmt: skip
    keys = [
        (f"{of['component']}:{of['stream']} to {of['grouping']}", one["key"],
         f"{100 * one['share']:.1f} %",
         f"{100 * one['share_low']:.1f} to {100 * one['share_high']:.1f} %", one["task"])
        for of in report["hot_keys"] for one in of["top"][:3] if one["hot"]
    ]  # fmt: skip
    head = ("stream", "key", "share", "19 times of 20", "task")
    table("Hot keys (sampled)", head, keys, (2, 3, 4))
    span = report["to_ms"] - report["from_ms"]
    table(
        "Workers that ended",
        ("time (UTC)", "where", "why", "running again after"),
        [
            (clock(one["at_ms"], span), one["place"], one["why"],
             "not again" if one["secs"] is None else f"{one['secs']:.1f} s")
            for one in report["recoveries"][-_SHOWN:]
        ],
        (3,),
    )  # fmt: skip
    table(
        "Errors",
        ("component", "errors", "message"),
        [(e["component"], e["count"], e["message"]) for e in report["errors"][:_SHOWN]],
        (1,),
    )
    table(
        "Recommended parallelism",
        ("component", "now", "recommended", "why"),
        [
            (one["component"] or "(workers)", one["now"], one["recommended"], one["why"])
            for one in report["advice"]
        ],
        (1, 2),
    )
