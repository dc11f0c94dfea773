"""What every peer's script shares. It runs in the peer's own environment and imports nothing of
Squall.

    python with_NAME.py LINES_FILE ROUNDS RESULT_FILE
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil


def cpu_secs() -> float:
    """Of this process and of all that it has started, ended ones included."""
    me = psutil.Process()
    own = me.cpu_times()
    total = own.user + own.system + own.children_user + own.children_system
    for child in me.children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def main(
    count: Callable[[list[str], int], Mapping[str, int]],
    warm_up: Callable[[list[str]], object] | None = None,
) -> None:
    """Measure `count(lines, rounds)`, which counts the words of the lines so often."""
    lines = Path(sys.argv[1]).read_text().splitlines()
    rounds = int(sys.argv[2])
    if warm_up is not None:
        warm_up(lines)
    cpu, wall = cpu_secs(), time.monotonic()
    counts = count(lines, rounds)
    cpu, wall = cpu_secs() - cpu, time.monotonic() - wall
    result = {"cpu_secs": cpu, "wall_secs": wall, "counts": dict(counts)}
    Path(sys.argv[3]).write_text(json.dumps(result))
