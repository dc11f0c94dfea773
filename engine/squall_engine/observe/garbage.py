"""How long Python's garbage collector kept all threads from running.

A collection happens in whichever thread has made the most objects just now, and looks at every
object that is young, sometimes at all. Beside many rows that wait for a checkpoint it takes a tenth
of a second, in which no call goes on, on whatever thread it runs: what is seen to take long is then
not at fault.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

_SECS_MIN = 0.002  # of a collection that is noted: there are very many short ones
_NOTED_MAX = 100


class Collections:
    """The collections of this process since this was made."""

    def __init__(self) -> None:
        self._began = 0.0
        self._noted: deque[tuple[float, float]] = deque(maxlen=_NOTED_MAX)  # began, ended
        gc.callbacks.append(self.seen)

    def seen(self, phase: str, info: Mapping[str, Any]) -> None:
        """Called by Python before and after each. There are never two at once."""
        now = time.perf_counter()
        if phase == "start":
            self._began = now
        elif now - self._began >= _SECS_MIN:
            self._noted.append((self._began, now))

    def secs_of_last(self, secs: float) -> float:
        """How many of the last `secs` seconds were theirs."""
        since = time.perf_counter() - secs
        return sum(ended - max(began, since) for began, ended in list(self._noted) if ended > since)


_ALL: list[Collections] = []


def secs_of_last(secs: float) -> float:
    """Of the last `secs` seconds, how many a collection took. 0.0 until `watch` was called."""
    return _ALL[0].secs_of_last(secs) if _ALL else 0.0


def watch() -> None:
    """Watch the collections of this process from now on, until it ends."""
    if not _ALL:
        _ALL.append(Collections())
