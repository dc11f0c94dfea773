"""The report of a history: its job on Spark over rows that are known, and the command on a real
cluster whose figures are known, one of whose workers is killed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import ROOT, DevCluster, storm, wait_for

from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError
from squall_common.history.histogram import bucket_of
from squall_common.history.schema import Row, to_parquet
from squall_common.history.writer import file_name
from squall_common.names import encode_znode
from squall_spark.report.analyse import analyse
from squall_spark.report.choose import HistoryNotFoundError, choose
from squall_spark.report.gather import gather
from squall_spark.report.sums import Sums

pytestmark = pytest.mark.timeout(400)  # Spark compiles the first time

NOW = 1_800_000_000.0
BEGIN_MS = int(NOW * 1000) - 600_000
ID = "we{ird}*name-3-1700000000"


def rows() -> list[Row]:
    """Sixty intervals of ten seconds: a spout, and a bolt of two tasks on one executor, which moves
    to an executor each half way; one task has nine tenths of the work."""
    found: list[Row] = []
    for i in range(1, 61):
        at = BEGIN_MS + 10_000 * i
        found += [
            Row(at, "gauge", "pending", "src", 1, 1, secs=10, value=i),
            Row(at, "count", "emitted", "src", 1, 1, "default", 10, 1000),
            Row(at, "count", "failed", "src", 1, 1, "default", 10, 10),
            Row(at, "latency", "complete", "src", 1, 1, "default", 10, 990, 99.0,
                buckets={bucket_of(0.1): 980, bucket_of(5.0): 10}),
            Row(at, "worker", "cpu_secs", secs=10, value=5.0),
            Row(at, "worker", "rss_bytes", secs=10, value=float(i)),
            Row(at, "keys", "work by k", "src", stream="default", secs=10, n=100, value=0.1),
            Row(at, "key", "work by k", "src", 2, stream="default", secs=10, n=90, text="hot"),
            Row(at, "key", "work by k", "src", 3, stream="default", secs=10, n=10, text="cold"),
            Row(at, "metric", "odd", "work", 2, secs=10, value=2.0),
        ]  # fmt: skip
        for task, n in ((2, 900), (3, 100)):
            executor = 2 if i <= 30 else task
            found += [
                Row(at, "gauge", "receive", "work", task, executor, secs=10, value=3),
                Row(at, "count", "executed", "work", task, executor, "src:default", 10, n),
                Row(at, "count", "executed", "work", task, executor, "__system:__tick", 10, 1),
                Row(at, "count", "acked", "work", task, executor, "src:default", 10, n - 1),
                Row(at, "count", "acked", "work", task, executor, "__system:__tick", 10, 1),
                Row(at, "count", "failed", "work", task, executor, "src:default", 10, 1),
                Row(at, "latency", "execute", "work", task, executor, "src:default", 10, n,
                    n * 0.004, buckets={bucket_of(0.004): n}),
            ]  # fmt: skip
    at = BEGIN_MS + 300_000
    found += [
        Row(at, "event", "worker exited", stream="h:1", text="killed by SIGKILL"),
        Row(at + 4_000, "event", "worker running", stream="h:1"),
        Row(at, "error", component="work", task=2, n=5, text="Traceback\n  x\nValueError: a"),
        Row(at + 1, "error", component="work", task=2, n=2, text="Traceback\n  y\nValueError: a"),
        Row(at, "lost", "queue full", n=4),
    ]
    return found


def put(folder: str, written: Sequence[Row], *, name: str = ID, at: float = NOW) -> None:
    """Several files, as several writers make them."""
    place = Folder(folder) / encode_znode(name)
    for number in range(3):
        data = to_parquet(written[number::3], worker="h:1", incarnation="1.1")
        place.write(file_name(int(at * 1000) + number, "h:1-1.1", number), data)


def gathered(spark: Any, folder: str, since: float | None = None) -> Sums:
    return gather(spark, choose(folder, ID, since), since, now=NOW)


def test_the_sums_of_known_rows_are_right(spark: Any, tmp_path: Path) -> None:
    put(str(tmp_path), rows())
    (tmp_path / encode_znode(ID) / ".x.parquet.half").write_bytes(b"half a file")
    sums = gathered(spark, str(tmp_path))
    assert (sums.from_ms, sums.to_ms) == (BEGIN_MS, BEGIN_MS + 600_000)
    tasks = {task.task: task for task in sums.tasks}
    assert (tasks[1].emitted, tasks[1].failed, tasks[1].spout) == (60_000, 600, True)
    assert (tasks[2].executed, tasks[3].executed) == (54_000, 6_000), "ticks are no throughput"
    assert (tasks[2].acked, tasks[2].failed) == (54_000 - 60, 60)
    assert tasks[2].busy_secs == pytest.approx(216)
    assert tasks[2].secs == pytest.approx(600)
    assert sums.lost == {"queue full": 4}
    assert not sums.unreadable
    assert [(e.message, e.n) for e in sums.errors] == [("ValueError: a", 7)]
    assert [(m.name, m.total) for m in sums.metrics] == [("odd", 120.0)]
    (keys,) = sums.keys
    assert (keys.samples, keys.top) == (6_000, [("hot", 5_400, 2), ("cold", 600, 3)])

    report = analyse(sums, topology_id=ID)
    work = report["components"]["work"]
    assert (work["executors"], work["tasks"]) == (2, 2), "those of the end"
    assert work["skew"]["ratio"] == pytest.approx(1.8)
    assert work["capacity"] == pytest.approx((216 + 24) / 600 / 2)
    src = report["components"]["src"]
    assert src["latency_ms"]["complete"]["p50"] == pytest.approx(100, rel=0.05)
    assert src["latency_ms"]["complete"]["p99"] == pytest.approx(5000, rel=0.05)
    whole = [n for n in src["over_time"]["per_sec"] if n]
    assert whole == pytest.approx([100.0] * len(whole))
    assert report["workers"]["now"] == 1
    assert report["workers"]["cores"] == pytest.approx([0.5] * len(report["workers"]["cores"]))
    assert [one["secs"] for one in report["recoveries"]] == [4.0]


def test_a_key_that_workers_left_out_is_within_the_error(spark: Any, tmp_path: Path) -> None:
    """Two workers tell two keys of three: "c" has 29 samples, of which 10 are told."""
    written: list[Row] = []
    for at, keys in ((1_000, {"a": 20, "b": 19, "c": 19}), (11_000, {"a": 9, "b": 8, "c": 10})):
        top = sorted(keys.items(), key=lambda item: -item[1])[:2]
        where = {"component": "src", "stream": "default", "secs": 10.0}
        written += [
            Row(BEGIN_MS + at, "gauge", "pending", "src", 1, 1, secs=10),
            Row(BEGIN_MS + at, "keys", "work by k", n=sum(keys.values()), value=0.1, **where),
            *(Row(BEGIN_MS + at, "key", "work by k", n=n, text=key, **where) for key, n in top),
        ]
    put(str(tmp_path), written)
    (keys,) = gathered(spark, str(tmp_path)).keys
    assert (keys.samples, keys.error) == (85, 19 + 9)
    told = {key: n for key, n, _ in keys.top}
    assert all(told[key] + keys.error >= n for key, n in {"a": 29, "b": 27, "c": 29}.items())


def test_throughput_counts_only_tasks_that_ran(spark: Any, tmp_path: Path) -> None:
    """Two tasks do 100 tuples a second each; from half time on one is away."""
    put(
        str(tmp_path),
        [
            row
            for i in range(1, 61)
            for task in ((2, 3) if i <= 30 else (2,))
            for row in (
                Row(BEGIN_MS + 10_000 * i, "gauge", "receive", "work", task, task, secs=10),
                Row(BEGIN_MS + 10_000 * i, "count", "executed", "work", task, task, "s", 10, 1000),
            )
        ],
    )
    report = analyse(gathered(spark, str(tmp_path)), topology_id=ID)
    per_sec = [round(n) for n in report["components"]["work"]["over_time"]["per_sec"] if n]
    half = len(per_sec) // 2
    assert per_sec == [200] * (len(per_sec) - half) + [100] * half


def test_rows_before_since_and_from_the_future_are_left_out(spark: Any, tmp_path: Path) -> None:
    future = Row(int(NOW * 1000) + 86_400_000, "count", "emitted", "src", 1, 1, "default", 10, 9)
    put(str(tmp_path), [*rows(), future])
    sums = gathered(spark, str(tmp_path), NOW - 100)
    assert sums.ahead == 1
    assert sum(task.emitted for task in sums.tasks) == 11_000
    with pytest.raises(HistoryNotFoundError, match="has written nothing since"):
        gathered(spark, str(tmp_path), NOW + 1e-3)


def test_unreadable_files_are_named(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / encode_znode(ID)
    place.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr("squall_common.history.schema.VERSION", "999")
        other = to_parquet(rows()[:5], worker="h", incarnation="1")
    (place / file_name(5, "old-1", 1)).write_bytes(other)
    with pytest.raises(SquallError, match=r"old-1-.*another version of squall .* 999"):
        gathered(spark, str(tmp_path))
    put(str(tmp_path), rows())
    whole = next(place.glob("*h%3A1*")).read_bytes()
    (place / file_name(6, "half-1", 1)).write_bytes(whole[: len(whole) // 2])
    sums = gathered(spark, str(tmp_path))
    assert sum(task.emitted for task in sums.tasks) == 60_000
    assert len(sums.unreadable) == 2
    assert any("half-1" in text for text in sums.unreadable)


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
        (["top", "--history", str(tmp_path / "none")], "there is no history folder"),
        (["top", "--history", str(tmp_path)], "no history of a topology 'top'"),
        (["top", "--since", "soon"], "'soon' is not a time"),
        (["top", "--master", "mars"], "'mars' is not a Spark master"),
    ):
        done = storm("spark", "report", *arguments, cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "spark.log").exists()
