"""Ends `storm local` when a call of a component does not return.

All tasks share the loop's thread, so nothing that asks the loop would come back: neither the wait
for the end of the topologies' time nor their stop.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType

_HELD_SECS = 10.0  # after the topologies' time; to stop takes less
_LOOK_SECS = 1.0
_EXIT_STATUS = 1
# A person may look around in a call for any time.
_DEBUGGERS = frozenset({"bdb", "pdb", "pydevd", "_pydevd_bundle", "debugpy", "IPython"})


def end_if_held(
    thread: Callable[[], threading.Thread | None], after_secs: float, folder: Path
) -> None:
    """From `after_secs` on, end the process with status 1 and a message that shows the call, if
    the loop that runs in `thread()` is in the same call for ten seconds. `folder` is removed."""
    watching = (thread, after_secs, folder)
    threading.Thread(target=_watch, args=watching, name="squall-held-loop", daemon=True).start()


def _watch(thread: Callable[[], threading.Thread | None], after_secs: float, folder: Path) -> None:
    time.sleep(after_secs)
    call, since = None, 0.0
    while True:
        loop = thread()
        stack = [] if loop is None else _stack(loop)
        now = time.monotonic()
        if not stack or stack[0] is not call or _is_debugged(stack):
            call, since = (stack[0] if stack else None), now
        elif now - since >= _HELD_SECS:
            _end(stack, now - since, folder)
        del stack
        time.sleep(_LOOK_SECS)


def _stack(thread: threading.Thread) -> list[FrameType]:
    """What the loop calls now, outermost first; empty if it waits. Each call of the loop's has a
    frame of its own."""
    frame = sys._current_frames().get(thread.ident or 0)
    found: list[FrameType] = []
    while frame is not None:
        if frame.f_code.co_name == "_run_loop":
            return found[::-1]
        found.append(frame)
        frame = frame.f_back
    return []  # it starts, or has ended


def _is_debugged(stack: list[FrameType]) -> bool:
    names = (str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in stack)
    return not _DEBUGGERS.isdisjoint(names)


def _end(stack: list[FrameType], secs: float, folder: Path) -> None:
    frames = ((frame, frame.f_lineno) for frame in stack)
    places = traceback.StackSummary.extract(frames).format()
    print(
        "error: the topology cannot be stopped: its time is over, and a call has not returned for "
        f"{secs:.0f} s\n{''.join(places)}"
        "hint: `blocking = True` in the class gives its calls a thread; on a cluster "
        "topology.worker.stall.timeout.secs restarts the worker",
        file=sys.stderr,
    )
    shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_EXIT_STATUS)
