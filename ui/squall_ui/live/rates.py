"""What executors do now: rates and latencies of the last seconds.

Executors report counters since their start, and when these were read: every few seconds, and some
times a second while somebody watches their topology. A rate is the difference between two reports
by the difference of their times. Pages show rates of the last two seconds, so that a change is seen
at once; what holds a topology up is judged by those of the last ten. Workers of earlier versions
report whole seconds: of theirs, pages show the last ten seconds, too. A time that shrinks means
that the executor was started again, or that the report is older than the last one: Nimbus' own
answer may be some seconds older than a heartbeat, and is read when the last page is closed. An
older report says nothing new; that of a new executor has a time that grows from look to look.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from squall_common.history.histogram import Histogram, less, merge, percentile, unpack
from squall_common.names import is_system_id
from squall_thrift import storm

WINDOW_SECS = 10
SHOWN_SECS = 1.9  # two, and some room
_OLDER_SECS = 15.0  # how much older than the last report another one may be
_ALL = ":all-time"
Source = tuple[str, str]  # a component and one of its streams


@dataclass(frozen=True, slots=True)
class Counts:
    """What an executor has done since it started; times in milliseconds."""

    uptime_secs: float
    emitted: int = 0
    transferred: int = 0
    executed: int = 0
    acked: int = 0
    failed: int = 0
    busy_ms: float = 0.0  # in execute, ticks included
    execute_ms: float = 0.0  # in execute, of tuples
    process_ms: float = 0.0
    complete_ms: float = 0.0
    by_source: Mapping[Source, int] = field(default_factory=dict)  # executed
    # Component downstream -> seconds that its tasks, added up, waited for it.
    blocked_secs: Mapping[str, float] = field(default_factory=dict)
    sent_bytes: Mapping[str, int] = field(default_factory=dict)  # to other workers, by component
    precise: bool = False  # the time is not in whole seconds
    calls_max: int | None = None  # under way at once; None: its calls take its worker's thread
    # By source, a bolt's time in execute; by stream, a spout's until a message is complete. Packed.
    histograms: Mapping[object, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Flow:
    """Of an executor or a component, a second. `busy` is the share of time in `execute`, ticks
    included, or of the calls that may be under way, and `calls` how many are; `execute_ms` is the
    mean of tuples alone; `blocked` is the number of its tasks that wait for a component downstream,
    on average."""

    emitted: float = 0.0
    transferred: float = 0.0
    executed: float = 0.0
    acked: float = 0.0
    failed: float = 0.0
    busy: float = 0.0
    calls: float = 0.0
    execute_ms: float = 0.0
    process_ms: float = 0.0
    complete_ms: float = 0.0
    by_source: dict[Source, float] = field(default_factory=dict)
    blocked: dict[str, float] = field(default_factory=dict)
    sent_bytes: dict[str, float] = field(default_factory=dict)  # to other workers, by component
    # Pairs of packed histograms: latencies until now, and until before.
    times: list[tuple[bytes, bytes | None]] = field(default_factory=list)

    def percentiles_ms(self) -> tuple[float, float, float] | None:
        """p50, p95 and p99 of the latencies between the reports; None if there were none."""
        found: Histogram = {}
        for new, old in self.times:
            # (Damaged, or not of one worker.)
            with contextlib.suppress(ValueError, IndexError, OverflowError):
                merge(found, unpack(new if old is None else less(new, old)))
        if not found:
            return None
        p50, p95, p99 = (1000 * (percentile(found, share) or 0.0) for share in (0.5, 0.95, 0.99))
        return p50, p95, p99


def counts_of(one: storm.ExecutorSummary) -> Counts | None:
    """What an executor has reported; None if it has not yet."""
    stats = one.stats
    if stats is None or (one.stats_ms or 1000 * one.uptime_secs) <= 0:
        return None
    precise = one.stats_ms is not None
    uptime_secs = one.uptime_secs if one.stats_ms is None else one.stats_ms / 1000
    emitted = _sum((stats.emitted.get(_ALL) or {}).items())
    transferred = _sum((stats.transferred.get(_ALL) or {}).items())
    blocked_secs = (stats.blocked_secs or {}).get(_ALL) or {}
    sent_bytes = stats.sent_bytes or {}
    spout = stats.specific.spout
    if spout is not None:
        acked = spout.acked.get(_ALL) or {}
        return Counts(
            uptime_secs, emitted, transferred, precise=precise,
            acked=_sum(acked.items()), failed=_sum((spout.failed.get(_ALL) or {}).items()),
            complete_ms=_weighted(spout.complete_ms_avg.get(_ALL), acked),
            blocked_secs=blocked_secs, sent_bytes=sent_bytes,
            histograms={
                stream: packed
                for stream, packed in ((spout.complete_histograms or {}).get(_ALL) or {}).items()
                if not is_system_id(stream)
            },
        )  # fmt: skip
    bolt = stats.specific.bolt
    if bolt is None:
        return Counts(uptime_secs, emitted, transferred, precise=precise)
    executed = bolt.executed.get(_ALL) or {}
    bolt_acked = bolt.acked.get(_ALL) or {}
    execute_ms = {
        source: ms * executed.get(source, 0)
        for source, ms in (bolt.execute_ms_avg.get(_ALL) or {}).items()
    }
    return Counts(
        uptime_secs, emitted, transferred, precise=precise,
        executed=sum(n for source, n in executed.items() if not is_system_id(source.streamId)),
        acked=sum(bolt_acked.values()), failed=sum((bolt.failed.get(_ALL) or {}).values()),
        busy_ms=sum(execute_ms.values()),
        execute_ms=sum(
            ms for source, ms in execute_ms.items() if not is_system_id(source.streamId)
        ),
        process_ms=sum(
            ms * bolt_acked.get(source, 0)
            for source, ms in (bolt.process_ms_avg.get(_ALL) or {}).items()
        ),
        by_source={
            (source.componentId, source.streamId): n
            for source, n in executed.items()
            if not is_system_id(source.streamId)
        },
        blocked_secs=blocked_secs, sent_bytes=sent_bytes,
        calls_max=None if stats.calls_max is None else max(1, stats.calls_max),
        histograms={
            (source.componentId, source.streamId): packed
            for source, packed in ((bolt.execute_histograms or {}).get(_ALL) or {}).items()
            if not is_system_id(source.streamId)
        },
    )  # fmt: skip


def _sum(counts: Iterable[tuple[str, int]]) -> int:
    return sum(count for stream, count in counts if not is_system_id(stream))


def _weighted(means: Mapping[str, float] | None, counts: Mapping[str, int]) -> float:
    return sum(ms * counts.get(stream, 0) for stream, ms in (means or {}).items())


def flow_between(old: Counts, new: Counts) -> Flow:
    """What happened between two reports of one executor."""
    secs = max(0.05, new.uptime_secs - old.uptime_secs)
    executed = max(0, new.executed - old.executed)
    acked = max(0, new.acked - old.acked)
    calls = max(0.0, new.busy_ms - old.busy_ms) / (secs * 1000)
    limit = new.calls_max or 1
    return Flow(
        emitted=max(0, new.emitted - old.emitted) / secs,
        transferred=max(0, new.transferred - old.transferred) / secs,
        executed=executed / secs,
        acked=acked / secs,
        failed=max(0, new.failed - old.failed) / secs,
        # (The clocks of a worker's loop and of its counters are two; and a worker of an earlier
        # version does not say how many calls an async bolt makes at once.)
        busy=min(1.0, calls / limit),
        calls=min(calls, limit),
        execute_ms=max(0.0, new.execute_ms - old.execute_ms) / executed if executed else 0.0,
        process_ms=max(0.0, new.process_ms - old.process_ms) / acked if acked else 0.0,
        complete_ms=max(0.0, new.complete_ms - old.complete_ms) / acked if acked else 0.0,
        by_source={
            source: max(0, count - old.by_source.get(source, 0)) / secs
            for source, count in new.by_source.items()
        },
        blocked={
            component: max(0.0, spent - old.blocked_secs.get(component, 0.0)) / secs
            for component, spent in new.blocked_secs.items()
        },
        sent_bytes={
            component: max(0, octets - old.sent_bytes.get(component, 0)) / secs
            for component, octets in new.sent_bytes.items()
        },
        times=[
            (packed, old.histograms.get(source))
            for source, packed in new.histograms.items()
            if packed != old.histograms.get(source)
        ],
    )


def sum_of(flows: Iterable[Flow]) -> Flow:
    """Of several executors: rates and busy shares add up, latencies are weighted."""
    total = Flow()
    execute = process = complete = 0.0
    for one in flows:
        total.emitted += one.emitted
        total.transferred += one.transferred
        total.executed += one.executed
        total.acked += one.acked
        total.failed += one.failed
        total.busy += one.busy
        total.calls += one.calls
        execute += one.execute_ms * one.executed
        process += one.process_ms * one.acked
        complete += one.complete_ms * one.acked
        for source, rate in one.by_source.items():
            total.by_source[source] = total.by_source.get(source, 0.0) + rate
        for component, tasks in one.blocked.items():
            total.blocked[component] = total.blocked.get(component, 0.0) + tasks
        for component, octets in one.sent_bytes.items():
            total.sent_bytes[component] = total.sent_bytes.get(component, 0.0) + octets
        total.times += one.times
    total.execute_ms = execute / total.executed if total.executed else 0.0
    total.process_ms = process / total.acked if total.acked else 0.0
    total.complete_ms = complete / total.acked if total.acked else 0.0
    return total


Key = tuple[str, int, int, str, int]  # component, tasks, host, port


class Rates:
    """The last reports of all executors of a topology. None: an executor has not reported yet."""

    def __init__(self) -> None:
        self._reports: dict[Key, deque[Counts]] = {}
        self._older: dict[Key, float] = {}  # the time of a report that was older than the last

    def add(self, executors: Iterable[storm.ExecutorSummary]) -> dict[Key, Flow | None]:
        """Take in what all executors report now; what each does now, for pages."""
        kept: dict[Key, deque[Counts]] = {}
        older: dict[Key, float] = {}
        for one in executors:
            tasks = one.executor_info
            key = (one.component_id, tasks.task_start, tasks.task_end, one.host, one.port)
            reports = self._reports.get(key) or deque()
            new = counts_of(one)
            if new is not None:
                if reports and new.uptime_secs < reports[-1].uptime_secs:
                    before = self._older.get(key, new.uptime_secs)
                    late = reports[-1].uptime_secs - new.uptime_secs < _OLDER_SECS
                    if late and new.uptime_secs <= before:
                        older[key] = new.uptime_secs
                        kept[key] = reports
                        continue
                    reports.clear()
                if not reports or new.uptime_secs > reports[-1].uptime_secs:
                    reports.append(new)
                while len(reports) > 2 and (
                    reports[-1].uptime_secs - reports[1].uptime_secs >= WINDOW_SECS
                ):
                    reports.popleft()
            kept[key] = reports
        self._reports, self._older = kept, older
        return {key: _flow(reports, SHOWN_SECS) for key, reports in kept.items()}

    def steady(self) -> dict[Key, Flow | None]:
        """What each executor has done in the last ten seconds."""
        return {key: _flow(reports, WINDOW_SECS) for key, reports in self._reports.items()}


def _flow(reports: deque[Counts], secs: float) -> Flow | None:
    if not reports:
        return None
    new = reports[-1]
    if len(reports) == 1:  # since it started
        return flow_between(Counts(0), new)
    if not new.precise:
        return flow_between(reports[0], new)
    older = (one for one in reversed(reports) if new.uptime_secs - one.uptime_secs >= secs)
    return flow_between(next(older, reports[0]), new)
