"""Removing the folder of a worker that has ended."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from squall_common.daemon.logs import get_logger

log = get_logger(__name__)

_REMOVE_SECS = 60.0


def remove_worker_dir(worker_dir: Path) -> None:
    """Remove a dead worker's folder; anything that cannot be removed stays until the next start."""
    try:
        shutil.rmtree(worker_dir, ignore_errors=True)
    except RecursionError:  # a worker can nest folders deeper than our stack
        try:
            subprocess.run(
                ["rm", "-rf", "--one-file-system", "--", str(worker_dir)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_REMOVE_SECS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log.error("worker_dir_not_removed", worker_dir=worker_dir, error=error)
