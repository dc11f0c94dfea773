"""What is gathered from a history: sums, small enough for one process whatever the size of the
history. Times are milliseconds since the epoch; `t` is the start of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from squall_common.history.histogram import Histogram


@dataclass(slots=True)
class TaskSums:
    """One task over the whole span."""

    component: str
    task: int
    executor: int  # the last one that had it
    spout: bool
    secs: float  # that it was recorded for
    last_ms: int
    emitted: int = 0
    executed: int = 0  # ticks left out
    acked: int = 0
    failed: int = 0
    busy_secs: float = 0.0  # in execute
    # How many calls it has under way at most; 0: a call after the other, on its worker's thread.
    calls_max: int = 0


@dataclass(slots=True)
class StepSums:
    """One component in one step."""

    emitted: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    busy_secs: float = 0.0
    secs: float = 0.0  # that its tasks were recorded for, in total
    # Tuples per second: the sum of each task's rate over the time that it was recorded for. So a
    # task that was away adds nothing, and one recorded for part of the step counts in full.
    emitted_per_sec: float = 0.0
    executed_per_sec: float = 0.0
    waiting_max: float = 0.0  # tuples pending (spout) or in inboxes (bolt), of one task at most


@dataclass(slots=True)
class WorkerStep:
    cpu_secs: float = 0.0
    secs: float = 0.0
    rss_bytes: float = 0.0
    polls: bool = False  # busily: its CPU says little about its load


@dataclass(slots=True)
class KeySums:
    """The sampled keys of one grouping."""

    component: str
    stream: str
    grouping: str
    rate: float
    samples: int = 0
    error: int = 0
    top: list[tuple[str, int, int]] = field(default_factory=list)  # key, samples, task


@dataclass(frozen=True, slots=True)
class Event:
    at_ms: int
    name: str
    text: str
    place: str  # host:port, or ""
    reporter: str  # worker, nimbus or supervisor


@dataclass(frozen=True, slots=True)
class ErrorSums:
    component: str
    message: str
    n: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class MetricSums:
    component: str
    name: str
    intervals: int
    total: float


@dataclass(frozen=True, slots=True)
class WorkerSpan:
    """What one worker process has written of its tasks."""

    worker: str  # host:port
    from_ms: int
    to_ms: int
    components: tuple[str, ...]


@dataclass(slots=True)
class Sums:
    from_ms: int
    to_ms: int
    step_ms: int
    tasks: list[TaskSums] = field(default_factory=list)
    steps: dict[tuple[str, int], StepSums] = field(default_factory=dict)  # (component, t)
    # (component, execute | process | complete, t)
    latencies: dict[tuple[str, str, int], Histogram] = field(default_factory=dict)
    workers: dict[tuple[str, int], WorkerStep] = field(default_factory=dict)  # (worker, t)
    spans: list[WorkerSpan] = field(default_factory=list)
    keys: list[KeySums] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    errors: list[ErrorSums] = field(default_factory=list)
    metrics: list[MetricSums] = field(default_factory=list)
    lost: Mapping[str, int] = field(default_factory=dict)  # why -> rows
    unreadable: list[str] = field(default_factory=list)
    interval_ms: int = 0  # how often workers record
    ahead: int = 0  # rows left out because their clocks were ahead of ours


_STEPS_SECS = (
    1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400
)  # fmt: skip
_STEPS_MAX = 120


def step_ms(span_ms: int, interval_ms: int) -> int:
    """A round length of steps: at least the recording interval, and such that the span has at most
    120 of them, unless a step would be longer than a day."""
    for secs in _STEPS_SECS:
        if secs * 1000 >= interval_ms and span_ms <= secs * 1000 * _STEPS_MAX:
            return secs * 1000
    days = -(-span_ms // (86_400_000 * _STEPS_MAX))
    return max(1, days) * 86_400_000
