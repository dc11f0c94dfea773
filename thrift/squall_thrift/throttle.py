"""For lines of the log that a peer can cause at will: one a minute of each kind, and how many were
left out."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

_KINDS_MAX = 1_000  # remembered; beyond, the oldest is forgotten, and may say its line again


class Throttle:
    """Decides which lines are written. A kind is whatever the caller names: an event, say, and
    the peer's address."""

    def __init__(self, secs: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._secs = secs
        self._clock = clock
        self._kinds: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def left_out(self, kind: Hashable) -> int | None:
        """How many of a kind were left out before this one, which is to be written; None: leave
        this one out, too."""
        now = self._clock()
        until, count = self._kinds.get(kind, (-math.inf, 0))
        if now < until:
            self._kinds[kind] = (until, count + 1)
            return None
        self._kinds[kind] = (now + self._secs, 0)
        self._kinds.move_to_end(kind)
        if len(self._kinds) > _KINDS_MAX:
            self._kinds.popitem(last=False)
        return count
