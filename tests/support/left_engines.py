"""Finds engines that a test has started and not stopped. What they leave behind is seen by later
tests: the process' switch interval, open files, a thread.

An engine that takes turns wishes for a short switch interval (`squall_engine.switch_interval`), and
ends the wish when it takes no more. So does a profile of a worker while it samples.
"""

from __future__ import annotations

import sys


class LeftEngines:
    """Call `end` after each test."""

    def end(self) -> str:
        """What has been left since the last call, in words; empty if nothing was. It counts for
        this test only."""
        loaded = sys.modules.get("squall_engine.switch_interval")
        if loaded is None:  # imported by nothing so far
            return ""
        wishes = list(loaded.SWITCH_INTERVAL._wishes)
        for wish in wishes:
            wish.end()
        count = len(wishes)
        return f"{count} running engine{'s' * (count != 1)} (or profiles)" if count else ""
