"""Savepoints on a real, secured cluster, whose ZooKeeper is closed: a topology is stopped with one
and goes on from it with other components and another number of tasks; an external ledger has each
message once."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from pathlib import Path

import pytest
from tests.integration.test_exactly_once_kills import TOPOLOGY, end, rows, wait_for_rows
from tests.support.devcluster import DevCluster
from tests.support.ledger import nothing_lost

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

MESSAGES, KEYS = 6_000, 300
LIMIT_SECS = 120.0
ECHO = """
class Echo(Bolt):
    def execute(self, tup): ...


if __name__"""


def changeable() -> str:
    """The topology; its arguments are the id of its counting bolt, the number of its tasks, and
    whether there is another bolt."""
    text = TOPOLOGY.replace("import StatefulBolt", "import Bolt, StatefulBolt")
    text = text.replace("\nif __name__", ECHO, 1)
    text = text.replace(
        'bolt("count", Count(), parallelism=3)',
        "bolt(sys.argv[2], Count(), parallelism=int(sys.argv[3]))",
    )
    text = text.replace('shuffle("count")', "shuffle(sys.argv[2])")
    more = '    if sys.argv[4:]:\n        builder.bolt("echo", Echo()).shuffle(sys.argv[2])\n'
    return text.replace("    conf = {", more + "    conf = {")


def test_a_changed_topology_goes_on_from_a_savepoint(tmp_path: Path) -> None:
    chance = random.Random(11)
    keys = [f"k{chance.randrange(KEYS)}" for _ in range(MESSAGES)]

    def append(part: int) -> None:
        """Write a third of the messages."""
        for file in range(3):
            numbers = range(part * MESSAGES // 3 + file, (part + 1) * MESSAGES // 3, 3)
            with (tmp_path / f"{file}.jsonl").open("a") as lines:
                lines.writelines(f'{{"key":"{keys[i]}","number":{i}}}\n' for i in numbers)

    append(0)
    package, ledger = tmp_path / "package", tmp_path / "ledger.db"
    package.mkdir()
    (package / "ledger.py").write_text(changeable())
    folder = f"{tmp_path}/checkpoints/ledger/savepoints"
    options = ["supervisor.worker.min.uptime.secs=0"]
    with DevCluster.start(
        tmp_path / "cluster", supervisors=2, slots=2, overrides=options, secure=True
    ) as cluster:
        cluster.storm("jar", package, "ledger.py", tmp_path, "count", "2")
        wait_for_rows(ledger, MESSAGES // 5)
        cluster.storm("savepoint", "ledger", "--name", "first")
        status = json.loads(cluster.storm("status", "ledger", "--json").stdout)
        assert status["checkpoints"]["epoch"] > 0
        end(min(cluster.worker_pids(3, LIMIT_SECS)))
        wait_for_rows(ledger, MESSAGES // 3)
        append(1)
        taken = cluster.storm("savepoint", "ledger", "--name", "second", "--stop", "--json")
        assert json.loads(taken.stdout)["place"] == f"{folder}/second"
        cluster.wait_gone("ledger", LIMIT_SECS)
        append(2)

        def refused(*arguments: str) -> str:
            found = cluster.storm("jar", *arguments, check=False)
            assert found.returncode == 1
            return found.stderr

        run = (str(package), "ledger.py", str(tmp_path))
        assert "there is no savepoint in" in refused(
            "--from-savepoint", "third", *run, "count", "2"
        )
        renamed = refused("--from-savepoint", "second", *run, "counted", "2")
        assert "'count' has state and is not in the topology any more" in renamed
        assert cluster.names() == set()

        cluster.storm("jar", "--from-savepoint", "second", *run, "count", "5", "echo")
        wait_for_rows(ledger, MESSAGES)
        listed = json.loads(cluster.storm("savepoint", "ledger", "--list", "--json").stdout)
        assert [one["name"] for one in listed] == ["first", "second"]
        cluster.storm("savepoint", "ledger", "--remove", "first", "--to", folder)
        assert sorted(os.listdir(folder)) == ["second"]
        cluster.storm("kill", "ledger", "-w", "0")
        cluster.wait_gone("ledger")
    written = rows(ledger)
    totals = Counter(keys)
    expected = Counter((key, at) for key in totals for at in range(1, totals[key] + 1))
    with nothing_lost():
        assert Counter(number for _, _, number in written) == Counter(range(MESSAGES))
        assert Counter((key, count) for key, count, _ in written) == expected
