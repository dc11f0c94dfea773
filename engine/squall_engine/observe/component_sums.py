"""Sums by component of what a worker's tasks have counted, for pages that follow a large topology.

They cost little to read: all executors of a component are added into one table, where a heartbeat
makes four windows of each. Only the time in `execute` is kept by executor, to name the busiest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

from squall_common.names import is_system_id
from squall_common.telemetry.sums import ComponentSums
from squall_common.topology.model import Executor
from squall_engine.core.stats import Totals
from squall_engine.observe.readings import BLOCKED, SENT, AddTotals

# Which executor is the busiest is judged by the last seconds, as the rates that pages show.
_LATELY_SECS = 2.0
_LATELY_SECS_MAX = 10.0
_EXECUTE_SECS = "execute_secs"


Done = tuple[float, float]  # seconds in execute, tuples


class _Lately:
    """What each executor of a component has done, now and some two seconds ago."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, list[Done]]] = deque()

    def busiest(
        self, now: float, done: list[Done], limits: Sequence[int]
    ) -> tuple[int, float, float]:
        """The number of the executor that was longest in `execute`, its share of the time, and the
        most tuples a second of any; zeros at the first reading of late. `limits`: how many calls
        each makes at once, all of which are its share."""
        readings = self._readings
        while readings and now - readings[0][0] >= _LATELY_SECS_MAX:
            readings.popleft()
        readings.append((now, done))
        while len(readings) > 2 and now - readings[1][0] >= _LATELY_SECS:
            readings.popleft()
        then, before = readings[0]
        if now <= then:
            return 0, 0.0, 0.0
        secs = [
            (new[0] - old[0]) / limit for new, old, limit in zip(done, before, limits, strict=True)
        ]
        tuples = max(new[1] - old[1] for new, old in zip(done, before, strict=True))
        longest = max(range(len(secs)), key=secs.__getitem__)
        return longest, secs[longest] / (now - then), tuples / (now - then)


class ComponentReadings:
    """`add` adds what a task has counted to some totals. Components of the system are left out."""

    def __init__(
        self,
        executors: Iterable[Executor],
        add: AddTotals,
        component_of: Callable[[Executor], str],
        *,
        is_spout: Callable[[Executor], bool],
        calls_max: Callable[[Executor], int | None],
    ) -> None:
        """`calls_max`: see `readings.calls_max`."""
        self._add = add
        self._is_spout = is_spout
        self._executors: dict[str, list[Executor]] = {}
        for executor in sorted(executors):
            component = component_of(executor)
            if not is_system_id(component):
                self._executors.setdefault(component, []).append(executor)
        self._lately = {name: _Lately() for name in self._executors}
        self._limits = {
            name: [calls_max(executor) or 1 for executor in members]
            for name, members in self._executors.items()
        }

    def read(self, now: float) -> dict[str, ComponentSums]:
        """What every component of this worker has done since the worker began; `now` is monotonic
        seconds."""
        return {name: self._of(name, members, now) for name, members in self._executors.items()}

    def _of(self, name: str, executors: list[Executor], now: float) -> ComponentSums:
        totals: Totals = {}
        done: list[Done] = []
        tuples = "emitted" if self._is_spout(executors[0]) else "executed"
        secs_before = tuples_before = 0.0
        for executor in executors:
            for task in executor.tasks:
                self._add(task, totals)
            # (The table grows from executor to executor, by what this one has.)
            secs_now = tuples_now = 0.0
            for (measure, _), value in totals.items():
                if measure == _EXECUTE_SECS:
                    secs_now += value
                elif measure == tuples:
                    tuples_now += value
            done.append((secs_now - secs_before, tuples_now - tuples_before))
            secs_before, tuples_before = secs_now, tuples_now
        longest, share, most = self._lately[name].busiest(now, done, self._limits[name])
        found = executors[longest]
        busiest = (found.task_start, found.task_end, min(share, 1_000.0)) if share > 0 else None
        return sums_of(totals, busiest, max(0.0, most))


def sums_of(
    totals: Totals, busiest: tuple[int, int, float] | None, most_a_second: float
) -> ComponentSums:
    """The sums over streams, those of the system left out."""
    counts = dict.fromkeys(("emitted", "transferred", "acked", "failed"), 0)
    busy = execute = process = 0.0
    sources, executed = [], 0
    blocked: dict[str, float] = {}
    sent: dict[str, int] = {}
    for (measure, key), value in totals.items():
        # A bolt's input, or a stream.
        stream = key[1] if isinstance(key, tuple) else str(key)
        if measure == _EXECUTE_SECS:
            busy += value
            if not is_system_id(stream):
                execute += value
        elif measure == BLOCKED:
            blocked[stream] = value
        elif measure == SENT:
            sent[stream] = int(value)
        elif is_system_id(stream):
            continue
        elif measure == "executed":
            executed += int(value)
            if isinstance(key, tuple):
                sources.append((str(key[0]), stream, int(value)))
        elif measure == "process_secs":
            process += value
        elif measure in counts:
            counts[measure] += int(value)
    return ComponentSums(
        executed=executed,
        **counts,
        busy_secs=busy,
        execute_secs=execute,
        process_secs=process,
        by_source=tuple(sources),
        blocked_secs=blocked,
        sent_bytes=sent,
        busiest=busiest,
        most_a_second=most_a_second,
    )
