"""Streams on a real cluster whose workers are killed: every value takes effect, at least once."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import nothing_lost

pytestmark = pytest.mark.integration

COUNT = 3000

TOPOLOGY = '''
import json
import pathlib
import sys
from functools import partial

from squall import Bolt, Spout, StreamBuilder, submit_topology
from squall.windows import tumbling


class Numbers(Spout):
    """Keeps its messages in a file of acks: what is not there is emitted (again)."""

    outputs = ["number"]

    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def open(self, conf, context):
        self.acks = open(pathlib.Path(self.folder, "acks"), "a+")
        self.acks.seek(0)
        done = {int(line) for line in self.acks}
        self.todo = [number for number in range(self.count) if number not in done][::-1]

    def next_tuple(self):
        if self.todo:
            number = self.todo.pop()
            self.emit([number], message_id=number)

    def ack(self, msg_id):
        print(msg_id, file=self.acks, flush=True)

    def fail(self, msg_id):
        self.todo.append(msg_id)


class Write(Bolt):
    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.file = open(pathlib.Path(self.folder, context.this_component_id), "a")

    def execute(self, tup):
        print(json.dumps(list(tup.values)), file=self.file, flush=True)


def scaled(factor, number):
    return number * factor


def of_both_signs(number):
    yield number
    yield -number


def last_digit(number):
    return abs(number) % 10


if __name__ == "__main__":
    folder, count = sys.argv[1], int(sys.argv[2])
    builder = StreamBuilder(parallelism=2)
    numbers = builder.source("numbers", Numbers(folder, count), of=int)
    by_digit = numbers.map(partial(scaled, 3)).flat_map(of_both_signs).key_by(last_digit)
    by_digit.window(tumbling(secs=0.2)).group().to("groups", Write(folder))
    by_digit.update_state_by_key(max, int).to("largest", Write(folder))
    print(builder.plan())
    conf = {"topology.workers": 2, "topology.max.spout.pending": 100}
    submit_topology("numbers", conf, builder.build())
'''


def rows(path: Path) -> list[list[Any]]:
    """The whole lines of a file that is being written; a kill may leave a broken one."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def test_killed_workers_lose_no_value_of_a_stream(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "numbers_of.py").write_text(TOPOLOGY)
    acks = tmp_path / "acks"

    def acked() -> int:
        return len({*acks.read_text().split()}) if acks.exists() else 0

    def reached(progress: float) -> bool:
        return acked() > progress * COUNT

    options = ["supervisor.worker.min.uptime.secs=0"]  # no back-off: it would only take time
    with DevCluster.start(tmp_path / "cluster", slots=2, overrides=options) as cluster:
        submitted = cluster.storm("jar", package, "numbers_of", tmp_path, str(COUNT))
        for progress in (0.1, 0.4):
            wait_for("progress", partial(reached, progress), 120, 0.1)
            for pid in cluster.worker_pids(2):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        wait_for("all acks", lambda: acked() == COUNT, 120, 0.2)
        cluster.storm("kill", "numbers", "-w", "0")
        cluster.wait_gone("numbers")
    assert "map(scaled), flat_map(of_both_signs), key_by(last_digit)" in submitted.stdout
    by_digit: dict[int, set[int]] = {}
    for digit, values, _, _ in rows(tmp_path / "groups"):
        by_digit.setdefault(digit, set()).update(values)
    expected: dict[int, set[int]] = {}
    for number in range(0, 3 * COUNT, 3):
        expected.setdefault(number % 10, set()).update((number, -number))
    with nothing_lost():
        assert by_digit == expected
    largest: dict[int, int] = {}
    for digit, value in rows(tmp_path / "largest"):
        largest[digit] = max(value, largest.get(digit, 0))
    with nothing_lost():
        assert largest == {digit: max(values) for digit, values in expected.items()}
