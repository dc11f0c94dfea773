"""Ends `storm local` when a call of a component does not return.

All tasks share the loop's thread, so nothing that asks the loop would come back: neither the wait
for the end of the topologies' time nor their stop.

A loop that takes turns is not held, however long they are together: it is asked, as a coroutine
that goes on has the same frame in each turn. Many calls in one turn, as of all `cleanup`s, are not
one call, either: a component's has a frame of its own.
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
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

_LOOK_SECS = 1.0
# Looks in the same call. They are counted, and not the seconds: while the process was stopped, no
# call could return.
_LOOKS_MAX = 10
_LOOKS_OVER_MIN = 2  # of these after the topologies' time
# To open a component may take long, as to load a model does. A cluster waits that long for a worker
# to start (nimbus.task.launch.secs).
_START_LOOKS_MAX = 120
# What `squall_engine.engine.Engine.start` calls: it has no frame where it is compiled.
_STARTING = frozenset(
    {
        ("squall_engine.build.build", "build_task"),
        ("squall_engine.build.build", "open_task"),
        ("squall_engine.epochs.driver", "restore"),
    }
)
_EXIT_STATUS = 1
_OURS = frozenset({"squall", "squall_common", "squall_engine", "asyncio", "uvloop"})
# A person may look around in a call for any time.
_DEBUGGERS = frozenset({"bdb", "pdb", "pydevd", "_pydevd_bundle", "debugpy", "IPython"})


class HeldLoop:
    """Ends the process with status 1 and a message that shows the call."""

    def __init__(
        self,
        running: Callable[[], tuple[threading.Thread, AbstractEventLoop] | None],
        folder: Path,
    ) -> None:
        """`running()` is the thread of the topologies with its loop; None: there is none.
        `folder` is removed at the end."""
        self._running = running
        self._folder = folder
        self._until: float | None = None
        self._ends = False

    def allow(self, secs: float) -> None:
        """The topologies' time is over `secs` from now, whatever was said before."""
        begins = self._until is None
        self._until = time.monotonic() + secs
        if begins:
            threading.Thread(target=self._watch, name="squall-held-loop", daemon=True).start()

    def end(self) -> None:
        """It is over now, also that of components that are still being opened."""
        self._ends = True
        self.allow(0.0)

    def _watch(self) -> None:
        held, turned = Held(), threading.Event()
        while True:
            time.sleep(_LOOK_SECS)
            found = self._running()
            if found is None or not _is_waited_for():
                held.forget()
                continue
            thread, loop = found
            stack = _stack(thread)
            over = time.monotonic() >= (self._until or 0.0)
            if held.look(stack, turned=turned.is_set(), over=over, ends=self._ends):
                _end(stack, held.looks * _LOOK_SECS, self._folder)
            if held.looks == 0:
                turned = threading.Event()
                try:
                    loop.call_soon_threadsafe(turned.set)
                except RuntimeError:  # it has ended
                    turned.set()
            del stack


class Held:
    """How often a loop was seen in the same call."""

    def __init__(self) -> None:
        self.looks = 0
        self._looks_over = 0
        self._call: FrameType | None = None

    def forget(self) -> None:
        self.looks, self._looks_over, self._call = 0, 0, None

    def look(
        self, stack: list[FrameType], *, turned: bool, over: bool = True, ends: bool = False
    ) -> bool:
        """The loop calls these now, outermost first; `turned`: it has taken another turn since
        `looks` was 0; `over`: so is the topologies' time; `ends`: nothing is started any more.
        Returns whether that has been the same call for too long."""
        call = _call_in(stack)
        if turned or call is None or call is not self._call or _is_debugged(stack):
            self.looks, self._looks_over, self._call = 0, 0, call
            return False
        may_start = not ends and _is_starting(stack)
        if may_start and not over:
            return False
        self.looks += 1
        self._looks_over += over
        looks_max = _START_LOOKS_MAX if may_start else _LOOKS_MAX
        return self.looks >= looks_max and self._looks_over >= _LOOKS_OVER_MIN


def _stack(thread: threading.Thread) -> list[FrameType]:
    """What the loop calls now, outermost first; empty if it waits."""
    frame = sys._current_frames().get(thread.ident or 0)
    found: list[FrameType] = []
    while frame is not None:
        if frame.f_code.co_name == "_run_loop":
            return found[::-1]
        found.append(frame)
        frame = frame.f_back
    return []  # it starts, or has ended


def _call_in(stack: list[FrameType]) -> FrameType | None:
    """The call of a component, or of ours if there is none."""
    return next(iter(_shown(stack)), None)


def _shown(stack: list[FrameType]) -> list[FrameType]:
    """The frames from a component's on, without Squall's that led to it; all if there is none."""
    theirs = (at for at, one in enumerate(stack) if _module(one).partition(".")[0] not in _OURS)
    return stack[next(theirs, 0) :]


def _is_starting(stack: list[FrameType]) -> bool:
    """Whether components are opened."""
    return any(_at(frame) in _STARTING for frame in stack)


def _is_debugged(stack: list[FrameType]) -> bool:
    return any(_module(frame).partition(".")[0] in _DEBUGGERS for frame in stack)


def _is_waited_for() -> bool:
    """Whether the program waits for the loop, and does not work on its own."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        if _module(frame) == "squall.local":
            return True
        frame = frame.f_back
    return False


def _at(frame: FrameType) -> tuple[str, str]:
    return _module(frame), frame.f_code.co_name


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _end(stack: list[FrameType], secs: float, folder: Path) -> None:
    frames = ((frame, frame.f_lineno) for frame in _shown(stack))
    places = traceback.StackSummary.extract(frames).format()
    print(
        f"error: the topology cannot be stopped: a call has not returned for {secs:.0f} s\n"
        f"{''.join(places)}"
        "hint: `blocking = True` in the class gives its calls a thread; on a cluster "
        "topology.worker.stall.timeout.secs restarts the worker",
        file=sys.stderr,
    )
    shutil.rmtree(folder, ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(_EXIT_STATUS)
