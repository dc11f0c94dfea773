"""Runs the health checks of this node. An unhealthy node offers Nimbus no ports: its topologies are
moved to other nodes, its workers drain and end, and nothing is started here until it is healthy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from squall_common.daemon.health_checks import Check, is_healthy, run_checks
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError

log = get_logger(__name__)

# Moving work restarts workers, so a node must be well for a while before it gets some again.
_GOOD_IN_A_ROW = 2
_PROBLEM_CHARS_MAX = 300


class NodeHealth:
    """What the checks of a node have found. `changed` is called when it has become unhealthy, or
    healthy again. Call everything on the loop."""

    def __init__(
        self,
        folder: Path,
        *,
        timeout_secs: float,
        fail_on_timeouts: bool,
        changed: Callable[[], None],
    ) -> None:
        self._folder = folder
        self._timeout_secs = timeout_secs
        self._fail_on_timeouts = fail_on_timeouts
        self._changed = changed
        self._good = 0  # in a row, since it was unhealthy
        self.problem: str | None = None
        """Why the node is unhealthy; None: it is healthy."""

    async def look(self) -> None:
        """Run the checks."""
        try:
            checks = await asyncio.to_thread(run_checks, self._folder, self._timeout_secs)
        except SquallError as error:
            log.error("health_checks_not_run", error=error)
            return
        self.found(checks)

    def found(self, checks: Sequence[Check]) -> None:
        """Take the results of one run."""
        if is_healthy(checks, fail_on_timeouts=self._fail_on_timeouts):
            self._good += 1
            if self.problem is not None and self._good >= _GOOD_IN_A_ROW:
                log.info("node_healthy_again", was=self.problem)
                self.problem = None
                self._changed()
            return
        self._good = 0
        problem = "; ".join(f"{one.program}: {one.detail}" for one in checks if one.result != "ok")[
            :_PROBLEM_CHARS_MAX
        ]
        if problem == self.problem:
            return
        first = self.problem is None
        self.problem = problem
        log.error("node_unhealthy", problem=problem, what_now="offering Nimbus no ports")
        if first:
            self._changed()
