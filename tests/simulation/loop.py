"""An event loop whose time is virtual and whose order comes from a seed, with processes on it.

Every callback belongs to the simulated process in whose context it was scheduled. Callbacks of one
process run in order, as asyncio promises; which process runs next is drawn. A process that is
killed never runs another line, not even a `finally`; one that is stopped (SIGSTOP) runs on later
from where it stood.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import heapq
import itertools
import random
import signal
import weakref
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

# Virtual time that a callback takes, so that whoever does not wait does not stop time.
_STEP_SECS = 2e-5
_STEPS_MAX = 5_000_000

_CURRENT: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class Process:
    """One simulated process; `host` names its machine."""

    def __init__(self, loop: SimLoop, name: str, host: str) -> None:
        self.loop = loop
        self.name = name
        self.host = host
        self.pid = 0
        self.start_ticks = 0
        self.alive = True
        self.stopped = False
        self.stopped_at = 0.0  # the last time
        self.status: int | None = None  # of the exit; negative: the signal
        self.on_exit: list[Callable[[], None]] = []
        self.signals: dict[int, asyncio.Handle] = {}
        self.resumed: list[Callable[[], None]] = []
        self.stop_hooks: list[Callable[[], None]] = []
        self.queue: deque[asyncio.Handle] = deque()
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.context = contextvars.copy_context()
        self.context.run(_CURRENT.set, self)

    def __repr__(self) -> str:
        return self.name

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine in this process."""
        return asyncio.Task(coroutine, loop=self.loop, name=self.name, context=self.context.copy())

    def call(self, callback: Callable[..., Any], *args: Any) -> None:
        """Call something in this process, soon."""
        self.loop.call_soon(callback, *args, context=self.context.copy())

    def terminate(self) -> None:
        """SIGTERM."""
        handle = self.signals.get(signal.SIGTERM)
        if handle is None:
            self.end(-signal.SIGTERM)
        else:
            self.loop.push(handle)

    def end(self, status: int) -> None:
        """It ends: by itself, or it is killed."""
        if not self.alive:
            return
        self.alive = False
        self.status = status
        self.loop.bury(self)
        for call in self.on_exit:
            call()

    def stop(self) -> None:
        """SIGSTOP."""
        if self.alive and not self.stopped:
            self.stopped = True
            self.stopped_at = self.loop.time()
            for call in self.stop_hooks:
                call()

    def resume(self) -> None:
        """SIGCONT."""
        if self.alive and self.stopped:
            self.stopped = False
            for call in self.resumed:
                call()
            self.loop.ready_again(self)


def current_process() -> Process:
    """The process that runs now."""
    return _CURRENT.get()


class SimLoop(asyncio.AbstractEventLoop):
    """See the module's text. `world` is the process of what is outside: faults, the network."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"order {seed}")
        self._now = 0.0
        self._sequence = itertools.count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._ready: list[Process] = []
        self._readers: dict[int, asyncio.Handle] = {}
        self._graveyard: list[Any] = []
        self._running = False
        self._next: list[Callable[[], None]] = []
        self._digest = hashlib.blake2b(digest_size=16)
        self.steps = 0
        self.errors: list[str] = []
        self.slow_disks: dict[str, float] = {}  # host -> seconds that a thread's work may take
        self.world = Process(self, "world", "world")

    # Running.

    def run_until(self, done: asyncio.Future[Any]) -> None:
        """Run until `done` is, in virtual time. Raises what it raises."""
        events._set_running_loop(self)
        self._running = True
        try:
            while not done.done():
                self._step()
        finally:
            self._running = False
            events._set_running_loop(None)
        done.result()

    def _step(self) -> None:
        timers = self._timers
        while timers and (timers[0][0] <= self._now or not self._ready):
            when, _, timer = heapq.heappop(timers)
            if not timer._cancelled:  # type: ignore[attr-defined]
                self._now = max(self._now, when)
                self.push(timer)
        if not self._ready:
            raise AssertionError("the simulation has nothing left to do")
        ready = self._ready
        index = int(self._rng.random() * len(ready)) if len(ready) > 1 else 0
        process = ready[index]
        handle = process.queue.popleft()
        if not process.queue:
            ready[index] = ready[-1]
            ready.pop()
        if handle._cancelled:  # type: ignore[attr-defined]
            return
        self.steps += 1
        if self.steps > _STEPS_MAX:
            raise AssertionError(f"livelock: {_STEPS_MAX} steps; {process} runs on")
        self._now += _STEP_SECS
        self._digest.update(b"%.5f %s\n" % (self._now, process.name.encode()))
        handle._run()
        while self._next:
            self._next.pop()()

    def now_next(self, call: Callable[[], None]) -> None:
        """Call something as soon as the present callback has returned, before any other."""
        self._next.append(call)

    def push(self, handle: asyncio.Handle) -> None:
        """A callback is due."""
        process = handle._context.get(_CURRENT, self.world)  # type: ignore[attr-defined]
        if not process.alive:
            return
        if not process.queue and not process.stopped:
            self._ready.append(process)
        process.queue.append(handle)

    def ready_again(self, process: Process) -> None:
        """A stopped process runs on."""
        if process.queue:
            self._ready.append(process)

    def bury(self, process: Process) -> None:
        """Keep what is left of a dead process until the end of the run: if it were freed, its
        coroutines would run their `finally`."""
        if process in self._ready:
            self._ready.remove(process)
        self._graveyard.append(([*process.tasks], process.queue))
        process.queue = deque()

    @property
    def trace(self) -> str:
        """A hash of everything that happened."""
        return self._digest.hexdigest()

    def note(self, text: str) -> None:
        """Add an event to the trace."""
        self._digest.update(text.encode())

    @contextmanager
    def time_stands(self) -> Iterator[None]:
        """For code outside any run."""
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(None)

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self.push(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._sequence), timer))
        return timer

    def world_later(self, delay: float, callback: Any, *args: Any) -> None:
        """Call something outside of all processes, later."""
        self.call_later(delay, callback, *args, context=self.world.context.copy())

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Any = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        _CURRENT.get().tasks.add(task)
        return task

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """A thread's work happens at one moment, a little later."""
        future = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except BaseException as error:
                if not future.cancelled():
                    future.set_exception(error)
            else:
                if not future.cancelled():
                    future.set_result(result)

        slow = self.slow_disks.get(_CURRENT.get().host, 0.0)
        self.call_later(self._rng.uniform(0.0005, 0.01) + self._rng.uniform(0, slow), work)
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(2, 1, 6, "", (host, port))]

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> None:
        self._readers[fd] = asyncio.Handle(callback, args, self)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def readable(self, fd: int) -> None:
        """A simulated descriptor speaks."""
        handle = self._readers.get(fd)
        if handle is not None:
            self.push(asyncio.Handle(handle._run, (), self, handle._context.copy()))  # type: ignore[attr-defined]

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        _CURRENT.get().signals[sig] = asyncio.Handle(callback, args, self)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._running:
            error = context.get("exception")
            self.errors.append(f"{context.get('message')}: {error!r}")
