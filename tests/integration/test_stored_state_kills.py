"""Stored state on a real cluster whose workers are killed: whatever was acked is in the store, at
every moment, and the topology goes on from it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import nothing_lost

from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateDamagedError
from squall_common.state.keyed import KeyedState
from squall_common.state.task_store import read_chain
from squall_engine.core.codec import ValueCodec

pytestmark = pytest.mark.integration

KILLS = 3
MESSAGES = 20_000

TOPOLOGY = '''
import pathlib
import sys

from squall import Spout, StatefulBolt, TopologyBuilder, submit_topology


class Numbers(Spout):
    """Keeps its messages in a file of acks: what is not there is emitted (again)."""

    outputs = ["number"]

    def __init__(self, folder, count):
        self.folder, self.count = folder, count

    def open(self, conf, context):
        self.acks = open(pathlib.Path(self.folder, "acks"), "a+")
        self.acks.seek(0)
        done = {int(line) for line in self.acks if line.endswith("\\n")}
        self.todo = [number for number in range(self.count) if number not in done]

    def next_tuple(self):
        if self.todo:
            number = self.todo.pop()
            self.emit([number], message_id=number)

    def ack(self, msg_id):
        print(msg_id, file=self.acks, flush=True)

    def fail(self, msg_id):
        self.todo.append(msg_id)


class Seen(StatefulBolt):
    def execute(self, tup):
        number = tup["number"]
        self.state.put(number, self.state.get(number, 0) + 1)


if __name__ == "__main__":
    folder, count = sys.argv[1], int(sys.argv[2])
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers(folder, count))
    builder.bolt("seen", Seen(), parallelism=2).fields("numbers", "number")
    conf = {
        "topology.workers": 2,
        "topology.max.spout.pending": 1000,
        "topology.state.provider": "store",
        "topology.state.url": f"{folder}/state",
        "topology.state.checkpoint.interval.ms": 100,
    }
    submit_topology("ledger", conf, builder.build())
'''


def acked(path: Path) -> set[int]:
    if not path.exists():
        return set()
    return {int(line) for line in path.read_text().splitlines(keepends=True) if line[-1] == "\n"}


def stored(folder: Path) -> dict[Any, Any]:
    """The state that a worker that starts now would find."""
    store, found = CheckpointStore(str(folder)), {}
    for task in store.names("ledger/seen"):
        place = f"ledger/seen/{task}"
        segments = [name for name in store.names(place) if name.endswith(".segment")]
        state = KeyedState(128, ValueCodec())
        if segments:
            state.restore([read_chain(store, place, segments)], range(128), bound=True)
        found.update(dict(state.items()))
    return found


def test_nothing_that_was_acked_is_missing_from_the_state_however_often_workers_are_killed(
    tmp_path: Path,
) -> None:
    package = tmp_path / "ledger"
    package.mkdir()
    (package / "ledger.py").write_text(TOPOLOGY)
    acks, folder = tmp_path / "acks", tmp_path / "state"

    def nothing_is_missing() -> bool:
        """Tried again where a worker has just replaced its files."""
        before = acked(acks)
        try:
            found = stored(folder)
        except StateDamagedError:
            return False
        with nothing_lost():
            assert before <= found.keys(), sorted(before - found.keys())[:10]
        return True

    options = ["supervisor.worker.min.uptime.secs=0"]  # no back-off: it would only take time
    with DevCluster.start(tmp_path / "cluster", slots=2, overrides=options) as cluster:
        cluster.storm("jar", package, "ledger.py", tmp_path, str(MESSAGES))
        for kill in range(KILLS):
            goal = (kill + 1) * 1_000
            wait_for("acks", lambda goal=goal: len(acked(acks)) >= goal, 60, 0.05)
            wait_for("the state", nothing_is_missing, 60)
            pids = sorted(cluster.worker_pids(2))
            for pid in pids if kill % 2 else pids[kill // 2 % 2 :][:1]:
                os.kill(pid, signal.SIGKILL)
            wait_for("the state", nothing_is_missing, 60)
        wait_for("all acks", lambda: len(acked(acks)) == MESSAGES, 120, 0.2)
        tasks = json.loads(cluster.storm("state", "inspect", "ledger", "--json").stdout)
        cluster.storm("kill", "ledger", "-w", "0")
        cluster.wait_gone("ledger")
    assert [one["task"] for one in tasks] == [0, 1]
    assert sum(one["keys"] for one in tasks) == MESSAGES
    assert min(one["generation"] for one in tasks) > 1, "each worker was replaced"
    found = stored(folder)
    with nothing_lost():
        assert found.keys() == set(range(MESSAGES))
    assert min(found.values()) == 1
    twice = sum(count > 1 for count in found.values())
    assert twice < KILLS * 4_000, "only what was in flight takes effect again"
