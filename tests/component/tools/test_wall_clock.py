"""The clocks that chaos tests turn: they are turned for some processes, and for nobody else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.wall_clock import WallClocks, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "")

# Answers each line with what its clocks show; a sleep among them, which goes by another clock.
PROGRAM = """
import datetime, json, sys, time
for line in sys.stdin:
    since = time.monotonic()
    time.sleep(0.01)
    slept = time.monotonic() - since
    now = {
        "time": time.time(), "datetime": datetime.datetime.now().timestamp(),
        "monotonic": time.monotonic(), "slept": slept,
    }
    print(json.dumps(now), flush=True)
"""


class Watcher:
    """A process that is asked for the time."""

    def __init__(self, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], env={**os.environ, **env},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def look(self) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(file=self.process.stdin, flush=True)
        shown: dict[str, Any] = json.loads(self.process.stdout.readline())
        return shown


@contextmanager
def watching(env: dict[str, str]) -> Iterator[Watcher]:
    watcher = Watcher(env)
    with watcher.process:
        try:
            yield watcher
        finally:
            watcher.process.kill()


def test_a_clock_is_turned_while_a_process_goes_by_it_and_no_other_is(tmp_path: Path) -> None:
    clocks = WallClocks(tmp_path)
    with (
        watching(clocks.environment("a")) as a,
        watching(clocks.environment("b")) as b,
        watching({}) as machine,
    ):
        for secs in (0, 3600, -3600, 0):
            clocks.turn("a", secs)
            before = time.time(), time.monotonic()
            shown = a.look()
            after = time.time(), time.monotonic()
            for wall in ("time", "datetime"):
                assert before[0] - 0.01 <= shown[wall] - secs <= after[0] + 0.01
            assert before[1] <= shown["monotonic"] <= after[1]
            assert 0.01 <= shown["slept"] <= after[1] - before[1]
            for other in (b, machine):
                assert abs(other.look()["time"] - time.time()) < 600
        clocks.turn("a", 3600)
        clocks.turn("b", -3600)
        assert a.look()["time"] - b.look()["time"] > 7000
        clocks.set_right()
        assert abs(a.look()["time"] - b.look()["time"]) < 600
        # What a test asks to be sure that it turns anything.
        assert clocks.turns(a.process.pid, "a")
        assert not clocks.turns(a.process.pid, "b")
        assert not clocks.turns(machine.process.pid, "a")
