"""Writes the worker's samples to a file that its supervisor shows to Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.telemetry.samples import FILE_NAME, write

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
) -> None:
    """Write them every few seconds, until it is cancelled. A file that cannot be written is logged
    once: the worker goes on without it."""
    path, failed = folder / FILE_NAME, False
    while True:
        start = clock.monotonic()
        found = samples.read(start - began, lag_secs())
        took = clock.monotonic() - start
        try:
            await asyncio.to_thread(write, path, found, clock.time())
            failed = False
        except OSError as error:
            if not failed:
                log.warning("samples_not_written", file=path, error=error)
            failed = True
        await asyncio.sleep(max(_EVERY_SECS, _READ_SHARE * took))
