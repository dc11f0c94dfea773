"""Messages that keep failing, on a real cluster of two workers that are killed meanwhile: each
ends as an effect or as a dead letter, and its source forgets none before."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import nothing_lost

pytestmark = pytest.mark.integration

MESSAGES = 300

TOPOLOGY = '''
import json
import pathlib
import sys
import time

from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Orders(Spout):
    """Keeps its messages in a file of acks: what is not there is emitted (again)."""

    outputs = ["number"]

    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def open(self, conf, context):
        self.acks = open(pathlib.Path(self.folder, "acks"), "a+")
        self.acks.seek(0)
        done = {int(line) for line in self.acks}
        self.todo = [number for number in range(self.count) if number not in done]

    def next_tuple(self):
        if self.todo:
            number = self.todo.pop()
            self.emit([number], message_id=number)

    def ack(self, msg_id):
        print(msg_id, file=self.acks, flush=True)

    def fail(self, msg_id):
        self.todo.append(msg_id)


class Price(Bolt):
    outputs = []

    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.file = open(pathlib.Path(self.folder, "priced"), "a")

    def execute(self, tup):
        time.sleep(0.02)  # so that the kills come in the middle
        if tup["number"] % 10 == 3:
            raise ValueError(f"no price for {tup['number']}")
        print(tup["number"], file=self.file, flush=True)


class Morgue(Price):
    def execute(self, tup):
        print(json.dumps(tup.as_dict()), file=self.file, flush=True)

    def prepare(self, conf, context):
        self.file = open(pathlib.Path(self.folder, "morgue"), "a")


if __name__ == "__main__":
    folder, count = sys.argv[1], int(sys.argv[2])
    builder = TopologyBuilder()
    builder.spout("orders", Orders(folder, count))
    builder.bolt("price", Price(folder), parallelism=2).shuffle("orders")
    builder.bolt("morgue", Morgue(folder), parallelism=2).shuffle("orders", stream="__dead_letter")
    conf = {
        "topology.workers": 2,
        "topology.max.replays": 2,
        "topology.max.spout.pending": 20,
        "topology.message.timeout.secs": 120,
    }
    submit_topology("shop", conf, builder.build())
'''


def numbers(path: Path) -> set[int]:
    return {int(line) for line in path.read_text().split()} if path.exists() else set()


def letters(path: Path) -> list[dict[str, object]]:
    """A line that a kill cut short is none."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def test_every_message_ends_as_an_effect_or_as_a_dead_letter(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "shop.py").write_text(TOPOLOGY)
    bad = {number for number in range(MESSAGES) if number % 10 == 3}
    options = ["supervisor.worker.min.uptime.secs=0"]
    with DevCluster.start(tmp_path / "cluster", slots=2, overrides=options) as cluster:
        cluster.storm("jar", package, "shop.py", tmp_path, str(MESSAGES))
        for killed in range(3):
            pids = cluster.worker_pids(2)
            wait_for("acks", lambda n=killed: len(numbers(tmp_path / "acks")) > 20 * n)  # type: ignore[misc]
            assert len(numbers(tmp_path / "acks")) < MESSAGES
            os.kill(sorted(pids)[killed % 2], signal.SIGKILL)
        wait_for("all acks", lambda: numbers(tmp_path / "acks") == set(range(MESSAGES)), 90, 0.2)
        found = letters(tmp_path / "morgue")
        with nothing_lost():
            assert {row["message_id"] for row in found} == bad
            assert numbers(tmp_path / "priced") == set(range(MESSAGES)) - bad
        ports = {words[2] for words in cluster.worker_processes().values()}
        for row in found:
            assert row["values"] == [row["message_id"]]
            assert row["reason"] == f"ValueError: no price for {row['message_id']}"
            assert row["component"] == "price"
            assert row["replays"] in (2, 3)
            assert str(row["worker"]).rpartition(":")[2] in ports
        cluster.storm("kill", "shop", "-w", "0")
        cluster.wait_gone("shop")
