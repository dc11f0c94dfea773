"""How hard tests try where chance decides: enough for each commit, and far more in `make soak`."""

from __future__ import annotations

import os

SOAK = os.environ.get("SQUALL_SOAK") == "1"

# In how many orders of events a simulated story is played.
ORDERS = 20 if SOAK else 1

# How long random storms rage.
STORM_SECS = float(os.environ.get("SQUALL_STORM_SECS", "300" if SOAK else "10"))


def examples(count: int) -> int:
    """How many examples Hypothesis draws where each commit has `count`."""
    return count * 20 if SOAK else count
