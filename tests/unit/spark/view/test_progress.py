"""Progress: bars, rows and the time that is left."""

from __future__ import annotations

import io
import time
from typing import Any

import pytest

from squall_spark.view import progress
from squall_spark.view.progress import Progress, StageSeen, describe_running


def test_a_bar_with_rows_and_the_time_that_is_left() -> None:
    stages = [StageSeen(1, 60, 0.0, done=15, rows=1_200_000), StageSeen(2, 4, 0.0, done=1)]
    assert describe_running(stages, 30.0) == (
        "[#####...............] 16/64 tasks, 1,200,000 rows read, 90 s left"
    ).replace("90 s", "2 min")
    assert describe_running([StageSeen(1, 4, 0.0)], 30.0) == "[....................] 0/4 tasks"
    hours = describe_running([StageSeen(1, 100, 0.0, done=1)], 100.0)
    assert hours.endswith("1/100 tasks, 2 h 45 min left")


def test_a_step_that_takes_long_says_so_at_once_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_POLL_SECS", 0.001)
    monkeypatch.setattr(progress, "_QUIET_SECS", 0.002)
    monkeypatch.setattr(progress, "_LINE_SECS", 0.01)
    out = io.StringIO()
    deadline = time.monotonic() + 20
    with Progress(None, out).step("starting Spark"):
        while "so far" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.002)
    lines = out.getvalue().splitlines()
    assert lines[0] == "starting Spark ..."
    assert lines[1] == "starting Spark: 0 s so far"
    assert lines[-1].startswith("starting Spark: done in ")


def test_short_steps_are_not_mentioned_where_they_are_many() -> None:
    out = io.StringIO()
    with Progress(None, out, brief=True).step("reading"):
        pass
    assert out.getvalue() == ""


def test_a_terminal_gets_a_bar_that_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(progress, "_POLL_SECS", 0.001)
    out = Terminal()
    watched = Progress(None, out)

    def look(*_: Any) -> list[StageSeen]:
        return [StageSeen(1, 4, time.monotonic(), done=1)]

    monkeypatch.setattr(watched, "_look", look)
    with watched.step("count"):
        while "1/4 tasks" not in out.getvalue():
            time.sleep(0.002)
    assert "\r\x1b[Kcount [#####...............] 1/4 tasks" in out.getvalue()
    assert out.getvalue().rpartition("\r\x1b[K")[2].startswith("count: done in ")
