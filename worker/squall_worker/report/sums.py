"""Statistics of many executors as sums by component.

The full statistics of one executor take over a kilobyte in a heartbeat, which is one node of
ZooKeeper: those of 10,000 executors in one worker never fit. A worker with more than
EXECUTORS_MAX reports what its executors of one component did together, under the first of them; so
the figures of a component and of the topology stay exact, and only those of a single executor are
missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from squall_common.cluster.values import BoltStats, ExecutorStats, SpoutStats
from squall_common.topology.model import Executor

# The statistics of so many executors take some 110 kB of the 1 MB that a node holds.
EXECUTORS_MAX = 500

# Figures by time window and by stream, or by input.
_Figures = Mapping[str, Mapping[Any, Any]]


def fitting_stats(
    executors: Sequence[Executor],
    stats: Mapping[Executor, ExecutorStats],
    component_of: Callable[[Executor], str],
) -> Mapping[Executor, ExecutorStats]:
    """The statistics as they are, or summed by component when there are too many executors."""
    if len(executors) <= EXECUTORS_MAX:
        return stats
    by_component: defaultdict[str, list[Executor]] = defaultdict(list)
    for executor in sorted(executors):
        by_component[component_of(executor)].append(executor)
    return {
        members[0]: summed(found)
        for members in by_component.values()
        if (found := [stats[one] for one in members if one in stats])
    }


def summed(parts: Sequence[ExecutorStats]) -> ExecutorStats:
    """What some executors (at least one, all of one kind) did together."""
    specific: SpoutStats | BoltStats
    spouts = [one.specific for one in parts if isinstance(one.specific, SpoutStats)]
    bolts = [one.specific for one in parts if isinstance(one.specific, BoltStats)]
    if spouts:
        specific = SpoutStats(
            acked=_counts(one.acked for one in spouts),
            failed=_counts(one.failed for one in spouts),
            complete_ms_avg=_averages((one.complete_ms_avg, one.acked) for one in spouts),
        )
    else:
        specific = BoltStats(
            acked=_counts(one.acked for one in bolts),
            failed=_counts(one.failed for one in bolts),
            executed=_counts(one.executed for one in bolts),
            process_ms_avg=_averages((one.process_ms_avg, one.acked) for one in bolts),
            execute_ms_avg=_averages((one.execute_ms_avg, one.executed) for one in bolts),
        )
    return ExecutorStats(
        specific,
        emitted=_counts(one.emitted for one in parts),
        transferred=_counts(one.transferred for one in parts),
        rate=parts[0].rate,
    )


def _counts(parts: Iterable[_Figures]) -> dict[str, dict[Any, int]]:
    totals: defaultdict[str, defaultdict[Any, int]] = defaultdict(lambda: defaultdict(int))
    for part in parts:
        for window, by_key in part.items():
            total = totals[window]
            for key, count in by_key.items():
                total[key] += count
    return {window: dict(by_key) for window, by_key in totals.items()}


def _averages(parts: Iterable[tuple[_Figures, _Figures]]) -> dict[str, dict[Any, float]]:
    """Averages, each weighed by the count of what it is the average of."""
    sums: defaultdict[str, dict[Any, tuple[float, int]]] = defaultdict(dict)
    for averages, counts in parts:
        for window, by_key in averages.items():
            for key, average in by_key.items():
                # Counted at another moment than the time was: at least one event took it.
                weight = max(1, counts.get(window, {}).get(key, 0))
                total, weights = sums[window].get(key, (0.0, 0))
                sums[window][key] = (total + average * weight, weights + weight)
    return {
        window: {key: total / weights for key, (total, weights) in by_key.items()}
        for window, by_key in sums.items()
    }
