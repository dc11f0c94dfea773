"""From sums to a report: a plain value that is the JSON of `storm spark report --json`. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from squall_common.history.histogram import Histogram, merge, percentile
from squall_common.names import is_system_id, topology_name_of
from squall_spark.report.advise import (
    Advice,
    advise_bolt,
    advise_spout,
    advise_workers,
    percentile_of,
)
from squall_spark.report.choose import show_time
from squall_spark.report.confidence import is_hot, wilson
from squall_spark.report.missing import Missing, missing_spans
from squall_spark.report.sums import Event, StepSums, Sums, TaskSums
from squall_spark.report.verdict import verdict

FORMAT = 1
Report = dict[str, Any]
_SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# Requested exits are not failures.
_ASKED = ("the port is wanted for something else", "for new code or configuration")


def analyse(
    sums: Sums,
    *,
    topology_id: str,
    earlier: Sequence[str] = (),
    url: str = "",
    made_at_ms: int = 0,
) -> Report:
    """The report. Times are milliseconds since the epoch, latencies milliseconds."""
    steps = _steps(sums)
    exits = recoveries(sums.events)
    missing = missing_spans(exits, sums.events, sums.spans, sums.interval_ms)
    components = {
        component: _component(component, tasks, sums, steps, missing)
        for component, tasks in _by_component(sums.tasks).items()
        if not is_system_id(component)
    }
    workers = _workers(sums, steps)
    executors = sum(of["executors"] for of in components.values())
    advice = [_advice(component, of) for component, of in components.items()]
    polls = any(one.polls for one in sums.workers.values())
    advice.append(advise_workers(workers["now"], workers["cores"], executors, polls=polls))
    for of in components.values():
        del of["busy"]
    report: Report = {
        "format": FORMAT,
        "topology": {
            "id": topology_id,
            "name": topology_name_of(topology_id),
            "earlier": list(earlier),
        },
        "history": url,
        "made_at_ms": made_at_ms,
        "from_ms": sums.from_ms,
        "to_ms": sums.to_ms,
        "step_secs": sums.step_ms / 1000,
        "steps_ms": steps,
        "components": components,
        "workers": workers,
        "advice": [
            {
                "component": one.component,
                "now": one.now,
                "recommended": one.recommended,
                "limit": one.limit,
                "why": one.why,
                "enough": one.enough,
            }
            for one in advice
        ],
        "hot_keys": _hot_keys(sums),
        "events": [
            {"at_ms": e.at_ms, "event": e.name, "text": e.text, "place": e.place, "by": e.reporter}
            for e in sums.events
        ],
        "recoveries": exits,
        "missing": [
            {
                "place": one.place,
                "from_ms": one.from_ms,
                "to_ms": one.to_ms,
                "components": list(one.components),
            }
            for one in missing
        ],
        "errors": [
            {
                "component": e.component,
                "message": e.message,
                "count": e.n,
                "first_ms": e.first_ms,
                "last_ms": e.last_ms,
            }
            for e in sums.errors
        ],
        "metrics": [
            {
                "component": m.component,
                "name": m.name,
                "intervals": m.intervals,
                "sum": m.total if math.isfinite(m.total) else None,  # it is the user's number
            }
            for m in sums.metrics
        ],
        "lost_rows": dict(sums.lost),
        "notes": _notes(sums, earlier, missing),
    }
    report["verdict"] = verdict(report)
    return report


def advice_of(report: Report) -> list[Advice]:
    """The advice in a report. Raises KeyError, TypeError or ValueError if it is not a report."""
    return [
        Advice(
            str(one["component"]),
            int(one["now"]),
            int(one["recommended"]),
            None if one["limit"] is None else int(one["limit"]),
            str(one["why"]),
            bool(one["enough"]),
        )
        for one in report["advice"]
    ]


def _steps(sums: Sums) -> list[int]:
    first = sums.from_ms - sums.from_ms % sums.step_ms
    return list(range(first, sums.to_ms + 1, sums.step_ms))


def _by_component(tasks: Sequence[TaskSums]) -> dict[str, list[TaskSums]]:
    found: dict[str, list[TaskSums]] = {}
    for task in tasks:
        found.setdefault(task.component, []).append(task)
    return dict(sorted(found.items(), key=lambda item: (not item[1][0].spout, item[0])))


def _component(
    component: str,
    tasks: list[TaskSums],
    sums: Sums,
    steps: list[int],
    missing: Sequence[Missing] = (),
) -> Report:
    spout = tasks[0].spout
    executors = len({task.executor for task in tasks})
    measure = "emitted" if spout else "executed"
    of_steps = [sums.steps.get((component, t), StepSums()) for t in steps]
    # The seconds that an average task was recorded for: the length of the step, except at both
    # ends of the span and while workers were away.
    lengths = [one.secs / len(tasks) for one in of_steps]
    busy = [one.busy_secs / secs for one, secs in zip(of_steps, lengths, strict=True) if secs > 0.0]
    begun = next((i for i, one in enumerate(of_steps) if one.secs > 0.0), 0)
    watched = sum(task.secs for task in tasks) / len(tasks)
    total_busy = sum(task.busy_secs for task in tasks)
    calls_max = sum(task.calls_max for task in tasks)
    limit = calls_max or executors  # how many calls all of it makes at once
    return {
        "kind": "spout" if spout else "bolt",
        "tasks": len(tasks),
        "executors": executors,
        "watched_secs": watched,
        "emitted": sum(task.emitted for task in tasks),
        "executed": sum(task.executed for task in tasks),
        "acked": sum(task.acked for task in tasks),
        "failed": sum(task.failed for task in tasks),
        "calls_max": calls_max or None,
        "capacity": None if spout or not watched else total_busy / watched / limit,
        "capacity_peak": None if spout or not busy else percentile_of(busy, 0.95) / limit,
        "busy": busy,
        "hottest": max(
            task.busy_secs / task.secs / (task.calls_max or 1) if task.secs else 0.0
            for task in tasks
        ),
        "latency_ms": {
            what: _percentiles(_merged(sums, component, what))
            for what in (("complete",) if spout else ("execute", "process"))
        },
        "over_time": {
            # Nothing is known before the first record, nor of what died with a worker.
            "per_sec": [
                None
                if i < begun or any(gap.covers(t, sums.step_ms, component) for gap in missing)
                else one.emitted_per_sec
                if spout
                else one.executed_per_sec
                for i, (t, one) in enumerate(zip(steps, of_steps, strict=True))
            ],
            "failed": [one.failed for one in of_steps],
            "waiting_max": [one.waiting_max for one in of_steps],
            "capacity": [
                None if spout or secs <= 0 else one.busy_secs / secs / limit
                for one, secs in zip(of_steps, lengths, strict=True)
            ],
            **_latency_over_time(sums, component, "complete" if spout else "execute", steps),
        },
        "skew": _skew(tasks, measure),
    }


def _merged(sums: Sums, component: str, what: str) -> Histogram:
    whole: Histogram = {}
    for (of, name, _), histogram in sums.latencies.items():
        if of == component and name == what:
            merge(whole, histogram)
    return whole


def _percentiles(histogram: Histogram) -> dict[str, float | None]:
    return {name: _ms(percentile(histogram, share)) for name, share in _SHARES.items()}


def _ms(secs: float | None) -> float | None:
    return None if secs is None else 1000.0 * secs


def _latency_over_time(
    sums: Sums, component: str, what: str, steps: list[int]
) -> dict[str, list[float | None]]:
    each = [_percentiles(sums.latencies.get((component, what, t), {})) for t in steps]
    return {f"latency_{name}_ms": [one[name] for one in each] for name in _SHARES}


def _skew(tasks: list[TaskSums], measure: str) -> Report:
    """How unevenly the work is spread: the largest task's share against the mean."""
    counts = {task.task: getattr(task, measure) for task in tasks}
    total = sum(counts.values())
    top = max(counts, key=lambda task: (counts[task], -task))
    return {
        "measure": measure,
        "by_task": {str(task): count for task, count in sorted(counts.items())},
        "top_task": top,
        "top_share": counts[top] / total if total else 0.0,
        "ratio": counts[top] * len(counts) / total if total else 1.0,
        "busy_secs_by_task": {str(task.task): task.busy_secs for task in tasks},
    }


def _workers(sums: Sums, steps: list[int]) -> Report:
    names = sorted({worker for worker, _ in sums.workers})
    cores = []
    for t in steps:
        of = [one for (_, at), one in sums.workers.items() if at == t and one.secs > 0]
        if of:
            cores.append(sum(one.cpu_secs / one.secs for one in of))
    last = max((t for _, t in sums.workers), default=0)
    lately = {worker for worker, t in sums.workers if t >= last - sums.step_ms}
    return {
        "names": names,
        "now": len(lately),
        "cores": cores,
        "rss_bytes_max": {
            name: max(one.rss_bytes for (of, _), one in sums.workers.items() if of == name)
            for name in names
        },
    }


def _advice(component: str, of: Report) -> Advice:
    if of["kind"] == "spout":
        return advise_spout(component, executors=of["executors"], tasks=of["tasks"])
    return advise_bolt(
        component,
        executors=of["executors"],
        tasks=of["tasks"],
        busy=of["busy"],
        secs=of["watched_secs"],
        hottest=of["hottest"],
        calls_max=of["calls_max"],
    )


def _hot_keys(sums: Sums) -> list[Report]:
    found = []
    for keys in sums.keys:
        if not keys.samples:
            continue
        found.append(
            {
                "component": keys.component,
                "stream": keys.stream,
                "grouping": keys.grouping,
                "samples": keys.samples,
                "rate": keys.rate,
                "error": keys.error,
                "top": [
                    {
                        "key": key,
                        "samples": n,
                        "share": n / keys.samples,
                        "share_low": wilson(n, keys.samples)[0],
                        "share_high": wilson(n, keys.samples)[1],
                        "hot": is_hot(n, keys.samples),
                        "task": task,
                    }
                    for key, n, task in keys.top
                ],
            }
        )
    return found


def recoveries(events: Sequence[Event]) -> list[Report]:
    """Unexpected exits of workers, each with the time when a worker ran again: on its slot, or,
    when Nimbus moved the work, the first start elsewhere that does not follow another exit. The
    clocks of the machines decide which event is later."""
    running = [event for event in events if event.name == "worker running"]
    found = []
    to_restart = set()  # places whose workers were asked to restart
    for event in events:
        if event.name == "worker restart asked for":
            to_restart.add(event.place)
        elif event.name == "worker killed":
            to_restart.discard(event.place)
        if event.name != "worker exited" or any(why in event.text for why in _ASKED):
            continue
        if event.place in to_restart:
            to_restart.remove(event.place)
            continue
        later = [one for one in running if one.at_ms >= event.at_ms]
        same = [one for one in later if one.place == event.place]
        by = min(same or later, default=None, key=lambda one: one.at_ms)
        if by is not None:
            running.remove(by)
        found.append(
            {
                "at_ms": event.at_ms,
                "place": event.place,
                "why": event.text,
                "running_at_ms": None if by is None else by.at_ms,
                "running_on": None if by is None else by.place,
                "secs": None if by is None else (by.at_ms - event.at_ms) / 1000,
            }
        )
    return found


def _notes(sums: Sums, earlier: Sequence[str], missing: Sequence[Missing]) -> list[str]:
    notes = []
    if earlier:
        notes.append(
            f"{len(earlier)} earlier "
            f"{'topology' if len(earlier) == 1 else 'topologies'} had the same name: "
            + ", ".join(earlier[:5])
            + (" ..." if len(earlier) > 5 else "")
        )
    if sums.lost:
        lost = ", ".join(f"{n} ({why})" for why, n in sorted(sums.lost.items()))
        notes.append(f"rows of the history were lost, so the figures are too low: {lost}")
    for gap in missing:
        notes.append(
            f"the history of worker {gap.place} from {show_time(gap.from_ms / 1000)} to "
            f"{show_time(gap.to_ms / 1000)} died with it: counts are too low by what it did then"
        )
    if sums.ahead:
        notes.append(f"{sums.ahead} rows with clocks ahead of this machine's were left out")
    for text in sums.unreadable:
        notes.append(f"left out: {text}")
    return notes
