"""The sums of a history by pyarrow, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.history_rows import (
    BEGIN_MS,
    ID,
    NOW,
    put,
    rows,
    rows_with_a_task_away,
    rows_with_keys_left_out,
)

from squall_common.errors import SquallError
from squall_common.history.schema import Row, to_parquet
from squall_common.history.writer import file_name
from squall_common.names import encode_znode
from squall_spark.report.analyse import analyse
from squall_spark.report.choose import HistoryNotFoundError, choose
from squall_spark.report.here import gather_here
from squall_spark.report.sums import Sums


def gathered(folder: str, since: float | None = None) -> Sums:
    return gather_here(choose(folder, ID, since), since, now=NOW)


def test_the_sums_of_known_rows_are_right(tmp_path: Path) -> None:
    put(str(tmp_path), rows())
    (tmp_path / encode_znode(ID) / ".x.parquet.half").write_bytes(b"half a file")
    sums = gathered(str(tmp_path))
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

    assert {one.polls for one in sums.workers.values()} == {True, False}

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


def test_a_key_that_workers_left_out_is_within_the_error(tmp_path: Path) -> None:
    put(str(tmp_path), rows_with_keys_left_out())
    (keys,) = gathered(str(tmp_path)).keys
    assert (keys.samples, keys.error) == (85, 19 + 9)
    told = {key: n for key, n, _ in keys.top}
    assert all(told[key] + keys.error >= n for key, n in {"a": 29, "b": 27, "c": 29}.items())


def test_throughput_counts_only_tasks_that_ran(tmp_path: Path) -> None:
    put(str(tmp_path), rows_with_a_task_away())
    report = analyse(gathered(str(tmp_path)), topology_id=ID)
    per_sec = [round(n) for n in report["components"]["work"]["over_time"]["per_sec"] if n]
    half = len(per_sec) // 2
    assert per_sec == [200] * (len(per_sec) - half) + [100] * half


def test_rows_before_since_and_from_the_future_are_left_out(tmp_path: Path) -> None:
    future = Row(int(NOW * 1000) + 86_400_000, "count", "emitted", "src", 1, 1, "default", 10, 9)
    put(str(tmp_path), [*rows(), future])
    sums = gathered(str(tmp_path), NOW - 100)
    assert sums.ahead == 1
    assert sum(task.emitted for task in sums.tasks) == 11_000
    with pytest.raises(HistoryNotFoundError, match="has written nothing since"):
        gathered(str(tmp_path), NOW + 1e-3)


def test_unreadable_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / encode_znode(ID)
    place.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr("squall_common.history.schema.VERSION", "999")
        other = to_parquet(rows()[:5], worker="h", incarnation="1")
    (place / file_name(5, "old-1", 1)).write_bytes(other)
    with pytest.raises(SquallError, match=r"old-1-.*another version of squall .* 999"):
        gathered(str(tmp_path))
    put(str(tmp_path), rows())
    whole = next(place.glob("*h%3A1*")).read_bytes()
    (place / file_name(6, "half-1", 1)).write_bytes(whole[: len(whole) // 2])
    sums = gathered(str(tmp_path))
    assert sum(task.emitted for task in sums.tasks) == 60_000
    assert len(sums.unreadable) == 2
    assert any("half-1" in text for text in sums.unreadable)


def test_a_history_that_is_too_large_is_for_spark(tmp_path: Path) -> None:
    put(str(tmp_path), rows())
    with pytest.raises(SquallError, match="is larger than 0 MiB") as caught:
        gather_here(choose(str(tmp_path), ID, None), None, now=NOW, bytes_max=1000)
    assert "storm spark report" in (caught.value.hint or "")


def test_a_bolt_that_waits_in_calls_is_judged_by_their_limit(tmp_path: Path) -> None:
    """Its two tasks may have ten calls under way each."""
    written = [
        row._replace(n=10) if (row.kind, row.name) == ("gauge", "receive") else row
        for row in rows()
    ]
    put(str(tmp_path), written)
    work = analyse(gathered(str(tmp_path)), topology_id=ID)["components"]["work"]
    assert work["calls_max"] == 20
    assert work["capacity"] == pytest.approx((216 + 24) / 600 / 20)
    assert work["hottest"] == pytest.approx(216 / 600 / 10)
