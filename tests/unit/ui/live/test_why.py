"""What holds a topology up, each cause by itself."""

from __future__ import annotations

from typing import Any

import pytest

from squall_ui.live.why import ComponentFacts, Facts, Severity, findings, trend_of


def spout(**changes: Any) -> ComponentFacts:
    fields: dict[str, Any] = {
        "name": "orders", "is_spout": True, "executors": 2, "reporting": 2, "emitted": 100.0,
        "acked": 100.0, "complete_ms": 20.0, **changes,
    }  # fmt: skip
    return ComponentFacts(**fields)


def bolt(**changes: Any) -> ComponentFacts:
    fields: dict[str, Any] = {
        "name": "enrich", "is_spout": False, "executors": 2, "reporting": 2, "executed": 100.0,
        "acked": 100.0, "execute_ms": 2.0, "busy": 0.1, "busy_mean": 0.1,
        "busiest": "task 3 on node1:6700", **changes,
    }  # fmt: skip
    return ComponentFacts(**fields)


def topology(*components: ComponentFacts, **changes: Any) -> Facts:
    fields: dict[str, Any] = {
        "status": "ACTIVE", "health": "ok", "uptime_secs": 1000,
        "components": components or (spout(), bolt()), **changes,
    }  # fmt: skip
    return Facts(**fields)


def test_a_healthy_topology_has_no_findings() -> None:
    assert findings(topology()) == []


@pytest.mark.parametrize(
    ("facts", "kind", "part"),
    [
        (topology(status="INACTIVE"), "status", "Activate it"),
        (topology(status="KILLED", health=""), "status", "being killed"),
        (topology(status="REBALANCING"), "status", "rebalanced"),
        (topology(health="no supervisor"), "health", "storm supervisor"),
        (
            topology(health="no free slot", schedule="3 of 9 executors have a slot"),
            "health", "3 of 9 executors have a slot",
        ),
        (topology(health="waiting for blobs"), "health", "downloading"),
        (topology(health="package refused"), "health", "package"),
        (
            topology(health="crash loop", exit_reason="signal 9", exit_line="MemoryError"),
            "health", "signal 9. Its last words: MemoryError",
        ),
        (topology(spout(emitted=0.0), bolt(executed=0.0)), "idle", "nothing to read"),
        (topology(spout(emitted=0.0), bolt()), "idle", "enrich still work"),
        (
            topology(spout(emitted=0.0), bolt(executed=0.0), pending_max=200),
            "idle", "200 messages are in flight",
        ),
    ],
)  # fmt: skip
def test_why_nothing_moves(facts: Facts, kind: str, part: str) -> None:
    found = findings(facts)[0]
    assert (found.kind, found.severity) == (kind, Severity.STOPPED)
    assert part in found.text


@pytest.mark.parametrize(
    ("components", "kind", "named", "part"),
    [
        ((spout(), bolt(busy=0.95, busy_mean=0.9)), "slow bolt", "enrich", "95%"),
        ((spout(), bolt(busy=0.95, busy_mean=0.5)), "skew", "enrich", "task 3 on node1:6700"),
        ((spout(blocked={"enrich": 0.7}), bolt()), "blocked", "orders", "70% of the time"),
        ((spout(failed=50.0), bolt()), "failing", "orders", "33% of the messages"),
        ((spout(failed=50.0, complete_ms=29_000), bolt()), "failing", "orders", "time out"),
    ],
)
def test_why_it_is_slow(
    components: tuple[ComponentFacts, ...], kind: str, named: str, part: str
) -> None:
    (found,) = findings(topology(*components))
    assert (found.kind, found.severity, found.component) == (kind, Severity.SLOW, named)
    assert part in found.text


def test_what_is_nearly_full_is_a_note() -> None:
    (found,) = findings(topology(spout(), bolt(busy=0.7, busy_mean=0.65, busy_before=0.3)))
    assert (found.severity, found.trend) == (Severity.NOTE, "rising")


def test_an_error_counts_while_it_is_recent() -> None:
    (found,) = findings(topology(spout(), bolt(error="ValueError: no", error_age_secs=20)))
    assert (found.kind, found.text) == ("error", "20 s ago: ValueError: no")
    assert not findings(topology(spout(), bolt(error="ValueError: no", error_age_secs=301)))


def test_a_restart_is_a_note_unless_it_is_a_crash_loop() -> None:
    exit_ = {"exit_reason": "signal 9 (node1:6700)", "exit_age_secs": 130, "restarts": 2}
    (found,) = findings(topology(**exit_))
    assert "2 min ago a worker ended: signal 9 (node1:6700)" in found.text
    assert "the 2nd within a day" in found.text
    assert [one.kind for one in findings(topology(health="crash loop", **exit_))] == ["health"]


def test_silent_executors_are_named_once_the_topology_is_up() -> None:
    silent = bolt(reporting=1)
    assert [one.kind for one in findings(topology(spout(), silent))] == ["silent"]
    assert findings(topology(spout(), silent, uptime_secs=5)) == []


def test_the_worst_comes_first() -> None:
    facts = topology(spout(emitted=0.0), bolt(busy=0.9, busy_mean=0.9, error="x", error_age_secs=1))
    assert [one.severity for one in findings(facts)] == sorted(
        one.severity for one in findings(facts)
    )


@pytest.mark.parametrize(
    ("before", "now", "trend"),
    [(None, 0.9, ""), (0.5, 0.9, "rising"), (0.9, 0.5, "falling"), (0.85, 0.9, "steady")],
)
def test_trends(before: float | None, now: float, trend: str) -> None:
    assert trend_of(before, now) == trend
