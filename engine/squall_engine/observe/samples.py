"""The samples of a worker for Prometheus: what its tasks have counted since it began, by component.

See `squall_common.telemetry.samples` for the families.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from squall_common.component.metrics.instruments import Histogram, value_of
from squall_common.daemon.logs import get_logger
from squall_common.daemon.own_memory import memory_bytes
from squall_common.history.histogram import secs_of
from squall_common.telemetry.samples import Sample, histogram_sample, shortened
from squall_engine.core.stats import Key, Totals
from squall_engine.observe.latencies import TimedCounts
from squall_engine.observe.readings import BLOCKED, SENT, exhausted, key_name, waiting
from squall_engine.state.sizes import size_of
from squall_engine.tasks.base import Task
from squall_engine.tasks.bolt import BoltTask
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask

log = get_logger(__name__)

_COUNTS = ("emitted", "transferred", "executed", "acked", "failed")
# What users measure may be anything: a bound for each power of four.
_USER_BOUNDS = tuple(4.0**power for power in range(-6, 16))


class WorkerSamples:
    """Reads all samples of a worker, on its loop."""

    def __init__(
        self,
        built: Sequence[Built],
        add: Callable[[int, Totals], None],
        credit: Callable[[Iterable[Task]], Mapping[str, int]],
    ) -> None:
        """`add` adds what a task has counted, `credit` is what tasks may send, by component."""
        self._built = built
        self._add = add
        self._credit = credit
        self._failing: set[tuple[str, str]] = set()

    def read(self, uptime_secs: float, lag_secs: float) -> list[Sample]:
        """The samples now: those of the process first, then those of components, and then what
        components record themselves, of which there may be too many."""
        found = [
            Sample("squall_worker_cpu_seconds", value=time.process_time()),
            Sample("squall_worker_memory_bytes", value=memory_bytes()[1]),
            Sample("squall_worker_loop_lag_seconds", value=lag_secs),
            Sample("squall_worker_uptime_seconds", value=uptime_secs),
        ]
        by_component: dict[str, list[Built]] = {}
        for one in self._built:
            by_component.setdefault(one.task.component, []).append(one)
        for component, some in by_component.items():
            found += self._of_component(component, [one.task for one in some])
        for component, some in by_component.items():
            found += self._recorded(component, some)
        return found

    def _of_component(self, component: str, tasks: Sequence[Task]) -> Iterable[Sample]:
        totals: Totals = {}
        tuples = octets = 0
        for task in tasks:
            self._add(task.task, totals)
            with task.lock:
                tuples += (waiting(task) or ("", 0))[1]
                octets += task.queued_bytes() if isinstance(task, BoltTask) else 0
        of = {"component": component}
        yield Sample("squall_tasks", shortened(of), len(tasks))
        ended = exhausted(tasks)
        if ended is not None:
            yield Sample("squall_exhausted_tasks", shortened(of), ended)
        yield Sample("squall_queue_tuples", shortened(of), tuples)
        yield Sample("squall_queue_bytes", shortened(of), octets)
        if (size := size_of(tasks)) is not None:
            yield Sample("squall_state_keys", shortened(of), size.keys)
            if size.stored_bytes is not None:
                yield Sample("squall_state_bytes", shortened(of), size.stored_bytes)
        for (measure, key), value in totals.items():
            if measure in _COUNTS:
                labels = shortened({**of, "stream": key_name(key)})
                yield Sample(f"squall_{measure}_tuples", labels, value)
            elif measure == BLOCKED:
                yield Sample("squall_blocked_seconds", shortened({**of, "by": key}), value)
            elif measure == SENT:
                yield Sample("squall_sent_bytes", shortened({**of, "to": key}), value)
        for to, left in self._credit(tasks).items():
            yield Sample("squall_credit_bytes", shortened({**of, "to": to}), left)
        yield from _latencies(component, tasks, totals)

    def _recorded(self, component: str, some: Sequence[Built]) -> Iterable[Sample]:
        sums: dict[tuple[str, str], float] = {}
        values: dict[tuple[str, str], dict[int, int]] = {}
        totals: dict[tuple[str, str], float] = {}
        for one in some:
            with one.task.lock:
                for name, instrument in list(one.context.instruments.items()):
                    place = (instrument.kind, name)
                    if isinstance(instrument, Histogram):
                        into = values.setdefault(place, {})
                        for bucket, n in dict(instrument.buckets).items():
                            into[bucket] = into.get(bucket, 0) + n
                        totals[place] = totals.get(place, 0.0) + instrument.total
                        continue
                    value = self._value(component, name, instrument)
                    if value is not None:
                        sums[place] = sums.get(place, 0) + value
        for (kind, name), value in sums.items():
            labels = shortened({"component": component, "name": name})
            yield Sample(f"squall_user_{kind}", labels, value)
        for place, buckets in values.items():
            kind, name = place
            family = "squall_user_timer_seconds" if kind == "timer" else "squall_user_histogram"
            labels = shortened({"component": component, "name": name})
            pairs = [(value_of(bucket), n) for bucket, n in buckets.items()]
            if kind == "timer":
                yield histogram_sample(family, labels, pairs, totals[place])
            else:
                yield histogram_sample(family, labels, pairs, totals[place], _USER_BOUNDS)

    def _value(self, component: str, name: str, instrument: object) -> float | None:
        """What a counter, meter or gauge shows; None for a gauge without a value."""
        try:
            if getattr(instrument, "kind", "") == "gauge":
                value = instrument.value  # type: ignore[attr-defined]
                return None if value is None else float(value)
            return float(instrument.count)  # type: ignore[attr-defined]
        except Exception as error:  # of a gauge's function, or of its value
            if (component, name) not in self._failing:
                self._failing.add((component, name))
                log.warning("metric_not_read", component=component, metric=name, error=error)
            return None


def _latencies(component: str, tasks: Sequence[Task], totals: Totals) -> Iterable[Sample]:
    sums: dict[str, dict[int, int]] = {}
    for task in tasks:
        with task.lock:
            if isinstance(task.counts, TimedCounts):
                for (what, _), buckets in task.counts.buckets():
                    into = sums.setdefault(what, {})
                    for bucket, n in enumerate(buckets):
                        if n:
                            into[bucket] = into.get(bucket, 0) + n
    spout = isinstance(tasks[0], SpoutTask)
    for what, histogram in sums.items():
        if histogram:
            family = "squall_complete_seconds" if spout else f"squall_{what}_seconds"
            total = _sum_of(totals, f"{what}_secs")
            values = [(secs_of(bucket), n) for bucket, n in histogram.items()]
            yield histogram_sample(family, shortened({"component": component}), values, total)


def _sum_of(totals: Mapping[tuple[str, Key], float], measure: str) -> float:
    return sum(value for (name, _), value in totals.items() if name == measure)
