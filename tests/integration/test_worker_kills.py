"""Messages that kill their worker, on a real cluster of two workers: they alone end as dead
letters, each after three deaths, and every other message takes effect."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import nothing_lost

from squall_common.component.groupings import stable_hash

pytestmark = pytest.mark.integration

MESSAGES = 1000

TOPOLOGY = '''
import ctypes
import json
import os
import pathlib
import sys

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

    def __init__(self, folder, how):
        self.folder, self.how = folder, how

    def prepare(self, conf, context):
        self.file = open(pathlib.Path(self.folder, "priced"), "a")
        self.deaths = open(pathlib.Path(self.folder, "deaths"), "a")

    def execute(self, tup):
        number = tup["number"]
        how = self.how.get(str(number))
        if how is not None:
            print(number, file=self.deaths, flush=True)
            print(f"about to die of {number}", file=sys.stderr, flush=True)
            if how == "exit":
                os._exit(0)
            ctypes.string_at(0)
        print(number, file=self.file, flush=True)


class Morgue(Bolt):
    outputs = []

    def __init__(self, folder):
        self.folder = folder

    def prepare(self, conf, context):
        self.file = open(pathlib.Path(self.folder, "morgue"), "a")

    def execute(self, tup):
        print(json.dumps(tup.as_dict()), file=self.file, flush=True)


if __name__ == "__main__":
    folder, count, how = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
    builder = TopologyBuilder()
    builder.spout("orders", Orders(folder, count))
    builder.bolt("price", Price(folder, how), parallelism=2).fields("orders", "number")
    builder.bolt("morgue", Morgue(folder)).shuffle("orders", stream="__dead_letter")
    conf = {"topology.workers": 2, "topology.message.timeout.secs": 300}
    submit_topology("shop", conf, builder.build())
'''


def of_task(index: int) -> Iterator[int]:
    """Messages that the fields grouping gives to one of the two tasks."""
    return (number for number in range(MESSAGES) if stable_hash(number) % 2 == index)


def numbers(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def letters(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_messages_that_kill_their_worker_alone_become_dead_letters(tmp_path: Path) -> None:
    """Two of each worker at a time, the spout's worker among them."""
    bad = {}
    for task in (0, 1):
        bad.update(zip(islice(of_task(task), 100, 300, 100), ("SIGSEGV", "exit"), strict=True))
    package = tmp_path / "shop"
    package.mkdir()
    (package / "shop.py").write_text(TOPOLOGY)
    acks, morgue = tmp_path / "acks", tmp_path / "morgue"
    options = ["supervisor.worker.min.uptime.secs=0"]  # no back-off: it would only take time
    with DevCluster.start(tmp_path / "cluster", slots=2, overrides=options) as cluster:
        cluster.storm("jar", package, "shop.py", tmp_path, str(MESSAGES), json.dumps(bad))
        wait_for("all acks", lambda: set(numbers(acks)) == set(range(MESSAGES)), 120, 0.2)
        (listed,) = json.loads(cluster.storm("list", "--json").stdout)
        errors = json.loads(cluster.storm("get-errors", "shop", "--json").stdout)["Comp-Errors"]
        cluster.storm("kill", "shop", "-w", "0")
        cluster.wait_gone("shop")
    found = letters(morgue)
    with nothing_lost():
        assert {row["message_id"] for row in found} == set(bad)
        assert set(numbers(tmp_path / "priced")) == set(range(MESSAGES)) - set(bad)
    deaths = Counter(numbers(tmp_path / "deaths"))
    assert set(deaths) == set(bad)
    assert max(deaths.values()) <= 5  # three, and ends of two workers at once
    for row in found:
        assert row["values"] == [row["message_id"]]
        assert (row["component"], row["stream"]) == ("price", "default")
        assert "unexpected worker exits" in str(row["reason"])
    assert "ended unexpectedly: " in errors["__system"]
    assert "about to die of" in errors["__system"]
    ended = listed["last_exit"]
    crash = "Fatal Python error: Segmentation fault: File "
    said = {"killed by SIGSEGV": crash, "exited with status 0": "about to die of "}
    assert ended["last_line"].startswith(said[ended["reason"]]), ended
    assert "is a dead letter: in hand at 3 unexpected worker exits" in errors["orders"]
