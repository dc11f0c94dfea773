"""How cost and throughput change with workers, tasks, the size of a tuple and fan-out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.headline import ROUNDS, word_count
from bench.runs import Case, measure
from bench.tables import Table, met, number
from squall_engine import core

_LINES = 20_000
AXES: dict[str, tuple[str, tuple[int, ...]]] = {
    "workers": (
        "Workers (word count, acked; a spout, a split and a count in each)", (1, 2, 4, 8),
    ),
    "tasks": (
        "Tasks (word count, acked, one worker; half of them split, half count)",
        (10, 30, 100, 300, 1000),
    ),
    "remote_tasks": (
        "Tasks over two workers (word count, acked; half of the words cross)",
        (10, 30, 100, 300, 1000),
    ),
    "bytes": (
        "Bytes of a tuple (spout in one worker, bolt in another, acked)",
        (1, 10, 100, 1000, 10_000),
    ),
    "fan_out": ("Fan-out (tuples that a bolt emits for each, acked)", (1, 4, 16, 64)),
}  # fmt: skip
# A step between neighbours that is steeper is called a cliff. Sizes are left out: bytes cost.
_CLIFF = 2.0
# axis -> value -> goal and limit of its cost: in us a tuple, or (of) times that of a smaller value.
_GOALS: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "workers": {8: (0.6, 0.8)},
    "bytes": {100: (0.40, 0.55), 1000: (0.8, 1.3), 10_000: (2, 5)},
}
_RATIO_GOALS: Mapping[str, Mapping[int, tuple[int, float, float]]] = {
    "workers": {2: (1, 1.25, 1.5)},
    "tasks": {1000: (10, 2, 2.5)},
}


def _case(axis: str, value: int) -> Case:
    name = f"{axis}_{value}"
    if axis == "workers":
        # As long in each, or the start would be a part of the cost that grows with the workers.
        return word_count(name, workers=value, lines=_LINES, rounds=ROUNDS, core=core.NAME)
    if axis == "tasks":
        return word_count(name, tasks=value // 2, lines=_LINES, rounds=2, core=core.NAME)
    if axis == "remote_tasks":
        return word_count(name, workers=2, tasks=value // 2, lines=_LINES, rounds=1, core=core.NAME)
    if axis == "bytes":
        total = min(2_000_000, 2_000_000_000 // value)
        return Case(
            name, "shapes.payloads", {"size": value, "total": total}, total,
            executed={"sink": total}, messages=total, workers=2, first_worker={"sink": 1},
            core=core.NAME,
        )  # fmt: skip
    total = 640_000 // value
    return Case(
        name, "shapes.fan_out", {"width": value, "total": total}, total * value,
        executed={"fan": total, "sink": total * value}, messages=total, core=core.NAME,
    )  # fmt: skip


def cases() -> list[Case]:
    return [_case(axis, value) for axis, (_, values) in AXES.items() for value in values]


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Measure. `only` names cases."""
    report = measure([case for case in cases() if only is None or case.name in only], pairs)
    for name, row in report["cases"].items():
        row["axis"], _, value = name.rpartition("_")
        row["value"] = int(value)
    return report


def _judged(axis: str, value: int, costs: Mapping[int, float]) -> tuple[str, str, str]:
    """Goal, limit, and whether they are met. `costs`: by the values that were measured."""
    if value in _GOALS.get(axis, {}):
        goal, limit = _GOALS[axis][value]
        verdict = met(costs[value], goal, limit, at_most=True)
        return f"{goal:g} us", f"{limit:g} us", verdict
    if value in _RATIO_GOALS.get(axis, {}):
        of, goal, limit = _RATIO_GOALS[axis][value]
        if of in costs:
            verdict = met(costs[value] / costs[of], goal, limit, at_most=True)
            return f"{goal:g}x of {of:,}", f"{limit:g}x of {of:,}", verdict
    return "", "", ""


def tables(report: Mapping[str, Any]) -> list[Table]:
    found = []
    for axis, (title, _) in AXES.items():
        points = [row for row in report["cases"].values() if row["axis"] == axis]
        costs = {point["value"]: point["cpu_us_a_tuple"] for point in points}
        rows: list[list[str]] = []
        before = None
        for row in points:
            cost = row["cpu_us_a_tuple"]
            step = "" if before is None else f"{cost / before:.2f}x"
            if before is not None and axis != "bytes" and cost / before > _CLIFF:
                step += " CLIFF"
            before = cost
            rate = [number(row["millions_a_core_sec"]), number(row["wall_millions_sec"])]
            if axis == "bytes":
                rate.append(number(row["wall_millions_sec"] * row["value"]))
            rows.append([f"{row['value']:,}", number(cost), step, *rate])
            if axis in _GOALS or axis in _RATIO_GOALS:
                rows[-1] += _judged(axis, row["value"], costs)
        columns = [
            axis.replace("_", " "),
            "CPU, us a tuple",
            "step",
            "M/s of a core",
            "M/s of time",
        ]
        if axis == "bytes":
            columns.append("MB/s of time")
        if axis in _GOALS or axis in _RATIO_GOALS:
            columns += ["goal", "limit", "met"]
        if rows:
            found.append(Table(title, columns, rows))
    if found:
        note = (
            f"Medians of {report['pairs']} runs; every count was exact. "
            f"A step of more than {_CLIFF:g}x would be marked as a cliff. A word, a payload or an "
            "emitted tuple is one tuple."
        )
        last = found[-1]
        found[-1] = Table(last.title, last.columns, last.rows, [note])
    return found
