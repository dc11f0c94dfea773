"""Writes down on request what a worker is doing: threads, asyncio tasks, executors, objects.

Everything here runs on the heartbeat thread while the run loop goes on: the data may change while
it is read, so each part is a snapshot for people and none is exact. A part that cannot be read says
so and does not affect the others.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

from squall_common.daemon.files import write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.daemon.own_memory import memory_bytes
from squall_common.worker_files.dump_request import DumpKind, take

log = get_logger(__name__)

_TASKS_MAX = 500  # groups of asyncio tasks with the same stack
_FRAMES_MAX = 60  # a stack
_TYPES_MAX = 60  # rows of a heap dump
_SAMPLE_SECS_MAX = 60.0
_TRIES = 5  # to read data that changes meanwhile


class Dumps:
    """Answers the requests for dumps of one worker. The heartbeat thread calls `look`."""

    def __init__(
        self,
        worker_dir: Path,
        artifacts_dir: Path,
        *,
        about: Callable[[], str],
        loop: asyncio.AbstractEventLoop,
        executors: Callable[[], Iterable[str]],
        samples: Callable[[float], str] | None = None,
    ) -> None:
        """`about` is the first lines of a dump, `executors` a line for each task, and
        `samples(until)` samples stacks until a time since 1970."""
        self._samples = samples
        self._sampling = threading.Lock()
        self._worker_dir = worker_dir
        self._artifacts_dir = artifacts_dir
        self._about = about
        self._loop = loop
        self._executors = executors

    def look(self) -> None:
        """Write the dumps that were asked for since the last look. Never raises."""
        for kind, write in ((DumpKind.STACKS, self.stacks), (DumpKind.HEAP, heap)):
            try:
                name = take(self._worker_dir, kind)
                if name is not None:
                    text = f"{self._about()}\n{write()}"
                    write_atomic(self._artifacts_dir / name, text.encode(), mode=0o600)
                    log.info("dump_written", kind=kind.name, file=self._artifacts_dir / name)
            except Exception as error:
                log.error("dump_failed", kind=kind.name, error=error, exc_info=error)
        self._look_for_samples()

    def _look_for_samples(self) -> None:
        """Sample on a thread of its own: this one has to report heartbeats meanwhile."""
        try:
            name = take(self._worker_dir, DumpKind.SAMPLES)
            if name is not None and self._samples is not None:
                threading.Thread(
                    target=self._write_samples, args=(name,), name="sampler", daemon=True
                ).start()
        except Exception as error:  # this process may have no more threads
            log.error("dump_failed", kind=DumpKind.SAMPLES.name, error=error)

    def _write_samples(self, name: str) -> None:
        assert self._samples is not None
        try:
            until = int(name.partition("-")[2].partition(".")[0]) / 1000
            until = min(until, time.time() + _SAMPLE_SECS_MAX)
            with self._sampling:  # two would count each other's samples as time of tasks
                text = self._samples(until)
            write_atomic(self._artifacts_dir / name, text.encode(), mode=0o600)
        except Exception as error:
            log.error("dump_failed", kind=DumpKind.SAMPLES.name, error=error, exc_info=error)

    def stacks(self) -> str:
        """Threads, asyncio tasks and executors."""
        parts = (
            ("Threads", _threads),
            ("asyncio tasks", lambda: _tasks(self._loop)),
            ("Executors", lambda: list(self._executors())),
        )
        return "\n".join(_part(title, lines) for title, lines in parts)


def _part(title: str, lines: Callable[[], Iterable[str]]) -> str:
    for attempt in range(_TRIES):
        try:
            body = "\n".join(lines())
            break
        except Exception as error:
            if attempt == _TRIES - 1 or not isinstance(error, RuntimeError):
                body = f"could not be read: {error!r}"
                break
    return f"== {title} ==\n{body or '(none)'}\n"


def _threads() -> Iterable[str]:
    names = {thread.ident: thread for thread in threading.enumerate()}
    me = threading.get_ident()
    for ident, frame in sorted(sys._current_frames().items()):
        thread = names.get(ident)
        name = "?" if thread is None else thread.name
        what = " (writes this)" if ident == me else ""
        yield f"Thread {ident} {name!r}{what}"
        yield _stack(_frames_of(frame))


def _frames_of(frame: FrameType | None) -> list[tuple[FrameType, int]]:
    """Innermost last, as tracebacks are."""
    found: list[tuple[FrameType, int]] = []
    while frame is not None and len(found) < _FRAMES_MAX:
        found.append((frame, frame.f_lineno))
        frame = frame.f_back
    return found[::-1]


def _stack(frames: list[tuple[FrameType, int]]) -> str:
    summary = traceback.StackSummary.extract(iter(frames), capture_locals=False)
    return "".join(summary.format()) or "  (no Python frames)\n"


def _tasks(loop: asyncio.AbstractEventLoop) -> Iterable[str]:
    """Tasks by stack: a thousand that wait at the same line are one entry."""
    from squall_engine.embed import coroutine_frames

    stacks: dict[str, list[str]] = {}
    for task in asyncio.all_tasks(loop):
        stack = _stack(coroutine_frames(task))
        stacks.setdefault(stack, []).append(task.get_name())
    groups = sorted(stacks.items(), key=lambda item: (-len(item[1]), item[1][0]))
    for stack, names in groups[:_TASKS_MAX]:
        shown = ", ".join(sorted(set(names))[:5]) + (" ..." if len(set(names)) > 5 else "")
        yield f"{len(names)} task(s): {shown}"
        yield stack
    if len(groups) > _TASKS_MAX:
        yield f"... and {len(groups) - _TASKS_MAX} other stacks"


def heap() -> str:
    """The process's memory, and the container objects that the garbage collector follows, by type.
    (Numbers and strings are not counted: `sys.getsizeof` is of the container alone.)"""
    virtual, resident = memory_bytes()
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    # Objects made before the end of the start are frozen: the collector no longer lists them.
    for one in gc.get_objects():
        kind = type(one)
        name = f"{kind.__module__}.{kind.__qualname__}"
        counts[name] += 1
        try:
            sizes[name] += sys.getsizeof(one)
        except Exception:
            continue  # a user's own __sizeof__
    lines = [
        f"Resident {resident:,} bytes, virtual {virtual:,} bytes",
        f"Objects made since the start and alive: {sum(counts.values()):,}; "
        f"before it: {gc.get_freeze_count():,}",
        "",
        f"{'OBJECTS':>12}  {'BYTES':>14}  TYPE",
    ]
    for name, size in sizes.most_common(_TYPES_MAX):
        lines.append(f"{counts[name]:>12,}  {size:>14,}  {name}")
    return "\n".join(lines) + "\n"


def heading(what: dict[str, object]) -> str:
    """The first lines of a dump."""
    now = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return "\n".join([f"{key}: {value}" for key, value in {"time": now, **what}.items()]) + "\n"
