"""Complete latency at 1,000 messages a second: from the spout's emit to its ack, through
spout -> split -> count with every word acked, in one worker and across two, which sleep between two
messages or do not."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bench import echo
from bench.machine import Watch
from bench.runs import Case, run
from bench.tables import Table, met, number
from bench.topologies import WORDS_A_LINE
from squall_engine import core

RATE = 1_000
TOTAL, UNMEASURED = 6_000, 1_000
ECHO_SECS = 3.0
# case -> percentile -> goal and limit, us
GOALS: Mapping[str, Mapping[str, tuple[float, float | None]]] = {
    "one_worker": {"p50": (100, None), "p99": (1_000, None)},
    "two_workers": {"p50": (60, 150), "p99": (200, 400)},
    "two_workers_busy": {"p50": (60, 150), "p99": (200, 400)},
}
BUSY_POLL_MS = 10
_VERDICTS = ("yes", "limit", "NO")  # from the best to the worst
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}
_CURVE = 200  # points of the distribution that are kept for the plot


def cases() -> list[Case]:
    def case(name: str, title: str, workers: int, **conf: Any) -> Case:
        return Case(
            name,
            "shapes.paced_word_count",
            {"rate": RATE, "total": TOTAL, "unmeasured": UNMEASURED, "tasks": workers},
            TOTAL * WORDS_A_LINE,
            executed={"split": TOTAL, "count": TOTAL * WORDS_A_LINE},
            messages=TOTAL,
            workers=workers,
            conf=conf,
            core=core.NAME,
            title=title,
        )

    return [
        case("one_worker", "word count, acked, one worker", 1),
        case("two_workers", "word count, acked, two workers", 2),
        case(
            "two_workers_busy",
            f"the same, topology.worker.busy.poll.ms: {BUSY_POLL_MS}",
            2,
            **{"topology.worker.busy.poll.ms": BUSY_POLL_MS},
        ),
    ]


def percentiles(latencies: Sequence[float]) -> dict[str, float]:
    """Of latencies in us."""
    ranked = sorted(latencies)
    last = len(ranked) - 1
    found = {name: ranked[round(share * last)] for name, share in _SHARES.items()}
    return {name: round(value, 1) for name, value in found.items()}


def _summary(
    title: str, runs: Sequence[Sequence[float]], busy: Sequence[float], cpu: Sequence[float] = ()
) -> dict[str, Any]:
    """Medians of the runs' percentiles; the curve is of all runs together."""
    each = [percentiles(latencies) for latencies in runs]
    ranked = sorted(value for latencies in runs for value in latencies)
    steps = [round(at * (len(ranked) - 1) / _CURVE) for at in range(_CURVE + 1)]
    return {
        "title": title,
        "messages": len(ranked),
        **{name: round(statistics.median(one[name] for one in each), 1) for name in _SHARES},
        "p50_all": [one["p50"] for one in each],
        "p99_all": [one["p99"] for one in each],
        "max": ranked[-1],
        "others_percent": [round(value, 1) for value in busy],
        "cpu_us_a_word": round(1e6 * statistics.median(cpu), 2) if cpu else None,
        "curve_us": [ranked[step] for step in steps],
    }


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Every case `pairs` times by turns, each beside an echo."""
    chosen = [case for case in cases() if only is None or case.name in only]
    found: dict[str, list[list[float]]] = {"echo": [], **{case.name: [] for case in chosen}}
    busy: dict[str, list[float]] = {name: [] for name in found}
    cpu: dict[str, list[float]] = {name: [] for name in found}
    for number_of_round in range(pairs):
        print(f"round {number_of_round + 1} of {pairs}", file=sys.stderr, flush=True)
        for case in [None, *chosen]:
            watch = Watch()
            if case is None:
                name = "echo"
                latencies = [1e6 * secs for secs in echo.measure(RATE, ECHO_SECS)]
            else:
                name = case.name
                result = run(case)
                latencies = [us for figures in result.figures for us in figures["latencies_us"]]
                cpu[name].append(result.cpu_secs / case.tuples)
            found[name].append(latencies)
            busy[name].append(watch.report()["others_percent"])
    titles = {case.name: case.title for case in chosen}
    titles["echo"] = "for comparison: a bare echo between two processes"
    rows = {name: _summary(titles[name], found[name], busy[name], cpu[name]) for name in [*titles]}
    return {"pairs": pairs, "rate": RATE, "counts_checked": True, "cases": rows}


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for name, row in report["cases"].items():
        goals = GOALS.get(name, {})
        goal = ", ".join(f"{p} {number(aim)}" for p, (aim, _) in goals.items())
        limit = ", ".join(f"{p} {number(most)}" for p, (_, most) in goals.items() if most)
        verdicts = [met(row[p], aim, most, at_most=True) for p, (aim, most) in goals.items()]
        verdict = max(verdicts, key=_VERDICTS.index, default="")
        others = f"{statistics.median(row['others_percent']):.0f} %"
        values = [number(row[key]) for key in (*_SHARES, "max", "cpu_us_a_word")]
        rows.append([row["title"], *values, others, goal, limit, verdict])
    columns = [
        "us from emit to ack", *_SHARES, "max", "CPU, us a word", "busy with others",
        "goal", "limit", "met",
    ]  # fmt: skip
    note = (
        f"At {report['rate']:,} messages a second; medians of {report['pairs']} runs. On a busy "
        "machine the echo is also late: compare with it rather than with the goal."
    )
    return [Table("Complete latency", columns, rows, [note])]
