"""Writes the worker's samples to a file that its supervisor shows to Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from squall_common.cluster.values import CheckpointReport
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.telemetry.samples import FILE_NAME, Sample, shortened, write

if TYPE_CHECKING:
    from squall_engine.embed import WorkerSamples

log = get_logger(__name__)

_EVERY_SECS = 5.0
# Reading thousands of tasks takes the loop a while: at most this share of its time.
_READ_SHARE = 50


async def write_samples(
    samples: WorkerSamples,
    folder: Path,
    *,
    clock: Clock,
    began: float,
    lag_secs: Callable[[], float],
    checkpoints: Callable[[], CheckpointReport | None] = lambda: None,
) -> None:
    """Write them every few seconds, until it is cancelled. A file that cannot be written is logged
    once: the worker goes on without it."""
    path, failed = folder / FILE_NAME, False
    while True:
        start = clock.monotonic()
        report = checkpoints()
        found = [] if report is None else list(checkpoint_samples(report))
        found += samples.read(start - began, lag_secs())
        took = clock.monotonic() - start
        try:
            await asyncio.to_thread(write, path, found, clock.time())
            failed = False
        except OSError as error:
            if not failed:
                log.warning("samples_not_written", file=path, error=error)
            failed = True
        await asyncio.sleep(max(_EVERY_SECS, _READ_SHARE * took))


def checkpoint_samples(report: CheckpointReport) -> Iterable[Sample]:
    """The samples of a topology's checkpoints, which the worker that coordinates them has."""
    yield Sample("squall_checkpoint_epoch", value=report.epoch)
    yield Sample("squall_checkpoints", value=report.completed)
    yield Sample("squall_checkpoints_given_up", value=report.given_up)
    yield Sample("squall_checkpoint_age_seconds", value=report.waiting_ms / 1000)
    yield Sample("squall_checkpoint_interval_seconds", value=report.interval_ms / 1000)
    yield Sample("squall_rollbacks", value=report.rollbacks)
    if report.duration_ms is not None:
        yield Sample("squall_checkpoint_duration_seconds", value=report.duration_ms / 1000)
    if report.size_bytes is not None:
        yield Sample("squall_checkpoint_bytes", value=report.size_bytes)
    if report.longest_task is not None and report.longest_ms is not None:
        of = {"component": report.longest_task.rpartition(" (")[0]}
        name = "squall_checkpoint_longest_task_seconds"
        yield Sample(name, shortened(of), report.longest_ms / 1000)
