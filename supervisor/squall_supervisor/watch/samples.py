"""What a supervisor shows to Prometheus: its slots, and the samples that its workers have written.

The files are workers' own, so what is in one is checked, and a bad one shows only itself:
`squall_worker_samples_ok` is 0 for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from squall_common.daemon.logs import get_logger
from squall_common.telemetry.samples import (
    FILE_NAME,
    WORKER_FAMILIES,
    Family,
    Sample,
    SamplesError,
    read,
)

log = get_logger(__name__)

_NAMED = ("topology", "port")
_OLD_SECS = 60.0  # a worker that is stuck writes no more


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """A worker that runs, and its folder."""

    topology: str  # name
    port: int
    folder: Path


class WorkerSamplesPage:
    """Collects the samples of all workers. Runs on a thread."""

    def __init__(self, workers: Callable[[], Iterable[WorkerPlace]]) -> None:
        self._workers = workers
        self._bad: set[Path] = set()  # already logged

    def collect(self) -> Iterable[Metric]:
        """The families, each with the samples of all workers."""
        families = {name: _metric(family) for name, family in WORKER_FAMILIES.items()}
        ok = GaugeMetricFamily(
            "squall_worker_samples_ok",
            "Whether a worker's samples could be read, and are less than a minute old.",
            labels=_NAMED,
        )
        for worker in list(self._workers()):
            named = (worker.topology, str(worker.port))
            samples = self._read(worker)
            ok.add_metric(named, 0 if samples is None else 1)
            seen: set[tuple[str, ...]] = set()
            for sample in samples or ():
                family = WORKER_FAMILIES[sample.family]
                labels = [*named, *(sample.labels[name] for name in family.labels)]
                if (key := (family.name, *labels)) not in seen:  # twice would spoil the whole page
                    seen.add(key)
                    _add(families[family.name], labels, sample, family)
        yield ok
        yield from (metric for metric in families.values() if metric.samples)

    def _read(self, worker: WorkerPlace) -> list[Sample] | None:
        path = worker.folder / FILE_NAME
        try:
            found = read(path)
        except (SamplesError, OSError) as error:
            if path not in self._bad:
                self._bad.add(path)
                log.warning("samples_not_read", file=path, error=error)
            return None
        if found is None or abs(time.time() - found.time) > _OLD_SECS:
            return None
        return found.samples


def _metric(family: Family) -> Any:
    kinds: Mapping[str, Any] = {
        "counter": CounterMetricFamily,
        "gauge": GaugeMetricFamily,
        "histogram": HistogramMetricFamily,
    }
    return kinds[family.kind](family.name, family.text, labels=(*_NAMED, *family.labels))


def _add(metric: Any, labels: list[str], sample: Sample, family: Family) -> None:
    if family.kind != "histogram":
        metric.add_metric(labels, sample.value)
        return
    buckets, count = [], 0
    for bound, n in sample.buckets:
        count += n
        buckets.append((str(float(bound)), count))
    buckets.append(("+Inf", count + sample.above))
    metric.add_metric(labels, buckets, sample.total)
