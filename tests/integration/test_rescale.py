"""`storm rebalance -e` of a topology with checkpoints gives bolts another number of tasks: their
state, windows by key and the positions move, and an external ledger has each message once, and each
window, whatever is killed."""

from __future__ import annotations

import json
import random
import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.test_exactly_once_kills import TOPOLOGY, end, rows, wait_for_rows
from tests.support.devcluster import DevCluster, wait_for
from tests.support.effort import SOAK
from tests.support.ledger import nothing_lost

from squall_thrift import storm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800 if SOAK else 600)]

MESSAGES, KEYS = (60_000, 5_000) if SOAK else (6_000, 300)
STEPS = (5, 2) * (5 if SOAK else 1)
LIMIT_SECS = 120.0
WINDOW = 5  # tuples of a key

# The same with windows of each key, which hold tuples nearly all the time.
WINDOWS = TOPOLOGY.replace(
    'if __name__ == "__main__":',
    """
class Fives(WindowedBolt):
    outputs = ["key", "numbers"]

    def execute_window(self, window):
        self.emit([window.key, json.dumps([tup["number"] for tup in window])])


if __name__ == "__main__":""",
).replace(
    "    conf = {",  # (whose state is on disk here: it is in memory in the other tests)
    f"""    fives = builder.bolt("fives", Fives(), parallelism=2)
    fives.windowed(tumbling(count={WINDOW}, key="key")).fields("lines", "key")
    create = "CREATE TABLE IF NOT EXISTS fives (key TEXT, numbers TEXT)"
    sink = TransactionalSqliteSink(
        f"{{folder}}/fives.db", "fives", ["key", "numbers"], create=create
    )
    builder.bolt("keep", sink).shuffle("fives")
    conf = {{
        "topology.state.backend": "disk",
        "topology.state.backend.write.entries": 20,""",
)
WINDOWS = f"""
import json

from squall import WindowedBolt
from squall.windows import tumbling
{WINDOWS}"""


def windows(path: Path) -> list[tuple[str, list[int]]]:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as database:
            found = database.execute("SELECT key, numbers FROM fives").fetchall()
    except sqlite3.OperationalError:  # no sink has come so far
        return []
    return [(key, json.loads(numbers)) for key, numbers in found]


def tasks_of(cluster: DevCluster, component: str) -> int:
    """The number of its tasks that have a slot."""
    info = cluster.call("getTopologyInfoByName", "ledger")
    found = [one.executor_info for one in info.executors if one.component_id == component]
    return sum(one.task_end - one.task_start + 1 for one in found)


def test_a_rebalance_moves_state_to_more_and_to_fewer_tasks(tmp_path: Path) -> None:
    chance = random.Random(7)
    keys = [f"k{chance.randrange(KEYS)}" for _ in range(MESSAGES)]
    for file in range(3):
        lines = [f'{{"key":"{keys[i]}","number":{i}}}\n' for i in range(file, MESSAGES, 3)]
        (tmp_path / f"{file}.jsonl").write_text("".join(lines))
    package, ledger = tmp_path / "package", tmp_path / "ledger.db"
    package.mkdir()
    (package / "ledger.py").write_text(WINDOWS)
    options = ["supervisor.worker.min.uptime.secs=0"]
    with DevCluster.start(
        tmp_path / "cluster", supervisors=2, slots=2, overrides=options
    ) as cluster:
        cluster.storm("jar", package, "ledger.py", tmp_path)
        for number, tasks in enumerate(STEPS):
            goal = MESSAGES * (number + 1) // (len(STEPS) + 2)
            wait_for_rows(ledger, goal)
            sizes = ("-e", f"count={tasks}", "-e", f"fives={tasks}")
            cluster.storm("rebalance", "ledger", *sizes)
            for component in ("count", "fives"):
                wait_for(
                    "tasks",
                    lambda tasks=tasks, of=component: tasks_of(cluster, of) == tasks,
                    LIMIT_SECS,
                )
            pids = sorted(cluster.worker_pids())
            for pid in chance.sample(pids, min(1, len(pids))):
                end(pid)
        options = storm.RebalanceOptions(num_executors={"count": 129})
        with pytest.raises(storm.InvalidTopologyException, match="at most 128 tasks"):
            cluster.call("rebalance", "ledger", options)
        wait_for_rows(ledger, MESSAGES)
        fives = tmp_path / "fives.db"
        count = sum(total // WINDOW for total in Counter(keys).values())
        wait_for("all windows", lambda: len(windows(fives)) >= count, LIMIT_SECS, 0.1)
        cluster.storm("kill", "ledger", "-w", "0")
        cluster.wait_gone("ledger")
    written = rows(ledger)
    totals = Counter(keys)
    expected = Counter((key, at) for key in totals for at in range(1, totals[key] + 1))
    with nothing_lost():
        assert Counter(number for _, _, number in written) == Counter(range(MESSAGES))
        assert Counter((key, count) for key, count, _ in written) == expected
        in_windows: dict[str, list[int]] = defaultdict(list)
        for key, numbers in windows(fives):
            assert len(numbers) == WINDOW
            in_windows[key] += numbers
        for key, total in Counter(keys).items():
            found = in_windows[key]
            assert len(found) == len(set(found)) == total // WINDOW * WINDOW
            assert all(keys[number] == key for number in found)
