"""What a figure was taken on, and how busy that was."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import psutil

import squall_engine  # noqa: F401 (looks for its compiled modules)
from bench.processes import cpu_secs
from squall_common.daemon import compiled_modules


def describe() -> dict[str, Any]:
    """The machine and the interpreter, for the report's head."""
    return {
        "python": platform.python_version(),
        "modules": "compiled" if compiled_modules.are_used() else "python",
        "machine": platform.machine(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _busy_secs() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - _guest(times))


def _guest(times: Any) -> float:
    # Linux counts them in user and nice already.
    return float(getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0))


class Watch:
    """How much of the machine others used, from its making until `report`."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._own = cpu_secs()
        self._busy = _busy_secs()
        self._load = os.getloadavg()[0]

    def report(self) -> dict[str, float]:
        """`others_percent` is of all cores, of what neither this process nor those below it
        used: above 10 or so, wall times say little."""
        secs = time.monotonic() - self._start
        others = _busy_secs() - self._busy - (cpu_secs() - self._own)
        whole = max(secs, 1e-9) * (os.cpu_count() or 1)
        return {
            "secs": round(secs, 1),
            "load_before": round(self._load, 2),
            "load_after": round(os.getloadavg()[0], 2),
            "others_percent": round(max(0.0, 100.0 * others / whole), 1),
        }
