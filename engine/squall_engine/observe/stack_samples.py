"""Samples where the tasks of a worker spend their time: their Python stacks, by task.

A profiler outside of the process sees threads, but most tasks share the thread of the run loop, and
coroutines that wait are on no thread at all. From inside, the frames of the engine say whose code
is running. Whether a thread runs or waits is read from the kernel, between two samples: time in the
queue for a CPU counts as running, so a busy machine does not change the picture.

The format is a line for each stack: tab-separated `on` or `off` (CPU), component, task, how often
it was seen, and the frames, outermost first, with `;` between them. What belongs to no component
is that of `__system`, task -1.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from types import FrameType

from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK
from squall_engine.observe.under_way import built_of, chain_of, coroutine_frames, is_ours
from squall_engine.switch_interval import SWITCH_INTERVAL
from squall_engine.tasks.async_ import AsyncBolt, AsyncSpout
from squall_engine.tasks.built import Built
from squall_engine.tasks.thread import ThreadBolt, ThreadSpout

HEADING = "# cpu\tcomponent\ttask\tsamples\tframes\n"
_FRAMES_MAX = 100
_COROUTINES_MAX = 16  # of one task in one sample
_STACKS_MAX = 20_000  # different ones; beyond, samples are counted as "(other stacks)"
_SWITCH_SECS = 0.0005
_RUNS_SHARE = 0.5  # of the time between two samples that a thread ran, or waited for a CPU

_Stack = tuple[str, str, int, tuple[str, ...]]


class StackSamples:
    """Call `sample` again and again, on a thread of its own."""

    def __init__(self, built: Sequence[Built], thread_id: int) -> None:
        """`thread_id` is the run loop's."""
        self._built = built
        self._thread_id = thread_id
        self._clocks: dict[int, tuple[float, float]] = {}  # thread -> time, time that it had work
        self._native: dict[int, int | None] = {}  # the kernel's numbers of threads
        self._labels: dict[object, str] = {}
        self.stacks: Counter[_Stack] = Counter()

    def sample(self) -> None:
        """Take one sample of every task that is in a call."""
        frames = sys._current_frames()
        running = self._on_loop(frames.get(self._thread_id))
        for one in self._built:
            task = one.task
            if isinstance(task, ThreadBolt | ThreadSpout):
                called = task._in_hand() if isinstance(task, ThreadBolt) else task.asked
                frame = frames.get(task.thread_id)
                if called and frame is not None:
                    place = (task.component, task.task)
                    self._add(self._cpu(task.thread_id), place, _of_users(chain_of(frame)))
            elif isinstance(task, AsyncBolt | AsyncSpout) and task is not running:
                self._waiting(one)

    def _on_loop(self, innermost: FrameType | None) -> object | None:
        """Sample the thread of the run loop. Returns the task that it runs."""
        cpu = self._cpu(self._thread_id)
        chain = chain_of(innermost)
        for at, frame in enumerate(chain):
            one = built_of(frame, self._built)
            if one is not None:
                task = one.task
                self._add(cpu, (task.component, task.task), _of_users(chain[at:]))
                return task
        if cpu == "on":  # else it waits for the next turn
            self._add(cpu, (SYSTEM_COMPONENT, SYSTEM_TASK), chain)
        return None

    def _waiting(self, one: Built) -> None:
        """Sample the coroutines of a task: none of them runs now."""
        task = one.task
        flying: list[asyncio.Task[None]] = []
        try:
            if isinstance(task, AsyncBolt):
                flying = list(task._flying.values())
            elif isinstance(task, AsyncSpout) and task._asking is not None:
                flying = [task._asking]
        except RuntimeError:  # they change meanwhile
            return
        for coroutine in dict.fromkeys(flying[:_COROUTINES_MAX]):
            found = [frame for frame, _ in coroutine_frames(coroutine)]
            self._add("off", (task.component, task.task), _of_users(found))

    def _cpu(self, thread_id: int) -> str:
        """Whether a thread was on a CPU, or waited for one, since the sample before."""
        native = self._native.get(thread_id)
        if native is None:
            self._native = {
                one.ident: one.native_id for one in threading.enumerate() if one.ident is not None
            }
            native = self._native.get(thread_id)
        now = time.monotonic()
        try:
            wanted = time.clock_gettime(time.pthread_getcpuclockid(thread_id))
        except OSError:
            return "off"  # it has ended
        with (
            contextlib.suppress(OSError, ValueError, IndexError),  # not every kernel counts this
            open(f"/proc/self/task/{native}/schedstat") as file,
        ):
            wanted += int(file.read().split()[1]) / 1e9
        before = self._clocks.get(thread_id)
        self._clocks[thread_id] = (now, wanted)
        if before is None or now <= before[0]:
            return "on"
        return "on" if (wanted - before[1]) / (now - before[0]) >= _RUNS_SHARE else "off"

    def _add(self, cpu: str, place: tuple[str, int], frames: Sequence[FrameType]) -> None:
        names = tuple(self._label(frame) for frame in frames[-_FRAMES_MAX:])
        stack = (cpu, *place, names)
        if stack not in self.stacks and len(self.stacks) >= _STACKS_MAX:
            stack = (cpu, *place, ("(other stacks)",))
        self.stacks[stack] += 1

    def _label(self, frame: FrameType) -> str:
        code = frame.f_code
        label = self._labels.get(code)
        if label is None:
            file = "/".join(code.co_filename.split("/")[-2:])
            text = f"{code.co_qualname} ({file}:{code.co_firstlineno})"
            label = "".join(c if c.isprintable() and c != ";" else "_" for c in text)
            self._labels[code] = label
        return label

    def text(self) -> str:
        """All samples so far, in the format of the module."""
        lines = [HEADING]
        for (cpu, component, task, frames), count in self.stacks.most_common():
            lines.append(f"{cpu}\t{component}\t{task}\t{count}\t{';'.join(frames)}\n")
        return "".join(lines)


def _of_users(frames: Sequence[FrameType]) -> Sequence[FrameType]:
    """From the first frame of the user's code on; all of them if there is none, as in code of the
    core."""
    for at, frame in enumerate(frames):
        if not is_ours(frame):
            return frames[at:]
    return frames


def run(samples: StackSamples, until: float, *, every_secs: float = 0.01) -> str:
    """Sample until that time of the system's clock, but at least once; blocks. Returns the text."""
    # A thread that asks for the interpreter gets it after this interval: by default calls that take
    # less than 5 ms would end before they are looked at.
    wish = SWITCH_INTERVAL.shorten(_SWITCH_SECS)
    try:
        samples.sample()
        while time.time() < until:
            time.sleep(every_secs)
            samples.sample()
    finally:
        wish.end()
    return samples.text()


def lines_of(text: str) -> Iterable[tuple[str, str, int, int, list[str]]]:
    """The lines of a text in the format of the module: cpu, component, task, samples, frames.
    Raises ValueError for another text."""
    for line in text.splitlines():
        if line and not line.startswith("#"):
            cpu, component, task, count, frames = line.split("\t")
            yield cpu, component, int(task), int(count), frames.split(";")
