"""The report in three sentences."""

from __future__ import annotations

from typing import Any

import pytest

from squall_spark.report.verdict import duration, verdict


def component(kind: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": kind, "emitted": 0, "acked": 0, "failed": 0, "capacity_peak": None,
        "latency_ms": {"complete": {"p99": None}}, **more,
    }  # fmt: skip


def report(**more: Any) -> dict[str, Any]:
    spout = component(
        "spout", emitted=360_000, acked=350_000, latency_ms={"complete": {"p99": 210.0}}
    )
    return {
        "from_ms": 0, "to_ms": 3_600_000,
        "components": {"lines": spout, "count": component("bolt", capacity_peak=0.42)},
        "advice": [], "recoveries": [], "errors": [], "hot_keys": [], "missing": [], **more,
    }  # fmt: skip


def test_a_healthy_topology() -> None:
    assert verdict(report()) == [
        "In 60 minutes, lines emitted 360k tuples, 100 a second; 99 % of them were complete within "
        "210 ms, and none failed.",
        "No bolt is near its limit: the busiest, count, is busy 42% of the time at peak.",
        "No worker exited unexpectedly, no error was reported, and no key is hot.",
    ]


def test_a_topology_in_trouble() -> None:
    made = report(
        advice=[
            {"component": "count", "now": 2, "recommended": 4},
            {"component": "lines", "now": 1, "recommended": 1},
            {"component": "", "now": 1, "recommended": 2},
        ],
        recoveries=[{"secs": 4.0}, {"secs": None}],
        errors=[{"component": "count", "count": 3}],
        hot_keys=[{"top": [{"hot": True, "share": 0.6}, {"hot": False, "share": 0.1}]}],
        missing=[{}],
    )
    made["components"]["lines"]["failed"] = 50_000
    made["components"]["count"]["capacity_peak"] = 0.93
    did, limit, trouble = verdict(made)
    assert did.endswith("and 50k failed (12.5 %).")
    assert limit == (
        "count limits it: its executors are busy 93% of the time at peak; recommended parallelism: "
        "count 2 to 4, workers 1 to 2."
    )
    assert trouble == (
        "Worth a look: 2 workers exited unexpectedly, and ran again within 4 s (1 did not run "
        "again); 3 errors, most of them in count; 1 hot key, the largest with 60 % of its stream; "
        "1 part of the history missing."
    )


@pytest.mark.parametrize(
    ("peak", "sentence"),
    [
        (0.12, "No bolt is near its limit: of the busiest, count, 12% of its 100 calls are"),
        (0.93, "count limits it: 93% of its 100 calls are"),
    ],
)
def test_a_bolt_that_waits_in_calls(peak: float, sentence: str) -> None:
    made = report()
    made["components"]["count"].update(capacity_peak=peak, calls_max=100)
    assert verdict(made)[1] == f"{sentence} under way at peak."


def test_an_unacked_topology_and_one_without_spouts() -> None:
    made = report()
    made["components"]["lines"] |= {"acked": 0, "latency_ms": {"complete": {"p99": None}}}
    assert verdict(made)[0] == "In 60 minutes, lines emitted 360k tuples, 100 a second."
    assert verdict(report(components={}))[0] == "No spout has a history in this time."


@pytest.mark.parametrize(
    ("secs", "text"),
    [(3.14, "3.1 s"), (119, "119 s"), (600, "10 minutes"), (7200, "2 hours"), (200_000, "2 days")],
)
def test_durations(secs: float, text: str) -> None:
    assert duration(secs) == text
