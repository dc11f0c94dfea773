"""The samples that a worker writes for its supervisor, which shows them to Prometheus.

A worker runs its users' code, so its file is never trusted: the supervisor takes only families and
labels that are listed here, bounds every text and number, and adds the labels that name the worker.
What components record themselves has fixed families too, with its name as a label.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from squall_common.daemon.files import open_untrusted

FILE_NAME = "metrics.json"  # in the worker's folder
FILE_BYTES_MAX = 4 * 1024 * 1024
SAMPLES_MAX = 5_000  # of one worker
LABEL_CHARS_MAX = 200

# Upper bounds of a latency's buckets, in seconds.
LATENCY_BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0,
    10.0, 30.0, 60.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name. A counter's samples get the suffix `_total`."""

    name: str
    kind: str  # counter, gauge, or histogram (whose samples have `buckets` and `total`)
    text: str
    labels: tuple[str, ...] = ()


WORKER_FAMILIES = {
    family.name: family
    for family in (
        Family("squall_emitted_tuples", "counter", "Tuples emitted.", ("component", "stream")),
        Family(
            "squall_transferred_tuples",
            "counter",
            "Tuples sent, one for each receiving task.",
            ("component", "stream"),
        ),
        Family(
            "squall_executed_tuples",
            "counter",
            "Tuples executed, by input (component:stream).",
            ("component", "stream"),
        ),
        Family(
            "squall_acked_tuples",
            "counter",
            "Messages of a spout, by stream, or tuples of a bolt, by input, that were acked.",
            ("component", "stream"),
        ),
        Family(
            "squall_failed_tuples",
            "counter",
            "Messages of a spout, by stream, or tuples of a bolt, by input, that failed.",
            ("component", "stream"),
        ),
        Family("squall_execute_seconds", "histogram", "Time in execute, a tuple.", ("component",)),
        Family(
            "squall_process_seconds",
            "histogram",
            "Time from a tuple's arrival to its ack.",
            ("component",),
        ),
        Family(
            "squall_complete_seconds",
            "histogram",
            "Time from a message's emit to the end of its tree.",
            ("component",),
        ),
        Family(
            "squall_queue_tuples",
            "gauge",
            "Tuples in inboxes; of a spout, pending messages.",
            ("component",),
        ),
        Family("squall_queue_bytes", "gauge", "Bytes in inboxes.", ("component",)),
        Family(
            "squall_state_keys",
            "gauge",
            "Keys of its state; of windows, keys with an open one.",
            ("component",),
        ),
        Family(
            "squall_state_bytes",
            "gauge",
            "Bytes of its state in the store, packed: what is read if its tasks start again.",
            ("component",),
        ),
        Family(
            "squall_blocked_seconds",
            "counter",
            "Task-seconds that a component waited for one downstream.",
            ("component", "by"),
        ),
        Family(
            "squall_credit_bytes",
            "gauge",
            "What a task of another worker still takes: the least.",
            ("component", "to"),
        ),
        Family(
            "squall_sent_bytes",
            "counter",
            "Encoded tuples that a component sent to tasks of another worker.",
            ("component", "to"),
        ),
        Family(
            "squall_exhausted_tasks",
            "gauge",
            "Tasks of a spout in this worker that say that their source has ended.",
            ("component",),
        ),
        Family("squall_tasks", "gauge", "Tasks of a component in this worker.", ("component",)),
        Family("squall_worker_cpu_seconds", "counter", "CPU time of the process."),
        Family("squall_worker_memory_bytes", "gauge", "Resident memory of the process."),
        Family("squall_worker_loop_lag_seconds", "gauge", "How late the event loop ran a timer."),
        Family("squall_worker_uptime_seconds", "gauge", "Since the worker began."),
        Family(
            "squall_checkpoint_epoch",
            "gauge",
            "The last complete checkpoint; the next ones are also of the worker that coordinates.",
        ),
        Family("squall_checkpoints", "counter", "Checkpoints that were completed."),
        Family("squall_checkpoints_given_up", "counter", "Checkpoints that were given up."),
        Family("squall_checkpoint_age_seconds", "gauge", "Since a checkpoint was completed."),
        Family("squall_checkpoint_interval_seconds", "gauge", "How often one is due."),
        Family("squall_checkpoint_duration_seconds", "gauge", "What the last one took."),
        Family("squall_checkpoint_bytes", "gauge", "What the last one needs in the store."),
        Family(
            "squall_checkpoint_longest_task_seconds",
            "gauge",
            "Until the last task's snapshot was durable.",
            ("component",),
        ),
        Family("squall_rollbacks", "gauge", "Rollbacks since the topology was submitted."),
        Family("squall_worker_samples_left_out", "gauge", "Samples beyond the limit of a worker."),
        Family(
            "squall_user_counter",
            "gauge",
            "Counters of components, which may also go down.",
            ("component", "name"),
        ),
        Family("squall_user_meter", "counter", "Meters of components.", ("component", "name")),
        Family(
            "squall_user_gauge",
            "gauge",
            "Gauges of components: the sum over the tasks of a worker.",
            ("component", "name"),
        ),
        Family(
            "squall_user_histogram",
            "histogram",
            "Histograms of components.",
            ("component", "name"),
        ),
        Family(
            "squall_user_timer_seconds", "histogram", "Timers of components.", ("component", "name")
        ),
    )
}


class Sample(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """One sample: the value of a counter or a gauge, or the buckets of a histogram, as (upper
    bound, values up to it and above the one before), with the sum of the values in `total`."""

    family: str
    labels: dict[str, str] = {}
    value: float = 0.0
    buckets: list[tuple[float, int]] = []
    above: int = 0  # values above the last bound
    total: float = 0.0


class SamplesFile(msgspec.Struct, forbid_unknown_fields=True):
    """All samples of a worker."""

    time: float  # since 1970
    samples: list[Sample]


_decoder = msgspec.json.Decoder(SamplesFile)


class SamplesError(ValueError):
    """A worker's file is not what it should be."""


def write(path: Path, samples: Iterable[Sample], now: float) -> None:
    """Write a worker's samples, the first SAMPLES_MAX of them, without waiting for the disk. Raises
    OSError."""
    listed = list(samples)
    left_out = max(0, len(listed) - (SAMPLES_MAX - 1))
    listed = listed[: SAMPLES_MAX - 1]
    listed.append(Sample("squall_worker_samples_left_out", value=left_out))
    new = path.with_name(path.name + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(new, flags, 0o644), "wb") as file:
        file.write(msgspec.json.encode(SamplesFile(now, listed)))
    os.replace(new, path)


def read(path: Path) -> SamplesFile | None:
    """A worker's samples; None if it has none. Raises SamplesError for a file that no worker of
    ours writes, and OSError."""
    try:
        with open_untrusted(path) as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise SamplesError(str(error)) from None
    if len(data) > FILE_BYTES_MAX:
        raise SamplesError(f"more than {FILE_BYTES_MAX} bytes")
    try:
        found = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SamplesError(str(error)) from error
    if len(found.samples) > SAMPLES_MAX:
        raise SamplesError(f"more than {SAMPLES_MAX} samples")
    for sample in found.samples:
        _check(sample)
    return found


def _check(sample: Sample) -> None:
    """Raises SamplesError."""
    family = WORKER_FAMILIES.get(sample.family)
    if family is None:
        raise SamplesError(f"unknown family {sample.family[:50]!r}")
    if tuple(sorted(sample.labels)) != tuple(sorted(family.labels)):
        raise SamplesError(f"{family.name} has labels {sorted(sample.labels)[:5]!r:.200}")
    if any(len(value) > LABEL_CHARS_MAX for value in sample.labels.values()):
        raise SamplesError(f"{family.name} has a label of more than {LABEL_CHARS_MAX} characters")
    if not all(map(math.isfinite, (sample.value, sample.total))):
        raise SamplesError(f"{family.name} has a value that is not finite")
    if family.kind == "counter" and sample.value < 0:
        raise SamplesError(f"{family.name} is negative")
    bounds = [bound for bound, _ in sample.buckets]
    if len(bounds) > 64 or bounds != sorted(set(bounds)) or not all(map(math.isfinite, bounds)):
        raise SamplesError(f"{family.name} has other bounds of its buckets")
    if sample.above < 0 or any(count < 0 for _, count in sample.buckets):
        raise SamplesError(f"{family.name} has a bucket with a negative count")


def histogram_sample(
    family: str,
    labels: Mapping[str, str],
    values: Iterable[tuple[float, int]],
    total: float,
    bounds: Iterable[float] = LATENCY_BOUNDS,
) -> Sample:
    """The sample of a histogram, of (value, how often)."""
    listed = list(bounds)
    counts = [0] * (len(listed) + 1)
    for value, n in values:
        place = next((i for i, bound in enumerate(listed) if value <= bound), len(listed))
        counts[place] += n
    return Sample(
        family,
        dict(labels),
        buckets=list(zip(listed, counts, strict=False)),
        above=counts[-1],
        total=total,
    )


def shortened(labels: Mapping[str, Any]) -> dict[str, str]:
    """Labels whose values are within the bound."""
    return {name: str(value)[:LABEL_CHARS_MAX] for name, value in labels.items()}
