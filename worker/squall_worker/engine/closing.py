"""Ending the components of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from squall.logs import get_logger
from squall_worker.engine.building import Built, on_thread
from squall_worker.engine.executors import SpoutTask
from squall_worker.engine.executors_async import AsyncBolt, AsyncSpout
from squall_worker.engine.executors_thread import ThreadBolt, ThreadSpout

log = get_logger(__name__)

_THREAD_SECS = 1.0  # for close() on a thread, behind what it is in the middle of
_JOIN_SECS = 0.5

Report = Callable[[str, int, BaseException], None]


async def close_components(built: Sequence[Built], report: Report) -> None:
    """End what is in flight, then close() and cleanup(), each error reported."""
    coroutines = [one.task for one in built if isinstance(one.task, AsyncBolt | AsyncSpout)]
    for task in coroutines:
        task.abort()
    for task in coroutines:
        await task.wait_aborted()
    for one in built:
        component = one.task
        user = component.user
        call = user.close if isinstance(component, SpoutTask) else user.cleanup
        try:
            if isinstance(component, ThreadSpout | ThreadBolt):
                await _close_on_thread(component, call if one.opened else _nothing)
                continue
            if not one.opened:
                continue
            result = call()
            if asyncio.iscoroutine(result):
                await result
        except Exception as error:
            report(component.component, component.task, error)


async def _close_on_thread(task: ThreadSpout | ThreadBolt, call: Callable[[], Any]) -> None:
    """A thread that is stuck in the user's code is left behind; it dies with the process."""
    try:
        await asyncio.wait_for(on_thread(task, call), timeout=_THREAD_SECS)
    except TimeoutError:
        log.warning("blocking_component_stuck", component=task.component, task=task.task)
    finally:
        task.abort()
    await asyncio.get_running_loop().run_in_executor(None, task.join, _JOIN_SECS)


def _nothing() -> None:
    pass
