"""What the history needs of the engine: a sample of the keys of fields groupings, and every so
often the rows of all tasks. Nothing of this exists while it is off.

Keys are sampled at an edge when its buffer is taken: the tuples in between cost nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from squall_common.daemon.clock import Clock
from squall_common.daemon.own_memory import memory_bytes
from squall_common.history.heavy import HeavyKeys, key_text
from squall_common.history.histogram import Histogram
from squall_common.history.schema import Row
from squall_common.names import is_system_id
from squall_common.topology.model import GroupingKind
from squall_engine.core import Batch, Edge, Source
from squall_engine.core.stats import Key, TaskCounts
from squall_engine.observe.latencies import TimedCounts
from squall_engine.observe.readings import Gains, calls_max, key_name, waiting
from squall_engine.plan import Plan
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask

_KEYS_REPORTED = 50  # of a grouping, worker and interval
_COUNTS = ("emitted", "transferred", "acked", "failed", "executed")


class KeySample:
    """The sampled keys of one fields grouping, of all source tasks of a worker."""

    def __init__(
        self, source: Source, consumer: str, fields: Sequence[str], rate: float, rng: random.Random
    ) -> None:
        self.component = source.component
        self.stream = source.stream
        self.name = f"{consumer} by {', '.join(fields)}"
        self.key_of: Callable[[Any], Any] = itemgetter(*(source.index[name] for name in fields))
        self.rate = rate
        self._random = rng.random
        self._gap_max = max(1, round(2 / rate) - 1)
        self.keys = HeavyKeys()
        self.task_of: dict[str, int] = {}  # where a key goes

    def gap(self) -> int:
        """How many tuples to pass over: `1 / rate - 1` in the mean, never in step with the data."""
        return int(self._random() * self._gap_max)

    def take(self) -> tuple[HeavyKeys, dict[str, int]]:
        keys, self.keys = self.keys, HeavyKeys()
        tasks, self.task_of = self.task_of, {}
        return keys, tasks


class SampledEdge:
    """An edge that looks at some of the tuples that are taken from it."""

    __slots__ = ("_edge", "_pass", "_sample")

    def __init__(self, edge: Edge, sample: KeySample) -> None:
        self._edge = edge
        self._sample = sample
        self._pass = sample.gap()  # tuples to pass over

    def __len__(self) -> int:
        return len(self._edge)

    def drop_oldest(self, keep: int) -> None:
        self._edge.drop_oldest(keep)

    def take(self) -> Batch:
        batch = self._edge.take()
        n = len(batch)
        if n <= self._pass:
            self._pass -= n
        else:
            self._look(batch, n)
        return batch

    def _look(self, batch: Batch, n: int) -> None:
        sample = self._sample
        rows = batch.rows()
        at = self._pass
        while at < n:
            key = key_text(sample.key_of(rows[at]))
            sample.keys.add(key)
            if key not in sample.task_of and len(sample.task_of) < sample.keys.keys_max:
                sample.task_of[key] = self._edge.task
            at += 1 + sample.gap()
        self._pass = at - n


class KeySamples:
    """Observes the edges of all fields groupings of a worker."""

    def __init__(self, plan: Plan, rate: float, rng: random.Random) -> None:
        self._plan = plan
        self._rate = rate
        self._rng = rng
        self.samples: dict[tuple[str, str, str], KeySample] = {}

    def observe(self, edge: Edge) -> SampledEdge | None:
        """For `Engine.wrap_edges`."""
        source = edge.source
        consumer = self._plan.task_to_component[edge.task]
        for component, grouping in self._plan.consumers_of(source.component, source.stream):
            if (
                component.id == consumer
                and grouping.kind is GroupingKind.FIELDS
                and grouping.fields
            ):
                place = (source.component, source.stream, consumer)
                sample = self.samples.get(place)
                if sample is None:
                    sample = KeySample(source, consumer, grouping.fields, self._rate, self._rng)
                    self.samples[place] = sample
                return SampledEdge(edge, sample)
        return None

    def rows(self, at_ms: int, secs: float) -> Iterable[Row]:
        """The keys sampled since the last call."""
        for sample in self.samples.values():
            keys, task_of = sample.take()
            if not keys.total:
                continue
            yield Row(
                at_ms, "keys", sample.name, sample.component, stream=sample.stream, secs=secs,
                n=keys.total, value=sample.rate, error=keys.error,
            )  # fmt: skip
            for key, count in keys.top(_KEYS_REPORTED):
                yield Row(
                    at_ms, "key", sample.name, sample.component, task_of.get(key, 0),
                    stream=sample.stream, secs=secs, n=count, text=key,
                )  # fmt: skip


class TaskRows:
    """The rows of one task: what its counts gained since the last call."""

    def __init__(self, built: Built) -> None:
        self._task = built.task
        self._gains = Gains(built.task)
        self._histograms: dict[tuple[str, Key], Histogram] = {}

    def rows(self, at_ms: int, secs: float) -> list[Row]:
        task = self._task
        with task.lock:  # counts and histograms of one moment
            gained = self._gains.read()
            now = self._copy(task.counts)
        before, self._histograms = self._histograms, now

        def row(kind: str, name: str, **more: Any) -> Row:
            executor = task.executor.task_start
            return Row(at_ms, kind, name, task.component, task.task, executor, secs=secs, **more)

        spout = isinstance(task, SpoutTask)
        found = []
        if (held := waiting(task)) is not None:
            limit = calls_max([task]) or 0
            found.append(row("gauge", held[0], n=limit, value=float(held[1])))
        for (measure, key), value in gained.items():
            if not value or (isinstance(key, str) and is_system_id(key)):
                continue
            if measure in _COUNTS:
                found.append(row("count", measure, stream=key_name(key), n=int(value)))
        for what in ("execute", "process"):
            for (measure, key), events in gained.items():
                if measure == f"{what}_events" and events:
                    buckets = _less(now.get((what, key), {}), before.get((what, key), {}))
                    found.append(
                        row(
                            "latency",
                            "complete" if spout else what,
                            stream=key_name(key),
                            n=int(events),
                            value=gained.get((f"{what}_secs", key), 0.0),
                            buckets=buckets,
                        )
                    )
        return found

    @staticmethod
    def _copy(counts: TaskCounts) -> dict[tuple[str, Key], Histogram]:
        if not isinstance(counts, TimedCounts):
            return {}
        return {
            place: {bucket: n for bucket, n in enumerate(buckets) if n}
            for place, buckets in counts.buckets()
        }


def _less(now: Mapping[int, int], before: Mapping[int, int]) -> Histogram:
    return {b: n - before.get(b, 0) for b, n in now.items() if n > before.get(b, 0)}


class Recorder:
    """All rows of a worker. `read` is called on the loop."""

    def __init__(self, built: Sequence[Built], keys: KeySamples | None, *, clock: Clock) -> None:
        self._tasks = [TaskRows(one) for one in built]
        self._keys = keys
        self._clock = clock
        self._read_at = clock.monotonic()
        self._cpu_secs = time.process_time()

    def read(self) -> list[Row]:
        """The rows since the last call, or since the beginning."""
        now = self._clock.monotonic()
        secs, self._read_at = now - self._read_at, now
        at_ms = int(self._clock.time() * 1000)
        cpu_secs = time.process_time()
        rows = [
            Row(at_ms, "worker", "cpu_secs", secs=secs, value=cpu_secs - self._cpu_secs),
            Row(at_ms, "worker", "rss_bytes", secs=secs, value=float(memory_bytes()[1])),
        ]
        self._cpu_secs = cpu_secs
        for task in self._tasks:
            rows += task.rows(at_ms, secs)
        if self._keys is not None:
            rows += self._keys.rows(at_ms, secs)
        return rows
