"""A parallelism for each component, from measurements. Pure.

Storm's *capacity* of a bolt is `executed x mean execute latency / window`: the share of the window
that its executors spent in `execute`. Here the measured seconds in `execute` are summed, so that
nothing is lost in means, and a window is a step of the report. The step that only one in twenty
exceeds decides, so that a night without load does not hide the day.

    busy executors = seconds in execute / seconds of the step
    capacity       = busy executors / executors

A component above `HIGH` gets executors until it would be at `TARGET`; one below `LOW` gives some
back; between the two nothing changes, so that the next report does not undo this one's advice. A
component never gets more executors than it has tasks.

Calls of an `async` bolt, and those on a thread for each task, do not take the worker's thread for
as long as they last. Each task has a limit of calls that are under way at once:

    capacity       = calls under way / limit of all tasks

More executors change nothing about it, and none are recommended.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

HIGH, TARGET, LOW = 0.8, 0.6, 0.3
_STEPS_MIN = 3
_SECS_MIN = 10.0
WORKERS = ""  # instead of a component's id, which is never empty


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommended number of executors of a component, or of workers; `now` is today's."""

    component: str
    now: int
    recommended: int
    limit: int | None  # its tasks
    why: str
    enough: bool = True  # False: too little data to judge it

    @property
    def changes(self) -> bool:
        return self.recommended != self.now


def percentile_of(values: Sequence[float], share: float) -> float:
    """The value that `share` of the values do not exceed; 0.0 without values."""
    if not values:
        return 0.0
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


def advise_bolt(
    component: str,
    *,
    executors: int,
    tasks: int,
    busy: Sequence[float],
    secs: float,
    hottest: float = 0.0,
    calls_max: int | None = None,
) -> Advice:
    """`busy`: busy executors, one value per step; `secs`: how long it was watched; `hottest`: the
    share of that time that its busiest task spent in execute. With `calls_max`, a limit of calls
    that are under way at once, `busy` are calls."""

    def keep(why: str) -> Advice:
        return Advice(component, executors, executors, tasks, why)

    if len(busy) < _STEPS_MIN or secs < _SECS_MIN:
        why = f"watched for only {secs:.0f} s: too little data to judge"
        return Advice(component, executors, executors, tasks, why, enough=False)
    peak = percentile_of(busy, 0.95)
    if calls_max is not None:
        return keep(_of_calls(peak, calls_max, tasks, hottest))
    capacity = peak / executors
    measured = f"capacity {capacity:.2f} ({peak:.2f} of {executors} executors busy)"
    wanted = max(1, math.ceil(peak / TARGET - 1e-9))
    if capacity > HIGH:
        if executors >= tasks:
            return keep(f"{measured}; every task has its own executor: submit it with more tasks")
        if wanted > tasks:
            return Advice(
                component, executors, tasks, tasks,
                f"{measured}; {wanted} would be needed, but it has only {tasks} tasks",
            )  # fmt: skip
        return Advice(component, executors, max(wanted, executors + 1), tasks, measured)
    if hottest > HIGH:
        return keep(
            f"{measured}; but one task is busy {hottest:.0%} of the time: its keys are hot, and "
            "more executors would not help it"
        )
    if capacity < LOW and wanted < executors:
        return Advice(component, executors, wanted, tasks, measured)
    return keep(measured)


def _of_calls(peak: float, calls_max: int, tasks: int, hottest: float) -> str:
    each = calls_max // max(1, tasks)
    measured = f"{min(peak, calls_max):.1f} of {calls_max} calls under way"
    more = (
        "submit it with more tasks, each of which has one call at a time"
        if each <= 1
        else f"raise its topology.bolt.async.concurrency ({each} for each task)"
    )
    if peak / calls_max > HIGH:
        return f"{measured}: its limit, which more executors do not change; {more}"
    if hottest > HIGH:
        return (
            f"{measured}, but one task is at its limit {hottest:.0%} of the time: its keys are hot"
        )
    return measured


def advise_spout(component: str, *, executors: int, tasks: int) -> Advice:
    return Advice(
        component, executors, executors, tasks, "a spout: the time in next_tuple is not measured"
    )


def advise_workers(
    workers: int, cores: Sequence[float], executors: int, *, polls: bool = False
) -> Advice:
    """`cores`: CPU of all workers together, one value per step. Executors of one worker share a
    thread (except those of `blocking` bolts and shell components), so only workers add CPU. Fewer
    workers are never recommended: their number also decides how much fails at once. If they poll
    busily (`polls`), they take all the CPU that there is, and each more of them would, too."""

    def keep(why: str) -> Advice:
        return Advice(WORKERS, workers, workers, None, why)

    if workers < 1 or len(cores) < _STEPS_MIN:
        return Advice(WORKERS, workers, workers, None, "too little data to judge", enough=False)
    peak = percentile_of(cores, 0.95)
    measured = f"{peak:.2f} cores in {workers} worker{'' if workers == 1 else 's'}"
    if peak / workers <= HIGH:
        return keep(measured)
    if polls and workers > 1:
        why = (
            f"{measured}, which does not show their load: they do not sleep "
            "(topology.worker.busy.poll.ms)"
        )
        return Advice(WORKERS, workers, workers, None, why, enough=False)
    wanted = min(max(executors, workers), math.ceil(peak / TARGET - 1e-9))
    if wanted <= workers:
        return keep(f"{measured}; there are not enough executors for more")
    return Advice(WORKERS, workers, wanted, None, measured)
