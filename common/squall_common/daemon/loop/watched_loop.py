"""An event loop that says when something holds it.

What runs on a daemon's loop must give it back soon: heartbeats, its ZooKeeper session and every
other caller wait meanwhile. `WatchedLoop` measures what each callback takes, in CPU time of the
loop's own thread, so that a busy machine does not count; one that takes longer than
`HELD_SECS_MAX` is logged:

    loop_held ms=212 call=getTopologyInfo task="thrift Nimbus 10.0.0.7:41822"

It reads the clock once a callback (about half a microsecond). So a stretch begins where the
callback before ended: what the loop itself does in between, such as reading from sockets, counts
as the next callback's. Tests' clusters fail when a daemon logs it (`tests/support/held_loops.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from time import thread_time
from typing import Any, Final, TypeVarTuple

import uvloop

from squall_common.daemon.logs import get_logger
from squall_thrift.serving.processor import OPERATION

log = get_logger(__name__)

HELD_SECS_MAX: Final = 0.05

Ts = TypeVarTuple("Ts")


class WatchedLoop(uvloop.Loop):
    """uvloop, measured. Logs at most once a callback, and nothing before `watch`."""

    def __init__(self) -> None:
        super().__init__()
        self._looked_at: float | None = None

    def watch(self) -> None:
        """Begin, from the loop's own thread: a daemon has started. (Imports and the reading of its
        own files come before, before it serves anything.)"""
        self._looked_at = thread_time()

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon(self._measured, callback, args, context=context)

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        return super().call_soon_threadsafe(self._measured, callback, args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return super().call_later(delay, self._measured, callback, args, context=context)

    def _measured(self, callback: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            callback(*args)
        finally:
            if self._looked_at is not None:
                now = thread_time()
                secs, self._looked_at = now - self._looked_at, now
                if secs > HELD_SECS_MAX:
                    _report(secs, callback)


def _report(secs: float, callback: Callable[..., Any]) -> None:
    task = getattr(callback, "__self__", None)
    name = task.get_name() if isinstance(task, asyncio.Task) else None
    log.warning(
        "loop_held",
        ms=round(secs * 1000),
        call=OPERATION.get() or "",
        task=name or getattr(callback, "__qualname__", repr(callback)),
    )
