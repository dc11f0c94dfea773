"""From grouped rows to sums: the same for rows that Spark grouped and for those of this process. A
row is a mapping; what is in it is what the query of `gather` or `here` selects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from squall_common.errors import SquallError
from squall_spark.report.choose import Chosen, HistoryNotFoundError, show_time
from squall_spark.report.sums import (
    ErrorSums,
    Event,
    KeySums,
    MetricSums,
    StepSums,
    Sums,
    TaskSums,
    WorkerSpan,
    WorkerStep,
)

AHEAD_SECS = 600.0
EVENTS_MAX = 1_000
OF_A_KIND_MAX = 200  # errors, metrics
KEYS_MAX = 20
TROUBLES_MAX = 20
UNREADABLE = "unreadable"
OTHER_VERSION = "other version"

Rows = Iterable[Mapping[str, Any]]


def check_span(span: Mapping[str, Any], chosen: Chosen, since: float | None) -> None:
    """Raises HistoryNotFoundError when no rows are left, and SquallError when none can be read."""
    if span["from_ms"] is not None:
        return
    for row in span["trouble"]:
        if row["kind"] == OTHER_VERSION:
            raise SquallError(
                row["text"], hint="make the report with the version of squall that wrote it"
            )
    if span["trouble"]:
        raise SquallError(
            f"no file of {chosen.topology_id} can be read: {span['trouble'][0]['text']}"
        )
    if span["ahead"] and since is None:
        raise SquallError(
            f"all rows in the history of {chosen.topology_id} are from the future: "
            f"the clock of this machine, or of those that wrote it, is wrong"
        )
    when = "" if since is None else f" since {show_time(since)}"
    raise HistoryNotFoundError(f"{chosen.topology_id} has written nothing{when}")


def fold_tasks(rows: Rows, sums: Sums) -> None:
    """Tasks and steps: the sums of each task in each step, summed up both ways."""
    tasks: dict[tuple[str, int], TaskSums] = {}
    for row in rows:
        component, number, t = row["component"], row["task"], row["t"]
        task = tasks.setdefault(
            (component, number),
            TaskSums(component, number, number, spout=False, secs=0.0, last_ms=0),
        )
        step = sums.steps.setdefault((component, t), StepSums())
        for of in (task, step):
            of.emitted += row["emitted"]
            of.executed += row["executed"]
            of.acked += row["acked"]
            of.failed += row["failed"]
            of.busy_secs += row["busy_secs"]
            of.secs += row["secs"]
        if row["secs"] > 0.0:
            step.emitted_per_sec += row["emitted"] / row["secs"]
            step.executed_per_sec += row["executed"] / row["secs"]
        step.waiting_max = max(step.waiting_max, row["waiting"])
        task.spout |= bool(row["spout"])
        if row["last_ms"] is not None and row["last_ms"] >= task.last_ms:
            task.last_ms, task.executor = row["last_ms"], row["executor"]
            task.calls_max = row["calls_max"]
    sums.tasks = [tasks[place] for place in sorted(tasks) if tasks[place].last_ms]


def fold_latencies(rows: Rows, sums: Sums) -> None:
    for row in rows:
        histogram = sums.latencies.setdefault((row["component"], row["name"], row["t"]), {})
        histogram[row["bucket"]] = int(row["events"])


def fold_workers(rows: Rows, sums: Sums) -> None:
    for row in rows:
        sums.workers[row["worker"], row["t"]] = WorkerStep(
            row["cpu_secs"], row["secs"], row["rss_bytes"], row["poll_ms"] > 0
        )


def fold_spans(rows: Rows, sums: Sums) -> None:
    sums.spans = sorted(
        (
            WorkerSpan(
                row["worker"], row["from_ms"], row["to_ms"], tuple(sorted(row["components"]))
            )
            for row in rows
        ),
        key=lambda span: (span.from_ms, span.worker),
    )


def fold_keys(rows: Rows, unreported: Mapping[tuple[str, str, str], int], sums: Sums) -> None:
    """`rows` are of both kinds, the most frequent keys of each grouping first."""
    listed = list(rows)
    by_place: dict[tuple[str, str, str], KeySums] = {}
    for row in sorted((row for row in listed if row["kind"] == "keys"), key=_name):
        at = (row["component"], row["stream"], row["name"])
        error = int(row["error"]) + unreported.get(at, 0)
        by_place[at] = KeySums(*at, row["rate"], int(row["samples"]), error)
    for row in listed:
        of = by_place.get((row["component"], row["stream"], row["name"]))
        if row["kind"] == "key" and of is not None and len(of.top) < KEYS_MAX:
            of.top.append((row["text"], int(row["samples"]), row["task"]))
    sums.keys = list(by_place.values())


def _name(row: Mapping[str, Any]) -> str:
    return str(row["name"])


def fold_events(rows: Rows, sums: Sums) -> None:
    sums.events = [
        Event(row["at_ms"], row["name"], row["text"], row["stream"], row["worker"])
        for row in sorted(rows, key=lambda row: (row["at_ms"], row["name"]))
    ]


def fold_counted(rows: Rows, sums: Sums) -> None:
    """Errors, users' metrics, and the numbers of lost rows, most frequent first."""
    found = list(rows)
    sums.errors = [
        ErrorSums(row["component"], row["message"][:500], int(row["n"]), row["first"], row["last"])
        for row in found
        if row["kind"] == "error"
    ]
    sums.metrics = [
        MetricSums(row["component"], row["name"], int(row["rows"]), row["total"])
        for row in found
        if row["kind"] == "metric"
    ]
    sums.lost = {row["name"]: int(row["n"]) for row in found if row["kind"] == "lost"}
