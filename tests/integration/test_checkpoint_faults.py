"""Faults around a topology with checkpoints on a real cluster: the store or ZooKeeper is away, the
disk is full, a worker is stopped and goes on, and the leader is killed in a rollback. The topology
goes on by itself, and an external ledger has each message once. A worker that alone cannot write is
named, and so is a task whose state cannot be restored.

Each commit has two of them; `make soak` has all, for longer."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_exactly_once_kills import TOPOLOGY, end, rows, wait_for_rows
from tests.support.devcluster import DevCluster, wait_for
from tests.support.effort import SOAK
from tests.support.ledger import nothing_lost

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800 if SOAK else 600)]

FAULTS = ("store away", "stopped worker", "ZooKeeper away", "full disk", "leader in a rollback")
if not SOAK:
    FAULTS = FAULTS[:2]
PART, KEYS = (6_000 if SOAK else 2_000), 300  # messages for each fault
AWAY_SECS = 30.0 if SOAK else 4.0
STOPPED_SECS = 12.0 if SOAK else 4.0
LIMIT_SECS = 180.0


@contextlib.contextmanager
def store_elsewhere(link: Path, target: str) -> Iterator[None]:
    """Let the folder of checkpoints, a link, lead elsewhere."""
    before = os.readlink(link)

    def point(to: str) -> None:
        new = link.with_name("new link")
        new.symlink_to(to)
        os.replace(new, link)

    point(target)
    try:
        yield
    finally:
        point(before)


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[bool]:
    """Fill the file system that the folder is. False where none can be mounted."""
    filler = folder / "filler"
    try:
        with filler.open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(65_536))
                file.flush()
        yield True
    finally:
        filler.unlink(missing_ok=True)


def small_disk(folder: Path) -> bool:
    """Mount a file system of a few MiB; whether that was possible."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


class Faulty:
    """A cluster, and what can go wrong there."""

    def __init__(self, cluster: DevCluster, link: Path, disk: Path | None) -> None:
        self._cluster = cluster
        self._link = link
        self._disk = disk

    def happen(self, fault: str) -> None:
        """Let it happen, and end."""
        happen: dict[str, Callable[[], None]] = {
            "store away": self._store_away,
            "stopped worker": self._stopped_worker,
            "ZooKeeper away": self._zookeeper_away,
            "full disk": self._full_disk,
            "leader in a rollback": self._leader_in_a_rollback,
        }
        happen[fault]()

    def _store_away(self) -> None:
        with store_elsewhere(self._link, "/dev/null/nothing"):
            time.sleep(AWAY_SECS)

    def _stopped_worker(self) -> None:
        with stopped(min(self._cluster.worker_pids(3, LIMIT_SECS))):
            time.sleep(STOPPED_SECS)

    def _zookeeper_away(self) -> None:
        with stopped(self._cluster.state()["zookeeper"]["pid"]):
            time.sleep(AWAY_SECS)

    def _full_disk(self) -> None:
        if self._disk is not None:
            with full_disk(self._disk):
                time.sleep(AWAY_SECS)

    def _leader_in_a_rollback(self) -> None:
        end(min(self._cluster.worker_pids(3, LIMIT_SECS)))
        time.sleep(0.7)
        end(self._cluster.state()["nimbus"]["pid"])


def test_faults_lose_and_double_nothing(tmp_path: Path) -> None:
    chance = random.Random(3)
    messages = PART * (len(FAULTS) + 1)
    keys = [f"k{chance.randrange(KEYS)}" for _ in range(messages)]

    def append(part: int) -> None:
        for file in range(3):
            numbers = range(part * PART + file, (part + 1) * PART, 3)
            with (tmp_path / f"{file}.jsonl").open("a") as lines:
                lines.writelines(f'{{"key":"{keys[i]}","number":{i}}}\n' for i in numbers)

    package, ledger = tmp_path / "package", tmp_path / "ledger.db"
    package.mkdir()
    (package / "ledger.py").write_text(TOPOLOGY)
    link, disk = tmp_path / "checkpoints", tmp_path / "disk"
    mounted = "full disk" in FAULTS and small_disk(disk)
    disk.mkdir(exist_ok=True)
    link.symlink_to(disk)
    options = ["supervisor.worker.min.uptime.secs=0"]
    append(0)
    try:
        with DevCluster.start(
            tmp_path / "cluster", supervisors=2, slots=2, overrides=options
        ) as cluster:
            cluster.storm("jar", package, "ledger.py", tmp_path)
            wait_for_rows(ledger, PART)
            faulty = Faulty(cluster, link, disk if mounted else None)
            for number, fault in enumerate(FAULTS, start=1):
                append(number)
                faulty.happen(fault)
                goal = PART * (number + 1)
                wait_for_rows(ledger, goal)
            cluster.storm("kill", "ledger", "-w", "0")
            cluster.wait_gone("ledger", LIMIT_SECS)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(disk)], check=True)
    written = rows(ledger)
    totals = Counter(keys)
    expected = Counter((key, at) for key in totals for at in range(1, totals[key] + 1))
    with nothing_lost():
        assert Counter(number for _, _, number in written) == Counter(range(messages))
        assert Counter((key, count) for key, count, _ in written) == expected


ROWS = "".join(f'{{"key":"k{number % 50}","number":{number}}}\n' for number in range(500))


@contextlib.contextmanager
def ledger_with_rows(folder: Path) -> Iterator[DevCluster]:
    """A cluster whose ledger has written `ROWS`, of 50 keys, and takes checkpoints."""
    (folder / "0.jsonl").write_text(ROWS)
    package = folder / "package"
    package.mkdir()
    (package / "ledger.py").write_text(TOPOLOGY)
    with DevCluster.start(folder / "cluster", supervisors=1, slots=3) as cluster:
        cluster.storm("jar", package, "ledger.py", folder)
        wait_for_rows(folder / "ledger.db", 500)
        yield cluster


def test_the_worker_that_cannot_write_is_named(tmp_path: Path) -> None:
    """It is not the one that coordinates the checkpoints, which can, and does not know why."""
    with ledger_with_rows(tmp_path) as cluster:
        (topology,) = cluster.call("getTopologySummaries")

        def report() -> Any:
            return cluster.call("getTopologyPageInfo", topology.id, "600", False).checkpoints

        def sizes() -> tuple[int | None, int | None]:
            page = cluster.call("getTopologyPageInfo", topology.id, "600", False)
            common = page.id_to_bolt_agg_stats["count"].common_stats
            return common.state_keys, common.state_bytes

        wait_for("the size of the state", lambda: sizes()[0] == 50 and sizes()[1], LIMIT_SECS, 0.2)
        executors = cluster.call("getTopologyInfo", topology.id).executors
        executors.sort(key=lambda one: one.executor_info.task_start)
        counts = [one for one in executors if one.component_id == "count"]
        index, other = next(
            (index, f"{one.host}:{one.port}")
            for index, one in enumerate(counts)
            if one.port != executors[0].port
        )
        folder = tmp_path / "checkpoints" / "ledger" / "segments" / "count" / f"{index:05}"
        aside = folder.with_name("aside")
        with contextlib.ExitStack() as while_nothing_writes:
            for pid in cluster.worker_pids(3, LIMIT_SECS):
                while_nothing_writes.enter_context(stopped(pid))
            folder.rename(aside)
            folder.write_text("not a folder")
        (tmp_path / "1.jsonl").write_text(ROWS)  # there is something to write
        failure = wait_for("the failure", lambda: report().failure, LIMIT_SECS, 0.2)
        assert failure.endswith(f"({other})")
        assert f"segments/count/{index:05}" in failure
        status = cluster.storm("status", "ledger").stdout
        assert f"({other})" in next(o for o in status.splitlines() if o.startswith("store "))
        folder.unlink()
        aside.rename(folder)
        wait_for("the failure to be over", lambda: report().failure is None, LIMIT_SECS, 0.2)
        wait_for_rows(tmp_path / "ledger.db", 1_000)
        cluster.kill_all()


def test_a_task_whose_state_is_damaged_is_named_with_what_to_do(tmp_path: Path) -> None:
    """Its worker ends before its first heartbeat, again and again."""
    with ledger_with_rows(tmp_path) as cluster:
        folder = tmp_path / "checkpoints" / "ledger" / "segments" / "count" / "00000"
        with contextlib.ExitStack() as while_nothing_writes:
            pids = cluster.worker_pids(3, LIMIT_SECS)
            for pid in pids:
                while_nothing_writes.enter_context(stopped(pid))
            for segment in folder.iterdir():
                segment.write_bytes(b"damaged")
            os.kill(min(pids), signal.SIGKILL)

        def said() -> re.Match[str] | None:
            return re.search(
                r"component 'count' \(task \d+\) cannot start from checkpoint \d+: the state in "
                r"ledger/segments/count/00000/\S+ is damaged: .*\n\s+restore it from a copy",
                cluster.storm("get-errors", "ledger").stdout,
            )

        wait_for("the error", said, LIMIT_SECS, 0.5)
        status = lambda: cluster.storm("status", "ledger").stdout  # noqa: E731
        wait_for(
            "the finding", lambda: "`storm get-errors ledger` says why" in status(), LIMIT_SECS
        )
        cluster.kill_all()
