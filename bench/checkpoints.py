"""What checkpoints cost: topologies with one each second against the same without any, by turns;
and how long a message, a checkpoint and a start take with a million keys.

    keys         a count by key, a million keys: tuple by tuple
    batch_keys   the same with `execute_batch`
    words        word count whose counts are state
    batches      word count with `execute_batch`, without state
    columns      word count with `execute_columns`, without state
    latency      from emit until a message is counted, at 1,000 a second, with a million keys
    backpressure from the begin of a checkpoint to its end, behind a bolt that is too slow
    recovery     from the start of a process until it has a million keys, and may emit
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench import runs
from bench.headline import LINES
from bench.latency import percentiles
from bench.runs import Result, WrongCountError
from bench.tables import Table, met, number
from bench.topologies import WORDS_A_LINE
from squall_engine import core

INTERVAL_SECS = 1
KEYS, TOTAL = 1_000_000, 4_000_000
ROUNDS = 40
RATE, PACED = 1_000, 10_000
SLOW_SECS, SLOW_TOTAL, SLOW_KEYS = 0.0001, 200_000, 10_000
RESTARTS = 5
_CONF = {"topology.checkpoint.interval.secs": INTERVAL_SECS}


@dataclass(frozen=True, slots=True)
class Case:
    """A topology with and without checkpoints, or one whose times are taken."""

    name: str
    title: str
    topology: str
    arguments: Mapping[str, Any]
    tuples: int
    executed: Mapping[str, int]
    messages: int
    goal: float
    limit: float | None = None
    paired: bool = True
    keys: int = 0  # that the state has in the end; 0: it is not checked
    unit: str = "ms"
    conf: Mapping[str, Any] | None = None


def cases() -> list[Case]:
    def counted(name: str, title: str, goal: float, limit: float, *, batches: bool) -> Case:
        return Case(
            name, title, "checkpointed.keys",
            {"total": TOTAL, "keys": KEYS, "batches": batches}, TOTAL, {"counted": TOTAL}, TOTAL,
            goal, limit, keys=KEYS,
        )  # fmt: skip

    def words(style: str, title: str, goal: float, limit: float) -> Case:
        lines = LINES * ROUNDS
        return Case(
            "words" if style == "state" else style, title, "checkpointed.words",
            {"style": style, "lines": LINES, "rounds": ROUNDS}, lines * WORDS_A_LINE,
            {"split": lines, "count": lines * WORDS_A_LINE}, lines, goal, limit,
        )  # fmt: skip

    return [
        counted("keys", "a count by key, 1,000,000 keys", 1.1, 1.2, batches=False),
        counted("batch_keys", "the same, `execute_batch`", 1.4, 1.5, batches=True),
        words("state", "word count, its counts are state", 1.1, 1.2),
        words("batches", "word count, `execute_batch`, no state", 1.4, 1.5),
        words("columns", "word count, `execute_columns`, no state", 1.1, 1.2),
        Case(
            "latency", "from emit until it is counted, 1,000 a second, 1,000,000 keys, p99",
            "checkpointed.paced", {"keys": KEYS, "rate": RATE, "total": PACED}, KEYS + PACED,
            {"counted": KEYS + PACED}, KEYS + PACED, 20, paired=False, keys=KEYS,
        ),
        Case(
            "backpressure", "a checkpoint under backpressure, p99", "checkpointed.slow",
            {"total": SLOW_TOTAL, "keys": SLOW_KEYS, "secs": SLOW_SECS}, SLOW_TOTAL,
            {"counted": SLOW_TOTAL}, SLOW_TOTAL, 1_000, paired=False, keys=SLOW_KEYS,
            conf={"topology.max.spout.pending": None},
        ),
        Case(
            "recovery", "start of a process with 1,000,000 keys, p95", "checkpointed.keys",
            {"total": KEYS, "keys": KEYS, "batches": False}, KEYS, {"counted": KEYS}, KEYS,
            2_500, 5_000, paired=False, keys=KEYS,
        ),
    ]  # fmt: skip


def run(case: Case, folder: str | None, **changes: Any) -> Result:
    """Run it once, with checkpoints in a folder, or without any. Raises WrongCountError."""
    conf = {} if folder is None else {**_CONF, "topology.state.url": folder}
    arguments = dict(case.arguments)
    if case.paired or case.name == "recovery":
        arguments["checkpoints"] = folder is not None
    made = runs.Case(
        case.name,
        case.topology,
        arguments,
        case.tuples,
        executed=case.executed,
        messages=case.messages,
        core=core.NAME,
        conf={**conf, **(case.conf or {})},
    )
    result = runs.run(replace(made, **changes))
    found = [one for one in result.figures if "keys" in one]
    if case.keys and [(one["keys"], one["counted"]) for one in found] != [(case.keys, case.tuples)]:
        raise WrongCountError(f"{case.name}: the counts of some keys are wrong")
    return result


def _fresh(case: Case) -> Result:
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as folder:
        return run(case, folder)


def _restarts(case: Case, times: int) -> list[float]:
    """Fill the state once; then seconds of so many starts."""
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as folder:
        run(case, folder)
        return [run(case, folder, executed={"counted": 0}).start_secs for _ in range(times)]


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure by turns; medians. `only` names cases."""
    chosen = [case for case in cases() if only is None or case.name in only]
    taken: dict[str, list[Any]] = {case.name: [] for case in chosen}
    for round_number in range(pairs):
        print(f"round {round_number + 1} of {pairs}", file=sys.stderr, flush=True)
        for case in chosen:
            if case.paired:
                taken[case.name].append((run(case, None), _fresh(case)))
            elif case.name == "recovery":
                taken[case.name] += _restarts(case, RESTARTS)
            else:
                taken[case.name].append(_fresh(case))
    rows = {case.name: _row(case, taken[case.name]) for case in chosen}
    return {"pairs": pairs, "counts_checked": True, "interval": INTERVAL_SECS, "cases": rows}


def _row(case: Case, taken: Sequence[Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"title": case.title, "goal": case.goal, "limit": case.limit}
    if case.paired:
        ratios = {
            what: sorted(getattr(after, what) / getattr(before, what) for before, after in taken)
            for what in ("cpu_secs", "wall_secs")
        }
        without, beside = zip(*taken, strict=True)
        return row | {
            "without_us": 1e6 * statistics.median(one.cpu_secs for one in without) / case.tuples,
            "with_us": 1e6 * statistics.median(one.cpu_secs for one in beside) / case.tuples,
            "checkpoints": min(len(one.checkpoint_secs) for one in beside),
            "cpu_ratios": ratios["cpu_secs"],
            "wall_ratios": ratios["wall_secs"],
        }
    if case.name == "latency":
        found = [us / 1e3 for one in taken for fig in one.figures for us in fig["latencies_us"]]
        return row | {"value": percentiles(found)["p99"], "all": len(found)}
    if case.name == "backpressure":
        found = [1e3 * secs for one in taken for secs in one.checkpoint_secs]
        return row | {"value": percentiles(found)["p99"], "all": len(found)}
    found = sorted(1e3 * secs for secs in taken)
    return row | {"value": found[round(0.95 * (len(found) - 1))], "all": len(found)}


def tables(report: Mapping[str, Any]) -> list[Table]:
    costs, times = [], []
    for row in report["cases"].values():
        if "value" in row:
            verdict = met(row["value"], row["goal"], row["limit"], at_most=True)
            goal, limit = (
                "" if one is None else f"{number(one)} ms" for one in (row["goal"], row["limit"])
            )
            times.append(
                [
                    row["title"],
                    f"{number(row['value'])} ms",
                    f"{row['all']:,}",
                    goal,
                    limit,
                    verdict,
                ]
            )
            continue
        shown = [_shown(row[what]) for what in ("cpu_ratios", "wall_ratios")]
        worst = max(statistics.median(row[what]) for what in ("cpu_ratios", "wall_ratios"))
        verdict = met(worst, row["goal"], row["limit"], at_most=True)
        us = [number(row["without_us"]), number(row["with_us"])]
        goal, limit = f"{row['goal']:g}x", f"{row['limit']:g}x"
        costs.append([row["title"], *us, *shown, str(row["checkpoints"]), goal, limit, verdict])
    note = (
        f"Medians of {report['pairs']} pairs of runs by turns (smallest and largest in brackets), "
        f"a checkpoint every {report['interval']} s to a folder. Every count was exact. Goals are "
        "for both ratios."
    )
    columns = [
        "with checkpoints", "CPU without, us a tuple", "with", "CPU", "time", "checkpoints",
        "goal", "limit", "met",
    ]  # fmt: skip
    found = []
    if costs:
        found.append(Table("What checkpoints cost", columns, costs, [note]))
    if times:
        columns = ["what", "figure", "of", "goal", "limit", "met"]
        found.append(Table("How long they take", columns, times))
    return found


def _shown(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f}x ({ratios[0]:.2f}-{ratios[-1]:.2f})"
