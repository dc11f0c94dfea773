"""How many tuples a spout may emit in a turn. Pure.

A turn visits every task that has tuples. Where there are many tasks, few tuples wait for each, and
most of the turn goes into the visits: with several times as many tuples each of them costs less.
But whatever arrives meanwhile waits for the end of the turn. So the size grows while a spout uses
all of it and the bolts are done soon, and shrinks when they are not, or an inbox fills.
"""

from __future__ import annotations

_LEAST = 512
_FOR_EACH_EDGE = 4  # tuples, at most


class TurnSize:
    """The largest number of tuples that one spout emits in a turn: `now`."""

    def __init__(self, edges: int, secs_max: float) -> None:
        """`edges`: how many there are out of the tasks of this worker; `secs_max`: how long its
        bolts may take in a turn for the size to be above its least."""
        self._least = max(_LEAST, edges)
        self._most = max(_LEAST, _FOR_EACH_EDGE * edges)
        self._secs_max = secs_max
        self.now = self._least

    def ended(self, secs: float, *, used: bool, crowded: bool) -> bool:
        """A turn has ended in which the bolts took `secs`. `used`: a spout has emitted as much as
        it may; `crowded`: an inbox has more than it should. True when the size has changed."""
        before = self.now
        if secs > self._secs_max or crowded:
            self.now = max(self._least, before // 2)
        elif used and 2 * secs <= self._secs_max:
            self.now = min(self._most, 2 * before)
        return self.now != before
