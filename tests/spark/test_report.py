"""The report of a history: its job on Spark over rows that are known, and the command on a real
cluster whose figures are known, one of whose workers is killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import ROOT, DevCluster, storm, wait_for
from tests.support.history_rows import (
    ID,
    NOW,
    put,
    rows,
    rows_with_a_task_away,
    rows_with_keys_left_out,
)

from squall_common.history.schema import Row
from squall_spark.report.analyse import analyse
from squall_spark.report.choose import choose
from squall_spark.report.gather import gather
from squall_spark.report.here import gather_here
from squall_spark.report.sums import Sums

pytestmark = pytest.mark.timeout(400)  # Spark compiles the first time


def gathered(spark: Any, folder: str) -> Sums:
    return gather(spark, choose(folder, ID, None), None, now=NOW)


def test_spark_gathers_what_this_process_does(spark: Any, tmp_path: Path) -> None:
    for number, written in enumerate(
        ([*rows(), *ahead()], [*rows_with_keys_left_out(), *rows_with_a_task_away()])
    ):
        folder = str(tmp_path / str(number))
        put(folder, written)
        expected = gather_here(choose(folder, ID, None), None, now=NOW)
        assert gathered(spark, folder) == expected


def ahead() -> list[Row]:
    """A row from the future."""
    return [Row(int(NOW * 1000) + 86_400_000, "count", "emitted", "src", 1, 1, "default", 10, 9)]


SKEWED = ROOT / "tests" / "topologies" / "history"
COUNT = 3_000


def rows_of(folder: Path, kind: str, name: str, component: str | None = None) -> int:
    """What rows of this kind and name count in all; those of one component, if it is given."""
    from squall_common.history.schema import from_parquet

    found = 0
    for path in folder.rglob("0*.parquet"):
        table = from_parquet(path.read_bytes(), path.name).to_pylist()
        found += sum(
            row["n"] or 1
            for row in table
            if (row["kind"], row["name"]) == (kind, name) and component in (None, row["component"])
        )
    return found


def test_the_report_of_a_real_topology(spark: Any, tmp_path: Path) -> None:
    out, data = tmp_path / "out", tmp_path / "data"
    history = data / "history"
    out.mkdir()
    conf = {
        "topology.history.enable": True,
        "topology.history.interval.secs": 0.5,
        "topology.history.rotation.secs": 1,
        "topology.history.key.sampling.rate": 0.2,
    }
    name = "skewed-*{x}"
    with DevCluster.start(data, slots=1) as cluster:
        cluster.storm("jar", SKEWED, "skewed.py", name, str(out), str(COUNT), json.dumps(conf))
        (topology,) = cluster.topologies().values()

        # Every tuple counts once in each of `work`, `slow` and `flaky`, and its spout's task learns
        # what became of it a little later. (`acked` and `failed` are counted by bolts, too.)
        def all_counted() -> bool:
            settled = sum(rows_of(history, "count", what, "keys") for what in ("acked", "failed"))
            return rows_of(history, "count", "executed") >= 3 * COUNT and settled >= COUNT

        wait_for("all counts", all_counted, 60)
        (pid,) = cluster.worker_pids(1)
        os.kill(pid, signal.SIGKILL)
        wait_for("the next worker", lambda: rows_of(history, "event", "worker running") == 2, 60)
        # The supervisor writes what it has to say a little later.
        wait_for("the end", lambda: rows_of(history, "event", "worker launched") == 2, 60)
        wait_for("the end", lambda: rows_of(history, "event", "worker exited") == 1, 60)
        report = reported(spark, str(history), name)
        # So short a run needs no other parallelism: what it would change comes from elsewhere.
        json_file = tmp_path / "changes.json"
        advice = [{"component": "slow", "now": 2, "recommended": 4, "limit": 8, "why": "a test"}]
        json_file.write_text(json.dumps({**report, "advice": advice}))
        cluster.storm("rebalance", name, "--from-report", json_file, "--yes", "-w", "0")

        def executors_of_slow() -> int:
            info = cluster.call("getTopologyInfo", topology["id"])
            return [e.component_id for e in info.executors].count("slow")

        wait_for("four executors of slow", lambda: executors_of_slow() == 4)
        cluster.storm("kill", name, "-w", "0")
        cluster.wait_gone(name)

    keys, work, slow, flaky = (report["components"][c] for c in ("keys", "work", "slow", "flaky"))
    assert keys["emitted"] == work["executed"] == slow["executed"] == flaky["executed"] == COUNT
    assert (keys["failed"], keys["acked"]) == (COUNT // 10, COUNT - COUNT // 10)
    assert flaky["failed"] == COUNT // 10
    assert (slow["executors"], slow["tasks"], work["tasks"]) == (2, 8, 4)
    assert slow["latency_ms"]["execute"]["p50"] >= 0.95
    # Six of ten have one key, and so one task; the rest has eighty other keys.
    assert 0.6 <= work["skew"]["top_share"] < 1.0
    assert slow["skew"]["ratio"] < 2.0
    (hot,) = report["hot_keys"]
    assert hot["grouping"] == "work by key"
    assert hot["top"][0]["key"] == "hot"
    assert 0.5 < hot["top"][0]["share"] < 0.7
    assert hot["top"][0]["task"] == work["skew"]["top_task"]
    # A few are told with their message, the others are counted.
    assert {error["component"] for error in report["errors"]} == {"flaky"}
    assert sum(error["count"] for error in report["errors"]) == COUNT // 10
    assert any("<b>tenth</b>" in error["message"] for error in report["errors"])
    (recovery,) = report["recoveries"]
    assert recovery["why"] == "killed by SIGKILL"
    assert 0 < recovery["secs"] < 60
    assert {"submitted", "assigned", "worker launched"} <= {e["event"] for e in report["events"]}

    # As a user makes it, when the cluster is gone.
    json_file, html_file = tmp_path / "r.json", tmp_path / "r.html"
    done = storm(
        "spark", "report", name, "--history", history, "--json", json_file, "--html", html_file,
        "--master", "local[1]", "--log", tmp_path / "spark.log",
        "--spark-conf", "spark.driver.memory=512m", check=True, timeout_secs=300,
    )  # fmt: skip
    again = json.loads(json_file.read_text())
    # The cluster ended meanwhile, in good order.
    assert {event["event"] for event in again["events"]} >= {"rebalanced", "killed", "removed"}
    for component in ("keys", "work", "slow", "flaky"):
        for what in ("emitted", "executed", "acked", "failed"):
            assert again["components"][component][what] == report["components"][component][what]
    html = html_file.read_text()
    assert "&lt;b&gt;tenth&lt;/b&gt;" in html
    assert "<b>tenth" not in html
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert "Recommended parallelism" in done.stdout


def reported(spark: Any, history: str, name: str) -> dict[str, Any]:
    chosen = choose(history, name, None)
    return analyse(gather(spark, chosen, None), topology_id=chosen.topology_id)


def test_missing_inputs_are_reported_before_spark_starts(tmp_path: Path) -> None:
    for arguments, said in (
        (["top", "--history", str(tmp_path)], "no history of a topology 'top'"),
        (["top", "--master", "mars"], "'mars' is not a Spark master"),
    ):
        done = storm("spark", "report", *arguments, cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "spark.log").exists()
