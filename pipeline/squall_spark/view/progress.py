"""The progress of a run, on stderr: a line when a step takes more than a second, when one of its
stages ends, and when it has ended; and meanwhile, on a terminal a bar, elsewhere a line now and
then.

    count: stage 2: 64 tasks, 1,200,000 rows read, 12.1 s
    count [########............]  26/64 tasks, 480,000 rows read, 18 s left
"""

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
_QUIET_SECS = 1.0  # a step that takes longer than this gets a line at once
_LINE_SECS = 10.0  # between lines where there is no terminal
_BAR = 20
_ROWS_MIN = 1_000  # below, a number helps no one (and Spark counts what it keeps on disk as rows)


@dataclass(slots=True)
class StageSeen:
    """A stage of Spark's."""

    number: int
    tasks: int
    started: float
    done: int = 0
    rows: int = 0  # that it has read of data sets; what moves between stages does not count


def describe_running(stages: list[StageSeen], secs: float) -> str:
    """The stages that run, as a bar, with the time that is left. `secs` have passed."""
    done, tasks = sum(s.done for s in stages), sum(s.tasks for s in stages)
    filled = _BAR * done // tasks if tasks else 0
    line = f"[{'#' * filled}{'.' * (_BAR - filled)}] {done}/{tasks} tasks"
    rows = sum(s.rows for s in stages)
    if rows >= _ROWS_MIN:
        line += f", {rows:,} rows read"
    if done:
        line += f", {_duration(secs * (tasks - done) / done)} left"
    return line


def _duration(secs: float) -> str:
    if secs < 60:
        return f"{secs:.0f} s"
    minutes = round(secs / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Progress:
    """Watches the jobs of one step at a time: `with progress.step("count"): action()`. Without a
    context (Spark is starting) a step has no stages. `brief`: steps of less than a second are not
    mentioned."""

    def __init__(
        self, context: SparkContext | None, out: TextIO | None = None, *, brief: bool = False
    ) -> None:
        self._context = context
        self._brief = brief
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._steps = 0

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Show the stages of the jobs that the calling thread starts meanwhile."""
        self._steps += 1
        group = f"squall-{self._steps}"
        if self._context is not None:
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
        secs = time.monotonic() - start
        if secs >= _QUIET_SECS or not self._brief:
            self._say(f"{name}: done in {secs:.1f} s")

    def _stop(self, watcher: threading.Thread, end: threading.Event) -> None:
        end.set()
        watcher.join()
        if self._context is not None:
            self._context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
            self._context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]

    def _watch(self, group: str, name: str, end: threading.Event) -> None:
        seen: dict[int, StageSeen] = {}
        started = time.monotonic()
        next_line, announced = started + _LINE_SECS, False
        while not end.wait(_POLL_SECS):
            now = time.monotonic()
            if not announced and now - started >= _QUIET_SECS:
                announced = True
                if not self._live:
                    self._say(f"{name} ...")
            running: list[StageSeen] = []
            with contextlib.suppress(Exception):  # the context may be stopping
                running = self._look(group, name, seen)
            secs = now - min((s.started for s in running), default=started)
            line = f"{name} {describe_running(running, secs)}" if running else f"{name} ..."
            if self._live:
                self._out.write(f"\r\x1b[K{line}")
                self._out.flush()
            elif now >= next_line:
                self._say(line if running else f"{name}: {now - started:.0f} s so far")
                next_line = now + _LINE_SECS
        if self._live:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _look(self, group: str, name: str, seen: dict[int, StageSeen]) -> list[StageSeen]:
        """The stages that run. Says which have ended since the last look."""
        if self._context is None:
            return []
        tracker = self._context.statusTracker()
        running = []
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for id_ in sorted(info.stageIds) if info is not None else ():
                stage = tracker.getStageInfo(int(id_))
                if stage is None or not (stage.numActiveTasks or stage.numCompletedTasks):
                    continue
                mine = seen.setdefault(
                    int(id_), StageSeen(len(seen) + 1, stage.numTasks, time.monotonic())
                )
                before, mine.done = mine.done, stage.numCompletedTasks
                if before < mine.tasks:
                    mine.rows = self._rows_read(int(id_))
                if mine.done < mine.tasks:
                    running.append(mine)
                elif before < mine.tasks:
                    rows = f", {mine.rows:,} rows read" if mine.rows >= _ROWS_MIN else ""
                    secs = time.monotonic() - mine.started
                    self._say(
                        f"{name}: stage {mine.number}: {mine.tasks} tasks{rows}, {secs:.1f} s"
                    )
        return running

    def _rows_read(self, stage: int) -> int:
        """The rows of data sets that a stage has read so far."""
        with contextlib.suppress(Exception):  # a part of Spark that may change
            context: object = getattr(self._context, "_jsc").sc()  # noqa: B009
            data = context.statusStore().lastStageAttempt(stage)  # type: ignore[attr-defined]
            return int(data.inputRecords())
        return 0

    def _say(self, line: str) -> None:
        clear = "\r\x1b[K" if self._live else ""
        self._out.write(f"{clear}{line}\n")
        self._out.flush()


Step = Callable[[str], contextlib.AbstractContextManager[None]]


def silent(_name: str) -> contextlib.AbstractContextManager[None]:
    """No progress."""
    return contextlib.nullcontext()
