"""Event time on a real cluster of two workers: the partitions of a source are hours apart, steps
have several tasks, and a worker is killed. With checkpoints no value is late, and every window has
what it should."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import DevCluster, wait_for

pytestmark = pytest.mark.integration

HOUR, MINUTE = 3_600_000, 60_000
SPLITS, COUNT, STEP = 4, 2000, 1800  # an hour of values in each

TOPOLOGY = '''
import asyncio
import json
import pathlib
import sys
import time
from operator import itemgetter

from squall import Bolt, RewindableSpout, StreamBuilder, submit_topology
from squall.windows import tumbling

SPLITS, COUNT, STEP = 4, 2000, 1800


class Apart(RewindableSpout):
    """Each split is an hour behind the next one."""

    outputs = ["split", "user", "at"]

    def seek(self, positions):
        self.at = {one: positions.get(one, 0) for one in range(SPLITS) if self.owns(one)}
        self.due = 0.0

    def next_tuple(self):
        now = time.monotonic()
        if now < self.due:
            return
        self.due = now + 0.02
        for split, first in self.at.items():
            for number in range(first, min(first + 4, COUNT)):
                self.at[split] = number + 1
                at = split * 3_600_000 + number * STEP
                self.emit([split, number % 7, at], position=(split, number + 1))

    def exhausted(self):
        return all(number >= COUNT for number in self.at.values())


def is_slow(row):
    if row["at"] % 97 == 0:
        time.sleep(0.005)
    return True


async def waited(row):
    await asyncio.sleep(row["at"] % 19 / 1000)
    return row


class Write(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        name = f"{context.this_component_id}-{context.this_task_id}"
        self.file = open(pathlib.Path(self.folder, name), "a")

    def execute(self, tup):
        print(json.dumps(list(tup.values)), file=self.file, flush=True)


if __name__ == "__main__":
    folder, state = sys.argv[1:]
    builder = StreamBuilder(parallelism=2)
    rows = builder.source("apart", Apart(), parallelism=2)
    rows = rows.event_time(itemgetter("at"), parts=itemgetter("split"))
    rows = rows.filter(is_slow).named("slow", parallelism=3).map_async(waited)
    counts = rows.key_by(itemgetter("user")).window(tumbling(secs=60)).count()
    counts.to("minutes", Write(folder))
    counts.late().to("late", Write(folder))
    again = counts.window(tumbling(secs=600)).count()
    again.to("tens", Write(folder))
    again.late().to("late_again", Write(folder))
    conf = {
        "topology.workers": 2,
        "topology.checkpoint.interval.secs": 0.5,
        "topology.state.url": state,
    }
    submit_topology("apart", conf, builder.build())
'''


def rows(folder: Path, component: str) -> list[Any]:
    """What the tasks of a sink have written. A kill may leave a broken line."""
    found = []
    for path in folder.glob(f"{component}-*"):
        for line in path.read_text().splitlines():
            with suppress(ValueError):
                found.append(tuple(json.loads(line)))
    return found


def windows_of(times: Counter[tuple[Any, int]], length_ms: int) -> Counter[tuple[Any, int]]:
    """How many values each key has in the windows that end at these times."""
    found: Counter[tuple[Any, int]] = Counter()
    for (key, at), count in times.items():
        found[key, -(-at // length_ms) * length_ms] += count
    return found


def test_a_killed_worker_makes_no_value_late(tmp_path: Path) -> None:
    package, out = tmp_path / "package", tmp_path / "out"
    for folder in (package, out, tmp_path / "state"):
        folder.mkdir()
    (package / "apart.py").write_text(TOPOLOGY)
    options = ["supervisor.worker.min.uptime.secs=0"]  # no back-off: it would only take time
    with DevCluster.start(tmp_path / "cluster", slots=2, overrides=options) as cluster:
        cluster.storm("jar", package, "apart", out, tmp_path / "state")
        wait_for("results", lambda: len(rows(out, "minutes")) > 200, 120, 0.1)
        os.kill(min(cluster.worker_pids(2)), signal.SIGKILL)
        cluster.storm("wait", "apart", "--timeout", "120")
        cluster.storm("kill", "apart", "-w", "0")
        cluster.wait_gone("apart")
    assert rows(out, "late") == rows(out, "late_again") == []
    values: Counter[tuple[Any, int]] = Counter(
        (number % 7, split * HOUR + number * STEP)
        for split in range(SPLITS)
        for number in range(COUNT)
    )
    # A result may be written twice, and is the same then.
    minutes = windows_of(values, MINUTE)
    ended = {one: count for one, count in minutes.items() if one[1] < SPLITS * HOUR}
    assert {(key, count, end) for key, count, _, end in rows(out, "minutes")} == {
        (key, count, end) for (key, end), count in ended.items()
    }
    tens = windows_of(Counter((None, end) for _, end in minutes), 10 * MINUTE)
    assert {(count, end) for _, count, _, end in rows(out, "tens")} == {
        (count, end) for (_, end), count in tens.items() if end < SPLITS * HOUR
    }
