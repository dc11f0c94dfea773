"""Windows on a real cluster whose workers are killed: every message that was acked is in its
windows, or was reported late; and by the clock each is in some window."""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.effort import KILLS
from tests.support.ledger import nothing_lost

pytestmark = pytest.mark.chaos

MESSAGES = 3000 * max(1, KILLS // 2)
SLIDE_MS, LENGTH_MS = 500, 1000
STEP_MS = 2  # of event time, from one message to the next

TOPOLOGY = '''
import json
import pathlib
import sys
import time

from squall import AggregateBolt, Bolt, Spout, TopologyBuilder, WindowedBolt, submit_topology
from squall.windows import EventTime, sliding, tumbling


class Numbers(Spout):
    """Keeps its messages in a file of acks: what is not there is emitted (again), in order."""

    outputs = ["key", "number", "at"]

    def __init__(self, folder, count, step, rate):
        self.folder, self.count, self.step, self.rate = folder, count, step, rate

    def open(self, conf, context):
        self.acks = open(pathlib.Path(self.folder, "acks"), "a+")
        self.acks.seek(0)
        done = {int(line) for line in self.acks}
        self.todo = [number for number in range(self.count, 0, -1) if number not in done]
        self.start, self.emitted, self.again = time.monotonic(), 0, time.monotonic()

    def next_tuple(self):
        now = time.monotonic()
        if self.todo and self.emitted < (now - self.start) * self.rate:
            number = self.todo.pop()
            self.emitted += 1
            self.emit(["ab"[number % 2], number, number * self.step], message_id=number)
        elif not self.todo and now >= self.again:  # time goes on, so that the last windows end
            self.again = now + 0.2
            for key in "ab":
                self.emit([key, 0, (self.count + 10_000) * self.step])

    def ack(self, msg_id):
        print(msg_id, file=self.acks, flush=True)

    def fail(self, msg_id):
        self.todo.append(msg_id)


class Windows(WindowedBolt):
    outputs = ["kind", "end", "numbers"]

    def execute_window(self, window):
        self.emit(["event", window.end_ms, [tup["number"] for tup in window]])


class Totals(AggregateBolt):
    outputs = ["kind", "end", "numbers"]

    def init(self):
        return []

    def add(self, total, tup):
        return [*total, tup["number"]]

    def merge(self, first, second):
        return first + second

    def result(self, total, window):
        self.emit(["clock", window.end_ms, total])


class Record(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.file = open(pathlib.Path(self.folder, "recorded"), "a")

    def execute(self, tup):
        row = tup.values if tup.source_stream == "default" else ["late", 0, [
            tup["late_tuple"]["values"]["number"]]]
        print(json.dumps(list(row)), file=self.file, flush=True)


if __name__ == "__main__":
    folder, count, slide, length, step = sys.argv[1], *map(int, sys.argv[2:])
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers(folder, count, step, 300))
    at = EventTime("at", watermark_interval_secs=0.1, late_stream="late")
    beyond = {"topology.bolts.window.tuples.in.memory.max": 20}  # the others are on disk
    builder.bolt("windows", Windows(), parallelism=2, conf=beyond).windowed(
        sliding(secs=length / 1000, every_secs=slide / 1000, key="key", event_time=at)
    ).fields("numbers", "key")
    builder.bolt("totals", Totals(), parallelism=2).windowed(
        tumbling(secs=0.5, key="key")
    ).fields("numbers", "key")
    record = builder.bolt("record", Record(folder)).shuffle("windows").shuffle("totals")
    record.shuffle("windows", stream="late")
    conf = {"topology.workers": 2, "topology.max.spout.pending": 2000}
    submit_topology("windows", conf, builder.build())
'''


def lines(path: Path) -> list[str]:
    """The whole lines of a file."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def test_nothing_is_lost_from_windows_when_workers_are_killed(tmp_path: Path) -> None:
    package = tmp_path / "windows"
    package.mkdir()
    (package / "windows.py").write_text(TOPOLOGY)
    acks, recorded = tmp_path / "acks", tmp_path / "recorded"

    def acked() -> set[int]:
        return set(map(int, lines(acks)))

    options = ["supervisor.worker.min.uptime.secs=0"]
    with DevCluster.start(tmp_path / "cluster", slots=2, overrides=options) as cluster:
        arguments = map(str, (MESSAGES, SLIDE_MS, LENGTH_MS, STEP_MS))
        cluster.storm("jar", package, "windows.py", tmp_path, *arguments)
        kills = max(2, KILLS)
        for kill in range(kills):
            wanted = MESSAGES * (kill + 1) // (kills + 3)
            wait_for("acks", lambda wanted=wanted: len(acked()) >= wanted, 120, 0.1)
            victim = sorted(cluster.worker_pids(2))[kill % 2]
            os.kill(victim, signal.SIGKILL)
            wait_for(
                "the killed worker to be back",
                lambda victim=victim: len(now := cluster.worker_pids()) == 2 and victim not in now,
            )
        assert len(acked()) < MESSAGES, "all was done before the last kill"
        wait_for("all acks", lambda: len(acked()) == MESSAGES, 180, 0.2)
        cluster.storm("kill", "windows", "-w", "0")
        cluster.wait_gone("windows")
    check(recorded)


def check(recorded: Path) -> None:
    found: dict[int, set[int]] = defaultdict(set)  # end of a window in event time -> numbers
    late: set[int] = set()
    by_clock: set[int] = set()
    for line in lines(recorded):
        kind, end, numbers = json.loads(line)
        if kind == "event":
            found[end].update(numbers)
        elif kind == "clock":
            by_clock.update(numbers)
        else:
            late.update(numbers)
    everything = set(range(1, MESSAGES + 1))
    with nothing_lost():
        assert everything <= by_clock
    missing = []
    for number in everything - late:
        at = number * STEP_MS
        first = -(-at // SLIDE_MS) * SLIDE_MS
        ends = range(first, at + LENGTH_MS, SLIDE_MS)
        missing += [(number, end) for end in ends if number not in found[end]]
    with nothing_lost():
        assert missing == []
    wrong = [
        (number, end)
        for end, numbers in found.items()
        for number in numbers
        if number and not end - LENGTH_MS < number * STEP_MS <= end
    ]
    with nothing_lost():
        assert wrong == []
