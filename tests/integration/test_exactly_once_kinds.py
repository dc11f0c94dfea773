"""Every kind of bolt and a program of streams with checkpoints, on a real cluster whose workers are
killed: batches, columns, coroutines and windows have each message once, and dead letters, too."""

from __future__ import annotations

import random
import sqlite3
import time
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_exactly_once_kills import end
from tests.support.devcluster import DevCluster, wait_for
from tests.support.effort import SOAK
from tests.support.ledger import nothing_lost

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3000 if SOAK else 600)]

MESSAGES = 100_000 if SOAK else 3_000
KEYS = 50
KILLS = 20 if SOAK else 2
WINDOW_MS = 1_000
POISON = 1_777  # a number whose tuple fails whenever it is tried
LIMIT_SECS = 600.0 if SOAK else 120.0
END_MS = 10**9 + 5

TOPOLOGY = """
import asyncio
import sys
import time
from operator import attrgetter
from typing import NamedTuple

from squall import Bolt, StatefulBolt, StreamBuilder, submit_topology
from squall.windows import tumbling
from squall_connectors.files import LinesSpout
from squall_connectors.sqlite import TransactionalSqliteSink

POISON = 1777
FIELDS = ["kind", "key", "value", "at"]
CREATE = "CREATE TABLE IF NOT EXISTS rows (kind TEXT, key TEXT, value INT, at INT)"


class Event(NamedTuple):
    key: str
    number: int
    at: int


class Batches(StatefulBolt):
    outputs = FIELDS

    def execute_batch(self, tuples):
        time.sleep(0.002)  # so that it is killed in the middle
        for tup in tuples:
            count = self.state.get(tup["key"], 0) + 1
            self.state.put(tup["key"], count)
            self.emit(["batch", tup["key"], count, tup["number"]], anchors=tup)
            if tup["number"] == POISON:
                raise ValueError("poison")


class Columns(StatefulBolt):
    outputs = FIELDS

    def execute_columns(self, columns):
        time.sleep(0.002)
        counts = []
        for key in columns["key"]:
            counts.append(self.state.get(key, 0) + 1)
            self.state.put(key, counts[-1])
        kinds = ["columns"] * columns.rows
        self.emit_columns([kinds, columns["key"], counts, columns["number"]])
        if POISON in columns["number"]:
            raise ValueError("poison")


class Coroutines(StatefulBolt):
    outputs = FIELDS

    async def execute(self, tup):
        count = self.state.get(tup["key"], 0) + 1
        await asyncio.sleep(0.002)
        self.state.put(tup["key"], count)
        self.emit(["async", tup["key"], count, tup["number"]])
        if tup["number"] == POISON:
            raise ValueError("poison")


class Morgue(Bolt):
    outputs = FIELDS

    def execute(self, tup):
        assert tup["reason"] == "ValueError: poison", tup
        key, number, at = tup["values"]
        self.emit(["letter of " + tup["component"], key, number, at])


def is_event(event):
    return event.number >= 0


def windowed(found):
    return ["window", found.key, found.value, found.start_ms]


def grouped(found):
    return ["group", found.key, sum(event.number for event in found.value), found.start_ms]


def counted(found):
    return ["stream", found[0], found[1], 0]


if __name__ == "__main__":
    folder = sys.argv[1]
    builder = StreamBuilder()
    lines = LinesSpout(f"{folder}/*.jsonl", ["key", "number", "at"], format="json")
    events = builder.source("lines", lines, of=Event).event_time(attrgetter("at"), lag_secs=1)
    real = events.filter(is_event)
    real.key_by(attrgetter("key")).count().map(counted).output("streams", fields=FIELDS)
    windows = events.key_by(attrgetter("key")).window(tumbling(secs=1))
    windows.count().named("windows").map(windowed).output("windowed", fields=FIELDS)
    windows.group().named("groups").map(grouped).output("grouped", fields=FIELDS)
    real.output("events", fields=["key", "number", "at"])

    topology = builder.to_topology_builder()
    kinds = {"batches": Batches(), "columns": Columns(), "coroutines": Coroutines()}
    sink = TransactionalSqliteSink(f"{folder}/ledger.db", "rows", FIELDS, create=CREATE)
    write = topology.bolt("write", sink, parallelism=2)
    for name, bolt in kinds.items():
        topology.bolt(name, bolt, parallelism=2).fields("events", "key")
        write.shuffle(name)
    for name in ("streams", "windowed", "grouped"):
        write.shuffle(name)
    morgue = topology.bolt("morgue", Morgue(), parallelism=1)
    for name in kinds:
        morgue.shuffle(name, stream="__dead_letter")
    write.shuffle("morgue")
    conf = {
        "topology.workers": 3,
        "topology.max.spout.pending": 300,
        "topology.checkpoint.interval.secs": 0.2,
        "topology.state.url": f"{folder}/checkpoints",
    }
    submit_topology("kinds", conf, topology.build())
"""


def rows(path: Path) -> list[tuple[str, str, int, int]]:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)) as database:
            return database.execute("SELECT kind, key, value, at FROM rows").fetchall()
    except sqlite3.OperationalError:  # no sink has come so far
        return []


def events(chance: random.Random) -> list[tuple[str, int, int]]:
    """Key, number, and a time that is at no edge of a window."""
    return [(f"k{chance.randrange(KEYS)}", i, 1_000_000 + i * 10 + 5) for i in range(MESSAGES)]


def expected(given: list[tuple[str, int, int]]) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    for kind, poison in (("batch", True), ("columns", True), ("async", True), ("stream", False)):
        counts: Counter[str] = Counter()
        for key, number, _ in given:
            if poison and number == POISON:
                continue
            counts[key] += 1
            found[kind, key, counts[key]] += 1
    windows: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, number, at in given:
        windows[key, at // WINDOW_MS * WINDOW_MS].append(number)
    for (key, start), numbers in windows.items():
        found["window", key, len(numbers), start] += 1
        found["group", key, sum(numbers), start] += 1
    key, number, _ = given[POISON]
    for component in ("batches", "columns", "coroutines"):
        found[f"letter of {component}", key, number] += 1
    return found


def compared(row: tuple[str, str, int, int]) -> tuple[Any, ...]:
    kind, key, value, at = row
    return (kind, key, value, at) if kind in ("window", "group") else (kind, key, value)


def test_kills_lose_and_double_nothing_in_any_kind_of_bolt(tmp_path: Path) -> None:
    chance = random.Random(11)
    given = events(chance)
    last = "".join(f'{{"key":"end{i}","number":-1,"at":{END_MS}}}\n' for i in range(64))
    lines = "".join(f'{{"key":"{key}","number":{i},"at":{at}}}\n' for key, i, at in given)
    (tmp_path / "all.jsonl").write_text(lines + last)
    package, ledger = tmp_path / "package", tmp_path / "ledger.db"
    package.mkdir()
    (package / "kinds.py").write_text(TOPOLOGY)
    wanted = expected(given)
    options = ["supervisor.worker.min.uptime.secs=0"]  # no back-off: it would only take time
    with DevCluster.start(
        tmp_path / "cluster", supervisors=2, slots=2, overrides=options
    ) as cluster:
        cluster.storm("jar", package, "kinds.py", tmp_path)
        for number in range(KILLS):
            goal = wanted.total() * (number + 1) // (KILLS + 3)
            wait_for("rows", lambda goal=goal: len(rows(ledger)) >= goal, LIMIT_SECS, 0.1)
            time.sleep(chance.uniform(0.0, 0.3))
            pids = sorted(cluster.worker_pids())
            for pid in chance.sample(pids, min(len(pids), chance.randint(1, 2))):
                end(pid)
        wait_for("all rows", lambda: len(rows(ledger)) >= wanted.total(), LIMIT_SECS, 0.1)
        cluster.storm("kill", "kinds", "-w", "0")
        cluster.wait_gone("kinds")
    with nothing_lost():
        assert Counter(map(compared, rows(ledger))) == wanted
