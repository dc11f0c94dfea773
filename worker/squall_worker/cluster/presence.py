"""Whether this process was here all the time, or slept while its tasks may have been moved. Pure.

Nimbus moves the tasks of a node that it has not heard of for a while. A process that was stopped
for that long (SIGSTOP, a frozen cgroup, a suspended machine) does not know that when it goes on. So
each turn of the run loop first looks how long ago the process was last *seen* to run, on a clock
that counts suspension; the turns and the heartbeat thread both see it. Where that is
`away_secs_max` or more, ownership is in *doubt*, and nothing is executed or emitted until a reading
of the cluster state that began afterwards has confirmed it.

A turn that takes long is no absence, since the heartbeat thread goes on. A machine so busy that
neither runs for a session timeout costs a reading of ZooKeeper.
"""

from __future__ import annotations


class Presence:
    """`seen` may be called from any thread, all else from one. Times are `Clock.boottime`."""

    def __init__(self, away_secs_max: float, now: float) -> None:
        self._away_secs_max = away_secs_max
        self._seen_at = now
        self._doubts = 0  # how often there was doubt
        self._confirmed = 0  # the last doubt that was dispelled
        self.away_secs = 0.0  # how long it slept the last time

    def seen(self, now: float) -> bool:
        """Note that the process runs; whether it may go on with its tasks."""
        away_secs = now - self._seen_at
        if away_secs >= self._away_secs_max:
            # Before the time is noted: another thread sees either the doubt or the gap.
            self.away_secs = away_secs
            self._doubts += 1
        self._seen_at = now
        return self._doubts == self._confirmed

    @property
    def in_doubt(self) -> bool:
        return self._doubts != self._confirmed

    @property
    def doubt(self) -> int:
        """Ask before a reading, and give it to `confirm` after it."""
        return self._doubts

    def confirm(self, doubt: int) -> bool:
        """A reading that began at `doubt` says that the tasks are ours; whether that ends a doubt.
        One that began before the process slept says nothing."""
        if doubt != self._doubts or not self.in_doubt:
            return False
        self._confirmed = doubt
        return True
