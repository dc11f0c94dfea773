"""How late an event loop runs its timers: what every heartbeat and every call on it waits."""

from __future__ import annotations

import asyncio

_EVERY_SECS = 1.0


class LoopLag:
    """Looks once a second, with a timer that does nothing else. Use it on the loop, except `worst`,
    which any thread may read."""

    def __init__(self, every_secs: float = _EVERY_SECS) -> None:
        self._every_secs = every_secs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._worst = 0.0

    @classmethod
    def started(cls) -> LoopLag:
        """One that measures the running loop until it is closed."""
        made = cls()
        made.start()
        return made

    def start(self) -> None:
        """Begin, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._next()

    def stop(self) -> None:
        """End; fine when it never began."""
        if self._timer is not None:
            self._timer.cancel()

    def worst(self) -> float:
        """The worst since the last call, in seconds; a timer that is late by now counts."""
        worst, self._worst = self._worst, 0.0
        if self._loop is None:
            return worst
        return max(worst, self._loop.time() - self._due, 0.0)

    def _next(self) -> None:
        assert self._loop is not None
        self._due = self._loop.time() + self._every_secs
        self._timer = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        assert self._loop is not None
        self._worst = max(self._worst, self._loop.time() - self._due)
        self._next()
