"""What a benchmark's processes cost."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

import psutil
from bench.processes import Tree, cpu_secs
from tests.support.devcluster import wait_for

_BUSY = """
import time
while time.process_time() < {secs}:
    pass
print("done", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def _busy(secs: float) -> Iterator[int]:
    """The process id of one that has used so many seconds of CPU, and sleeps now."""
    with subprocess.Popen(
        [sys.executable, "-c", _BUSY.format(secs=secs)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        yield child.pid
        child.kill()


def test_cpu_that_a_process_used_before_is_not_counted() -> None:
    with _busy(0.8), Tree() as tree, _busy(0.2) as mine:
        wait_for("the process to be seen", lambda: tree.cpu_secs() >= 0.15)
        used = sum(psutil.Process(mine).cpu_times()[:2])
        assert tree.cpu_secs() < used + 0.3


def test_a_process_that_still_runs_counts_as_ours() -> None:
    before = cpu_secs()
    with _busy(0.5):
        assert cpu_secs() - before >= 0.4
