"""The other subjects of the benchmark: what they make of what was measured."""

import json

import pytest
from bench import checkpoints, encryption, latency, memory, plots, scale, scheduling, spark, trust
from bench.runs import Result

from squall_common.security.curve import CURVE


def test_percentiles_are_of_the_sorted_latencies():
    found = latency.percentiles([float(n) for n in range(1000, -1, -1)])
    assert found == {"p50": 500, "p90": 900, "p99": 990, "p999": 999}


def latency_report(p99, case="one_worker"):
    latencies = [50.0] * 95 + [p99] * 5
    row = latency._summary("one", [latencies], [12.0])
    return {"pairs": 1, "rate": 1000, "cases": {case: row}}


@pytest.mark.parametrize(
    ("case", "p99", "verdict"),
    [
        ("one_worker", 999.0, "yes"),
        ("one_worker", 1001.0, "NO"),
        ("two_workers", 200.0, "yes"),
        ("two_workers", 399.0, "limit"),
        ("two_workers", 401.0, "NO"),
        ("echo", 9_999.0, ""),
    ],
)
def test_both_goals_of_a_latency_have_to_be_met(case, p99, verdict):
    (table,) = latency.tables(latency_report(p99, case))
    assert table.rows[0][-1] == verdict


def scale_row(axis, value, cost):
    return {
        "axis": axis,
        "value": value,
        "cpu_us_a_tuple": cost,
        "millions_a_core_sec": 1 / cost,
        "wall_millions_sec": 1 / cost,
    }


def test_a_steep_step_is_called_a_cliff():
    costs = {10: 1.0, 30: 1.9, 100: 4.0}
    rows = {f"tasks_{n}": scale_row("tasks", n, cost) for n, cost in costs.items()}
    (table,) = scale.tables({"pairs": 1, "cases": rows})
    assert [row[2] for row in table.rows] == ["", "1.90x", "2.11x CLIFF"]


def test_larger_tuples_may_cost_more():
    rows = {f"bytes_{n}": scale_row("bytes", n, n) for n in (1, 10)}
    (table,) = scale.tables({"pairs": 1, "cases": rows})
    assert [row[2] for row in table.rows] == ["", "10.00x"]


def test_what_scales_is_judged_by_its_cost_or_by_a_ratio():
    costs = {1: 0.5, 2: 0.7, 4: 0.7, 8: 0.81}
    rows = {f"workers_{n}": scale_row("workers", n, cost) for n, cost in costs.items()}
    (table,) = scale.tables({"pairs": 1, "cases": rows})
    assert [row[-3:] for row in table.rows] == [
        ["", "", ""],
        ["1.25x of 1", "1.5x of 1", "limit"],  # 1.4x
        ["", "", ""],
        ["0.6 us", "0.8 us", "NO"],
    ]
    (alone,) = scale.tables({"pairs": 1, "cases": {"workers_2": rows["workers_2"]}})
    assert alone.rows[0][-1] == ""  # with what it is compared was not measured


def test_counts_of_all_tasks_are_added_up(tmp_path):
    for task, sent in ((1, 5), (2, 7)):
        counts = {"sent": sent, "acked": sent, "failed": 0}
        (tmp_path / f"source-{task}.json").write_text(json.dumps(counts))
    (tmp_path / "stuck-3.json").write_text('{"taken": 11}')
    (tmp_path / "stuck").touch()
    assert memory.totals(tmp_path) == {"sent": 12, "acked": 12, "failed": 0, "taken": 11}


def test_plots_are_drawn_and_the_same_again(tmp_path):
    pytest.importorskip("matplotlib")
    report = latency_report(99.0)
    first = plots.draw("latency", report, tmp_path).read_bytes()
    assert plots.draw("latency", report, tmp_path).read_bytes() == first
    assert plots.draw("no such subject", report, tmp_path) is None


def test_the_cost_of_encryption_is_measured_in_pairs(monkeypatch):
    """Each case stands beside itself without; a part of them, too."""

    def measured(cases, pairs, lines, rounds):
        rows = {
            case.name: {
                "title": case.title,
                "cpu_us_all": [2.0, 4.0] if case.conf[CURVE] is True else [1.0, 1.0],
                "cpu_us_a_tuple": 3.0 if case.conf[CURVE] is True else 1.0,
                "wall_millions_sec": 1.0,
            }
            for case in cases
        }
        return {"pairs": pairs, "cases": rows}

    monkeypatch.setattr(encryption, "measure", measured)
    report = encryption.take(2, {"bytes_100_encrypted"})
    assert list(report["cases"]) == ["bytes_100", "bytes_100_encrypted", "bytes_100_ring"]
    (table,) = encryption.tables(report)
    assert table.rows[0][1:4] == ["1.00", "3.00: 3.00x (2.00-4.00)", "1.00: 1.00x (1.00-1.00)"]
    assert len(encryption.tables(encryption.take(1))[0].rows) == 4


def test_a_scheduling_round_is_timed_and_judged_at_a_thousand_supervisors(monkeypatch):
    small = [scheduling.Case("supervisors_5", 5)]
    monkeypatch.setattr(scheduling, "cases", lambda: small)
    report = scheduling.take(1)
    assert report["cases"]["supervisors_5"].keys() == {
        "supervisors", "new_ms", "unchanged_ms", "lost_ms", "whole_ms", "whole_unchanged_ms",
    }  # fmt: skip
    row = {"supervisors": 1_000, "new_ms": 799.0, "unchanged_ms": 31.0, "lost_ms": 5.0}
    (table,) = scheduling.tables({"pairs": 1, "cases": {"one": row}})
    assert table.rows[0][-1] == "limit and NO"
    (table,) = scheduling.tables({"pairs": 1, "cases": {"one": {**row, "whole_ms": 2_001.0}}})
    assert table.rows[0][-1] == "limit and NO and NO"


def test_trust_is_measured_and_judged_by_its_goals(monkeypatch):
    monkeypatch.setattr(trust, "TOPOLOGIES", 2_000)
    monkeypatch.setattr(trust, "LISTED", 1_000)
    report = trust.take(2, {"decision", "list"})
    assert {len(row["all"]) for row in report["cases"].values()} == {2}
    assert all(row["value"] > 0 for row in report["cases"].values())
    row = {"title": "a", "unit": "ms", "goal": 5.0, "value": 6.0, "all": [4.0, 6.0, 7.0]}
    (table,) = trust.tables({"pairs": 3, "cases": {"one": row, "two": {**row, "value": 5.0}}})
    assert table.rows[0] == ["a", "6.00 ms", "4.00-7.00", "5.00 ms", "NO"]
    assert table.rows[1][-1] == "yes"
    names = [case.name for case in trust.cases()]
    assert len(names) == len(set(names)) == 11


def test_spark_is_compared_within_a_round_and_judged_by_its_goal():
    rounds = {
        "loops": [(4.0, 2.0), (8.0, 4.0), (4.0, 2.0)],
        "topology": [(3.0, 1.7), (6.0, 3.8), (3.0, 1.7)],  # 0.85x, 0.95x, 0.85x of the time
        "tasks_few": [(1.0, 1.0)],
        "tasks_many": [(1.3, 1.0)],
    }
    rows = {c.name: spark._row(c, rounds) for c in spark.cases() if c.name in rounds}
    assert rows["topology"]["wall_ratio"] == 0.85
    (table,) = spark.tables({"pairs": 3, "sentences": 1000, "cases": rows})
    assert [row[4:] for row in table.rows] == [
        ["", "", "", ""],
        ["0.75x", "0.85x", "time 0.9x", "yes"],
        ["", "", "", ""],
        ["1.30x", "1.00x", "CPU 1.2x", "NO"],
    ]


def test_each_case_of_spark_stands_beside_one_that_is_measured_too():
    names = {case.name for case in spark.cases()}
    assert {case.beside for case in spark.cases()} - {""} < names


def test_checkpoints_are_compared_in_pairs_and_judged_by_cpu_and_time():
    cases = {case.name: case for case in checkpoints.cases()}
    without = [Result(2.0, 2.0), Result(2.0, 2.0), Result(4.0, 4.0)]
    beside = [
        Result(2.2, 2.0, checkpoint_secs=[0.1] * 3),
        Result(2.0, 2.5, checkpoint_secs=[0.1] * 2),
        Result(4.4, 5.0, checkpoint_secs=[0.1] * 4),
    ]
    row = checkpoints._row(cases["keys"], list(zip(without, beside, strict=True)))
    slow = [Result(1.0, 1.0, checkpoint_secs=[0.2] * 99 + [3.0])]
    late = checkpoints._row(cases["backpressure"], slow)
    timed = checkpoints._row(cases["recovery"], [2.6, 1.0, 1.0])
    costs, times = checkpoints.tables(
        {"pairs": 3, "interval": 1, "cases": {"keys": row, "late": late, "timed": timed}}
    )
    (shown,) = costs.rows
    assert shown[3:6] == ["1.10x (1.00-1.10)", "1.25x (1.00-1.25)", "2"]
    assert shown[-1] == "NO"  # by time, over 1.2
    assert [(row[1], row[-1]) for row in times.rows] == [("200 ms", "yes"), ("2,600 ms", "limit")]
