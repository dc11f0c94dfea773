"""From a report to the rebalance that it recommends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from squall_common.history.recommendation import (
    Change,
    Component,
    Recommendation,
    RecommendationError,
    read_report,
    recommendation_of,
)

RUNNING = {"lines": Component(1, 1), "split": Component(2, 4), "__acker": Component(1, 1)}


def report(*advice: tuple[str, int, bool], topology: str = "words-1-1") -> dict[str, Any]:
    return {
        "format": 1,
        "topology": {"id": topology},
        "to_ms": 1_000_000,
        "advice": [
            {"component": name, "recommended": n, "why": "busy", "enough": enough}
            for name, n, enough in advice
        ],
    }


def advised(found: dict[str, Any], *, now_secs: float = 1_010.0, force: bool = False) -> Any:
    return recommendation_of(
        found, topology_id="words-1-1", running=RUNNING, workers=2, now_secs=now_secs, force=force
    )


def test_a_component_gets_at_most_as_many_executors_as_tasks_and_workers_never_fewer() -> None:
    found = advised(
        report(("split", 9, True), ("lines", 1, True), ("", 1, True), ("gone", 3, True))
    )
    assert found == Recommendation([Change("split", 2, 4, "busy")], [])
    assert advised(report(("", 3, True))).changes == [Change("", 2, 3, "busy")]


def test_components_with_too_little_data_are_named() -> None:
    assert advised(report(("split", 2, False), ("", 2, True))).unjudged == ["lines", "split"]


def test_a_report_on_another_topology_or_an_old_one_is_refused() -> None:
    with pytest.raises(RecommendationError, match="about other-2-2, but words-1-1 is running"):
        advised(report(topology="other-2-2"))
    with pytest.raises(RecommendationError, match=r"ends 2\.0 hours ago"):
        advised(report(), now_secs=1_000 + 7_200)
    assert advised(report(), now_secs=1_000 + 7_200, force=True).changes == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", "x.json is not JSON"),
        (b"[]", "not a report"),
        (b"[" * 100_000, "x.json is not JSON"),
        (b'{"advice": [], "format": 2}', "another version of squall"),
    ],
)
def test_what_is_not_a_report_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(RecommendationError, match=said):
        read_report(text, "x.json")


@pytest.mark.parametrize("change", [{"to_ms": float("nan")}, {"topology": 1}, {"advice": [1]}])
def test_a_damaged_report_is_refused(change: dict[str, Any]) -> None:
    damaged = read_report(json.dumps({**report(), **change}).encode(), "x.json")
    with pytest.raises(RecommendationError, match="the report is damaged"):
        advised(damaged)
