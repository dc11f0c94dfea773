"""The progress of Spark, one line per stage, on stderr."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from pyspark import SparkContext

_POLL_SECS = 0.2


@dataclass(slots=True)
class _Seen:
    number: int
    tasks: int
    started: float
    done: int = 0


class Progress:
    """Watches the jobs of one step at a time: `with progress.step("count"): action()`."""

    def __init__(self, context: SparkContext, out: TextIO | None = None) -> None:
        self._context = context
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._steps = 0

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show the stages of the jobs that the calling thread starts meanwhile."""
        self._steps += 1
        group = f"squall-{self._steps}"
        self._context.setJobGroup(group, name)
        end = threading.Event()
        watcher = threading.Thread(
            target=self._watch, args=(group, name, end), name="spark-progress", daemon=True
        )
        watcher.start()
        start = time.monotonic()
        try:
            yield
        except BaseException:
            self._stop(watcher, end)
            raise
        self._stop(watcher, end)
        self._say(f"{name}: done in {time.monotonic() - start:.1f} s")

    def _stop(self, watcher: threading.Thread, end: threading.Event) -> None:
        end.set()
        watcher.join()
        self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        self._context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]

    def _watch(self, group: str, name: str, end: threading.Event) -> None:
        seen: dict[int, _Seen] = {}
        while not end.wait(_POLL_SECS):
            with contextlib.suppress(Exception):  # the context may be stopping
                self._look(group, name, seen)
        if self._live:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _look(self, group: str, name: str, seen: dict[int, _Seen]) -> None:
        tracker = self._context.statusTracker()
        running = []
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for id_ in sorted(info.stageIds) if info is not None else ():
                stage = tracker.getStageInfo(int(id_))
                if stage is None or not (stage.numActiveTasks or stage.numCompletedTasks):
                    continue
                mine = seen.setdefault(
                    int(id_), _Seen(len(seen) + 1, stage.numTasks, time.monotonic())
                )
                before, mine.done = mine.done, stage.numCompletedTasks
                if mine.done < mine.tasks:
                    running.append(f"stage {mine.number}: {mine.done}/{mine.tasks} tasks")
                elif before < mine.tasks:
                    secs = time.monotonic() - mine.started
                    self._say(f"{name}: stage {mine.number}: {mine.tasks} tasks, {secs:.1f} s")
        if self._live and running:
            self._out.write(f"\r\x1b[K{name}: {', '.join(running)}")
            self._out.flush()

    def _say(self, line: str) -> None:
        clear = "\r\x1b[K" if self._live else ""
        self._out.write(f"{clear}{line}\n")
        self._out.flush()


Step = Callable[[str], contextlib.AbstractContextManager[None]]


def silent(_name: str) -> contextlib.AbstractContextManager[None]:
    """No progress."""
    return contextlib.nullcontext()
