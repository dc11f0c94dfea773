"""How hard tests try where chance decides: enough for each commit, and far more in `make soak`."""

from __future__ import annotations

import os
import time

SOAK = os.environ.get("SQUALL_SOAK") == "1"

# In how many orders of events a simulated story is played.
ORDERS = 20 if SOAK else 1

# How long random storms rage.
STORM_SECS = float(os.environ.get("SQUALL_STORM_SECS", "300" if SOAK else "10"))

# How often workers and servers are killed in the contract of each connector, and among how many
# records.
KILLS = 20 if SOAK else 2
# The same for servers that take about ten seconds to start.
SLOW_SERVER_KILLS = KILLS if SOAK else 1
KILL_RECORDS = 100_000 if SOAK else 2_000


def examples(count: int) -> int:
    """How many examples Hypothesis draws where each commit has `count`."""
    return count * 20 if SOAK else count


def slowdown() -> float:
    """How many times longer than alone a program takes that needs one core: 1.0 on a free one."""
    began, used = time.monotonic(), time.process_time()
    while time.process_time() - used < 0.2:
        pass
    return (time.monotonic() - began) / 0.2
