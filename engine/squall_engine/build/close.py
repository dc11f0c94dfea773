"""Closes the components of a worker.

Coroutines, threads and child processes take time to end. They are awaited concurrently, because a
worker has only a few seconds, however many tasks it has. Those that have not ended by then are left
behind, and the tuples that they had in hand fail.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from squall_common.daemon.logs import get_logger
from squall_engine.core import Tuple
from squall_engine.tasks.async_ import AsyncBolt, AsyncSpout
from squall_engine.tasks.base import Task
from squall_engine.tasks.built import Built
from squall_engine.tasks.thread import ThreadBolt, ThreadSpout, on_thread

log = get_logger(__name__)

# For close() on a thread, after the call that it is in; for coroutines and children to end.
_END_SECS = 1.0
# Likewise when the drain time is used up: there must be time left to notify the peers.
_END_SECS_LATE = 0.25
_JOIN_SECS = 0.25  # for all threads
_COROUTINE_SECS = 10.0  # for an async close() or cleanup()

Report = Callable[[str, int, BaseException], None]


async def close_components(
    built: Sequence[Built], report: Report, *, late: bool = False
) -> list[Tuple]:
    """End what is in flight, then call close() and cleanup(), and report each error. `late`: there
    is little time left. Returns the tuples that were in hand: if this made them fail, that does not
    count against them."""
    secs = _END_SECS_LATE if late else _END_SECS
    left = await asyncio.gather(
        _end_coroutines([one.task for one in built], report, secs),
        _end_threads([one for one in built if _on_thread(one.task)], report, secs),
    )
    for one in built:
        if not _on_thread(one.task):
            task = one.task
            try:
                result = one.close()
                if inspect.isawaitable(result):
                    await finish(result)
            except Exception as error:
                report(task.component, task.task, error)
            one.clean_up_hooks()
    return [tup for tuples in left for tup in tuples]


async def _end_coroutines(tasks: Sequence[Task], report: Report, secs: float) -> list[Tuple]:
    coroutines = [task for task in tasks if isinstance(task, AsyncBolt | AsyncSpout)]
    for task in coroutines:
        task.abort()
    ends = await asyncio.gather(
        *(task.wait_aborted(secs) for task in coroutines), return_exceptions=True
    )
    left: list[Tuple] = []
    for task, end in zip(coroutines, ends, strict=True):
        if isinstance(end, BaseException):
            report(task.component, task.task, end)
        else:
            left += end
    return left


async def _end_threads(built: Sequence[Built], report: Report, secs: float) -> list[Tuple]:
    """A thread that is stuck in the user's code is left behind; it dies with the process."""
    if not built:
        return []
    await asyncio.gather(*(_close_on_thread(one, report, secs) for one in built))
    tasks = [one.task for one in built if isinstance(one.task, ThreadSpout | ThreadBolt)]
    for task in tasks:
        task.abort()
    await asyncio.get_running_loop().run_in_executor(None, _join, tasks)
    return [tup for task in tasks if isinstance(task, ThreadBolt) for tup in task.give_up()]


def _join(tasks: Sequence[ThreadSpout | ThreadBolt]) -> None:
    deadline = time.monotonic() + _JOIN_SECS
    for task in tasks:
        task.join(max(0.0, deadline - time.monotonic()))


async def _close_on_thread(one: Built, report: Report, secs: float) -> None:
    task = one.task
    assert isinstance(task, ThreadSpout | ThreadBolt)

    def end() -> None:
        try:
            one.close()
        finally:
            one.clean_up_hooks()

    try:
        await asyncio.wait_for(on_thread(task, end), timeout=secs)
    except TimeoutError:
        log.warning("blocking_component_stuck", component=task.component, task=task.task)
    except Exception as error:
        report(task.component, task.task, error)


async def finish(result: Awaitable[Any]) -> None:
    """Await an async close(), cleanup() or shutdown(). Raises what it raises, except
    CancelledError: awaiting something that was cancelled must not end our own work."""
    ending = asyncio.ensure_future(result)
    await asyncio.wait({ending}, timeout=_COROUTINE_SECS)
    if not ending.done():
        ending.cancel()
        raise TimeoutError(f"it did not end within {_COROUTINE_SECS:g} s")
    try:
        ending.result()
    except asyncio.CancelledError as error:
        raise RuntimeError("it awaited something that was cancelled") from error


def _on_thread(task: Task) -> bool:
    return isinstance(task, ThreadSpout | ThreadBolt)
