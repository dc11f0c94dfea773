"""Whether this node is cut off from the rest of the cluster. Pure: observations go in.

Nimbus runs the workers of a lost node elsewhere. A node that lives on, cut off, would run its own
workers beside them forever, so a node that can tell that it is the one cut off stops its workers.
It is *isolated* when for the worker timeout it has reached neither ZooKeeper nor at least half of
the daemons (Nimbus, supervisors; a sample of them) that it last knew. It counts itself, and a node
that knows no other supervisor is never isolated.

So an outage of ZooKeeper alone stops nothing: the daemons still reach each other. Of a cluster
split in two parts the smaller one stops, whichever has ZooKeeper; two equal halves both run on.
That costs duplicates and never loss: peers drop what a replaced worker sends.
"""

from __future__ import annotations

from squall_supervisor.records.neighbours import NOBODY

# Looks in one timeout.
_LOOKS = 20
# A look that comes this many periods after the last one (each may wait one period for probes, or
# for a reading of ZooKeeper) means that this process itself was stopped.
_STALL_PERIODS = 4


class Isolation:
    """Feed it `look` every `look_secs`, and `probed` whenever `look` asks for it. Times are
    monotonic seconds."""

    def __init__(self, timeout_secs: float, session_timeout_secs: float, now: float) -> None:
        self.timeout_secs = timeout_secs
        self.look_secs = timeout_secs / _LOOKS
        # A live session gets an answer every third of its timeout.
        self.silence_secs = session_timeout_secs / 2
        self.neighbours = NOBODY
        self.isolated = False
        self._looked_at = now
        self._reached_at = now  # ZooKeeper, or enough neighbours, or we were stopped

    def look(self, heard_at: float, now: float) -> bool:
        """ZooKeeper last answered at `heard_at`; returns whether to probe the neighbours."""
        if now - self._looked_at > _STALL_PERIODS * self.look_secs:
            self._reached_at = now  # time in which we were stopped does not count
        self._looked_at = now
        self._reached_at = max(self._reached_at, min(heard_at, now))
        silent = now - heard_at >= self.silence_secs
        if not silent or not self.neighbours.supervisors:
            self.isolated = False
            return False
        return True

    def probed(self, reached: int, began: float, now: float) -> None:
        """`reached` neighbours answered probes that were sent from `began` on."""
        self._looked_at = now
        if 2 * (reached + 1) >= len(self.neighbours.daemons) + 1:
            self._reached_at = max(self._reached_at, began)
            self.isolated = False
        elif now - self._reached_at >= self.timeout_secs:
            self.isolated = True
