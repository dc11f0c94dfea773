"""The state of a running topology is read on a real cluster: sizes, keys and values of several
kinds of bolts, also while a worker is stuck in a call."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import DevCluster, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

LIMIT_SECS = 120.0
KEYS, TIMES = 40, 5

TOPOLOGY = """
import pathlib
import sys
import time

from squall import CounterState, ListState, StatefulBolt, TopologyBuilder, submit_topology
from squall.windows import WindowedBolt, tumbling
from squall_connectors.files import LinesSpout


class Count(StatefulBolt):
    def __init__(self, folder):
        self.folder = folder

    def execute(self, tup):
        key = tup["key"]
        self.state.put(key, self.state.get(key, 0) + 1)
        time.sleep(0.001)
        while key == "stuck" and pathlib.Path(self.folder, "hold").exists():
            time.sleep(0.05)
        self.state.put(key, self.state.get(key) + 1)


class Lists(StatefulBolt):
    def prepare(self, conf, context):
        self.seen = ListState(self.state, "seen")
        self.number = CounterState(self.state, "number")

    def execute(self, tup):
        self.seen.append(tup["key"], tup["number"])
        self.number.inc(tup["key"])


class Sums(WindowedBolt):
    windows = tumbling(count=1_000_000)

    def execute_window(self, window):
        pass


if __name__ == "__main__":
    folder = sys.argv[1]
    builder = TopologyBuilder()
    lines = LinesSpout(f"{folder}/*.jsonl", ["key", "number"], format="json")
    builder.spout("lines", lines)
    builder.bolt("count", Count(folder), parallelism=3).fields("lines", "key")
    builder.bolt("lists", Lists()).fields("lines", "key")
    builder.bolt("sums", Sums()).fields("lines", "key")
    conf = {
        "topology.workers": 3,
        "topology.checkpoint.interval.secs": 1,
        "topology.state.url": f"{folder}/checkpoints",
    }
    submit_topology("live", conf, builder.build())
"""


def inspect(cluster: DevCluster, *arguments: str, check: bool = True) -> tuple[Any, str]:
    """What the command prints, as JSON, and what it says."""
    done = cluster.storm("state", "inspect", "live", "--live", "--json", *arguments, check=check)
    return json.loads(done.stdout), done.stderr


def test_the_state_of_a_running_topology_is_read(tmp_path: Path) -> None:
    given = [(f"k{number % KEYS}", number) for number in range(KEYS * TIMES)]
    lines = "".join(f'{{"key":"{key}","number":{number}}}\n' for key, number in given)
    (tmp_path / "0.jsonl").write_text(lines)
    package = tmp_path / "package"
    package.mkdir()
    (package / "live.py").write_text(TOPOLOGY)
    with DevCluster.start(tmp_path / "cluster", supervisors=2, slots=2) as cluster:
        cluster.storm("jar", package, "live.py", tmp_path)

        def stored() -> bool:
            """All of it is in a checkpoint."""
            found, _ = inspect(cluster, "--component", "lists", check=False)
            tasks = [one for one in found if "keys" in one]
            return [(one["keys"], one["unstored"]) for one in tasks] == [(2 * KEYS, 0)]

        wait_for("stored state", stored, LIMIT_SECS, 0.2)

        # Sizes, of all bolts that have any.
        found, _ = inspect(cluster)
        by_name: dict[str, list[dict[str, Any]]] = {}
        for one in found:
            by_name.setdefault(one["component"], []).append(one)
        assert {name: len(tasks) for name, tasks in by_name.items()} == {
            "count": 3,
            "lists": 1,
            "sums": 1,
        }
        assert sum(one["keys"] for one in by_name["count"]) == KEYS
        assert by_name["lists"][0]["bytes"] > 1_000
        assert by_name["lists"][0]["epoch"] > 0
        assert by_name["sums"][0]["windows"]["tuples"] == KEYS * TIMES
        assert len({one["worker"] for one in found}) == 3

        # The value of a key, of its owner, beside the checkpoint's.
        found, _ = inspect(cluster, "--component", "count", "--key", "k7", "--stored")
        assert [(one["key"], one["value"]) for one in found] == [("k7", 2 * TIMES)] * 2
        assert found[0]["as_of"] == "now"
        assert found[0]["stored"]
        assert re.fullmatch(r"checkpoint \d+", found[1]["as_of"])
        (entry,), _ = inspect(cluster, "--key", '["seen", "k7"]')
        assert entry["value"] == [number for key, number in given if key == "k7"]
        table = cluster.storm(
            "state", "inspect", "live", "--live", "--key", '["number", "k7"]'
        ).stdout
        assert re.search(rf"lists +0 +\['number', 'k7'\] +{TIMES} +now and checkpoint \d+", table)
        missing = cluster.storm("state", "inspect", "live", "--live", "--key", "no", check=False)
        assert missing.returncode == 1
        assert "was not found in any task" in missing.stderr

        # Keys in pages, each once.
        listed: list[str] = []
        page = ["--component", "count", "--prefix", "k", "--limit", "15"]
        after: list[str] = []
        while True:
            found, said = inspect(cluster, *page, *after)
            assert len(found) <= 15
            listed += [one["key"] for one in found]
            if "More keys follow" not in said:
                break
            after = ["--after", found[-1]["order"]]
        assert listed == sorted({key for key, _ in given})

        # A task in the middle of a call: its run loop cannot answer, and its worker says so.
        (tmp_path / "hold").touch()
        (tmp_path / "1.jsonl").write_text('{"key":"stuck","number":1}\n')

        def held() -> bool:
            _, said = inspect(cluster, "--component", "count", "--key", "stuck", check=False)
            return "run loop has been in Count.execute of 'count'" in said

        wait_for("an answer about the call", held, LIMIT_SECS, 0.1)
        found, _ = inspect(cluster, "--component", "lists")
        assert found[0]["keys"] >= 2 * KEYS
        (tmp_path / "hold").unlink()

        def even() -> bool:
            found, _ = inspect(cluster, "--component", "count", "--key", "stuck", check=False)
            values = [one["value"] for one in found if "value" in one]
            assert all(value % 2 == 0 for value in values)
            return bool(values)

        wait_for("the value", even, LIMIT_SECS, 0.1)

        cluster.storm("kill", "live", "-w", "0")
        cluster.wait_gone("live")
