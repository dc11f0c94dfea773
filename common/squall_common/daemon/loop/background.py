"""Background tasks of a daemon: named, kept, and never silent when they crash.

A daemon is fail-fast: its state is in ZooKeeper or on disk, so an unexpected crash ends
the process (a supervisor of processes starts it again) rather than leaving it half alive.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from squall_common.daemon.logs import get_logger

log = get_logger(__name__)


class BackgroundTasks:
    """The background tasks of one object; `close` ends them all.

    `on_crash(name, error)` is called for a task that ended with an exception other than
    cancellation; without it the error is logged.
    """

    def __init__(self, on_crash: Callable[[str, BaseException], None] | None = None) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._on_crash = on_crash

    def start(self, name: str, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in the background, keep a reference, report its crash."""
        task = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def every(
        self, name: str, secs: float, action: Callable[[], Awaitable[Any]]
    ) -> asyncio.Task[Any]:
        """Run `action` every `secs` seconds, first after one period. An error of one run is
        logged and the next run comes as usual."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(secs)
                try:
                    await action()
                except Exception as error:
                    log.error("periodic_action_failed", action=name, error=error, exc_info=error)

        return self.start(name, repeat())

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            return
        if self._on_crash is not None:
            self._on_crash(task.get_name(), error)
        else:
            log.error("task_crashed", task=task.get_name(), error=error, exc_info=error)

    async def close(self) -> None:
        """Cancel every task and wait until each has ended."""
        me = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not me]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
