"""A test that hangs: it fails by itself, with what all threads and tasks were doing, and the run
goes on.

pytest-timeout knows how long a test may take (`timeout` in pyproject.toml, its marker, its option).
Of its two ways to end one, `thread` ends the whole process, and leaves behind the clusters of its
tests; `signal` raises in the main thread, so that fixtures end what they started, but it gives up
as soon as a test has failed: a fixture that then hangs is waited for without an end. So both: at
the limit an error is raised, and if the test, or the end of its fixtures, still runs `GRACE_SECS`
later, the process ends. With xdist another process takes its place, and the test has failed.
"""

from __future__ import annotations

import asyncio
import faulthandler
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from types import FrameType
from typing import Any

import pytest
from pytest_timeout import Settings

GRACE_SECS = float(os.environ.get("SQUALL_TEST_GRACE_SECS", "120"))
_stderr = sys.__stderr__


def pytest_configure() -> None:
    """Keep the real stderr: within a test it is captured, and lost with the process."""
    global _stderr
    _stderr = open(os.dup(2), "w", encoding="utf-8")  # noqa: SIM115 -- until the process ends


def pytest_unconfigure() -> None:
    global _stderr
    if _stderr is not None and _stderr is not sys.__stderr__:
        _stderr.close()
    _stderr = sys.__stderr__


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Settings) -> bool | None:
    """In place of pytest-timeout's own timers."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def out_of_time(number: int, frame: FrameType | None) -> None:
        doing = what_runs()
        print(f"\n{item.nodeid} still ran after {settings.timeout:g} s\n{doing}", file=_stderr)
        pytest.fail(f"still ran after {settings.timeout:g} s\n\n{doing}")

    signal.signal(signal.SIGALRM, out_of_time)
    signal.setitimer(signal.ITIMER_REAL, settings.timeout)
    faulthandler.dump_traceback_later(settings.timeout + GRACE_SECS, exit=True, file=_stderr)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> bool:
    """Not when a test fails, as pytest-timeout would: its fixtures have not ended yet."""
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Stop the clocks when the fixtures of a test have ended, too."""
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


def what_runs() -> str:
    """The stacks of all threads, and of the tasks of the loop that runs in this one."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    out = io.StringIO()
    for ident, frame in sys._current_frames().items():
        out.write(f"--- thread {names.get(ident, ident)}\n")
        out.writelines(traceback.format_stack(frame))
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:  # no loop runs
        tasks = set()
    for task in tasks:
        out.write(f"--- task {task.get_name()}\n")
        waits: Any = task.get_coro()  # Any: what is awaited, whatever it is
        while (frame := getattr(waits, "cr_frame", None)) is not None:
            out.writelines(traceback.format_stack(frame, 1))
            waits = waits.cr_await
    return out.getvalue()
