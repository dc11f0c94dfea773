"""How large the state of tasks is said to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall import (
    AggregateBolt,
    Bolt,
    LocalCluster,
    Spout,
    StatefulBolt,
    TopologyBuilder,
    WindowedBolt,
)
from squall.testing import ReplayableSpout
from squall.windows import session, sliding, tumbling
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.inspect import last_checkpoint

WORDS = ["the", "cow", "jumped", "over", "the", "moon"]
KEYS = len(set(WORDS))


class Words(ReplayableSpout):
    outputs = ["word"]


class Once(Spout):
    outputs = ["word"]

    def open(self, conf: Any, context: Any) -> None:
        self.left = WORDS[:]

    def next_tuple(self) -> None:
        if self.left:
            self.emit([self.left.pop()])


class Count(StatefulBolt):
    def execute(self, tup: Any) -> None:
        self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)


class CountOnThread(Count):
    blocking = True


class CountAsync(StatefulBolt):
    async def execute(self, tup: Any) -> None:
        self.state.put(tup["word"], self.state.get(tup["word"], 0) + 1)


class Total(AggregateBolt):
    def init(self) -> int:
        return 0

    def add(self, total: int, tup: Any) -> int:
        return total + 1

    def merge(self, first: int, second: int) -> int:
        return first + second

    def result(self, total: int, window: Any) -> None:
        raise AssertionError("its window does not end")


class Together(WindowedBolt):
    def execute_window(self, window: Any) -> None:
        raise AssertionError("its window does not end")


class Plain(Bolt):
    """With an attribute that only looks like state."""

    state = {"a": 1}

    def execute(self, tup: Any) -> None:
        pass


HOUR = tumbling(secs=3600, key="word")
BOLTS: dict[str, tuple[Bolt, Any, int]] = {  # its windows, and its keys
    "state": (Count(), None, KEYS),
    "on a thread": (CountOnThread(), None, KEYS),
    "async": (CountAsync(), None, KEYS),
    "totals": (Total(), HOUR, KEYS),
    "counted totals": (Total(), sliding(count=100, every_count=10, key="word"), KEYS),
    "sessions": (Together(), session(gap_secs=3600, key="word"), KEYS),
    "windows by count": (Together(), tumbling(count=100, key="word"), KEYS),
    "one queue": (Together(), HOUR, len(WORDS)),  # its tuples
}


def topology(bolt: Bolt, windows: Any = None, tasks: int = 2, spout: Spout | None = None) -> Any:
    builder = TopologyBuilder()
    builder.spout("words", spout or Words([[word] for word in WORDS]))
    declarer = builder.bolt("bolt", bolt, parallelism=tasks)
    if windows is not None:
        declarer.windowed(windows)
    declarer.fields("words", "word")
    return builder.build()


def sizes(cluster: LocalCluster) -> tuple[int | None, int | None]:
    """Keys and bytes of all executors, as heartbeats report them; only the bolt has any."""
    found = cluster.stats("sizes").values()
    keys = [one.state_keys for one in found if one.state_keys is not None]
    stored = [one.state_bytes for one in found if one.state_bytes is not None]
    return sum(keys) if keys else None, sum(stored) if stored else None


def executed(cluster: LocalCluster) -> int:
    return cluster.totals("sizes")["bolt"]["executed"]


@pytest.mark.parametrize("name", BOLTS)
def test_what_is_only_in_memory_has_keys_and_no_bytes(name: str) -> None:
    bolt, windows, keys = BOLTS[name]
    with LocalCluster() as cluster:
        cluster.submit_topology("sizes", {}, topology(bolt, windows, spout=Once()))
        cluster.wait_until(lambda: sizes(cluster)[0] == keys, 30.0)
        assert sizes(cluster) == (keys, None)


@pytest.mark.parametrize("name", BOLTS)
def test_with_checkpoints_the_bytes_are_those_of_the_last_one(name: str, tmp_path: Path) -> None:
    bolt, windows, keys = BOLTS[name]
    conf = {"topology.checkpoint.interval.secs": 0.05, "topology.state.url": str(tmp_path)}
    store = CheckpointStore(str(tmp_path))

    def agree() -> bool:
        """What is said, and what the checkpoint's files have."""
        manifest = last_checkpoint(store, "sizes")
        return manifest is not None and sizes(cluster) == (keys, manifest.size) != (keys, 0)

    with LocalCluster() as cluster:
        cluster.submit_topology("sizes", conf, topology(bolt, windows))
        cluster.wait_until(agree, 30.0)
    with LocalCluster() as cluster:
        cluster.submit_topology("sizes", conf, topology(bolt, windows))
        assert sizes(cluster)[0] == keys  # of a state that was restored, at once
        cluster.wait_until(agree, 30.0)


def test_after_another_number_of_tasks_the_bytes_are_not_known_at_first(tmp_path: Path) -> None:
    conf = {"topology.checkpoint.interval.secs": 0.05, "topology.state.url": str(tmp_path)}
    with LocalCluster() as cluster:
        cluster.submit_topology("sizes", conf, topology(Count()))
        cluster.wait_until(lambda: bool(sizes(cluster)[1]), 30.0)
        cluster.kill_topology("sizes")
    hourly = {**conf, "topology.checkpoint.interval.secs": 3600}
    with LocalCluster() as cluster:
        cluster.submit_topology("sizes", hourly, topology(Count(), tasks=3))
        assert sizes(cluster) == (KEYS, None)


def test_a_component_without_state_has_no_size() -> None:
    with LocalCluster() as cluster:
        cluster.submit_topology("sizes", {}, topology(Plain(), spout=Once()))
        cluster.wait_until(lambda: executed(cluster) == len(WORDS), 30.0)
        assert sizes(cluster) == (None, None)
