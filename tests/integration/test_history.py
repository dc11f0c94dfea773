"""The history that workers and daemons write, on a real cluster, through its files."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import ROOT, DevCluster, wait_for
from tests.support.live_files import found

pyarrow = pytest.importorskip("pyarrow")

pytestmark = pytest.mark.integration

SKEWED = ROOT / "tests" / "topologies" / "history"
COUNT = 2_000
CONF = {
    "topology.history.enable": True,
    "topology.history.interval.secs": 0.5,
    "topology.history.rotation.secs": 1,
    "topology.history.key.sampling.rate": 0.2,
}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """All rows of all topologies. A file that cannot be read fails the test: there are only whole
    ones."""
    from squall_common.history.schema import from_parquet

    rows: list[dict[str, Any]] = []
    for path in found(folder, "*.parquet"):
        if not path.name.startswith("."):
            rows += from_parquet(path.read_bytes(), str(path)).to_pylist()
    return rows


def counts(rows: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    """(component, what) -> how often."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if row["kind"] == "count":
            found[row["component"], row["name"]] += row["n"]
        elif row["kind"] == "error":
            found[row["component"], "error"] += row["n"]
    return found


def events(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    found = [row for row in rows if row["kind"] == "event"]
    return [(row["name"], row["text"]) for row in sorted(found, key=lambda row: row["at_ms"])]


def told_by(out: Path) -> str:
    """What the source has written of its acks and fails."""
    return (out / "keys").read_text() if (out / "keys").exists() else ""


def submit(cluster: DevCluster, folder: Path, name: str = "skewed", **conf: Any) -> None:
    cluster.storm(
        "jar", SKEWED, "skewed.py", name, str(folder), str(COUNT), json.dumps({**CONF, **conf})
    )


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster.start(tmp_path_factory.mktemp("history"), slots=1) as cluster:
        yield cluster


@pytest.fixture
def _nothing_stays(cluster: DevCluster) -> Iterator[None]:
    yield
    cluster.kill_all()
    shutil.rmtree(cluster.data_dir / "history", ignore_errors=True)


@pytest.mark.usefixtures("_nothing_stays")
def test_without_the_key_nothing_is_written(cluster: DevCluster, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    submit(cluster, out, **{"topology.history.enable": False})
    wait_for("messages", lambda: told_by(out) not in ("", "0 0"))
    cluster.storm("kill", "skewed", "-w", "0")
    cluster.wait_gone("skewed")
    assert not (cluster.data_dir / "history").exists()


@pytest.mark.usefixtures("_nothing_stays")
def test_a_history_has_every_count_error_and_event(cluster: DevCluster, tmp_path: Path) -> None:
    out, history = tmp_path / "out", cluster.data_dir / "history"
    out.mkdir()
    submit(cluster, out)

    def all_counted() -> bool:
        now = counts(rows_of(history))
        settled = now["keys", "acked"] + now["keys", "failed"]
        return now["slow", "executed"] >= COUNT and settled >= COUNT

    wait_for("all counts", all_counted, 60)
    # A worker that is killed loses what is not written: here nothing.
    (pid,) = cluster.worker_pids(1)
    before = counts(rows_of(history))
    os.kill(pid, signal.SIGKILL)
    wait_for(
        "the next worker's rows",
        lambda: [name for name, _ in events(rows_of(history))].count("worker running") == 2,
        60,
    )
    cluster.storm("kill", "skewed", "-w", "0")
    cluster.wait_gone("skewed")
    # Nimbus and the supervisor write theirs a little later.
    last = {"removed", "worker stopped", "worker exited"}
    wait_for("the last events", lambda: last <= dict(events(rows_of(history))).keys())

    rows = rows_of(history)
    found = counts(rows)
    assert found == before
    assert found["keys", "emitted"] == COUNT
    assert found["keys", "transferred"] == 2 * COUNT
    assert found["keys", "failed"] == COUNT // 10
    assert found["keys", "acked"] == COUNT - COUNT // 10
    assert found["work", "executed"] == found["slow", "executed"] == COUNT
    assert found["flaky", "failed"] == found["flaky", "error"] == COUNT // 10
    assert not [row for row in rows if row["kind"] == "lost"]

    reported = [name for name, _ in events(rows)]
    assert reported[0] == "submitted"
    assert reported.count("worker launched") == 2
    assert reported.count("worker stopped") == 1
    assert ("worker exited", "killed by SIGKILL") in events(rows)
    assert {"assigned", "killed", "removed"} <= set(reported)

    slow = [row for row in rows if row["kind"] == "latency" and row["component"] == "slow"]
    executes = [row for row in slow if row["name"] == "execute"]
    assert sum(row["n"] for row in executes) == COUNT
    assert sum(row["value"] for row in executes) >= COUNT * 0.001
    assert sum(n for row in executes for _, n in row["buckets"]) == COUNT

    sampled = Counter(
        {row["text"]: 0 for row in rows if row["kind"] == "key" and row["component"] == "keys"}
    )
    for row in rows:
        if row["kind"] == "key":
            sampled[row["text"]] += row["n"]
            assert row["name"] == "work by key"
    total = sum(row["n"] for row in rows if row["kind"] == "keys")
    assert COUNT * 0.2 * 0.8 < total < COUNT * 0.2 * 1.2
    assert 0.5 < sampled["hot"] / total < 0.7


def test_a_rebalance_switches_it_on_and_a_requested_restart_is_recorded_as_one(
    tmp_path: Path,
) -> None:
    out, history = tmp_path / "out", tmp_path / "data" / "history"
    out.mkdir()

    def reported() -> list[str]:
        return [name for name, _ in events(rows_of(history))]

    quick = "supervisor.localizer.update.blob.interval.secs=1"
    with DevCluster.start(tmp_path / "data", slots=1, overrides=[quick]) as cluster:
        submit(cluster, out, **{"topology.history.enable": False})
        wait_for("a message", lambda: told_by(out) != "", 60)
        assert reported() == []
        cluster.storm("rebalance", "skewed", "-w", "0", "-t", '{"topology.history.enable": true}')
        wait_for("a worker with a history", lambda: reported().count("worker running") == 1, 60)
        cluster.storm("profile", "skewed", "--restart")
        wait_for("the next worker", lambda: reported().count("worker running") == 2, 60)
        cluster.storm("kill", "skewed", "-w", "0")
        cluster.wait_gone("skewed")
        wait_for("the last event", lambda: "removed" in reported())
    assert reported().count("worker restart asked for") == 1
    assert {"rebalanced", "worker exited", "worker launched", "killed"} <= set(reported())


def test_a_folder_that_cannot_be_written_does_not_hurt_a_topology(tmp_path: Path) -> None:
    """A file stands where the folder should be (root may write into any folder)."""
    out, place = tmp_path / "out", tmp_path / "history"
    out.mkdir()
    place.write_text("not a folder")
    with DevCluster.start(
        tmp_path / "data", slots=1, overrides=[f"storm.history.dir={place}"]
    ) as cluster:
        submit(cluster, out)
        done = f"{COUNT - COUNT // 10} {COUNT // 10}"
        wait_for("all messages", lambda: told_by(out) == done, 60)
        wait_for(
            "the error where a topology's errors are shown",
            lambda: "history cannot be written" in cluster.storm("get-errors", "skewed").stdout,
        )
        # What waited is written as soon as it can be.
        place.unlink()
        wait_for(
            "what waited",
            lambda: counts(rows_of(place))["slow", "executed"] == COUNT,
            90,
        )
        cluster.storm("kill", "skewed", "-w", "0")
        cluster.wait_gone("skewed")
