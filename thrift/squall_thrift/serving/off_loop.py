"""Runs work that would block the event loop on a separate thread.

    view = await off_loop(make_view, state)

A process has only one such thread, on purpose: Python runs one thread at a time, so more of them
would not be faster, and each would take its share of the interpreter from the loop. Callers take
turns (`turns.FairQueue`): a peer that sends large frames on many connections gets one turn, like
every other peer. `CALLER`, which the server sets for each connection, says whose work it is; a
daemon's own work counts as one more caller.

The function must not touch data that the loop changes meanwhile: pass it values, and use its
result.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeVar

from squall_thrift.serving.turns import FairQueue, Key

P = ParamSpec("P")
T = TypeVar("T")

# Whose work this is, which decides the order. The default is the daemon's own work.
CALLER: ContextVar[Key] = ContextVar("squall_caller", default=("", 0))

# From this many bytes on, reading or writing a struct is worth a thread: some 5 ms at worst.
LARGE_BYTES: Final = 16_384


class FairExecutor(Executor):
    """One thread. Work is done in the order of FairQueue, by the submitter's CALLER.

    The thread is a daemon: work that is left when the process ends is abandoned.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: FairQueue[tuple[Future[Any], Callable[[], Any]]] = FairQueue()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._queue.add(CALLER.get(), (future, lambda: fn(*args, **kwargs)))
            self._changed.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                future, work = self._queue.next()
            _carry_out(future, work)
            del future, work  # else they live until the next ones arrive


def _carry_out(future: "Future[Any]", work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)


_EXECUTOR = FairExecutor("off loop")


async def off_loop(work: Callable[..., T], *args: Any) -> T:
    """Do `work` on the thread; return or raise as it does."""
    return await asyncio.get_running_loop().run_in_executor(_EXECUTOR, work, *args)


async def off_loop_if(large: bool, work: Callable[..., T], *args: Any) -> T:
    """Do `work` on the thread if it is `large`, else at once, without yielding to the loop."""
    return await off_loop(work, *args) if large else work(*args)
