"""Limits log lines that a peer can cause at will: one a minute of each kind, with the number that
was left out."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

_KINDS_MAX = 1_000  # remembered; above that, the oldest is forgotten, and may be logged again


class Throttle:
    """Decides which lines are written. The caller chooses what a kind is: for example, an event and
    the peer's address."""

    def __init__(self, secs: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._secs = secs
        self._clock = clock
        self._kinds: OrderedDict[Hashable, tuple[float, int]] = OrderedDict()

    def left_out(self, kind: Hashable) -> int | None:
        """Return how many of a kind were left out before this one, which should be written; None
        if this one should be left out as well."""
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
