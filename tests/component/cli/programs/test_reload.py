"""`storm local --reload` as a process: it runs what changed, and leaves nothing behind."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.leftovers import left_behind
from tests.support.devcluster import STORM, environment

JOB = """
from squall import Spout, TopologyBuilder, submit_topology

class Words(Spout):
    outputs = ["word"]

    def open(self, conf, context):
        print("opened", "one", flush=True)

    def next_tuple(self):
        pass

    def close(self):
        print("closed", flush=True)

def main():
    builder = TopologyBuilder()
    builder.spout("words", Words())
    submit_topology("words", {}, builder.build())
"""


class Reloading:
    def __init__(self, package: Path) -> None:
        self.job = package / "job.py"
        self.job.write_text(JOB)
        self.process = subprocess.Popen(
            [*STORM, "local", "--reload", package, "job:main"],
            env=environment() | {"TMPDIR": str(package.parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(20)  # until all that write to the pipe have ended

    def expect(self, part: str) -> None:
        seen = []
        try:
            while part not in (line := self._lines.get(timeout=30)):
                seen.append(line)
        except queue.Empty:
            pytest.fail(f"no {part!r} in {''.join(seen)}")


@pytest.fixture
def reloading(tmp_path: Path) -> Iterator[Reloading]:
    (tmp_path / "package").mkdir()
    made = Reloading(tmp_path / "package")
    yield made
    made.close()
    assert not left_behind(tmp_path)


def test_what_changes_runs_and_what_is_broken_waits(reloading: Reloading) -> None:
    reloading.expect("opened one")
    reloading.job.write_text(JOB.replace('"one"', '"two"'))
    reloading.expect("reload: job.py changed")
    reloading.expect("closed")
    reloading.expect("opened two")
    reloading.job.write_text(JOB + "def broken(:")
    reloading.expect("SyntaxError")
    reloading.expect("reload: waiting for a change")
    reloading.job.write_text(JOB)
    reloading.expect("opened one")
    reloading.process.send_signal(signal.SIGINT)
    reloading.expect("closed")
    assert reloading.process.wait(20) == 0


@pytest.mark.parametrize("end", [os.kill, lambda pid, _: os.kill(pid, signal.SIGTERM)])
def test_a_run_ends_with_the_process_that_reloads(
    reloading: Reloading, end: Callable[[int, int], None]
) -> None:
    reloading.expect("opened one")
    end(reloading.process.pid, signal.SIGKILL)
    reloading.expect("closed")
