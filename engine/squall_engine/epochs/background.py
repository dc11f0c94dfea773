"""What the epochs of a topology do beside the event loop: calls that block, and coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.state.errors import StateStoreError

log = get_logger(__name__)

_T = TypeVar("_T")

RETRY_SECS = 0.2  # after a failure of the store; then it doubles
RETRY_SECS_MAX = 5.0
_CLOSE_SECS = 10.0


class Background:
    """One thread for calls to the store, and the coroutines that wait for it. `on_failure` gets
    what is tried again, `on_fault` what cannot be."""

    def __init__(
        self,
        topology: str,
        *,
        on_failure: Callable[[SquallError], None],
        on_fault: Callable[[SquallError], None],
    ) -> None:
        self.topology = topology
        self.ended = False
        self.failure = ""  # what failed last; cleared once an epoch is complete
        self._on_failure = on_failure
        self._on_fault = on_fault
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"checkpoints of {topology}")
        self._running: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        """Make a call that blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def insist(self, call: Callable[[], _T], goes_on: Callable[[], bool]) -> _T | None:
        """Make a call until it succeeds, or `goes_on()` is False after a failure, or it can never
        succeed; then returns None."""
        wait = RETRY_SECS
        while True:
            try:
                return await self.in_thread(call)
            except StateStoreError as error:
                self.failed(error)
            except SquallError as error:
                self.fault(error)
                return None
            await asyncio.sleep(wait)
            wait = min(2 * wait, RETRY_SECS_MAX)
            if self.ended or not goes_on():
                return None

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine; if it raises, that is a fault."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            if isinstance(error, SquallError):
                self.fault(error)
                return
            log.error("checkpoint_fault", topology=self.topology, error=error, exc_info=error)
            fault = SquallError(f"checkpoints have a fault: {error!r}")
            fault.__cause__ = error
            self.fault(fault)

    def every(self, secs: float, call: Callable[[], None]) -> None:
        """Call again and again, the first time after `secs`."""

        def ring() -> None:
            if not self.ended:
                self._later(secs, ring)
                call()

        self._later(secs, ring)

    def _later(self, secs: float, call: Callable[[], None]) -> None:
        now = asyncio.get_running_loop().time()
        self._timers = [one for one in self._timers if one.when() > now]
        self._timers.append(asyncio.get_running_loop().call_later(secs, call))

    def failed(self, error: SquallError) -> None:
        """A failure that is tried again."""
        self.failure = error.message
        self.warn(error)

    def warn(self, error: SquallError) -> None:
        """Report an error other than that of a failed call."""
        log.warning("checkpoint_failed", topology=self.topology, error=error)
        self._on_failure(error)

    def fault(self, error: SquallError) -> None:
        """A failure that ends the topology, or this worker."""
        if not self.ended:
            self.end()
            self._on_fault(error)

    def end(self) -> None:
        """Begin nothing more."""
        self.ended = True
        for timer in self._timers:
            timer.cancel()

    async def close(self, wait_secs: float = _CLOSE_SECS) -> bool:
        """Wait for what is being written, at most so long. Returns whether that has ended."""
        self.end()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        # What is being written is not stopped, and must not come after another process's record.
        self._thread.shutdown(wait=False, cancel_futures=True)
        ended = asyncio.to_thread(self._thread.shutdown, wait=True)
        try:
            await asyncio.wait_for(ended, wait_secs)
        except TimeoutError:
            return False
        return True
