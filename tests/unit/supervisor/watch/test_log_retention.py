"""Which logs are deleted, and how."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from squall_common.config.options.typed import SupervisorOptions
from squall_supervisor.settings import RetentionLimits
from squall_supervisor.watch.log_files import clean_up_logs, scan_logs
from squall_supervisor.watch.log_retention import LogEntry, WorkerLogs, plan_removals

MIB = 1024 * 1024
LIMITS = RetentionLimits(every_secs=1, age_secs=100, worker_bytes=50, sum_bytes=100)


def logs(folder: str, *entries: LogEntry, live: bool = False, topology: str = "t-1") -> WorkerLogs:
    newest = max((entry.modified_secs for entry in entries), default=0.0)
    return WorkerLogs(topology, folder, live, newest, entries)


def chosen(found: list[WorkerLogs], now: float = 1000.0) -> list[tuple[str, str | None]]:
    return [
        (one.logs.folder, None if one.entry is None else one.entry.name)
        for one in plan_removals(found, LIMITS, now)
    ]


def test_a_folder_goes_once_nothing_in_it_has_changed_for_the_age():
    old, new = LogEntry("worker.log", 1, 899), LogEntry("worker.log.err", 1, 901)
    assert chosen([logs("6700", old)]) == [("6700", None)]
    assert chosen([logs("6700", old, new)]) == []
    assert chosen([logs("6700", old, live=True)]) == []
    assert chosen([logs("6700")]) == [("6700", None)]  # empty


def test_the_oldest_files_of_a_worker_go_until_the_rest_fits():
    one = logs(
        "6700",
        LogEntry("worker.log", 20, 999),
        LogEntry("worker.log.1", 20, 980),
        LogEntry("worker.log.2", 20, 960),
        LogEntry("worker.log.3", 20, 940),
    )
    assert chosen([one]) == [("6700", "worker.log.3"), ("6700", "worker.log.2")]


def test_files_that_a_living_worker_writes_to_stay():
    names = ["worker.log", "worker.log.out", "worker.log.err", "worker.log.metrics", "events.log"]
    one = logs("6700", *(LogEntry(name, 1000, 999) for name in names), live=True)
    assert chosen([one]) == []
    one = logs("6700", *one.entries, LogEntry("worker.log.1", 1, 999), live=True)
    assert chosen([one]) == [("6700", "worker.log.1")]
    one = logs("6700", LogEntry("users", 1000, 999, is_folder=True), live=True)
    assert chosen([one]) == []


def test_the_oldest_files_of_all_go_until_all_fit():
    found = [
        logs("6700", LogEntry("worker.log.1", 40, 950), LogEntry("worker.log", 5, 990), live=True),
        logs("6701", LogEntry("worker.log", 40, 940), topology="t-2"),
        logs("6702", LogEntry("worker.log", 40, 960), topology="t-2"),
    ]
    assert chosen(found) == [("6701", "worker.log")]


def test_files_deleted_by_one_limit_do_not_count_for_the_other():
    found = [logs(str(port), LogEntry("a", 60, 950), LogEntry("b", 50, 990)) for port in (1, 2)]
    assert chosen(found) == [("1", "a"), ("2", "a")]


def test_storms_keys_and_defaults():
    limits = RetentionLimits.of(SupervisorOptions())
    assert limits == RetentionLimits(600, 7 * 86_400, 2048 * MIB, 4096 * MIB)
    conf = {"logviewer.max.sum.worker.logs.size.mb": 10, "logviewer.cleanup.age.mins": 1}
    assert RetentionLimits.of(SupervisorOptions.read(conf)) == RetentionLimits(
        600, 60, 5 * MIB, 10 * MIB
    )


# ---- On disk ----


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    return tmp_path / "workers-artifacts"


def write(path: Path, age_secs: float, size: int = 10_000) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    for changed in (path, path.parent):
        os.utime(changed, (time.time() - age_secs,) * 2)
    return path


def clean(artifacts: Path, wanted: tuple[tuple[str, int], ...] = (), **limits: float) -> int:
    values = {"every_secs": 1, "age_secs": 3600, "worker_bytes": MIB, "sum_bytes": MIB, **limits}
    return clean_up_logs(
        artifacts,
        artifacts.parent / "workers",
        RetentionLimits(**values),  # type: ignore[arg-type]
        wanted=wanted,
        now_secs=time.time(),
    )


def test_logs_of_an_ended_topology_go_with_its_folder(artifacts: Path) -> None:
    write(artifacts / "old-1" / "6700" / "worker.log", 7200)
    write(artifacts / "old-1" / "6701" / "worker.log", 7200)
    write(artifacts / "new-1" / "6700" / "worker.log", 60)
    write(artifacts / "wanted-1" / "6700" / "worker.log", 7200)
    with write(artifacts / "open-1" / "6700" / "worker.log", 7200).open("ab"):
        assert clean(artifacts, (("wanted-1", 6700),)) == 2
    assert sorted(os.listdir(artifacts)) == ["new-1", "open-1", "wanted-1"]


def test_nothing_outside_is_touched_whatever_a_worker_creates(artifacts: Path) -> None:
    """Its folder is its user's: links, pipes, folders in folders."""
    outside = write(artifacts.parent / "outside" / "file", 7200)
    folder = write(artifacts / "t-1" / "6700" / "worker.log", 7200).parent
    (folder / "link").symlink_to(outside)
    (folder / "folder-link").symlink_to(outside.parent)
    os.mkfifo(folder / "pipe")
    (artifacts / "t-1" / "6701").symlink_to(outside.parent)
    write(folder / "deep" / "er" / "file", 7200)
    for path in (folder / "deep", folder):
        os.utime(path, (0, 0))
    (scanned,) = scan_logs(artifacts, ())
    assert {e.name: e.is_folder for e in scanned.entries}["deep"] is True
    clean(artifacts, age_secs=0.0, worker_bytes=0, sum_bytes=0)
    assert not folder.exists()
    assert outside.exists()
    assert (artifacts / "t-1" / "6701").is_symlink()


def test_sizes_count_on_disk(artifacts: Path) -> None:
    folder = artifacts / "t-1" / "6700"
    for number in range(4):
        write(folder / f"worker.log.{number}", 100 + number, 40_960)
    write(folder / "worker.log", 0, 40_960)
    assert clean(artifacts, (("t-1", 6700),), worker_bytes=100_000) == 3
    assert sorted(os.listdir(folder)) == ["worker.log", "worker.log.0"]
