"""Whether this process ran all the time, or slept while its tasks may have been moved. Pure.

Nimbus moves the tasks of a node that was silent for a while. A process that was stopped for that
long (SIGSTOP, a frozen cgroup, a suspended machine) does not know that when it goes on. So each
turn of the run loop first checks how long ago the process was last *seen* to run, on a clock that
counts suspension; the turns and the heartbeat thread both see it. If that is `away_secs_max` or
more, ownership is in *doubt*, and nothing is executed or emitted until a reading of the cluster
state that began afterwards has confirmed it.

A long turn does not count as absence, since the heartbeat thread goes on. A machine so busy that
neither runs for a session timeout costs a reading of ZooKeeper.
"""

from __future__ import annotations


class PauseDetector:
    """`seen` may be called from any thread, the rest from one. Times are `Clock.boottime`."""

    def __init__(self, away_secs_max: float, now: float) -> None:
        self._away_secs_max = away_secs_max
        self._seen_at = now
        self._doubts = 0  # how often there was doubt
        self._confirmed = 0  # the last doubt that was dispelled
        self.away_secs = 0.0  # how long it slept the last time

    def seen(self, now: float) -> bool:
        """Record that the process is running; returns whether it may go on with its tasks."""
        away_secs = now - self._seen_at
        if away_secs >= self._away_secs_max:
            # Before the time is recorded: another thread sees either the doubt or the gap.
            self.away_secs = away_secs
            self._doubts += 1
        self._seen_at = now
        return self._doubts == self._confirmed

    @property
    def in_doubt(self) -> bool:
        return self._doubts != self._confirmed

    @property
    def doubt(self) -> int:
        """Call this before a reading, and pass the result to `confirm` after it."""
        return self._doubts

    def confirm(self, doubt: int) -> bool:
        """A reading that began at `doubt` says that the tasks are ours; returns whether that ends a
        doubt. A reading that began before the process slept says nothing."""
        if doubt != self._doubts or not self.in_doubt:
            return False
        self._confirmed = doubt
        return True
